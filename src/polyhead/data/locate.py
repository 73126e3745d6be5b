"""Corpora that Polyhead knows by name, and the places where data may lie.

A file is looked for as it is named; then below each folder of $POLYHEAD_DATA; then in `home()`,
where `polyhead data get` and `polyhead data make` put things; then where Debian's packages of data
put theirs. In each place it may have the ending .gz. The table `KNOWN` holds the checksum of every
file that can be fetched, taken of the unpacked contents: whoever hosts them may pack them anew, but
not change them.
"""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from polyhead.errors import ConfigError, DataError

MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
MULTI30K_FILES = """
train.de 2110398 2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72
train.en 1801238 460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6
train.fr 2111303 5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d
train.cs 1755283 2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da
val.de 75981 660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660
val.en 63297 1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227
val.fr 73924 5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc
val.cs 60213 d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33
test_2016_flickr.de 70649 4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16
test_2016_flickr.en 62076 399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182
test_2016_flickr.fr 72261 cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6
test_2016_flickr.cs 62364 45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8
"""  # name, bytes, SHA-256
PACKAGED = Path("/usr/share/datasets")
PACKAGES = {"fashion-mnist": "dataset-fashion-mnist"}  # what lies there, and the package's name
CHAR_RNN = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data"


class RemoteFile(NamedTuple):
    """A file as it will lie on the disk; what the address gives may be packed by gzip."""

    name: str
    url: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus that a name is enough for: made here, or fetched from where its authors keep it."""

    name: str
    description: str
    languages: tuple[str, ...]
    licence: str
    kind: Literal["made", "fetched"]
    files: tuple[RemoteFile, ...] = ()

    @property
    def command(self) -> str:
        """What brings it."""
        return f"polyhead data {'make' if self.kind == 'made' else 'get'} {self.name}"


KNOWN = {
    "schedules": KnownCorpus(
        name="schedules",
        description="who, where, when and how much: sentences generated from patterns",
        languages=("ko", "en"),
        licence="Apache-2.0",
        kind="made",
    ),
    "multi30k": KnownCorpus(
        name="multi30k",
        description="29,000 image captions in four languages, line by line (Elliott et al. 2016)",
        languages=("de", "en", "fr", "cs"),
        licence="research use (captions CC BY-NC-SA 4.0); say so with models trained on it",
        kind="fetched",
        files=tuple(
            RemoteFile(name, f"{MULTI30K}/{name}.gz", int(n_bytes), sha256)
            for name, n_bytes, sha256 in map(str.split, MULTI30K_FILES.strip().splitlines())
        ),
    ),
    "tinyshakespeare": KnownCorpus(
        name="tinyshakespeare",
        description="1,115,394 characters of Shakespeare's plays, for language models",
        languages=("en",),
        licence="public domain",
        kind="fetched",
        files=(
            RemoteFile(
                "input.txt",
                f"{CHAR_RNN}/tinyshakespeare/input.txt",
                1_115_394,
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
    ),
}


def lookup(name: str) -> KnownCorpus:
    """The corpus of this name, or an error that says which there are."""
    if name in KNOWN:
        return KNOWN[name]
    close = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(KNOWN)}"
    raise ConfigError(f"no corpus is called {name!r}; {hint}")


def home() -> Path:
    """The user's own folder for data: $XDG_CACHE_HOME/polyhead, or ~/.cache/polyhead."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "polyhead")


def folders() -> list[Path]:
    """Where data may lie, first choice first: $POLYHEAD_DATA (several, as in $PATH), then home."""
    given = os.environ.get("POLYHEAD_DATA", "").split(os.pathsep)
    return [*(Path(folder).expanduser() for folder in given if folder), home()]


def find(path: Path) -> Path:
    """A file or folder as named, or where the data lies; an error says where it was sought."""
    if str(path) == "-":
        return path
    places = dict.fromkeys([path, *(folder / path for folder in folders())])  # one, if absolute
    for place in (*places, PACKAGED / path):
        for candidate in (place, place.with_name(place.name + ".gz")):
            if os.path.exists(candidate):
                return candidate
    sought = ", ".join(str(place.parent) for place in places)
    raise DataError(f"{path} is not there (looked in {sought}){remedy(path)}")


def remedy(path: Path) -> str:
    """How to come by a file of a known corpus, as the end of a sentence."""
    for part in path.parts[:-1]:
        if part in KNOWN:
            return bring(KNOWN[part], path.name.removesuffix(".gz"))
        if part in PACKAGES:
            return f"; on Debian or Ubuntu it comes with: apt install {PACKAGES[part]}"
    return "; give its whole path, or set POLYHEAD_DATA to the folder of your data"


def bring(corpus: KnownCorpus, name: str) -> str:
    """The command that brings a file of a corpus, unless the corpus has no such file."""
    names = [file.name for file in corpus.files]
    if names and name not in names:
        close = difflib.get_close_matches(name, names, n=3) or names
        return f"; {corpus.name} has no such file, but {', '.join(close)}"
    return f"; bring it with: {corpus.command}"
