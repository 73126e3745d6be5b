"""A GPT-2 reads line ends, blank lines and spaces as the original does, and writes them."""

import math

import pytest
import torch

from polyhead.convert.conversion import import_model
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.pipelines.step_through import steps
from polyhead.pipelines.text_generator import TextGenerator, stream_text
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.viz.capture import attention_view

hf = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
LINES = ["the film was good", "", "the film was long  and loud", "영화가 좋았다", "", " was it? 🚀"]
END = "<|endoftext|>"
CONTEXT = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny GPT-2 of random weights with bytes and merges, some of them across line ends."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("theirs")
    bpe = tokenizers.ByteLevelBPETokenizer()
    text = "\n".join(LINES)
    bpe.train_from_iterator([text] * 9, 320, 2, show_progress=False, special_tokens=[END])
    assert "ĊĊ" in bpe.get_vocab()
    bpe.save_model(str(path))
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": CONTEXT}
    config = hf.GPT2Config(vocab_size=bpe.get_vocab_size(), initializer_range=0.5, **sizes)
    hf.GPT2LMHeadModel(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def theirs(folder):
    return hf.GPT2TokenizerFast.from_pretrained(folder)


@pytest.fixture(scope="module")
def original(folder):
    return hf.GPT2LMHeadModel.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def writer(folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("ours") / "gpt"
    import_model(str(folder), place)
    return TextGenerator.from_dir(place, device="cpu")


def in_their_numbers(writer, ids):
    return [writer.tokenizer.ids[id] for id in ids]


@pytest.mark.parametrize(
    "prompt",
    [
        "the film\nwas good",
        "the film\n",
        "\nthe film",
        "the film\n\nwas",
        "the film \n\n\n  was\r\ngood",
        "  the  film ",
        " ",
        "\n",
        "\n\n",
        "영화가\n\n 좋았다 🚀🚀\n",
        "<|endoftext|>",
    ],
)
def test_a_prompt_has_the_ids_of_the_original(prompt, writer, theirs):
    expected = theirs(prompt, split_special_tokens=True)["input_ids"]
    assert in_their_numbers(writer, writer.encode(prompt)) == expected
    assert "".join(stream_text(writer.tokenizer, [EOS], writer.encode(prompt))) == prompt
    assert in_their_numbers(writer, writer.encode("")) == [theirs.eos_token_id]


@pytest.mark.parametrize("prompt", ["the film\nwas good", "was it?\n\n", "  영화가 ", "\n"])
def test_greedy_writing_after_line_ends_is_that_of_the_original(prompt, writer, theirs, original):
    asked = theirs(prompt, return_tensors="pt")
    n = CONTEXT - asked["input_ids"].size(1)
    said = original.generate(
        **asked, max_new_tokens=n, do_sample=False, pad_token_id=theirs.eos_token_id,
        eos_token_id=theirs.eos_token_id,
        suppress_tokens=in_their_numbers(writer, [PAD, BOS]),
    )  # fmt: skip
    before = theirs.decode(asked["input_ids"][0])
    expected = theirs.decode(said[0], skip_special_tokens=True).removeprefix(before)
    assert len(expected) > 1
    options = DecodeConfig(max_length=n)
    assert writer.generate(prompt, options=options) == expected.rstrip("\ufffd")


@pytest.mark.parametrize(
    ("prompt", "text", "ends"),
    [
        ("", "\n".join(LINES * 9), False),
        ("", "the film\nwas", True),
        ("", "", True),
        ("the film ", " was good", False),
    ],
)
def test_line_ends_and_spaces_are_written_until_the_end_token(prompt, text, ends, writer):
    ids = [*writer.tokenizer.encode(text)[:-1], *([EOS] * ends)]
    options = DecodeConfig(max_length=len(ids) + 5 * ends)
    found = writer.generate_tokens(prompt, options=options, forced=ids)
    assert found.text == text
    assert [token.id for token in found.tokens] == ids


def test_steps_end_where_the_text_ends(writer):
    film = writer.encode("\nfilm")
    found = steps(writer, "the", forced=[*film, EOS])
    assert found.ended
    assert found.ids == tuple(film)
    assert found.text == "\nfilm"
    assert found.steps[-1].id == EOS
    with pytest.raises(ConfigError, match="ends the output"):
        steps(writer, "the", forced=[EOS, *film])
    other = steps(writer, "the", forced=film, max_tokens=len(film))
    assert not other.ended
    assert other.ids == tuple(film)


def test_the_score_of_several_lines_is_that_of_the_original(writer, theirs, original):
    text = "".join(f"{line}\n" for line in LINES * 2)
    ids = [theirs.eos_token_id, *theirs(text)["input_ids"]]
    total = 0.0
    with torch.inference_mode():
        for start in range(0, len(ids) - 1, CONTEXT):
            window = torch.tensor([ids[start : start + CONTEXT + 1]])
            logits = original(window[:, :-1]).logits.double().log_softmax(-1)
            total -= logits.gather(-1, window[:, 1:, None]).sum().item()
    found = writer.score(LINES * 2)
    assert (found.n_tokens, found.n_characters) == (len(ids) - 1, len(text))
    assert found.n_unknown == 0
    assert found.loss == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert found.bits_per_character == pytest.approx(total / len(text) / math.log(2), rel=1e-5)


def test_attention_shows_line_ends(writer):
    view = attention_view(writer, "the film\nwas good")
    tokens = [token.text for token in view.source.tokens]
    assert "".join(tokens) == "thefilm↵wasgood"
    words = [token.text for token in view.merged().source.tokens]
    assert words == ["the", "film", "↵was", "good"]
