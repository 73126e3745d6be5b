"""Arrow, Parquet and XLSX files of strangers: read by a child process, refused in one line."""

import os
import sys
from itertools import chain
from pathlib import Path

import pytest
from expected_errors import raises
from spreadsheets import spreadsheet

from polyhead.data.tables import open_table
from polyhead.errors import DataError, MissingError

arrow = pytest.importorskip("pyarrow")
pytest.importorskip("python_calamine")
from pyarrow import ipc, parquet  # noqa: E402

TEXTS = [f"문장 {n}" for n in range(5_000)]


def rows(path):
    table = open_table(path)
    return [tuple(row.cells) for row in chain(table.sample, table.rest)]


def write_ipc(path, table, *, kind="file", **options):
    new = ipc.new_file if kind == "file" else ipc.new_stream
    with new(str(path), table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return path


@pytest.mark.parametrize("kind", ["file", "stream", "parquet", "xlsx"])
def test_records_keep_their_order_and_number(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    table = arrow.table({"a": TEXTS, "n": range(len(TEXTS))})
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=700)
    elif kind == "xlsx":
        path.write_bytes(spreadsheet(zip(TEXTS, range(len(TEXTS)), strict=True)))
    else:
        write_ipc(path, table, kind=kind)
    assert rows(path) == [(text, str(n)) for n, text in enumerate(TEXTS)]


def test_an_empty_area_around_a_sheet_is_left_out(tmp_path):
    content = spreadsheet([("a", "b"), ("c", "d")], column="C", first=3)
    (tmp_path / "a.xlsx").write_bytes(content)
    assert rows(tmp_path / "a.xlsx") == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("end", [40, 2**30])  # in the padding behind the texts, and far outside
def test_offsets_that_point_outside_are_refused(kind, end, tmp_path):
    path = tmp_path / "a.arrow"
    write_ipc(path, arrow.table({"a": ["abcd"] * 9, "b": ["x"] * 9}), kind=kind)
    last, other = ((32).to_bytes(4, "little") + n.to_bytes(4, "little") for n in (36, end))
    content = path.read_bytes()  # `last`: where the last text of "a" starts and ends
    path.write_bytes(content.replace(last, other, 1))
    with raises(DataError, "damaged_arrow"):
        rows(path)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_bytes_that_are_not_utf8_are_one_line(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    text = arrow.array([b"ok", b"\xff\xfe"]).view(arrow.string())
    table = arrow.table({"a": text, "b": ["x", "y"]})
    parquet.write_table(table, path) if kind == "parquet" else write_ipc(path, table)
    with raises(DataError, f"damaged_{kind}") as error:
        rows(path)
    assert "\n" not in str(error.value)


def test_a_small_file_cannot_fill_the_memory(tmp_path):
    text = arrow.DictionaryArray.from_arrays(arrow.array([0] * 200_000, "int32"), ["x" * 9_000])
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"a": text, "b": text}), path, compression="zstd")
    assert path.stat().st_size < 20_000
    with raises(DataError, "too_large", "64 MB"):
        rows(path)
    write_ipc(tmp_path / "a.arrow", arrow.table({"a": ["x" * 400_000_000]}), compression="zstd")
    with raises(DataError, "damaged_arrow", "memory"):
        rows(tmp_path / "a.arrow")


def test_rows_without_text_are_counted(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"a": arrow.nulls(3_000_000)}), path)
    with raises(DataError, "too_large"):
        rows(path)


def test_no_child_is_left(tmp_path):
    parquet.write_table(arrow.table({"a": TEXTS}), tmp_path / "a.parquet")
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("no list of children")
    before = children.read_text().split()  # those of other tests
    rows(tmp_path / "a.parquet")
    assert set(children.read_text().split()) <= set(before)


@pytest.mark.parametrize("package", ["pyarrow", "python_calamine"])
def test_a_missing_package_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    path = tmp_path / "a"
    path.write_bytes(b"PAR1" if package == "pyarrow" else b"PK\x03\x04")
    with raises(MissingError, "missing_package", "pip install"):
        open_table(path)
