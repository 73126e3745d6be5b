"""Writing and reading: what comes back is the same, and nothing else is let in."""

import hashlib
import io
import json
import os

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyhead.errors import CheckpointError
from polyhead.tokenizers.sentencepiece import PieceTokenizer
from polyhead.tokenizers.storage import Tokenizers, load, save

MODEL = "joint.model"
INDEX = "tokenizer.json"
reused = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def folder(learn, tmp_path):
    """A saved tokenizer to spoil."""
    save(learn("bpe"), tmp_path)
    return tmp_path


def change(folder, **entries):
    """Rewrite entries of the index."""
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, **entries}))


def plant(folder, model):
    """Put another model in place, with the right sum: an attacker can count too."""
    (folder / MODEL).write_bytes(model)
    change(folder, sides={"joint": hashlib.sha256(model).hexdigest()})


def refused(folder):
    """The one line that explains why a folder is refused."""
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    assert caught.value.exit_code == 5
    return message.replace(f"{folder}{os.sep}", "")


@pytest.mark.parametrize("joint", [True, False])
def test_what_is_read_is_what_was_written(learn, name, joint, english, korean, tmp_path):
    written = learn(name, joint=joint)
    save(written, tmp_path / "new" / "folder")
    read = load(tmp_path / "new" / "folder")
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


def test_writing_twice_gives_the_same_bytes(learn, name, tmp_path):
    for place in ("a", "b"):
        save(learn(name, joint=False), tmp_path / place)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert INDEX in files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_share_may_be_written_as_a_whole_number(folder, learn):
    """Other writers of JSON put 1 where Python puts 1.0."""
    config = json.loads((folder / INDEX).read_text())["config"]
    change(folder, config={**config, "character_coverage": 1})
    assert '"character_coverage": 1,' in (folder / INDEX).read_text()
    assert load(folder).config == learn("bpe").config


def test_sentencepiece_reads_the_model_file(folder, learn, english):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / MODEL))
    assert processor.encode(english[0]) == learn("bpe").source.encode(english[0])[:-1]


def test_a_foreign_tokenizer_is_not_saved_silently(learn, tmp_path):
    with pytest.raises(TypeError, match="only tokenizers made here"):
        save(Tokenizers(Foreign(), Foreign(), learn("bpe").config), tmp_path)


class Foreign:
    """Has the methods of a tokenizer, but was not learned here."""

    __len__ = normalise = reads_line_ends = encode = encode_batch = decode = print
    pieces = pieces_of_ids = symbol = print


@pytest.mark.parametrize("file", [INDEX, MODEL])
def test_a_missing_file_is_named(folder, file):
    (folder / file).unlink()
    assert refused(folder) == f"{file} is missing; give the folder of a trained model"


def test_a_missing_folder_is_named(tmp_path):
    assert refused(tmp_path / "nowhere").startswith(f"{INDEX} is missing")


@pytest.mark.parametrize("file", [INDEX, MODEL])
def test_a_pipe_is_not_waited_for(folder, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    assert refused(folder).startswith(f"{file} is missing")


def test_an_unreadable_file_is_named(folder, monkeypatch):
    def forbidden(path, _):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(folder), "open", forbidden)
    assert refused(folder) == f"{INDEX} cannot be read: Permission denied"


@pytest.mark.parametrize("file", [INDEX, MODEL])
def test_a_huge_file_is_not_read(folder, file):
    with (folder / file).open("r+b") as sparse:
        sparse.truncate(2**31)
    assert refused(folder).startswith(f"{file} is broken (more than 67108864 bytes)")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_model_is_refused(folder, share):
    model = (folder / MODEL).read_bytes()
    (folder / MODEL).write_bytes(model[: int(share * len(model))])
    expected = f"{MODEL} is broken (its sha256 is not the one in {INDEX}); "
    assert refused(folder) == expected + "copy the model again or train it anew"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_model_is_refused_even_with_the_right_sum(folder, share):
    model = (folder / MODEL).read_bytes()
    plant(folder, model[: int(share * len(model))])
    assert refused(folder).startswith(f"{MODEL} is broken (")


@reused
@given(data=st.data())
def test_a_changed_model_never_does_worse_than_be_refused(folder, learn, data):
    """With the right sum: either refused, or a tokenizer that keeps every text whole."""
    model = bytearray(learn("bpe").source.model)
    for _ in range(data.draw(st.integers(1, 4))):
        model[data.draw(st.integers(0, len(model) - 1))] = data.draw(st.integers(0, 255))
    plant(folder, bytes(model))
    try:
        tokenizer = load(folder).source
    except CheckpointError:
        return
    assert "".join(piece.text for piece in tokenizer.pieces("한 <s> dog")) == "한 <s> dog"
    tokenizer.decode(range(3, len(tokenizer)))


@reused
@given(garbage=st.binary(max_size=200))
def test_garbage_is_refused(folder, garbage):
    good = (folder / INDEX).read_bytes()
    plant(folder, garbage)
    assert refused(folder).startswith(f"{MODEL} is broken (")
    (folder / INDEX).write_bytes(garbage)
    assert refused(folder).startswith(f"{INDEX} is broken (")
    (folder / INDEX).write_bytes(good)


def foreign_model(lines, **options):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        vocab_size=450,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return written.getvalue()


def test_a_model_with_other_special_ids_is_refused(folder, english):
    plant(folder, foreign_model(english, byte_fallback=True))
    assert "special ids (-1, 1, 2, 0) and" in refused(folder)


def test_even_an_error_of_sentencepiece_with_line_breaks_is_one_line(folder, learn):
    """A piece has a name (field 1 of field 1), here two line breaks, and may not come twice."""
    twice = b"\x0a\x04\x0a\x02\n\n" * 2
    plant(folder, learn("bpe").source.model + twice)
    assert "is already defined" in refused(folder)


OURS = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}


def test_a_model_that_rewrites_text_is_refused(folder, english):
    plant(folder, foreign_model(english, byte_fallback=True, **OURS))  # NFKC: Ａ becomes A
    assert f"{MODEL} is broken (it changes 'Ａ" in refused(folder)


def test_a_model_without_bytes_is_refused_where_bytes_were_promised(folder, english):
    plant(folder, foreign_model(english, normalization_rule_name="identity", **OURS))
    assert "of which 0 are bytes: expected at most 500 and 256)" in refused(folder)


def test_a_model_that_fails_to_encode_is_refused(folder, monkeypatch):
    def fail(tokenizer, line):
        raise RuntimeError(f"INTERNAL: {len(tokenizer)} {len(line)}")

    monkeypatch.setattr(PieceTokenizer, "pieces", fail)
    assert "SentencePiece cannot encode 'Ａ <s>" in refused(folder)


CONFIG = {
    "kind": "words",
    "vocab": 9,
    "joint": True,
    "lowercase": False,
    "sampling": 0.0,
    "character_coverage": 1.0,
    "byte_fallback": True,
}


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
        ({"config": {**CONFIG, "vocab": "9"}}, "config.vocab = '9': expected int"),
        ({"config": {**CONFIG, "vocab": True}}, "config.vocab = True: expected int"),
        ({"config": {**CONFIG, "vocab": 10**9}}, "vocab = 1000000000: expected 5 to 1000000"),
        ({"config": {**CONFIG, "kind": "pickle"}}, "config.kind = 'pickle': expected bpe, uni"),
        ({"config": {**CONFIG, "sampling": float("nan")}}, "sampling = nan: expected 0"),
        ({"config": {**CONFIG, "sampling": 10**400}}, "int too large to convert to float"),
        ({"config": {**CONFIG, "sampling": "1"}}, "config.sampling = '1': expected float"),
        ({"sides": []}, "sides: expected joint"),
        ({"sides": {"joint": ["a"], "../x": []}}, "sides: expected joint"),
        ({"config": {**CONFIG, "joint": False}}, "sides: expected source and target"),
        ({"sides": {"joint": "a"}}, "sides: expected lists of words"),
        ({"sides": {"joint": ["a", 1]}}, "sides: expected lists of words"),
        ({"sides": {"joint": []}}, "0 words in a vocabulary of 9"),
        ({"sides": {"joint": list("abcdef")}}, "6 words in a vocabulary of 9"),
        ({"sides": {"joint": ["a", "a"]}}, "a unit stands in the vocabulary twice"),
        ({"sides": {"joint": ["a b"]}}, "'a b' cannot be one of the words of a text"),
    ],
)
def test_a_broken_index_is_explained(tmp_path, content, message):
    if isinstance(content, dict):
        whole = {"format": 1, "config": CONFIG, "sides": {"joint": ["a", "b"]}}
        (tmp_path / INDEX).write_text(json.dumps(whole))
        load(tmp_path)  # good as it is
        content = json.dumps({**whole, **content})
    (tmp_path / INDEX).write_bytes(content.encode() if isinstance(content, str) else content)
    assert f"{INDEX} is broken (" in refused(tmp_path)
    assert message in refused(tmp_path)
