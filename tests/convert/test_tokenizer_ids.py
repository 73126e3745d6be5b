"""Tokenizers of others under our numbers, against the library that they were made for."""

import io
import json
import subprocess
import sys
import zipfile
from itertools import product

import pytest
import sentencepiece
import torch
from expected_errors import raises
from foreign_models import make_gpt, make_marian

from polyhead.checkpoint import model_dir as model_folder
from polyhead.convert.conversion import import_model
from polyhead.convert.model_export import export_model
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError, MissingError
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import EOS
from polyhead.tokenizers import huggingface as foreign
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.storage import load_tokenizers
from polyhead.training.config import read_run
from polyhead.training.trainer import train

hf = pytest.importorskip("transformers")
LINES = ["the cat sat on the mat", "a cat and a dog", "the dog ran", "on and on ran the cat"]


def bert(folder):
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "a", "the", "[CLS]", "cat", "dog", "##s", "[SEP]", "[MASK]", "[UNK]", "##at",
             "s", "m", "!", "서", "##울"]  # fmt: skip
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3}
    sizes |= {"vocab_size": len(words), "intermediate_size": 8, "max_position_embeddings": 14}
    hf.BertForMaskedLM(hf.BertConfig(**sizes)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("files", ["of the first library", "of the newest"])
def test_berts_words_keep_their_meaning_under_our_numbers(files, tmp_path):
    folder = bert(tmp_path / "theirs")
    if files == "of the newest":
        hf.BertTokenizerFast.from_pretrained(folder).save_pretrained(folder)
        (folder / "vocab.txt").unlink()
        assert (folder / "tokenizer.json").is_file()
    report = import_model(str(folder), tmp_path / "ours")
    assert report.parity.equal
    saved = model_folder.load_model(tmp_path / "ours")
    ours, theirs = saved.tokenizers.source, hf.BertTokenizerFast.from_pretrained(folder)
    assert isinstance(ours, Tokenizer)
    assert len(ours) == saved.config.vocab - 1  # [MASK] is the last
    for text in ("The cats sat! 서울", "", "dog [MASK] [SEP] cat", "zebra mat"):
        expected = theirs.convert_ids_to_tokens(
            theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        )
        ids = ours.encode(text)
        assert ids[-1] == EOS
        assert [ours.symbol(id) for id in ids[:-1]] == expected
        assert "".join(piece.text for piece in ours.pieces(text)) == (text if expected else "")
        assert min(ids[:-1], default=9) > EOS
    assert ours.decode(ours.encode("The cats!")) == "the cats!"
    assert ours.decode(ours.encode("zebra cat")) == "⁇ cat"
    probe = torch.tensor([[1, *ours.encode("a cat")]])  # [CLS] a cat [SEP]
    original_model = hf.BertForMaskedLM.from_pretrained(folder).eval()
    expected = original_model(**theirs("a cat", return_tensors="pt")).logits
    found = saved.model(probe)
    torch.testing.assert_close(found[..., -1], expected[..., 8], rtol=0, atol=1e-4)


def byte_names():
    """GPT-2's spelling of the 256 bytes, as its paper's code defines it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) for byte in shown] + [chr(256 + i) for i in range(len(rest))]


def gpt(folder):
    folder.mkdir(parents=True, exist_ok=True)
    merges = ["t h", "th e", "Ġ c", "a t", "Ġc at"]
    names = [*byte_names(), *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    make_gpt(len(names)).save_pretrained(folder)
    return folder


def test_gpt2s_bytes_keep_their_meaning_under_our_numbers(tmp_path):
    folder = gpt(tmp_path / "theirs")
    report = import_model(str(folder), tmp_path / "ours")
    assert report.parity.equal
    saved = model_folder.load_model(tmp_path / "ours")
    ours, theirs = saved.tokenizers.source, hf.GPT2TokenizerFast.from_pretrained(folder)
    assert len(ours) == saved.config.vocab == 262
    for text in ("the cat", "서울 the cats", "  two  spaces ", "<|endoftext|>"):
        ids = ours.encode(text)
        expected = theirs.tokenize(text, split_special_tokens=True)
        assert [ours.symbol(id) for id in ids[:-1]] == expected
        assert min(ids[:-1]) > EOS
        assert ours.decode(ids) == text
        assert "".join(piece.text for piece in ours.pieces(text)) == text
    ids = ours.encode("서 the")[:-1]
    pieces = ours.pieces_of_ids(ids)
    assert [piece.id for piece in pieces] == ids
    end = theirs.convert_tokens_to_ids("<|endoftext|>")
    text = theirs("the cat")["input_ids"]
    expected = hf.GPT2LMHeadModel.from_pretrained(folder).eval()(torch.tensor([text])).logits
    found = saved.model(torch.tensor([ours.encode("the cat")[:-1]]))
    torch.testing.assert_close(found[..., EOS], expected[..., end], rtol=0, atol=1e-4)


def marian(folder):
    """A Marian with files as OPUS-MT has them: two SentencePiece models, one table of numbers."""
    folder.mkdir(parents=True)
    pieces = set()
    for side, lines in (("source", LINES), ("target", [line.upper() for line in LINES])):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 5), model_writer=model, vocab_size=30,
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        (folder / f"{side}.spm").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces |= {processor.IdToPiece(i) for i in range(3, len(processor))}
    names = ["</s>", "<unk>", ">>deu<<", *sorted(pieces), "<pad>"]
    table = {name: i for i, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(table), encoding="utf-8")
    settings = {"source_lang": "xx", "target_lang": "yy", "model_max_length": 40}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    pad = table["<pad>"]
    make_marian(
        pad=pad, start=pad, vocab_size=len(names), max_position_embeddings=40,
        activation_function="swish",
    ).save_pretrained(folder)  # fmt: skip
    return folder


@pytest.mark.filterwarnings("ignore:Recommended")
def test_marians_pieces_keep_their_meaning_and_translations_are_the_same(tmp_path):
    folder = marian(tmp_path / "theirs")
    import_model(str(folder), tmp_path / "ours")
    translator = Translator.from_dir(tmp_path / "ours", device="cpu")
    ours, theirs = translator.tokenizers.source, hf.MarianTokenizer.from_pretrained(folder)
    for text in ("the cat ran", ">>deu<< a dog", "the zebra", ""):
        tokens = theirs.convert_ids_to_tokens(theirs(text)["input_ids"])[:-1]
        assert [ours.symbol(id) for id in ours.encode(text)[:-1]] == tokens
        assert "".join(piece.text for piece in ours.pieces(text)) == ours.normalise(text)
    model = hf.MarianMTModel.from_pretrained(folder).eval()
    options = DecodeConfig(beam=3, length_penalty=0.0, max_length=8)
    for line in ("the cat ran", "a dog and a cat"):
        said = model.generate(
            **theirs([line], return_tensors="pt"), num_beams=3, length_penalty=0.0,
            max_new_tokens=8, early_stopping=False, do_sample=False,
            suppress_tokens=[model.config.pad_token_id], forced_eos_token_id=None,
        )  # fmt: skip
        expected = [t for t in theirs.convert_ids_to_tokens(said[0]) if t not in ("<pad>", "</s>")]
        best = translator.n_best([line], options=options)[0][0]
        target = translator.tokenizers.target
        assert [target.symbol(id) for id in best.ids] == expected
        assert best.text == theirs.decode(said[0], skip_special_tokens=True)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A folder with a Marian that was imported and fine-tuned on a translation memory."""
    folder = tmp_path_factory.mktemp("marian")
    import_model(str(marian(folder / "theirs")), folder / "ours")
    texts = [" ".join(parts) for parts in product(LINES, repeat=3)]
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{text}</seg></tuv>'
        f'<tuv xml:lang="de"><seg>{text.upper()}</seg></tuv></tu>'
        for text in texts
    )
    (folder / "memory.tmx").write_text(f'<tmx version="1.4"><body>{units}</body></tmx>')
    changes = ("train.steps=4", "train.bleu_sentences=0", f'train.init="{folder / "ours"}"')
    train(read_run("small", changes, {"pairs": [str(folder / "memory.tmx")]}), folder / "run")
    return Translator.from_dir(folder / "run", device="cpu"), folder / "run"


TEXTS = ["the cat ran", "a dog and a cat", "the zebra", "on the mat"]


def translations(translator):
    options = DecodeConfig(beam=4, length_penalty=0.0, max_length=12, max_extra=12)
    return [n_best[0].text for n_best in translator.n_best(TEXTS, options=options)]


@pytest.mark.parametrize("target", ["ctranslate2", "argos"])
def test_a_fine_tuned_marian_is_used_with_sentencepiece_alone(translator, target, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    report = export_model(translator[1], tmp_path / "out", to=target)
    assert report.figures.equal["outputs, beam of 4"] == report.figures.n_texts == 3
    theirs = translator[1].parent / "theirs"
    note = "a code of a language, such as >>deu<<, is a token before all others"
    assert (report.tokenizer, *report.notes) == ("sentencepiece.model", note)
    place = tmp_path / "out"
    if target == "argos":
        with zipfile.ZipFile(*place.glob("*.argosmodel")) as archive:
            archive.extractall(place)
        place /= "translate-en_de-1_0"
    joint = sentencepiece.SentencePieceProcessor(str(place / "sentencepiece.model"))
    original = sentencepiece.SentencePieceProcessor(str(theirs / "source.spm"))
    pieces = [joint.encode(text, out_type=str) for text in [*TEXTS, *LINES, "THE CAT Ran"]]
    assert pieces == [original.encode(t, out_type=str) for t in [*TEXTS, *LINES, "THE CAT Ran"]]
    target_pieces = sentencepiece.SentencePieceProcessor(str(theirs / "target.spm"))
    assert joint.decode(target_pieces.encode("THE CAT RAN", out_type=str)) == "THE CAT RAN"
    model = ctranslate2.Translator(str(place / "model" if target == "argos" else place))
    results = model.translate_batch(
        pieces[: len(TEXTS)], beam_size=4, length_penalty=0, min_decoding_length=0,
        max_decoding_length=12,
    )  # fmt: skip
    written = [result.hypotheses[0] for result in results]
    expected = translations(translator[0])
    assert [joint.decode(tokens) for tokens in written] == expected
    if target == "argos":  # until 1.9
        assert ["".join(t).replace("▁", " ").strip() for t in written] == expected


@pytest.mark.filterwarnings("ignore:Recommended")
def test_a_fine_tuned_marian_returns_to_transformers(translator, tmp_path):
    report = export_model(translator[1], tmp_path / "out")
    assert report.parity.equal
    assert report.figures.equal["outputs, beam of 4"] == report.figures.n_texts
    assert "target_tokenizer" not in (tmp_path / "out" / "README.md").read_text()
    tokenizer = hf.MarianTokenizer.from_pretrained(tmp_path / "out")
    model = hf.MarianMTModel.from_pretrained(tmp_path / "out").eval()
    texts = []
    for text in TEXTS:
        ids = model.generate(
            **tokenizer([text], return_tensors="pt"), num_beams=4, length_penalty=0.0,
            max_new_tokens=12, early_stopping=False, do_sample=False,
        )  # fmt: skip
        texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert texts == translations(translator[0])


def test_a_fine_tuned_marian_becomes_onnx_with_its_own_tokenizer(translator, tmp_path):
    pytest.importorskip("onnxruntime")
    command = [sys.executable, "-m", "polyhead", "export", str(translator[1]), "--to", "onnx"]
    command += ["--output", str(tmp_path / "out")]  # traced lengths fail the checks of types here
    subprocess.run(command, check=True, capture_output=True)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| equal outputs, greedy search | 3 of 3 |" in card
    assert "second tokenizer" not in card  # as with two vocabularies
    for name in ("source.spm", "target.spm", "vocab.json"):
        original = translator[1].parent / "theirs" / name
        assert (tmp_path / "out" / name).read_bytes() == original.read_bytes()


def test_tokenizers_go_out_as_they_came_in(tmp_path):
    folder = bert(tmp_path / "theirs")
    import_model(str(folder), tmp_path / "ours")
    export_model(tmp_path / "ours", tmp_path / "again")
    assert (tmp_path / "again" / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    before, after = (
        hf.BertForMaskedLM.from_pretrained(path).eval() for path in (folder, tmp_path / "again")
    )
    ids = torch.randint(1, 16, (1, 9))
    torch.testing.assert_close(after(ids).logits, before(ids).logits, rtol=0, atol=1e-5)


def test_a_tokenizer_whose_package_is_missing_says_so(tmp_path, monkeypatch):
    import_model(str(bert(tmp_path / "theirs")), tmp_path / "ours")
    monkeypatch.setattr(foreign, "find_spec", lambda _: None)
    saved = model_folder.load_model(tmp_path / "ours")
    assert len(saved.tokenizers.source) == 15
    with raises(MissingError, "missing_package", "pip install"):
        saved.tokenizers.source.encode("a cat")


def test_a_tokenizer_that_cannot_be_started_is_not_imported(tmp_path):
    folder = bert(tmp_path / "theirs")
    hf.BertTokenizerFast.from_pretrained(folder).save_pretrained(folder)
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    with raises(CheckpointError, "broken_tokenizer"):
        import_model(str(folder), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_tokenizer_that_was_tampered_with_is_refused(tmp_path):
    import_model(str(bert(tmp_path / "theirs")), tmp_path / "ours")
    folder = tmp_path / "ours" / "tokenizer"
    whole = json.loads((folder / "tokenizer.json").read_text())
    for bad in ({"kind": "pickle"}, {"source": []}, {"source": [0, 1, 2, -1, 4]}, {"more": 1}):
        index = whole | {"foreign": whole["foreign"] | bad}
        (folder / "tokenizer.json").write_text(json.dumps(index))
        with raises(CheckpointError, "broken_tokenizer", "tokenizer.json"):
            load_tokenizers(folder)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "hf_vocab.txt").unlink()
    with raises(CheckpointError, "broken_tokenizer"):
        load_tokenizers(folder).source.encode("a cat")


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_an_imported_model_learns_further_with_its_own_tokenizer(family, tmp_path):
    folder = {"bert": bert, "gpt": gpt}[family](tmp_path / "theirs")
    import_model(str(folder), tmp_path / "ours")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES * 5), encoding="utf-8")
    hardly = ("train.steps=1", "train.schedule.kind=constant", "train.schedule.rate=1e-12",
              "data.max_length=10", f'train.init="{tmp_path / "ours"}"')  # fmt: skip
    run = read_run(f"{family}-tiny", hardly, {"text": [str(tmp_path / "text")]})
    train(run, tmp_path / "run")
    before, after = (model_folder.load_model(tmp_path / name) for name in ("ours", "run/last"))
    ids = after.tokenizers.source.encode("the cat")
    assert ids == before.tokenizers.source.encode("the cat")
    with torch.no_grad():
        said = [saved.model(torch.tensor([ids])) for saved in (before, after)]
    torch.testing.assert_close(said[0], said[1], rtol=1e-4, atol=1e-5)
    again = export_model(tmp_path / "run", tmp_path / "back")
    assert again.parity.equal
