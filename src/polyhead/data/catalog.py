"""Corpora that Polyhead knows by name: generated here, or downloaded from their authors.

`catalog.toml` holds the checksum of every file that can be downloaded, taken of the unpacked
contents: a host may compress them again, but not change them.
"""

import difflib
import os
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from polyhead.data.schedules import generator, labels
from polyhead.errors import ConfigError


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
        """The command that makes or downloads it."""
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


def make_corpus(name: str, output: Path | None, size: int, seed: int) -> list[Path]:
    """Write the embedded corpus to `output`, or to the data directory."""
    if lookup(name).kind != "made":
        raise ConfigError(f"{name} is downloaded with: polyhead data get {name}", "wrong_command")
    return generator.write(output or home() / name, n_train=size, seed=seed)


def make_default_corpus(*, labelled: bool) -> None:
    """Write the embedded corpus with its default size, and its labelled form on request."""
    generator.write(home() / "schedules")
    if labelled:
        labels.write(home() / "schedules")
