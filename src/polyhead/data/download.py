"""Bring the files of a known corpus over the network, and let nothing in that is not as expected.

A file is loaded under a temporary name, unpacked on the way, and given its own name only when size
and SHA-256 are right. So a file that is there is whole, and a failure leaves what was there before.
Only https is spoken, and plain http with this machine itself. $POLYHEAD_MIRROR names another place
to fetch from; the files must lie there as MIRROR/CORPUS/FILE, named as at their source.
"""

import hashlib
import http.client
import io
import ipaddress
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from polyhead.data.locate import KnownCorpus, RemoteFile
from polyhead.data.text_files import CHUNK, unpacked
from polyhead.errors import ConfigError, DataError, MissingError, PolyheadError

Progress = Callable[[str, int, int], None]  # file, bytes so far, bytes in all

PACKED_EXTRA = 1 << 16  # bytes that gzip may add to what it cannot shrink
AGAIN = {408, 425, 429, 500, 502, 503, 504}  # answers that may be better the next time


class Patience(NamedTuple):
    """How often to try; how long to wait for an answer, between two tries, and for a whole file."""

    attempts: int = 3
    answer_seconds: float = 20.0
    pause_seconds: float = 1.0  # doubled after every try
    file_seconds: float = 600.0


PATIENT = Patience()


class NetworkFailure(Exception):
    """Something that may be better when it is tried again."""


def fetch(
    corpus: KnownCorpus,
    folder: Path,
    *,
    base_url: str | None = None,
    progress: Progress | None = None,
    patience: Patience = PATIENT,
) -> list[Path]:
    """Have all files of the corpus in the folder; those that are there and right are left alone."""
    if corpus.kind == "made":
        raise ConfigError(f"{corpus.name} is not fetched but made, by: {corpus.command}")
    mirror = base_url or os.environ.get("POLYHEAD_MIRROR")
    for file in corpus.files:
        if not is_whole(folder / file.name, file):
            url = file.url
            if mirror:
                url = f"{mirror.rstrip('/')}/{corpus.name}/{url.rsplit('/', 1)[1]}"
            bring(file, url, folder, progress or silent, patience)
    return [folder / file.name for file in corpus.files]


def silent(name: str, n_bytes: int, total: int) -> None:
    """Report progress to nobody."""


def is_whole(path: Path, file: RemoteFile) -> bool:
    """Whether the file is there with the right contents."""
    try:
        if path.stat().st_size != file.n_bytes:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def bring(file: RemoteFile, url: str, folder: Path, progress: Progress, patience: Patience) -> None:
    """Fetch one file, trying again when the network fails."""
    if not is_safe(url):
        raise ConfigError(f"{url}: not fetched; give an https address (http only for this machine)")
    problem = NetworkFailure("not tried")
    for attempt in range(patience.attempts):
        if attempt:
            time.sleep(patience.pause_seconds * 2 ** (attempt - 1))
        try:
            return load(file, url, folder, progress, patience)
        except NetworkFailure as failure:
            problem = failure
    tries = f"{patience.attempts} {'tries' if patience.attempts > 1 else 'try'}"
    raise MissingError(
        f"cannot fetch {url} ({problem}; {tries}): connect to the network, set POLYHEAD_MIRROR to "
        f"a place that has it, or put the unpacked file at {folder / file.name} yourself"
    )


def load(file: RemoteFile, url: str, folder: Path, progress: Progress, patience: Patience) -> None:
    """Fetch one file, once. Nothing is left behind if that fails."""
    path, part = folder / file.name, folder / f".{file.name}.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            with open_url(url, patience) as response:
                limit = file.n_bytes + PACKED_EXTRA
                copy(Download(response, url, limit, patience), out, file, progress)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except OSError as error:  # those of the network are failures of their own
        raise PolyheadError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        with suppress(OSError):  # mostly it is not there any more
            part.unlink()


def copy(download: "Download", out: IO[bytes], file: RemoteFile, progress: Progress) -> None:
    """Unpack, write and add up; an error if it is not what was expected."""
    digest, n_bytes = hashlib.sha256(), 0
    for chunk in unpacked(download, download.url):
        n_bytes += len(chunk)
        if n_bytes > file.n_bytes:
            raise DataError(
                f"{download.url}: larger than the {file.n_bytes:,} bytes of {file.name}"
            )
        digest.update(chunk)
        out.write(chunk)
        progress(file.name, n_bytes, file.n_bytes)
    if digest.hexdigest() != file.sha256:
        raise DataError(
            f"{download.url}: not the {file.name} that was expected; its SHA-256 is "
            f"{digest.hexdigest()}, not {file.sha256}; nothing was kept, fetch it from elsewhere"
        )


class Download(io.BufferedIOBase):
    """An answer of a server, read with limits on size and time; its failures are the network's."""

    def __init__(
        self, response: http.client.HTTPResponse, url: str, limit: int, patience: Patience
    ) -> None:
        self.response, self.url, self.limit = response, url, limit
        self.deadline = time.monotonic() + patience.file_seconds
        length = response.headers.get("Content-Length", "")
        self.expected = int(length) if length.isdecimal() else None
        self.n_bytes = 0

    def read1(self, size: int = CHUNK) -> bytes:
        if self.n_bytes == self.expected:
            return b""
        if time.monotonic() > self.deadline:
            raise NetworkFailure(f"too slow: {self.n_bytes:,} bytes until the time was up")
        try:
            chunk = self.response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            raise NetworkFailure(describe(error)) from None
        self.n_bytes += len(chunk)
        if self.n_bytes > self.limit:
            raise DataError(f"{self.url}: more than {self.limit:,} bytes, which it must not have")
        if not chunk and self.expected is not None:
            raise NetworkFailure(f"cut off after {self.n_bytes:,} of {self.expected:,} bytes")
        return chunk


def open_url(url: str, patience: Patience) -> Any:
    """Ask a server; what cannot get better is an error, the rest a failure of the network."""
    handlers: list[urllib.request.BaseHandler] = [SafeRedirects()]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))  # no proxy reaches this machine
    request = urllib.request.Request(url, headers={"User-Agent": "polyhead"})
    try:
        return urllib.request.build_opener(*handlers).open(request, timeout=patience.answer_seconds)
    except urllib.error.HTTPError as error:
        with error:
            if error.code in AGAIN:
                raise NetworkFailure(f"the server answered {error.code}") from None
            raise MissingError(f"{url}: the server answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise NetworkFailure(describe(error)) from None


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a server only to another place that may be asked, and never from afar to here."""

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str
    ) -> Any:
        if not is_safe(newurl) or (is_loopback(newurl) and not is_loopback(req.full_url)):
            raise MissingError(f"{req.full_url}: the server points to {newurl}, which is not safe")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def is_safe(url: str) -> bool:
    """Whether an address may be asked at all."""
    return urlsplit(url).scheme == "https" or (urlsplit(url).scheme == "http" and is_loopback(url))


def is_loopback(url: str) -> bool:
    """Whether an address is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def describe(error: Exception) -> str:
    """The reason of a failure in a few words."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, TimeoutError):
        return "no answer in time"
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner) or type(inner).__name__
