"""Search for data files.

A file is looked for as it is named; then below each directory of $POLYHEAD_DATA; then in `home()`,
where `polyhead data get` and `polyhead data make` write; then where Debian's packages of data are
installed. In each place it may have the ending .gz.
"""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from polyhead.data.catalog import KNOWN, data_dirs
from polyhead.data.text_files import read_lines
from polyhead.errors import DataError

PACKAGED = Path("/usr/share/datasets")
PACKAGES = {"fashion-mnist": "dataset-fashion-mnist"}  # directory there: Debian package


def find(path: Path) -> Path:
    """Return the first existing place of a file or directory; "-" is standard input."""
    if str(path) == "-":
        return path
    places = dict.fromkeys([path, *(folder / path for folder in data_dirs())])
    for place in (*places, PACKAGED / path):
        for candidate in (place, place.with_name(place.name + ".gz")):
            if os.path.exists(candidate):
                return candidate
    searched = ", ".join(str(place.parent) for place in places)
    raise DataError(f"{path} not found (searched {searched}). {_hint(path)}", "not_found")


def find_all(names: Sequence[str]) -> list[Path]:
    """Find several files."""
    return [find(Path(name)) for name in names]


def find_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Find a file and return its lines."""
    return read_lines(find(path), encoding=encoding)


def _hint(path: Path) -> str:
    """Return how to get a file of a known corpus."""
    name = path.name.removesuffix(".gz")
    for part in path.parts[:-1]:
        if part in PACKAGES:
            return f"On Debian or Ubuntu install it with: apt install {PACKAGES[part]}"
        if part in KNOWN:
            names = [file.name for file in KNOWN[part].files]
            if not names or name in names:
                return f"Download it with: {KNOWN[part].command}"
            close = difflib.get_close_matches(name, names, n=3) or names
            return f"{part} has no such file, but {', '.join(close)}"
    return "Give its full path, or set POLYHEAD_DATA to your data directory."
