"""Tables of all formats are read, and columns are chosen by name, by number or with certainty."""

import csv
import gzip
import io
import json
import lzma
import sys

import pytest
from expected_errors import raises
from spreadsheets import spreadsheet

from polyhead.cli.main import main
from polyhead.data.columns import describe_columns, read_columns
from polyhead.data.labels import classes_of
from polyhead.errors import ConfigError, DataError, MissingError

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


def test_spreadsheets_of_ai_hub_are_read(read):
    pytest.importorskip("python_calamine")
    rows = [("SID", "원문", "번역문"), *((n, *pair) for n, pair in enumerate(PAIRS, start=1))]
    assert read("1_구어체(1).xlsx", spreadsheet(rows))[0] == PAIRS


def test_parquet_is_read(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"ko": KO, "en": EN}), tmp_path / "a.parquet")
    file = read_columns(tmp_path / "a.parquet", PAIR)
    assert [(record.first, record.second) for record in file.records] == PAIRS
    assert file.languages == ("ko", "en")


NSMC = tabs([("id", "document", "label"), *((9000 + n, t, n % 2) for n, t in enumerate(KO))])
LABELS = [(text, str(n % 2)) for n, text in enumerate(KO)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ratings_train.txt", NSMC),
        ("text-first.tsv", tabs(LABELS)),
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
        (tabs((1000 + n, k) for n, k in enumerate(KO)), PAIR, "unclear_columns", "'1000'"),
        (tabs((k, e, k) for k, e in PAIRS), LABELLED, "unclear_columns", "--label-column"),
        (tabs((label, k) for k, label in LABELS), LABELLED, "unclear_columns", "2 different"),
        (json.dumps(dict.fromkeys("a" * n for n in (1, 2, 99))), PAIR, "unclear_columns", "a…'"),
        ("one column\nand no other\n", PAIR, "unknown_format", "columns"),
        ('"' + ("x" * 900_000 + "\n") * 2, PAIR, "unknown_format", "columns"),
        ("", PAIR, "no_text", "empty"),
        ('<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>', PAIR, "xml_entity", "'a'"),
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


@pytest.mark.parametrize("kind", ["xz", "zst"])
def test_xz_and_zstd_are_unpacked(kind, read, monkeypatch):
    zstd = lzma if kind == "xz" else pytest.importorskip("backports.zstd")
    packed = zstd.compress(tabs(PAIRS).encode())
    assert read(f"a.tsv.{kind}", packed)[0] == PAIRS
    with raises(DataError, "damaged_gzip", {"xz": "xz", "zst": "zstd"}[kind]):
        read(f"b.tsv.{kind}", packed[:-20] + bytes(20))
    with raises(DataError, "damaged_gzip"):
        read(f"c.tsv.{kind}", packed[:-9])
    monkeypatch.setattr("polyhead.data.text_files.RATIO_FREE", 1 << 20)
    with raises(DataError, "gzip_bomb"):
        read(f"d.tsv.{kind}", zstd.compress(b"a\tb\n" * 2_000_000))


def test_zstd_without_its_package_names_it(read, monkeypatch):
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with raises(MissingError, "missing_package", "backports.zstd", "zstd -d"):
        read("a.tsv.zst", b"\x28\xb5\x2f\xfd" + bytes(20))


@pytest.mark.parametrize(
    ("content", "roles", "parts"),
    [
        (tabs(NUMBERED), PAIR, ["no header", "1: 25", "→ source", "3: 25", "→ target"]),
        (FILES["korean-header.tsv"], PAIR, ["header 'SID'", "1 'SID': 25", "→ source"]),
        (NSMC, LABELLED, ["'id': 25", "'document'", "→ text", "'label': 2 different", "→ label"]),
        (tabs([("ko", "the other"), *PAIRS]), PAIR, ["25 rows", "header 'ko', 'the other'"]),
    ],
)
def test_columns_are_described(content, roles, parts, tmp_path):
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    text = describe_columns(tmp_path / "a.txt", roles)
    for part in parts:
        assert part in text, text
        text = text[text.index(part) + len(part) :]
    assert ("→" in "".join(parts)) or "→" not in text


def test_data_check_shows_the_columns_of_tables(tmp_path, capsys):
    for name, content in {"n.txt": NSMC, "t.tsv": tabs(NUMBERED), "u.tsv": tabs(SIMILAR)}.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert main(["data", "check", "--data", str(tmp_path / "n.txt")]) == 0
    assert "'document': 5 different" in capsys.readouterr().out
    words = ["data", "check", "--pairs", str(tmp_path / "u.tsv")]
    assert main(words) == 4
    assert "3: 25 different" in capsys.readouterr().out
    assert main([*words, "--source-column", "1", "--target-column", "3"]) != 2
    out = capsys.readouterr().out
    assert "→ target" in out
    assert "25 pairs" in out


SIMILAR = [(k, e, f"{e} {n}") for n, (k, e) in enumerate(PAIRS)]


def test_a_lone_carriage_return_in_a_cell_is_a_space(read):
    content = "ko,en\n안녕,hello\n가\r나,x y\n" + "".join(f'"{k}","{k} x"\n' for k in KO[2:])
    assert read("a.csv", content)[0][:2] == [("안녕", "hello"), ("가 나", "x y")]


def test_true_and_false_are_labels(read):
    rows = [{"text": text, "label": n % 2 == 0} for n, text in enumerate(KO)]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    expected = [(text, str(n % 2 == 0)) for n, text in enumerate(KO)]
    assert read("a.jsonl", content, LABELLED)[0] == expected


@pytest.mark.parametrize("encoding", ["euc-kr", "no-such-encoding"])
def test_the_encoding_that_a_translation_memory_declares_is_not_used(encoding, read):
    content = TMX.replace('<?xml version="1.0"?>', f'<?xml version="1.0" encoding="{encoding}"?>')
    assert read("a.tmx", content)[0] == PAIRS


def test_a_cell_of_a_million_digits_is_read_at_once(read):
    rows = [(k, f"{'1' * 400_000}x") for k in KO[:2]]
    assert len(read("a.tsv", tabs(rows), given=("1", "2"))[0]) == 2
    assert len(read("b.tsv", tabs(rows))[0]) == 2


def test_labels_of_thousands_of_digits_are_names():
    assert classes_of(["9" * 5_000, "1"], 2) == ("1", "9" * 5_000)
