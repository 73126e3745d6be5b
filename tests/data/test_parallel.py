"""Reading of sentence pairs: every line is read or listed as skipped; holding out of pairs."""

import gzip
import random
from pathlib import Path

import pytest
from expected_errors import raises
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyhead.data.holdout import normalized
from polyhead.data.parallel import Pairs, hold_out, read_pair_file, read_parallel
from polyhead.data.text_files import BadLine
from polyhead.errors import ConfigError, DataError

RELAXED = settings(  # the machine may be busy; files may be overwritten
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WORDS = ("ba", "de", "ki", "lo", "mu", "ne", "po", "ri", "sa", "tu", "wo", "ze")


def parallel(write, source, target, **options):
    paths = write(source, "train.ko"), write(target, "train.en")
    return read_parallel(paths[:1], paths[1:], **options)


def invented(n, seed=0):
    """Return sentences of an invented language and translations of similar length."""
    rng = random.Random(seed)
    sources = [" ".join(rng.choices(WORDS, k=rng.randint(2, 15))) + "." for _ in range(n)]
    targets = [source.replace(" ", "xa ").upper() for source in sources]
    return sources, targets


# ----------------------------------------------------------------------------------- parallel files


sentence = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0\ufeff"))


@RELAXED
@given(pairs=st.lists(st.tuples(sentence, sentence), min_size=1))
def test_every_line_is_read_or_skipped(pairs, write):
    pairs = [("source .", "target ."), *pairs]
    read = parallel(write, "".join(f"{s}\n" for s, _ in pairs), "".join(f"{t}\n" for _, t in pairs))
    assert list(read) == [pair for pair in pairs if all(map(str.strip, pair))]
    assert len(read) + len(read.skipped) == len(pairs)


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("a\nb\n", "A\n\n", "train.en:2: the target is empty"),
        ("a\n\n", "A\nB\n", "train.ko:2: the source is empty"),
        ("a\n\n", "A\n\n", "train.ko:2: both sides are empty"),
        (b"a\nb\n\xe9\n", "A\nB\nC\n", "train.ko:3: not UTF-8 (byte 0xE9 at column 1)"),
        ("a\nb\n", b"A\n\0\n", "train.en:2: a NUL character at column 1"),
        ("a\n" + "b" * 1_000_001, "A\nB", "train.ko:2: longer than 1,000,000 bytes (1,000,001)"),
    ],
)
def test_the_first_bad_line_is_an_error_on_request(source, target, why, write):
    assert len(parallel(write, source, target).skipped) == 1
    with raises(DataError, "bad_line", why):
        parallel(write, source, target, on_bad_line="fail")


def test_several_files_are_joined_in_order(write):
    contents = {"a.ko": "가\n나\n", "b.ko": "다\n\n", "a.en": "a\nb\n", "b.en": "c\nd\n"}
    paths = [write(text, name) for name, text in contents.items()]
    pairs = read_parallel(paths[:2], paths[2:])
    assert list(pairs) == [("가", "a"), ("나", "b"), ("다", "c")]
    assert pairs.skipped == (BadLine("b.ko", 2, "the source is empty"),)
    with raises(ConfigError, "unequal_files", "2 source files", "1 target files"):
        read_parallel(paths[:2], paths[2:3])


@pytest.mark.parametrize("on_bad_line", ["skip", "fail"])
def test_unequal_files_are_always_an_error(on_bad_line, write):
    with raises(DataError, "unequal_lengths", "train.ko has 100 lines", "train.en has 99"):
        parallel(write, "가\n" * 100, "a\n" * 99, on_bad_line=on_bad_line)


def test_the_error_of_unequal_files_locates_the_difference(write):
    sources, targets = invented(1_000)
    del targets[612]
    with raises(DataError, "unequal_lengths", "1,000 lines", "999") as caught:
        parallel(write, "\n".join(sources), "\n".join(targets))
    assert abs(int(str(caught.value).rpartition(" ")[2]) - 613) < 10
    with raises(DataError, "unequal_lengths", "empty lines at the end of train.en"):
        parallel(write, "가\n나\n", "a\nb\n\n \n")


def test_one_side_may_be_compressed(write):
    source, target = (text.encode("cp949") for text in ("안녕\n세상\n", "“hi”\n“world”\n"))
    pairs = parallel(write, gzip.compress(source), target, encoding="cp949")
    assert list(pairs) == [("안녕", "“hi”"), ("세상", "“world”")]


def test_notices_of_all_files_are_kept(write):
    pairs = parallel(write, "안녕\n".encode("utf-16"), "hi\n".encode("utf-16"))
    assert [notice.split(":")[0] for notice in pairs.notices[:2]] == ["train.ko", "train.en"]


def test_equal_files_are_an_error(write):
    path, other = (write("가\n나\n", name) for name in ("train.ko", "copy.ko"))
    Path("link.ko").symlink_to(path)
    for same in (path, Path("link.ko")):
        with raises(DataError, "same_file", "train.ko"):
            read_parallel([path], [same])
    with raises(DataError, "same_text", "train.ko, copy.ko"):
        read_parallel([path], [other])


def test_empty_files_and_files_without_a_pair_are_errors(write):
    with raises(DataError, "no_text", "train.ko is empty"):
        parallel(write, "", "a\n")
    with raises(DataError, "no_text", "train.en is empty"):
        parallel(write, "a\n", b"\xef\xbb\xbf")
    with raises(DataError, "no_text", "2 lines", "train.en:1: the target is empty"):
        parallel(write, "a\n\n", "\nB\n")


# ----------------------------------------------------------------------------------- files of pairs


def from_file(write, name, contents, **options):
    return read_pair_file([write(contents, name)], **options)


TABBED = '안녕\thi, "you\t# by someone\r\n세상\t"world"\n'
NAMED = "id\ten\tko\n7\thi\t안녕\n8\tbye\t\n"
OPUS = '{"translation": {"de": "Tag", "en": "day"}}\n{"de": "Nacht", "en": "night"}\n'
LIST = '[\n {"source": "a",\n  "target": "b"},\n {"source": "c", "target": ""}\n]\n'


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "contents", "keys", "expected", "skipped"),
    [
        ("a.tsv", TABBED, "", [("안녕", 'hi, "you'), ("세상", '"world"')], []),
        ("a.tsv", NAMED, "ko en", [("안녕", "hi")], ["3: the source is empty"]),
        ("a.tsv", NAMED, "3 2", [("안녕", "hi")], ["3: the source is empty"]),
        ("a.TSV", "Source\tTarget\n안녕\thi\n", "", [("안녕", "hi")], []),
        ("a.tsv", "a\tb\nalone\n\nc\td\te\n", "", [("a", "b"), ("c", "d")],
         ["2: 1 column, expected 2", "3: both sides are empty"]),
        ("a.jsonl", '{"source": "a", "target": "b\\nc", "x": 1}\n', "", [("a", "b c")], []),
        ("a.json", OPUS, "de en", [("Tag", "day"), ("Nacht", "night")], []),
        ("a.json", LIST, "", [("a", "b")], ["2: the target is empty"]),
    ],
    ids=["only tabs divide", "names", "numbers", "header", "few columns", "lines", "opus", "list"],
)  # fmt: skip
def test_tables_are_read(name, contents, keys, expected, skipped, packed, write):
    name, data = (f"{name}.gz", gzip.compress(contents.encode())) if packed else (name, contents)
    pairs = from_file(write, name, data, keys=tuple(keys.split()) or (None, None))
    assert list(pairs) == expected
    assert [str(bad) for bad in pairs.skipped] == [f"{name}:{why}" for why in skipped]


@pytest.mark.parametrize(
    ("name", "contents", "key", "kind", "code", "mentions"),
    [
        ("a.tsv", "id\ten\n1\thi\n", "ko", DataError, "unknown_column", ["'ko'", "'id', 'en'"]),
        ("a.tsv", "a\tb\n", "0", ConfigError, "invalid_column", ["column 0"]),
        ("a.json", "[1, 2", None, DataError, "not_json", ["a.json", "column 6"]),
        ("a.txt", "a b\nc d\n", None, DataError, "unknown_format", ["a.txt"]),
        ("a.tsv", "", None, DataError, "no_text", ["a.tsv"]),
    ],
)
def test_unusable_tables_are_errors(name, contents, key, kind, code, mentions, write):
    with raises(kind, code, *mentions):
        from_file(write, name, contents, keys=(key, None))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON (expecting property name enclosed in double quotes at column 2)"),
        ("[" * 100_000, "not JSON (nested too deeply)"),
        ('{"source": ' + "1" * 5_000 + "}", "not JSON (a number with too many digits)"),
        ("[1]", "a JSON object was expected, not list"),
        ("null", "a JSON object was expected, not NoneType"),
        ('{"source": "a"}', "no 'target'; it has 'source'"),
        ('{"translation": {"ko": "a", "en": "b"}}', "no 'source'; it has 'ko', 'en'"),
        ('{"source": "a", "target": [7]}', "'target' is not text but list"),
        ('{"source": "\\ud800", "target": "b"}',
         "'source' holds half a character (the lone surrogate U+D800)"),
        ('{"source": "a", "target": "\\u0000"}', "'target' holds a NUL character"),
        ('{"source": " ", "target": "b"}', "the source is empty"),
        ("", "both sides are empty"),
    ],
    ids=range(12),
)  # fmt: skip
def test_bad_records_are_skipped_with_their_reason(line, why, write):
    contents = '{"source": "good", "target": "gut"}\n' + line + "\n"
    pairs = from_file(write, "a.jsonl", contents)
    assert list(pairs) == [("good", "gut")]
    assert [str(bad) for bad in pairs.skipped] == [f"a.jsonl:2: {why}"]
    with raises(DataError, "bad_line", f"a.jsonl:2: {why}"):
        from_file(write, "a.jsonl", contents, on_bad_line="fail")


# -------------------------------------------------------------------------------------- holding out


corpus = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers()), min_size=12, max_size=40)


@RELAXED
@given(corpus=corpus, wanted=st.integers(min_value=1, max_value=11), seed=st.integers())
def test_held_out_texts_are_not_in_training(corpus, wanted, seed):
    pairs = Pairs([f" {s.upper()}  x" for s, _ in corpus], [f"{t} Y" for _, t in corpus])
    pairs.sources[::2] = [normalized(source) for source in pairs.sources[::2]]
    pairs.targets[::3] = [normalized(target) for target in pairs.targets[::3]]
    try:
        train, held = hold_out(pairs, wanted, seed)
    except DataError:
        return  # too many of them share texts
    assert 0 < len(held) <= wanted
    assert not {normalized(s) for s in train.sources} & {normalized(s) for s in held.sources}
    assert not {normalized(t) for t in train.targets} & {normalized(t) for t in held.targets}
    assert sorted([*train, *held]) == sorted(pairs)


@RELAXED
@given(seed=st.integers())
def test_the_count_is_exact_if_all_sources_differ(seed):
    pairs = Pairs([f"source {n}" for n in range(50)], [f"target {n}" for n in range(50)])
    train, held = hold_out(pairs, 7, seed)
    assert (len(train), len(held)) == (43, 7)
    assert train.sources == [s for s in pairs.sources if s not in held.sources], "order is kept"
    assert hold_out(pairs, 7, seed) == (train, held)


def test_the_choice_depends_on_the_seed_and_little_on_the_size():
    sources = [f"source {n}" for n in range(1_000)]
    pairs = Pairs(sources, sources)
    held = [set(hold_out(pairs, 100, seed)[1].sources) for seed in (1, 2)]
    assert len(held[0] & held[1]) < 50
    grown = Pairs([*sources, "one more"], [*sources, "one more"])
    assert len(held[0] & set(hold_out(grown, 100, 1)[1].sources)) >= 99


@pytest.mark.parametrize("amount", [0, -1, 10, 11])
def test_an_impossible_amount_is_an_error(amount):
    pairs = Pairs([str(n) for n in range(10)], [str(n) for n in range(10)])
    with raises(ConfigError, "invalid_hold_out", f"{amount} of 10"):
        hold_out(pairs, amount, seed=1)


def test_one_repeated_sentence_cannot_be_split():
    pairs = Pairs(["Same  one"] * 5 + ["same one"] * 5, [str(n) for n in range(10)])
    with raises(DataError, "too_few_examples", "3 of 10"):
        hold_out(pairs, 3, seed=1)
