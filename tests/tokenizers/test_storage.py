"""Saving and loading: tokenizers are restored exactly, damaged files are errors."""

import hashlib
import json
import os
from dataclasses import asdict

import pytest
import sentencepiece
from expected_errors import raises
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyhead.errors import CheckpointError
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer
from polyhead.tokenizers.storage import load_tokenizers, save_tokenizers

MODEL = "joint.model"
INDEX = "tokenizer.json"
reused = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def folder(learn, tmp_path):
    """Save a tokenizer and return its directory."""
    save_tokenizers(learn("bpe"), tmp_path)
    return tmp_path


def change(folder, **entries):
    """Rewrite entries of the index."""
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, **entries}))


def plant(folder, model):
    """Replace the model, with the right checksum."""
    (folder / MODEL).write_bytes(model)
    change(folder, sides={"joint": hashlib.sha256(model).hexdigest()})


def check_error(folder, code, *mentions):
    with raises(CheckpointError, code, str(folder), *mentions) as caught:
        load_tokenizers(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("joint", [True, False])
def test_saved_tokenizers_are_restored(learn, name, joint, english, korean, tmp_path):
    written = learn(name, joint=joint)
    save_tokenizers(written, tmp_path / "new" / "folder")
    read = load_tokenizers(tmp_path / "new" / "folder")
    assert read.config == written.config
    assert (read.source is read.target) == joint
    for line in [*english, *korean, "", "중 <s> ▁ x"]:
        assert read.source.encode(line) == written.source.encode(line)
        assert read.target.pieces(line) == written.target.pieces(line)
    for side in ("source", "target"):
        ours, theirs = getattr(read, side), getattr(written, side)
        assert len(ours) == len(theirs)
        assert [ours.symbol(id) for id in range(len(ours))] == [
            theirs.symbol(id) for id in range(len(theirs))
        ]


def test_saving_is_deterministic(learn, name, tmp_path):
    for place in ("a", "b"):
        save_tokenizers(learn(name, joint=False), tmp_path / place)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert INDEX in files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_share_may_be_an_integer_in_json(folder, learn):
    config = json.loads((folder / INDEX).read_text())["config"]
    change(folder, config={**config, "character_coverage": 1})
    assert '"character_coverage": 1,' in (folder / INDEX).read_text()
    assert load_tokenizers(folder).config == learn("bpe").config


def test_sentencepiece_reads_the_model_file(folder, learn, english):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / MODEL))
    assert processor.encode(english[0]) == learn("bpe").source.encode(english[0])[:-1]


@pytest.mark.parametrize("file", [INDEX, MODEL])
def test_missing_files_and_pipes_are_errors(folder, file, tmp_path):
    (folder / file).unlink()
    check_error(folder, "missing_file", file)
    os.mkfifo(folder / file)
    check_error(folder, "missing_file", file)
    check_error(tmp_path / "nowhere", "missing_file", INDEX)


def test_an_unreadable_file_is_an_error(folder, monkeypatch):
    def forbidden(path, _):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(folder), "open", forbidden)
    check_error(folder, "cannot_read", INDEX, "Permission denied")


@pytest.mark.parametrize("file", [INDEX, MODEL])
def test_a_huge_file_is_an_error(folder, file):
    with (folder / file).open("r+b") as sparse:
        sparse.truncate(2**31)
    check_error(folder, "broken_tokenizer", file, "67108864 bytes")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_model_is_an_error_even_with_the_right_checksum(folder, share):
    model = (folder / MODEL).read_bytes()
    (folder / MODEL).write_bytes(model[: int(share * len(model))])
    check_error(folder, "broken_tokenizer", MODEL, "sha256")
    plant(folder, model[: int(share * len(model))])
    check_error(folder, "broken_tokenizer", MODEL)


@reused
@given(data=st.data())
def test_a_changed_model_is_an_error_or_keeps_text(folder, learn, data):
    model = bytearray(learn("bpe").source.model)
    for _ in range(data.draw(st.integers(1, 4))):
        model[data.draw(st.integers(0, len(model) - 1))] = data.draw(st.integers(0, 255))
    plant(folder, bytes(model))
    try:
        tokenizer = load_tokenizers(folder).source
    except CheckpointError:
        return
    assert "".join(piece.text for piece in tokenizer.pieces("한 <s> dog")) == "한 <s> dog"
    tokenizer.decode(range(3, len(tokenizer)))


@reused
@given(garbage=st.binary(max_size=200))
def test_random_bytes_are_errors(folder, garbage):
    good = (folder / INDEX).read_bytes()
    plant(folder, garbage)
    check_error(folder, "broken_tokenizer", MODEL)
    (folder / INDEX).write_bytes(garbage)
    check_error(folder, "broken_tokenizer", INDEX)
    (folder / INDEX).write_bytes(good)


def test_an_error_of_sentencepiece_with_line_breaks_is_one_line(folder, learn):
    """The name of a piece (field 1 of field 1) is two line breaks, and occurs twice."""
    twice = b"\x0a\x04\x0a\x02\n\n" * 2
    plant(folder, learn("bpe").source.model + twice)
    check_error(folder, "broken_tokenizer", "is already defined")


OURS = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}


@pytest.mark.parametrize(
    ("options", "mentions"),
    [
        ({"byte_fallback": True}, ["(-1, 1, 2, 0)"]),  # other special ids
        ({"byte_fallback": True, **OURS}, [MODEL, "'Ａ"]),  # NFKC: Ａ becomes A
        ({"normalization_rule_name": "identity", **OURS}, ["0 are bytes", "256"]),
    ],
)
def test_another_model_is_an_error(folder, english, train_model, options, mentions):
    plant(folder, train_model(english, vocab_size=450, hard_vocab_limit=False, **options))
    check_error(folder, "broken_tokenizer", *mentions)


def test_a_model_that_fails_to_encode_is_an_error(folder, monkeypatch):
    def fail(tokenizer, line):
        raise RuntimeError(f"INTERNAL: {len(tokenizer)} {len(line)}")

    monkeypatch.setattr(SentencePieceTokenizer, "pieces", fail)
    check_error(folder, "broken_tokenizer", "'Ａ <s>")


CONFIG = asdict(TextConfig("words", vocab=9))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Expecting value"),
        ("[]", "expected the entries format, config and sides"),
        ("{}", "expected the entries format, config and sides"),
        ("[" * 100_000, "maximum recursion depth"),
        ('{"format": ' + "1" * 5000 + "}", "4300 digits"),
        (b"\xff\xfe\x00", "codec can't decode"),
        ({"format": 2}, "format 2, but this version reads format 1"),
        ({"config": None}, "config: expected the options kind, vocab, joint"),
        ({"config": {"kind": "words"}}, "config: expected the options kind, vocab, joint"),
        ({"config": {**CONFIG, "more": 1}}, "config: expected the options kind, vocab, joint"),
        ({"config": {**CONFIG, "vocab": "9"}}, "config.vocab = '9'"),
        ({"config": {**CONFIG, "vocab": True}}, "config.vocab = True"),
        ({"config": {**CONFIG, "vocab": 10**9}}, "vocab = 1000000000: expected 5 to 1000000"),
        ({"config": {**CONFIG, "kind": "pickle"}}, "config.kind = 'pickle'"),
        ({"config": {**CONFIG, "sampling": float("nan")}}, "config.sampling = nan"),
        ({"config": {**CONFIG, "sampling": 10**400}}, "config"),
        ({"config": {**CONFIG, "sampling": "1"}}, "config.sampling = '1'"),
        ({"sides": []}, "sides: expected joint"),
        ({"sides": {"joint": ["a"], "../x": []}}, "sides: expected joint"),
        ({"config": {**CONFIG, "joint": False}}, "sides: expected source and target"),
        ({"sides": {"joint": "a"}}, "sides: expected lists of words"),
        ({"sides": {"joint": ["a", 1]}}, "sides: expected lists of words"),
        ({"sides": {"joint": []}}, "0 words in a vocabulary of 9"),
        ({"sides": {"joint": list("abcdef")}}, "6 words in a vocabulary of 9"),
        ({"sides": {"joint": ["a", "a"]}}, "twice"),
        ({"sides": {"joint": ["a b"]}}, "'a b' cannot be one of the words of a text"),
    ],
)
def test_a_damaged_index_is_an_error(tmp_path, content, message):
    if isinstance(content, dict):
        whole = {"format": 1, "config": CONFIG, "sides": {"joint": ["a", "b"]}}
        (tmp_path / INDEX).write_text(json.dumps(whole))
        load_tokenizers(tmp_path)  # valid so far
        content = json.dumps({**whole, **content})
    (tmp_path / INDEX).write_bytes(content.encode() if isinstance(content, str) else content)
    check_error(tmp_path, "broken_tokenizer", INDEX, message)
