"""The corpus of a run: read as configured, with something held out, and nothing left unsaid."""

import pytest

from polyhead.data import locate as corpora
from polyhead.data.config import DataConfig, load
from polyhead.data.schedules import generator as schedules
from polyhead.errors import ConfigError, DataError


@pytest.fixture
def files(tmp_path):
    """Write files of numbered lines and give their paths."""

    def write(name, lines):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(path)

    return write


def numbered(word, numbers):
    return [f"{word} {number}" for number in numbers]


def test_several_files_are_joined_in_order(files):
    config = DataConfig(
        source=(files("a.ko", numbered("문장", [1, 2])), files("b.ko", numbered("문장", [3]))),
        target=(files("a.en", numbered("line", [1, 2])), files("b.en", numbered("line", [3]))),
        valid_source=(files("v.ko", ["하나"]),),
        valid_target=(files("v.en", ["one"]),),
    )
    text = load(config, seed=1)
    assert list(text.train) == [(f"문장 {n}", f"line {n}") for n in (1, 2, 3)]
    assert list(text.valid) == [("하나", "one")]
    assert text.notices == ()


def test_without_validation_files_a_part_is_held_out_and_said_so(files):
    config = DataConfig(
        source=(files("a.ko", numbered("문장", range(200))),),
        target=(files("a.en", numbered("line", range(200))),),
    )
    text = load(config, seed=1)
    assert (len(text.train), len(text.valid)) == (190, 10)
    whole = {(f"문장 {n}", f"line {n}") for n in range(200)}
    assert {*text.train, *text.valid} == whole
    assert text.notices == (
        "no validation files given: 10 of 200 pairs are held out for validation and not trained on",
    )
    again = load(config, seed=1)
    assert (list(again.train), list(again.valid)) == (list(text.train), list(text.valid))
    assert list(load(config, seed=2).valid) != list(text.valid)


@pytest.mark.parametrize(("asked", "held"), [(3, 3), (500, 10)])
def test_at_most_a_twentieth_is_held_out(files, asked, held):
    config = DataConfig(
        source=(files("a.ko", numbered("문장", range(200))),),
        target=(files("a.en", numbered("line", range(200))),),
        hold_out=asked,
    )
    assert len(load(config, seed=1).valid) == held


def test_pairs_come_from_tsv_and_json_lines(files):
    tsv = files("a.tsv", ["하나\tone", "둘\ttwo"])
    config = DataConfig(pairs=(tsv,), valid_pairs=(files("v.tsv", ["셋\tthree"]),))
    text = load(config, seed=1)
    assert (list(text.train), list(text.valid)) == (
        [("하나", "one"), ("둘", "two")],
        [("셋", "three")],
    )


def test_bad_lines_are_skipped_and_counted(files):
    config = DataConfig(
        source=(files("a.ko", ["하나", "", "", "", "", "둘"]),),
        target=(files("a.en", ["one", "x", "x", "x", "x", "two"]),),
        valid_source=(files("v.ko", ["셋", ""]),),
        valid_target=(files("v.en", ["three", "x"]),),
    )
    text = load(config, seed=1)
    assert list(text.train) == [("하나", "one"), ("둘", "two")]
    train, valid = text.notices
    assert train.startswith("4 bad lines skipped: ")
    assert train.count("a.ko:") == 3
    assert train.endswith("; and 1 more")
    assert valid.startswith("1 bad line skipped: ")
    assert "v.ko:2" in valid


def test_bad_lines_are_an_error_on_request(files):
    config = DataConfig(
        source=(files("a.ko", ["하나", ""]),),
        target=(files("a.en", ["one", "two"]),),
        on_bad_line="fail",
    )
    with pytest.raises(DataError, match=r"a\.ko:2: "):
        load(config, seed=1)


def test_one_pair_cannot_be_parted(files):
    config = DataConfig(source=(files("a.ko", ["하나"]),), target=(files("a.en", ["one"]),))
    with pytest.raises(DataError, match="1 usable sentence pair is not enough to train on"):
        load(config, seed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "data: give either source and target files, or pairs"),
        ({"source": ("a",), "pairs": ("b",)}, "data: give either source and target files, or"),
        ({"source": ("a",)}, "data: files of the source: 1, of the target: 0"),
        ({"corpus": "moby"}, "data.corpus = 'moby': polyhead can make only 'schedules'"),
    ],
)
def test_files_that_do_not_belong_together_are_explained(options, message):
    with pytest.raises(ConfigError) as caught:
        load(DataConfig(**options), seed=1)
    assert message in str(caught.value)


def test_validation_needs_both_sides_too(files):
    config = DataConfig(pairs=(files("a.tsv", ["하나\tone"]),), valid_source=("v.ko",))
    with pytest.raises(ConfigError, match=r"data\.valid: files of the source: 1, of the target: 0"):
        load(config, seed=1)


def test_a_missing_file_is_named(tmp_path):
    missing = str(tmp_path / "no.tsv")
    with pytest.raises(DataError, match=r"no\.tsv is not there"):
        load(DataConfig(pairs=(missing,)), seed=1)


@pytest.mark.parametrize("name", ["hold_out", "max_length"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} = 0: expected at least 1"):
        DataConfig(**{name: 0})


def test_the_embedded_corpus_is_written_when_it_is_wanted_and_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def write(folder):
        calls.append(folder)
        folder.mkdir(parents=True)
        (folder / "train.tsv").write_text("하나\tone\n둘\ttwo\n")

    monkeypatch.setattr(schedules, "write", write)
    config = DataConfig(corpus="schedules", pairs=("schedules/train.tsv",))
    text = load(config, seed=1)
    assert {*text.train, *text.valid} == {("하나", "one"), ("둘", "two")}
    load(config, seed=1)
    assert calls == [corpora.home() / "schedules"]
