"""The embedded corpus: what it promises about its sets, and what a reader may expect of its words."""

import os
import random
import re
import subprocess
import sys
import time
import unicodedata
from datetime import datetime
from pathlib import Path

import pytest

from polyhead.data import schedules, schedules_words
from polyhead.data.schedules import compose, generate, is_rare, write
from polyhead.data.schedules_fillers import fillers, plural, rows, third_person, with_article
from polyhead.data.schedules_patterns import PATTERNS, SLOT, kind_of, read_patterns, slots_of
from polyhead.errors import DataError

WORD = re.compile(r"[^\W_]+(?:[-'.,:][^\W_]+)*")  # 12,000 and 3:30 and T-shirt are one each


@pytest.fixture(scope="module")
def splits():
    return generate()


@pytest.fixture(scope="module")
def many():
    """Sentences as the patterns give them, without the choice that `generate` makes among them."""
    dice = random.Random(0)
    return [compose(pattern, dice).pair for _ in range(150) for pattern in PATTERNS]


def test_the_default_size_is_written_in_seconds():
    started = time.process_time()
    splits = generate()
    assert time.process_time() - started < 5
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


def test_a_korean_sentence_has_one_translation_and_an_english_one_too(many):
    for source, target in ((0, 1), (1, 0)):
        translations = {}
        for pair in many:
            assert translations.setdefault(pair[source], pair[target]) == pair[target]


def test_within_a_kind_each_word_has_one_translation():
    for kind, choices in fillers().items():
        for one, other in (("korean", "english"), ("english", "korean")):
            seen = {}
            for filler in choices:
                there = tuple(getattr(filler, one).items())
                here = tuple(getattr(filler, other).items())
                assert seen.setdefault(there, here) == here, f"{kind}: {there}"


def test_all_patterns_are_used_in_training(splits):
    assert len(PATTERNS) >= 70
    assert len({pattern.korean for pattern in PATTERNS}) == len(PATTERNS)
    sentences = [source for source, _ in splits.train[:3_000]]
    for pattern in PATTERNS:
        shape = re.compile(re.escape(SLOT.sub("\0", pattern.korean)).replace("\0", ".+"))
        assert sum(bool(shape.fullmatch(sentence)) for sentence in sentences) >= 3, pattern.korean


def test_both_sides_of_a_pattern_have_the_same_slots():
    for pattern in PATTERNS:
        assert set(slots_of(pattern.korean)) == set(slots_of(pattern.english)), pattern.korean
        assert {kind_of(slot) for slot in pattern.slots} <= set(fillers())


def test_every_filler_has_every_form_that_a_pattern_asks_for():
    for pattern in PATTERNS:
        for language in ("korean", "english"):
            for slot, form, _ in SLOT.findall(getattr(pattern, language)):
                for filler in fillers()[kind_of(slot)]:
                    assert getattr(filler, language)[form]


def test_there_are_words_enough_and_not_too_many(splits):
    assert len(fillers()["person"]) >= 60
    assert len(fillers()["city"]) + len(fillers()["venue"]) >= 60
    assert len(fillers()["event"]) >= 60
    assert len(rows(schedules_words.GOODS)) >= 60
    forms = {word for _, target in splits.train for word in WORD.findall(target)}
    assert 1_000 <= len(forms) <= 2_000
    lengths = [len(target.split()) for _, target in splits.train]
    assert 6 <= sum(lengths) / len(lengths) <= 16


def finder(table, column):
    """A search for the things of a table in a sentence's text, which gives their Korean names."""
    by_name = {row[column]: row[0] for row in rows(table)} | {"회의실": "", "콘서트홀": ""}
    longest_first = re.compile("|".join(map(re.escape, sorted(by_name, key=len, reverse=True))))
    return lambda sentence: {by_name[name] for name in longest_first.findall(sentence)} - {""}


PEOPLE_IN = finder(schedules_words.PEOPLE, 1)
CITIES_IN = finder(schedules_words.CITIES, 1)
EVENTS_IN = finder(schedules_words.EVENTS, 0)


def combinations(pairs):
    """Who is where and what is on which day, read off the sentences themselves."""
    for source, target in pairs:
        for person in PEOPLE_IN(target):
            for place in CITIES_IN(target):
                yield ("person", person), ("place", place)
        for event in EVENTS_IN(source):
            for weekday in re.findall(r"[월화수목금토일]요일", source):
                yield ("event", event), ("weekday", weekday)


def test_held_out_combinations_never_occur_in_training(splits):
    found = list(combinations(splits.train))
    assert len(found) > 3_000
    assert not [combination for combination in found if is_rare(*combination)]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_the_other_sets_combine_known_words_in_new_ways(splits, split):
    known = set(combinations(splits.train))
    parts = {part for combination in known for part in combination}
    new = {pair for pair in combinations(getattr(splits, split)) if is_rare(*pair)}
    for kind in ("person", "event"):
        assert sum(one[0] == kind for one, _ in new) >= 30
    assert known.isdisjoint(new)
    assert {part for combination in new for part in combination} <= parts


def test_some_events_never_occur_in_some_patterns_of_training(splits):
    """Of the pairs of a pattern and an event, those of one pattern are read off its sentences."""
    pattern = next(p for p in PATTERNS if p.korean == "{event}까지 {days} 남았어요.")
    shape = re.compile(r"There are \d+ days left until the (.+)\.")
    found = {match[1] for _, target in splits.train if (match := shape.fullmatch(target))}
    rare = {
        filler.english[""]
        for filler in fillers()["event"]
        if is_rare(("pattern", pattern.korean), filler.marks[0])
    }
    assert rare
    assert found
    assert found.isdisjoint(rare)


def test_one_combination_in_ten_is_held_out():
    people, places = (rows(table) for table in (schedules_words.PEOPLE, schedules_words.VENUES))
    rare = [is_rare(("person", a[0]), ("place", b[0])) for a in people for b in places]
    assert 0.08 < sum(rare) / len(rare) < 0.12


def test_every_second_sentence_of_the_other_sets_is_a_held_out_one(splits):
    for pairs in (splits.valid, splits.test):
        others = list(combinations(pairs[1::2]))
        assert others
        assert not [combination for combination in others if is_rare(*combination)]
        held_out = [any(is_rare(*found) for found in combinations([pair])) for pair in pairs[::2]]
        assert sum(held_out) > 0.4 * len(held_out), "the rest has a venue, or an event in a pattern"


def test_test_and_validation_do_not_depend_on_the_size_of_training(splits):
    small = generate(n_train=10)
    assert (small.valid, small.test) == (splits.valid, splits.test)
    assert small.train == splits.train[:10]


def test_another_seed_gives_other_sentences_and_the_same_held_out_combinations(splits):
    other = generate(n_train=3_000, n_valid=10, n_test=10, seed=2)
    assert len(set(other.train) & set(splits.train)) < 600
    assert not [pair for pair in combinations(other.train) if is_rare(*pair)]


def test_two_processes_write_the_same_bytes(tmp_path):
    root = Path(schedules.__file__).parents[2]
    code = (
        "import sys; from pathlib import Path; from polyhead.data.schedules import write; "
        "write(Path(sys.argv[1]), 500, 50, 50, seed=3)"
    )
    for hash_seed in ("0", "1234"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
        command = [sys.executable, "-c", code, str(tmp_path / hash_seed)]
        subprocess.run(command, env=environment, check=True)
    first, second = (sorted((tmp_path / name).iterdir()) for name in ("0", "1234"))
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


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write(tmp_path, n_train=2, n_valid=1, n_test=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(schedules.os, "replace", fail)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
        write(tmp_path, n_train=3, n_valid=1, n_test=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"file: cannot be written \(.+\); give another folder"):
        write(tmp_path / "file", n_train=1, n_valid=0, n_test=0)


def test_a_negative_size_is_refused():
    with pytest.raises(DataError, match="n_valid: -1 sentence pairs; give 0 or more"):
        generate(n_valid=-1)


def test_asking_for_more_than_there_is_says_so(monkeypatch):
    monkeypatch.setattr(schedules, "PATTERNS", read_patterns("{weekday|이에요}.\nIt is {weekday}."))
    monkeypatch.setattr(schedules, "MAX_TRIES", 500)
    assert len(generate(n_train=7, n_valid=0, n_test=0).train) == 7
    message = "train: 8 sentence pairs were asked for, and after 7 no new one is found; ask for fewer"
    with pytest.raises(DataError, match=message):
        generate(n_train=8, n_valid=0, n_test=0)


def test_no_word_stands_twice_in_a_sentence():
    dice = random.Random(1)
    pattern = next(p for p in PATTERNS if p.korean == "{goods|과} {goods2|을} 주세요.")
    first, second = zip(
        *(compose(pattern, dice).pair[0].removesuffix(" 주세요.").split(" ", 1) for _ in range(2_000)),
        strict=True,
    )
    assert not [one for one, rest in zip(first, second, strict=True) if f" {one} " in f" {rest}"]


def test_full_dates_are_true():
    for filler in fillers()["fulldate"]:
        day = datetime.strptime(filler.english[""], "%A, %B %d, %Y")
        weekday = "월화수목금토일"[day.weekday()]
        assert filler.korean[""] == f"{day.year}년 {day.month}월 {day.day}일 {weekday}요일"
        assert filler.english[""].startswith(day.strftime("%A"))
        assert filler.marks == (("weekday", f"{weekday}요일"),)


def test_times_are_the_same_in_both_languages():
    for kind in ("time", "clock"):
        for filler in fillers()[kind]:
            at = datetime.strptime(filler.english[""], "%I:%M %p")
            half = "오전" if at.hour < 12 else "오후"
            hour, minute = at.hour % 12 or 12, f" {at.minute}분" if at.minute else ""
            spoken = f"{half} {hour}시{minute}"
            assert filler.korean[""] == (spoken if kind == "time" else f"{half} {hour}:{at:%M}")
    for kind in ("span", "opening"):
        for filler in fillers()[kind]:
            start, end = (
                datetime.strptime(filler.english[form], "%I:%M %p") for form in ("start", "end")
            )
            assert start < end


@pytest.mark.parametrize(
    ("kind", "korean", "english"),
    [
        ("weekdate", "3월 4일 수요일", "Wednesday, March 4"),
        ("date", "12월 25일", "December 25"),
        ("price", "15,000원", "15,000 won"), ("price", "3,500원", "3,500 won"),
        ("won", "₩15,000", "₩15,000"),
        ("amount", "12만", "120,000"), ("amount", "300만", "3,000,000"), ("crowd", "3천", "3,000"),
        ("percent", "25%", "25%"),
        ("warmth", "섭씨 23도", "23 degrees Celsius"),
        ("degrees", "영하 5도", "5 degrees below zero"),
        ("distance", "320킬로미터", "320 kilometers"), ("meters", "300미터", "300 meters"),
        ("weight", "1킬로그램", "1 kilogram"), ("weight", "3.5킬로그램", "3.5 kilograms"),
        ("minutes", "30분", "30 minutes"), ("duration", "1시간", "1 hour"),
        ("duration", "2시간 30분", "2 hours and 30 minutes"),
        ("length", "3개월", "3 months"), ("length", "2주", "2 weeks"), ("length", "10년", "10 years"),
        ("days", "5일", "5 days"),
        ("hour", "열두 시 반", "half past twelve"), ("hour", "세 시", "three o'clock"),
        ("age", "스무", "20"), ("age", "서른한", "31"), ("few", "열두", "twelve"),
        ("floor", "3", "3rd"), ("floor", "11", "11th"), ("nth", "22", "22nd"),
        ("goods", "책 세 권", "three books"), ("goods", "우산 한 개", "an umbrella"),
        ("goods", "USB 한 개", "a USB drive"), ("goods", "커피 두 잔", "two cups of coffee"),
        ("group", "학생 25명", "25 students"), ("group", "아이 두 명", "two children"),
        ("score", "6 대 0", "6 to 0"),
        ("future", "다음 주 수요일에", "next Wednesday"), ("past", "그저께", "the day before yesterday"),
    ],
)  # fmt: skip
def test_amounts_are_written_as_each_language_does(kind, korean, english):
    known = {filler.korean.get(""): filler.english.get("") for filler in fillers()[kind]}
    assert known[korean] == english


def test_english_nouns_and_verbs_are_inflected():
    nouns = {"box of chocolates": "boxes of chocolates", "dictionary": "dictionaries", "key": "keys",
             "watch": "watches", "dress": "dresses", "potato": "potatoes", "wolf": "wolves",
             "piano": "pianos", "deer": "deer", "T-shirt": "T-shirts"}  # fmt: skip
    assert {noun: plural(noun) for noun in nouns} == nouns
    verbs = {"have": "has", "do": "does", "go": "goes", "study": "studies", "play": "plays",
             "watch": "watches", "throw away": "throws away", "teach": "teaches"}  # fmt: skip
    assert {verb: third_person(verb) for verb in verbs} == verbs
    articles = {"umbrella": "an", "university": "a", "USB drive": "a", "orange": "an", "hat": "a",
                "interpreter": "an", "useful": "a", "elephant": "an"}  # fmt: skip
    assert {noun: with_article(noun).split()[0] for noun in articles} == articles


@pytest.mark.parametrize(
    ("korean", "english"),
    [
        ("{person|은} {city|으로} {past} 갔습니다.", "{person} went to {city} {past}."),
        ("{pastime.past}어요.", "{pastime.past}."),
    ],
)
def test_a_pattern_is_read_as_it_stands(korean, english):
    (pattern,) = read_patterns(f"\n{korean}\n{english}\n")
    assert (pattern.korean, pattern.english) == (korean, english)
    assert pattern.slots == slots_of(korean)
    assert [kind_of(slot) for slot in ("person2", "person")] == ["person", "person"]


def test_a_pattern_puts_particles_articles_and_capitals():
    kinds = fillers()
    chosen = {
        "person": next(f for f in kinds["person"] if f.korean[""] == "폴"),
        "city": next(f for f in kinds["city"] if f.korean[""] == "서울"),
        "venue": next(f for f in kinds["venue"] if f.korean[""] == "도서관"),
    }
    text = "{venue}에서 {person|이} {city|으로} 갔어요.\n{venue}: {person} left {venue.at} for {city}."
    (pattern,) = read_patterns(text)
    assert pattern.fill(chosen) == (
        "도서관에서 폴이 서울로 갔어요.",
        "The library: Paul left at the library for Seoul.",
    )
