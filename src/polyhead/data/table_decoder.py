"""Decoding of untrusted Arrow, Parquet and XLSX files; runs in a sandbox (`polyhead.sandbox`).

Every batch is validated before its values are read: offsets and indices may point anywhere.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

with suppress(ImportError):
    import pyarrow
    from pyarrow import ipc, parquet
with suppress(ImportError):
    import python_calamine

SLICE = 128  # records
PORTION = 1 << 20  # bytes of JSON, at least, of a reply
RECORD_BYTES = 256  # counted beside the text of a record, which may be empty
_SLICES: list[Iterator[Any]] = []  # of the table that this process reads


def open_table(
    _: Sequence[bytes], path: str, kind: str
) -> tuple[list[str] | None, tuple[bytes, ...]]:
    """Open a table for reading in one pass; return the names of its columns, if it has them."""
    columns, slices = _xlsx(path) if kind == "xlsx" else _arrow(path, kind)
    _SLICES[:] = [slices]
    return columns, ()


def next_records(_: Sequence[bytes]) -> tuple[int, list[bytes]]:
    """Return the next records as lists in JSON, and their size; no lists at the end."""
    lists: list[bytes] = []
    size = 0
    while size < PORTION and (records := next(_SLICES[0], None)) is not None:
        lists.append(json.dumps([*records], default=_plain).encode())
        size += len(lists[-1]) + RECORD_BYTES * SLICE
    return size, lists


def _plain(value: object) -> object:
    return {"bytes": len(value)} if isinstance(value, bytes) else str(value)


def _xlsx(path: str) -> tuple[None, Iterator[Any]]:
    """Return the records of the first sheet with two columns."""
    book = python_calamine.CalamineWorkbook.from_path(path)
    sheets = (book.get_sheet_by_name(name) for name in book.sheet_names)
    sheet = next((sheet for sheet in sheets if sheet.width > 1), None)
    if sheet is None or sheet.start is None:
        return None, iter(())
    rows = islice(sheet.iter_rows(), sheet.start[0], None)  # the columns begin at the first cell
    return None, iter(lambda: [*islice(rows, SLICE)], [])


def _arrow(path: str, kind: str) -> tuple[list[str], Iterator[Any]]:
    """Return columns and records; numbers of classes become their names.

    The fields of "translation" are columns of their own.
    """
    if kind == "parquet":
        file = parquet.ParquetFile(path, buffer_size=1 << 20)
        schema, batches = file.schema_arrow, file.iter_batches(SLICE, use_threads=False)
    else:
        source = pyarrow.OSFile(path)
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader = (ipc.open_file if is_file else ipc.open_stream)(source)
        numbers = range(reader.num_record_batches if is_file else 0)
        schema, batches = reader.schema, map(reader.get_batch, numbers) if is_file else reader
    names = _class_names(schema.metadata or {})
    is_nested = "translation" in schema.names
    if is_nested:
        schema = schema.empty_table().flatten().schema
    columns = [name.removeprefix("translation.") for name in schema.names]

    def slices() -> Iterator[Any]:
        for batch in batches:
            batch.validate(full=True)
            table = pyarrow.Table.from_batches([batch])
            if is_nested:
                table = table.flatten()
            for start in range(0, len(table), SLICE):
                cells = [column.to_pylist() for column in table.slice(start, SLICE).columns]
                for n, column in enumerate(columns):
                    if known := names.get(column):
                        cells[n] = [
                            [known.get(i, i) for i in cell] if isinstance(cell, list)
                            else known.get(cell, cell) for cell in cells[n]
                        ]  # fmt: skip
                yield zip(*cells, strict=True)

    return columns, slices()


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, dict[Any, str]]:
    """Return the names of classes by column and number, as the `datasets` library saves them."""
    names = {}
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        for column, feature in json.loads(metadata[b"huggingface"])["info"]["features"].items():
            inner = feature.get("feature", feature)  # of a list
            if inner.get("_type") == "ClassLabel":
                names[column] = {n: str(name) for n, name in enumerate(inner["names"])}
    return names
