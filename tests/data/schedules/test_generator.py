"""The embedded corpus: disjoint sets, held-out combinations, clean and reproducible text."""

import os
import random
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from expected_errors import raises

from polyhead.data.schedules import generator as schedules
from polyhead.data.schedules.fillers import fillers, rows
from polyhead.data.schedules.generator import Splits, compose, generate, is_held_out, write
from polyhead.data.schedules.patterns import SLOT, all_patterns, read_patterns
from polyhead.errors import DataError

WORD = re.compile(r"[^\W_]+(?:[-'.,:][^\W_]+)*")  # 12,000 and 3:30 and T-shirt are one each


WRITE = """
import sys, time
from pathlib import Path
from polyhead.data.schedules.generator import write
write(Path(sys.argv[1]), *map(int, sys.argv[2:]))
print(time.process_time())
"""


def write_in_subprocess(folder, *sizes_and_seed, hash_seed="0"):
    """Write the corpus in a separate process; return the seconds it took."""
    root = Path(schedules.__file__).parents[2]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", WRITE, str(folder), *map(str, sizes_and_seed)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schedules")
    return folder, write_in_subprocess(folder)


@pytest.fixture(scope="module")
def splits(written):
    return Splits(*(
        list(zip(*((written[0] / f"{split}.{language}").read_text(encoding="utf-8").splitlines()
                   for language in ("ko", "en")), strict=True))
        for split in Splits._fields
    ))  # fmt: skip


@pytest.fixture(scope="module")
def many():
    """Sentences of all patterns, held-out combinations included."""
    rng = random.Random(0)
    return [compose(pattern, rng).pair for _ in range(60) for pattern in all_patterns()]


def test_the_default_corpus_is_written_within_seconds(written, splits):
    assert written[1] < 5
    assert tuple(map(len, splits)) == (12_000, 500, 500)


def test_no_sentence_occurs_twice_in_either_language(splits):
    for side in (0, 1):
        sentences = [pair[side] for pairs in splits for pair in pairs]
        assert len(set(sentences)) == len(sentences)


def test_every_line_is_clean(splits):
    for pair in (pair for pairs in splits for pair in pairs):
        for text in pair:
            assert text == unicodedata.normalize("NFC", text)
            assert text == " ".join(text.split()), f"odd spaces in {text!r}"
            assert text.isprintable()
            assert not set(text) & set("{}|_")
            assert text[-1] in ".?"
        assert pair[0].endswith(("요.", "요?", "니다.")), f"not polite: {pair[0]}"
        assert pair[1][0] == pair[1][0].upper()
        assert pair[1].isascii() or "₩" in pair[1]
        assert (pair[0][-1] == "?") == (pair[1][-1] == "?")


def test_every_sentence_has_exactly_one_translation(many):
    for source, target in ((0, 1), (1, 0)):
        translations = {}
        for pair in many:
            assert translations.setdefault(pair[source], pair[target]) == pair[target]


def test_every_pattern_occurs_in_training(splits):
    assert len(all_patterns()) >= 70
    assert len({pattern.korean for pattern in all_patterns()}) == len(all_patterns())
    sentences = [source for source, _ in splits.train[:3_000]]
    for pattern in all_patterns():
        shape = re.compile(re.escape(SLOT.sub("\0", pattern.korean)).replace("\0", ".+"))
        assert sum(bool(shape.fullmatch(sentence)) for sentence in sentences) >= 3, pattern.korean


def finder(tables, column, before=""):
    """Return a function that finds the words of tables in a sentence, as Korean names."""
    by_name = {row[column]: row[0] for table in tables for row in rows(table)} | {
        "회의실": "",
        "콘서트홀": "",
    }
    longest_first = "|".join(map(re.escape, sorted(by_name, key=len, reverse=True)))
    pattern = re.compile(f"{before}({longest_first})")
    return lambda sentence: {by_name[name] for name in pattern.findall(sentence)} - {""}


PEOPLE_IN = finder(["people"], 1)
CITIES_IN = finder(["towns", "abroad"], 1)
VENUES_IN = finder(["venues"], 1, before="the ")
EVENTS_IN = finder(["events"], 0)


def combinations(pairs):
    """Yield the person-place and event-weekday combinations that occur in sentences."""
    for source, target in pairs:
        for person in PEOPLE_IN(target):
            for place in CITIES_IN(target) | VENUES_IN(target):
                yield ("person", person), ("place", place)
        for event in EVENTS_IN(source):
            for weekday in re.findall(r"[월화수목금토일]요일", source):
                yield ("event", event), ("weekday", weekday)


def test_held_out_combinations_never_occur_in_training(splits):
    found = list(combinations(splits.train))
    assert len(found) > 3_000
    assert not [combination for combination in found if is_held_out(*combination)]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_held_out_sets_combine_known_words_in_new_ways(splits, split):
    known = set(combinations(splits.train))
    parts = {part for combination in known for part in combination}
    new = {pair for pair in combinations(getattr(splits, split)) if is_held_out(*pair)}
    for kind in ("person", "event"):
        assert sum(one[0] == kind for one, _ in new) >= 20
    assert known.isdisjoint(new)
    assert {part for combination in new for part in combination} <= parts


def test_held_out_events_never_occur_in_their_pattern(splits):
    pattern = next(p for p in all_patterns() if p.korean == "{event}까지 {days} 남았어요.")
    shape = re.compile(r"There are \d+ days left until the (.+)\.")
    found = {match[1] for _, target in splits.train if (match := shape.fullmatch(target))}
    rare = {
        filler.english[""]
        for filler in fillers()["event"]
        if is_held_out(("pattern", pattern.korean), filler.attributes[0])
    }
    assert rare
    assert found
    assert found.isdisjoint(rare)


def test_every_second_held_out_sentence_has_a_held_out_combination(splits):
    for pairs in (splits.valid, splits.test):
        others = list(combinations(pairs[1::2]))
        assert others
        assert not [combination for combination in others if is_held_out(*combination)]
        held_out = [
            any(is_held_out(*found) for found in combinations([pair])) for pair in pairs[::2]
        ]
        assert sum(held_out) > 0.4 * len(held_out), "the others have an event in a new pattern"


def test_held_out_sets_do_not_depend_on_the_training_size(splits):
    small = generate(n_train=10)
    assert (small.valid, small.test) == (splits.valid, splits.test)
    assert small.train == splits.train[:10]


def test_held_out_combinations_are_the_same_for_every_seed(splits):
    other = generate(n_train=3_000, n_valid=10, n_test=10, seed=2)
    assert len(set(other.train) & set(splits.train)) < 600
    assert not [pair for pair in combinations(other.train) if is_held_out(*pair)]


def test_two_processes_write_the_same_bytes(tmp_path):
    for hash_seed in ("0", "1234"):
        write_in_subprocess(tmp_path / hash_seed, 500, 50, 50, 3, hash_seed=hash_seed)
    first, second = (sorted((tmp_path / name).iterdir()) for name in ("0", "1234"))
    assert len(first) == 7
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_written_files_are_parallel_and_complete(tmp_path):
    paths = write(tmp_path / "new" / "folder", n_train=30, n_valid=4, n_test=3, seed=7)
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())
    assert {path.name for path in paths} == {
        "train.ko", "train.en", "valid.ko", "valid.en", "test.ko", "test.en", "README.md"
    }  # fmt: skip
    expected = generate(n_train=30, n_valid=4, n_test=3, seed=7)
    for split, pairs in expected._asdict().items():
        for side, language in enumerate(("ko", "en")):
            raw = (tmp_path / "new" / "folder" / f"{split}.{language}").read_bytes()
            assert raw.decode("utf-8").split("\n") == [*(pair[side] for pair in pairs), ""]
    readme = (tmp_path / "new" / "folder" / "README.md").read_text(encoding="utf-8")
    assert "seed 7" in readme
    assert "| train | 30 |" in readme
    assert "Apache-2.0" in readme


def test_a_failed_write_keeps_the_old_files(tmp_path, monkeypatch):
    write(tmp_path, n_train=2, n_valid=1, n_test=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(schedules, "sync", fail)
    with raises(DataError, "cannot_write", "No space left on device"):
        write(tmp_path, n_train=3, n_valid=1, n_test=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.undo()
    monkeypatch.setattr(schedules.os, "replace", fail)  # never files of two corpora
    with raises(DataError, "cannot_write", "No space left on device"):
        write(tmp_path, n_train=3, n_valid=1, n_test=1)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    write(tmp_path, n_train=2, n_valid=1, n_test=1)
    with raises(DataError, "cannot_write", "README.md"):
        write(tmp_path / "README.md", n_train=1, n_valid=0, n_test=0)


def test_a_request_for_more_sentences_than_exist_is_an_error(monkeypatch):
    weekdays = read_patterns("{weekday|이에요}.\nIt is {weekday}.")
    monkeypatch.setattr(schedules, "all_patterns", lambda: weekdays)
    monkeypatch.setattr(schedules, "MAX_TRIES", 500)
    assert len(generate(n_train=7, n_valid=0, n_test=0).train) == 7
    with raises(DataError, "corpus_exhausted", "train", "8", "7"):
        generate(n_train=8, n_valid=0, n_test=0)
    with raises(DataError, "negative_size", "n_valid", "-1"):
        generate(n_valid=-1, n_test=0)


def test_labelled_sets_are_disjoint_and_have_every_topic():
    sets = schedules.generate_labelled(n_train=300, n_valid=40, n_test=40)
    assert {split: len(examples) for split, examples in sets.items()} == {
        "train": 300, "valid": 40, "test": 40
    }  # fmt: skip
    texts = [text for examples in sets.values() for text, _ in examples]
    assert len(set(texts)) == len(texts)
    assert {label for _, label in sets["train"]} == {"amounts", "events", "people", "places"}
    assert schedules.generate_labelled(n_train=10, n_valid=40, n_test=40)["valid"] == sets["valid"]


def test_no_word_occurs_twice_in_a_sentence():
    rng = random.Random(1)
    pattern = next(p for p in all_patterns() if p.korean == "{goods|과} {goods2|을} 주세요.")
    first, second = zip(
        *(
            compose(pattern, rng).pair[0].removesuffix(" 주세요.").split(" ", 1)
            for _ in range(2_000)
        ),
        strict=True,
    )
    assert not [one for one, rest in zip(first, second, strict=True) if f" {one} " in f" {rest}"]
