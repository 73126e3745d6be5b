"""`polyhead generate`, and the other commands that a language model is good for."""

import io
import json
import sys

import pytest
from tiny import write_corpus
from tiny_gpt import SMALL, train_gpt

from polyhead.cli.console import describe
from polyhead.cli.main import main
from polyhead.decoding.config import DecodeConfig
from polyhead.pipelines.text_generator import TextGenerator

CPU = ("--device", "cpu")


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Call the command line as a shell would: words and standard input in, everything out."""

    def call(*words, stdin=""):
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return train_gpt(tmp_path_factory.mktemp("writer"), "train.steps=80")


def test_a_prompt_and_what_follows_it(run, model):
    code, out, err = run(
        "generate", model, "--prompt", "오늘은", "--greedy", "--max-tokens", 9, *CPU
    )
    expected = TextGenerator.from_dir(model, device="cpu").generate(
        "오늘은", options=DecodeConfig(max_length=9)
    )
    assert (code, out, err) == (0, f"오늘은{expected}\n", "")


def test_a_prompt_may_be_piped_and_an_empty_one_begins_a_line(run, model):
    words = ("generate", model, "--seed", 3, "--max-tokens", 9, *CPU)
    assert run(*words, stdin="오늘은\n") == run(*words, "--prompt", "오늘은")
    code, out, _ = run(*words)
    assert (code, out[:1].isspace()) == (0, False)


def test_a_piped_prompt_in_another_encoding_is_named(run, model):
    code, out, err = run("generate", model, *CPU, stdin="오늘은 비가 와요".encode("cp949"))
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "CP949" in err
    assert "--encoding cp949" in err
    two = ("generate", model, "--greedy", "--max-tokens", 4, *CPU)
    named = run(*two, "--encoding", "cp949", stdin="오늘은 비가".encode("cp949"))
    assert named == run(*two, "--prompt", "오늘은 비가")
    assert run(*two, stdin="오늘은\r\n비가") == run(*two, "--prompt", "오늘은\n비가")


def test_several_texts_differ_and_each_can_be_had_alone(run, model):
    words = ("generate", model, "--prompt", "오늘은", "--max-tokens", 12, "--jsonl", *CPU)
    code, out, _ = run(*words, "--n", 3, "--seed", 5)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [entry["seed"] for entry in found] == [5, 6, 7]
    assert len({entry["text"] for entry in found}) > 1
    assert json.loads(run(*words, "--seed", 6)[1]) == found[1]


def test_it_ends_before_a_stop(run, model):
    words = ("generate", model, "--prompt", "오늘은", "--max-tokens", 300, "--seed", 1, *CPU)
    whole = run(*words)[1].removeprefix("오늘은").removesuffix("\n")
    middle = whole[len(whole) // 2]
    assert "\n" in whole
    for option, text in ((middle, middle), ("\\n", "\n")):
        assert run(*words, "--stop", option)[1] == f"오늘은{whole.partition(text)[0]}\n"


def test_a_prompt_longer_than_the_context_is_told(run, model):
    code, _, err = run("generate", model, "--prompt", "오늘은 " * 30, "--max-tokens", 2, *CPU)
    assert code == 0
    assert "but the model reads 16 at once" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--greedy", "--top-k", 3), "--top-k is for drawing at random; leave it out, or --greedy"),
        (("--greedy", "--n", 2), "--n 2: --greedy finds one text only"),
        (("--n", 0), "--n 0: expected at least 1"),
        (("--max-tokens", 0), "--max-tokens 0: expected at least 1"),
        (("--temperature", 0), "temperature = 0.0: expected more than 0"),
        (("--temperature", "nan"), "temperature = nan: expected more than 0, and finite"),
        (("--temperature", "inf"), "temperature = inf: expected more than 0, and finite"),
        (("--temperature", "1e-320"), "temperature = 1e-320: expected more than 0, and finite"),
        (("--seed", 2**63), "seed = 9223372036854775808: expected 0 or more, and less than 2^63"),
        (("--seed", -1), "seed = -1: expected 0 or more, and less than 2^63"),
        (("--stop", "\udcb0"), "--stop: not UTF-8 text; convert it"),
        (("--prompt", "\udcb0"), "--prompt: not UTF-8 text; convert it"),
        (("--top-p", 2), "top_p = 2.0: expected more than 0 and at most 1"),
        (("--top-k", -1), "--top-k -1: expected 0 (all tokens) or more"),
        (("--stop", ""), "--stop: expected at least one character"),
    ],
)
def test_what_makes_no_sense_is_one_line(run, model, words, message):
    code, out, err = run("generate", model, "--prompt", "a", *words, *CPU)
    assert (code, out) == (2, "")
    assert err.startswith(f"polyhead: {message}")
    assert err.count("\n") == 1


def test_each_model_is_refused_by_the_others_command(run, model, tiny_run):
    for command, path, instead in (
        ("generate", tiny_run, "polyhead translate"), ("translate", model, "polyhead generate"),
    ):  # fmt: skip
        code, out, err = run(command, path, *CPU)
        assert (code, out, err.count("\n")) == (5, "", 1)
        assert f"use it with: {instead} {path}" in err


def test_help_shows_examples_without_torch(run):
    code, out, _ = run("generate", "--help")
    assert code == 0
    assert 'polyhead generate runs/writer --prompt "오늘은" --max-tokens 100' in out


def test_training_on_a_text_ends_with_the_command_that_uses_the_model(run, tmp_path):
    text = write_corpus(tmp_path)["source"][0]
    files = ("--text", text, "--valid-text", text, "--run", tmp_path / "a run")
    code, _, err = run("train", "gpt-tiny", *SMALL, "train.steps=2", *files)
    assert code == 0
    assert f"use it with: polyhead generate '{tmp_path / 'a run'}'\n" in err
    assert "bits_per_character" in err
    assert "held out" not in err


def test_text_without_a_recipe_asks_which_kind_of_model(run):
    code, _, err = run("train", "--text", "a.txt")
    assert code == 2
    assert err.startswith("polyhead: --text: say which kind of model is to read it")


def test_evaluating_a_text(run, model, tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("오늘은 회의가 있어요.\n내일은\n", encoding="utf-8")
    found = TextGenerator.from_dir(model, device="cpu").score(["오늘은 회의가 있어요.", "내일은"])
    code, out, _ = run("evaluate", model, "--text", path, *CPU)
    assert code == 0
    assert f"loss                {found.loss:.4f} nats per token\n" in out
    assert f"bits per character  {found.bits_per_character:.4f}\n" in out
    code, out, _ = run("evaluate", model, "--text", path, "--json", *CPU)
    assert json.loads(out)["perplexity"] == pytest.approx(found.perplexity)
    assert json.loads(out)["n_characters"] == len("오늘은 회의가 있어요.\n내일은\n")


def test_evaluate_says_what_each_kind_of_model_needs(run, model):
    for words in ((), ("--source", "a"), ("--text", "a", "--source", "b", "--target", "c")):
        code, _, err = run("evaluate", model, *words, *CPU)
        assert code == 2
        assert "or --text FILE for a language model" in err


def test_attention_of_a_language_model(run, model, tmp_path):
    page = tmp_path / "page.html"
    code, _, err = run("attention", model, "오늘은 비가 와요.", "--output", page, *CPU)
    assert code == 0
    assert str(page) in err
    assert page.stat().st_size > 10_000


def test_the_bar_shows_bits_per_character():
    valid = {"perplexity": 3.0, "bits_per_character": 2.5}
    metrics = {"loss": 1.0, "tokens_per_second": 10.0, "valid": valid}
    assert describe(metrics) == "loss 1.000  ppl 2.7  10 tok/s  bits/char 2.500"


def test_a_stream_is_flushed_piece_by_piece(model, monkeypatch):
    """Whoever reads sees each piece when it is written, not all of them at the end."""
    written = []

    class Watched(io.BytesIO):
        def write(self, data):
            written.append(bytes(data))
            return len(data)

    out = io.TextIOWrapper(Watched(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    words = ["generate", str(model), "--prompt", "오늘은", "--max-tokens", "12", "--greedy", *CPU]
    assert main(words) == 0
    assert len(written) > 4
    b"".join(written).decode()
