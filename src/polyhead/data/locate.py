"""Search for data files, and the corpora of `catalog.toml`, which Polyhead knows by name.

A file is looked for as it is named, below each directory of $POLYHEAD_DATA, in `home()`, and where
Debian installs data, with or without the ending .gz. Checksums are those of the unpacked contents.
"""

import difflib
import os
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from polyhead.errors import ConfigError, DataError

PACKAGED = Path("/usr/share/datasets")
PACKAGES = {"fashion-mnist": "dataset-fashion-mnist"}  # directory there: Debian package


class RemoteFile(NamedTuple):
    """A file of a corpus; the download may be compressed by gzip."""

    name: str
    url: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus that is generated ("made") or downloaded ("fetched") by name."""

    name: str
    description: str
    languages: tuple[str, ...]
    licence: str
    kind: Literal["made", "fetched"]
    files: tuple[RemoteFile, ...] = ()

    @property
    def command(self) -> str:
        return f"polyhead data {'make' if self.kind == 'made' else 'get'} {self.name}"

    def installed(self) -> Path | None:
        """Return the directory of the corpus, if there is one."""
        places = [folder / self.name for folder in data_dirs()]
        return next((place for place in places if place.is_dir()), None)


def _read_known() -> dict[str, KnownCorpus]:
    table = tomllib.loads((files(__package__) / "catalog.toml").read_text(encoding="utf-8"))
    corpora = {}
    for name, entry in table.items():
        base = entry.pop("url", "")
        remote = tuple(
            RemoteFile(file.removesuffix(".gz"), f"{base}/{file}", n_bytes, sha256)
            for file, n_bytes, sha256 in entry.pop("files", ())
        )
        languages = tuple(entry.pop("languages"))
        corpora[name] = KnownCorpus(name=name, languages=languages, files=remote, **entry)
    return corpora


KNOWN = _read_known()


def lookup(name: str) -> KnownCorpus:
    """Return the corpus of this name."""
    if name in KNOWN:
        return KNOWN[name]
    close = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(KNOWN)}."
    raise ConfigError(f"unknown corpus {name!r}. {hint}", "unknown_corpus")


def home() -> Path:
    """Return the user's data directory: $XDG_CACHE_HOME/polyhead, or ~/.cache/polyhead."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "polyhead")


def data_dirs() -> list[Path]:
    """Return the data directories: those of $POLYHEAD_DATA (separated as in $PATH), then home."""
    given = os.environ.get("POLYHEAD_DATA", "").split(os.pathsep)
    return [*(Path(folder).expanduser() for folder in given if folder), home()]


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
    if close := difflib.get_close_matches(path.name, names, n=3):
        return f"Did you mean {' or '.join(close)}?"
    return "Give its full path, or set POLYHEAD_DATA to your data directory."
