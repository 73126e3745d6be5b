"""Tables of all formats are read, and columns are chosen by name, by number or with certainty."""

import csv
import gzip
import io
import json
import lzma

import pytest
from expected_errors import raises

from polyhead.data.columns import read_columns
from polyhead.errors import ConfigError, DataError

KO = ["저리 가.", '안녕, "톰".', "비가 와요; 우산 있어요?", "집에 갔다.", "좋아요."] * 5
EN = ["Go away.", 'Hi, "Tom".', "It rains.", "He went home, alone.", "Good."] * 5
PAIRS = list(zip(KO, EN, strict=True))
PAIR = ("source", "target")
LABELLED = ("text", "label")


@pytest.fixture
def read(tmp_path):
    def read(name, content, roles=PAIR, given=(None, None)):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        file = read_columns(path, roles, given)
        return [(r.first, r.second) for r in file.records if r.bad is None and r.first], file

    return read


def delimited(rows, delimiter="\t", header=()):
    """Return rows as the csv module writes them."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([header, *rows] if header else rows)
    return text.getvalue()


def tabs(rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


TMX = (
    '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4"><header/><body>'
    + "".join(
        f'<tu><tuv xml:lang="ko-KR"><seg>{k}</seg></tuv><tuv lang="EN"><seg>{e}</seg></tuv></tu>'
        for k, e in PAIRS
    )
    + "</body></tmx>"
)
NUMBERED = [(1000 + n, k, 5000 + n, e) for n, (k, e) in enumerate(PAIRS)]
FILES = {
    "plain.tsv": tabs(PAIRS),
    "header.tsv": tabs([("ko", "en"), *PAIRS]),
    "korean-header.tsv": tabs([("SID", "원문", "번역문"), *((n, *p) for n, p in enumerate(PAIRS))]),
    "tatoeba.tsv": tabs(NUMBERED),
    "manythings.txt": tabs((*p, f"CC-BY 2.0 (France) #{n}") for n, p in enumerate(PAIRS)),
    "comma.csv": delimited(PAIRS, ",", ("Korean", "English")),
    "semicolon.csv": delimited(PAIRS, ";"),
    "pipe.csv": delimited(PAIRS, "|"),
    "quoted.tsv": delimited(PAIRS, header=("ko", "en")),
    "opus.jsonl": "".join(
        json.dumps({"translation": {"ko": k, "en": e}}, ensure_ascii=False) + "\n" for k, e in PAIRS
    ),
    "list.json": json.dumps([{"source": k, "target": e, "id": 7} for k, e in PAIRS]),
    "memory.tmx": TMX,
    "packed.tsv.gz": gzip.compress(tabs(PAIRS).encode()),
}


@pytest.mark.parametrize("name", FILES)
def test_every_layout_gives_the_same_pairs(name, read):
    pairs, file = read(name, FILES[name])
    assert pairs == PAIRS
    assert "'저리 가.' → 'Go away.'" in file.notices[-1]


@pytest.mark.parametrize("name", ["header.tsv", "comma.csv", "opus.jsonl", "memory.tmx"])
def test_columns_named_by_languages_give_the_languages(name, read):
    assert read(name, FILES[name])[1].languages == ("ko", "en")


def test_xlsx_and_parquet_are_read(tmp_path):
    calamine = pytest.importorskip("python_calamine")
    openpyxl = pytest.importorskip("openpyxl")
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    assert calamine
    book = openpyxl.Workbook()
    for row in (("SID", "원문", "번역문"), *((n, *pair) for n, pair in enumerate(PAIRS))):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    parquet.write_table(arrow.table({"ko": KO, "en": EN}), tmp_path / "a.parquet")
    for name in ("a.xlsx", "a.parquet"):
        records = read_columns(tmp_path / name, PAIR).records
        assert [(record.first, record.second) for record in records] == PAIRS


NSMC = tabs([("id", "document", "label"), *((9000 + n, t, n % 2) for n, t in enumerate(KO))])
LABELS = [(text, str(n % 2)) for n, text in enumerate(KO)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ratings_train.txt", NSMC),
        ("text-first.tsv", tabs(LABELS)),
        ("label-first.tsv", tabs((label, text) for text, label in LABELS)),
        ("a.csv", delimited(LABELS, ",", ("리뷰", "라벨"))),
    ],
)
def test_text_and_label_are_found(name, content, read):
    assert read(name, content, LABELLED)[0] == LABELS


@pytest.mark.parametrize(
    ("content", "roles", "code", "mention"),
    [
        (tabs([("ko", "the other"), *PAIRS]), PAIR, "unclear_header", "--source-column"),
        (tabs((k, e, f"{e} {n}") for n, (k, e) in enumerate(PAIRS)), PAIR, "unclear_columns", "3"),
        (tabs((1000 + n, k) for n, k in enumerate(KO)), PAIR, "unclear_columns", "numbers"),
        (tabs((k, e, k) for k, e in PAIRS), LABELLED, "unclear_columns", "--label-column"),
        ("one column\nand no other\n", PAIR, "unknown_format", "columns"),
        ("", PAIR, "no_text", "empty"),
        ('<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>', PAIR, "xml_entity", "a"),
        ("<tmx><body>", PAIR, "not_xml", "TMX"),
        ("PK\x03\x04 is no archive", PAIR, "damaged_xlsx", "damaged"),
    ],
)
def test_what_is_not_certain_is_an_error(content, roles, code, mention, read):
    with raises(DataError, code, mention):
        read("a.txt", content, roles)


def test_columns_are_chosen_by_name_or_number(read):
    content = tabs([("a", "b", "c"), *((k, "x", e) for k, e in PAIRS)])
    assert read("a.tsv", content, given=("a", "c"))[0] == PAIRS
    assert read("a.tsv", tabs(NUMBERED), given=("2", "4"))[0] == PAIRS
    with raises(DataError, "unknown_column", "'d'", "'a', 'b', 'c'"):
        read("a.tsv", content, given=("a", "d"))
    with raises(ConfigError, "invalid_column", "5"):
        read("a.tsv", tabs(NUMBERED), given=("2", "5"))
    with raises(DataError, "same_column"):
        read("a.tsv", tabs(NUMBERED), given=("2", "2"))


def test_xz_is_unpacked(read):
    assert read("a.tsv.xz", lzma.compress(tabs(PAIRS).encode()))[0] == PAIRS
    with raises(DataError, "damaged_gzip", "xz"):
        read("b.tsv.xz", lzma.compress(tabs(PAIRS).encode())[:-20] + bytes(20))
