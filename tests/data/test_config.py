"""Loading of the parallel corpus of a run: joined files, held-out pairs, messages."""

import pytest
from expected_errors import raises
from loading import load

from polyhead.data.config import DataConfig
from polyhead.data.locate import home
from polyhead.data.parallel import load_parallel
from polyhead.data.schedules import generator
from polyhead.errors import ConfigError, DataError


def lines(write, name, texts):
    return str(write("".join(f"{text}\n" for text in texts), name))


def numbered(word, numbers):
    return [f"{word} {number}" for number in numbers]


@pytest.mark.parametrize(("hold_out", "n_held_out"), [(3, 3), (500, 10)])
def test_without_validation_files_at_most_a_twentieth_is_held_out(write, hold_out, n_held_out):
    config = DataConfig(
        source=(lines(write, "a.ko", numbered("문장", range(200))),),
        target=(lines(write, "a.en", numbered("line", range(200))),),
        hold_out=hold_out,
    )
    corpus = load(load_parallel, config, seed=1)
    assert len(corpus.valid) == n_held_out
    assert {*corpus.train, *corpus.valid} == {(f"문장 {n}", f"line {n}") for n in range(200)}
    shown, notice = corpus.notices
    assert "'문장 0' → 'line 0'; '문장 1' → 'line 1'" in shown
    assert f"{n_held_out} of 200 pairs" in notice
    again = load(load_parallel, config, seed=1)
    assert (again.train, again.valid) == (corpus.train, corpus.valid)
    assert load(load_parallel, config, seed=2).valid != corpus.valid


def test_bad_lines_are_skipped_and_counted(write):
    config = DataConfig(
        source=(lines(write, "a.ko", ["하나", "", "", "", "", "둘"]),),
        target=(lines(write, "a.en", ["one", "x", "x", "x", "x", "two"]),),
        valid_source=(lines(write, "v.ko", ["셋", ""]),),
        valid_target=(lines(write, "v.en", ["three", "x"]),),
    )
    corpus = load(load_parallel, config, seed=1)
    assert list(corpus.train) == [("하나", "one"), ("둘", "two")]
    _, train, _, valid = corpus.notices
    assert train.startswith("4 bad lines skipped: ")
    assert train.count("a.ko:") == 3
    assert train.endswith("; and 1 more")
    assert valid.startswith("1 bad line skipped: ")
    assert "v.ko:2" in valid


@pytest.mark.parametrize(
    ("options", "kind", "code"),
    [
        ({}, ConfigError, "no_data"),
        ({"source": ("a",), "pairs": ("b",)}, ConfigError, "no_data"),
        ({"source": ("a",)}, ConfigError, "unequal_files"),
        ({"pairs": ("one.tsv",), "valid_source": ("v.ko",)}, ConfigError, "unequal_files"),
        ({"corpus": "moby"}, ConfigError, "unknown_corpus"),
        ({"pairs": ("no.tsv",)}, DataError, "not_found"),
        ({"pairs": ("one.tsv",)}, DataError, "too_few_examples"),
        ({"pairs": ("bad.tsv",), "on_bad_line": "fail"}, DataError, "bad_line"),
    ],
)
def test_unusable_configurations_are_errors(options, kind, code, write):
    lines(write, "one.tsv", ["하나\tone"])
    lines(write, "bad.tsv", ["하나\tone", "둘"])
    with raises(kind, code):
        load(load_parallel, DataConfig(**options), seed=1)


@pytest.mark.parametrize("name", ["hold_out", "max_length"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} = 0"):
        DataConfig(**{name: 0})


def test_the_embedded_corpus_is_generated_once_if_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def write(folder):
        calls.append(folder)
        folder.mkdir(parents=True)
        (folder / "train.tsv").write_text("하나\tone\n둘\ttwo\n")

    monkeypatch.setattr(generator, "write", write)
    config = DataConfig(corpus="schedules", pairs=("schedules/train.tsv",))
    corpus = load(load_parallel, config, seed=1)
    assert {*corpus.train, *corpus.valid} == {("하나", "one"), ("둘", "two")}
    load(load_parallel, config, seed=1)
    assert calls == [home() / "schedules"]
