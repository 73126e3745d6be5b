"""Search for data files and for downloaded corpora.

A file is looked for as it is named, below each directory of $POLYHEAD_DATA, in `home()`, and where
Debian installs data, with or without the ending .gz. Checksums are those of the unpacked contents.
"""

import difflib
import os
from contextlib import suppress
from pathlib import Path

from polyhead.atomic_file import write_text
from polyhead.data.catalog import KNOWN, CorpusFile, KnownCorpus
from polyhead.errors import DataError

PACKAGED = Path("/usr/share/datasets")
SUMS = "SHA256SUMS"  # checksums of files whose source publishes none
PACKAGES = {"fashion-mnist": "dataset-fashion-mnist"}  # directory there: Debian package


def home() -> Path:
    """Return the user's data directory: $XDG_CACHE_HOME/polyhead, or ~/.cache/polyhead."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "polyhead")


def data_dirs() -> list[Path]:
    """Return the data directories: those of $POLYHEAD_DATA (separated as in $PATH), then home."""
    given = os.environ.get("POLYHEAD_DATA", "").split(os.pathsep)
    return [*(Path(folder).expanduser() for folder in given if folder), home()]


def installed(corpus: KnownCorpus) -> Path | None:
    """Return the directory that holds all files of a corpus, if there is one."""
    places = [folder / corpus.name for folder in data_dirs()]
    if corpus.kind == "made":
        return next((place for place in places if any(place.glob("train.*"))), None)
    return next((p for p in places if all(_is_there(p, file) for file in corpus.files)), None)


def _is_there(folder: Path, file: CorpusFile) -> bool:
    """Return whether a file exists with its size and a known checksum, or is packed."""
    path, is_known = folder / file.name, file.sha256 or file.name in recorded_sums(folder)
    with suppress(OSError):
        return bool(is_known) and path.stat().st_size == (file.n_bytes or path.stat().st_size)
    return (folder / f"{file.name}.gz").is_file()


def recorded_sums(folder: Path) -> dict[str, str]:
    """Return the checksums by file name that were recorded when a corpus was downloaded."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    rows = (line.split("  ", 1) for line in lines)
    return {row[1]: row[0] for row in rows if len(row) == 2}


def record_sums(folder: Path, sums: dict[str, str]) -> None:
    """Add checksums to those recorded, in the format of sha256sum."""
    known = recorded_sums(folder)
    if sums and known | sums != known:
        rows = sorted((known | sums).items())
        write_text(folder / SUMS, "".join(f"{digest}  {name}\n" for name, digest in rows))


def find(path: str | Path) -> Path:
    """Return the first existing place of a file or directory; "-" is standard input."""
    path = Path(path)
    if str(path) == "-":
        return path
    places = dict.fromkeys([path, *(folder / path for folder in data_dirs())])
    for place in (*places, PACKAGED / path):
        for candidate in (place, place.with_name(place.name + ".gz")):
            if os.path.exists(candidate):
                return candidate
    searched = ", ".join(str(place.parent) for place in places)
    raise DataError(f"{path} not found (searched {searched}). {_hint(path)}", "not_found")


def _hint(path: Path) -> str:
    """Return how to get a file of a known corpus, or files with similar names."""
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
    names = os.listdir(path.parent)[:10_000] if path.parent.is_dir() else []
    if close := difflib.get_close_matches(path.name, names, n=3, cutoff=0.8):
        return f"Did you mean {' or '.join(close)}?"
    return "Give its full path, or set POLYHEAD_DATA to your data directory."
