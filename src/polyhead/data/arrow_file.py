"""Tables in the formats of Apache Arrow: .parquet, and .arrow of `Dataset.save_to_disk`."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from polyhead.errors import DataError, MissingError, install_command

PARQUET, ARROW = b"PAR1", (b"ARRO", b"\xff\xff\xff\xff")  # first bytes; a file, and a stream


def read_arrow(
    path: Path, *, is_parquet: bool
) -> tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]:
    """Return the columns and the records of a table; numbers of classes become their names.

    The fields of "translation" are columns of their own.
    """
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        message = f"reading {path.suffix} needs pyarrow: {install_command('tables')}"
        raise MissingError(message, "missing_package") from None
    try:
        if is_parquet:
            table = parquet.ParquetFile(path).read()
        else:
            source = pyarrow.memory_map(str(path))
            is_file = source.read(4) == ARROW[0]
            source.seek(0)
            table = (ipc.open_file if is_file else ipc.open_stream)(source).read_all()
        names = _class_names(table.schema.metadata or {})
        if "translation" in table.column_names:
            table = table.flatten()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error})", "damaged_parquet") from None
    columns = tuple(column.removeprefix("translation.") for column in table.column_names)
    values = [
        [names[column].get(value, value) for value in cells] if column in names else cells
        for column, cells in zip(columns, (c.to_pylist() for c in table.columns), strict=True)
    ]
    return columns, zip(*values, strict=True)


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, dict[Any, str]]:
    """Return the names of classes by column and number, as the `datasets` library saves them."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {
            column: {number: str(name) for number, name in enumerate(feature["names"])}
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    return {}
