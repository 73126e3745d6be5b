"""Corpora that Polyhead knows by name: the entries of `catalog.toml`."""

import difflib
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from polyhead.errors import ConfigError


class CorpusFile(NamedTuple):
    """A file of a corpus as it lies on disk, unpacked.

    n_bytes, sha256: 0 and "" if its source publishes neither; the checksum of the first download is
        then recorded and expected from then on.
    """

    name: str
    n_bytes: int = 0
    sha256: str = ""


class Download(NamedTuple):
    """An address: of one file, which may be compressed, or of an archive with several.

    n_bytes, sha256: of an archive itself, 0 and "" if they are not published.
    """

    url: str
    files: tuple[CorpusFile, ...]
    is_archive: bool = False
    n_bytes: int = 0
    sha256: str = ""

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[1]

    @property
    def is_published(self) -> bool:
        """Return whether the source publishes a checksum of everything."""
        return bool(self.sha256) or all(file.sha256 for file in self.files)


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus that is generated ("made") or downloaded ("fetched") by name."""

    name: str
    description: str
    languages: tuple[str, ...]
    licence: str
    kind: Literal["made", "fetched"]
    downloads: tuple[Download, ...] = ()

    @property
    def files(self) -> tuple[CorpusFile, ...]:
        return tuple(file for download in self.downloads for file in download.files)

    @property
    def command(self) -> str:
        return f"polyhead data {'make' if self.kind == 'made' else 'get'} {self.name}"


def _entry(name: str, entry: dict[str, Any]) -> KnownCorpus:
    base, downloads = entry.pop("url", ""), []
    for remote, n_bytes, sha256, *saved_as in entry.pop("files", ()):
        file = CorpusFile(saved_as[0] if saved_as else remote.removesuffix(".gz"), n_bytes, sha256)
        downloads.append(Download(f"{base}/{remote}", (file,)))
    for archive in entry.pop("archives", ()):
        members = tuple(CorpusFile(*member) for member in archive.pop("members"))
        url = f"{base}/{archive.pop('name')}"
        downloads.append(Download(url, members, is_archive=True, **archive))
    languages = tuple(entry.pop("languages"))
    return KnownCorpus(name=name, languages=languages, downloads=tuple(downloads), **entry)


_TABLE = tomllib.loads((files(__package__) / "catalog.toml").read_text(encoding="utf-8"))
KNOWN = {name: _entry(name, entry) for name, entry in _TABLE.items()}


def lookup(name: str) -> KnownCorpus:
    """Return the corpus of this name."""
    if name in KNOWN:
        return KNOWN[name]
    close = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(KNOWN)}."
    raise ConfigError(f"unknown corpus {name!r}. {hint}", "unknown_corpus")
