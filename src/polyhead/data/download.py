"""Download of known corpora, verified by size and SHA-256.

A file is written under a temporary name and renamed when its checksum is right: an existing file is
complete. Only https is used, and plain http for localhost. $POLYHEAD_MIRROR names another place to
download from, with the files as MIRROR/CORPUS/FILE.
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

from polyhead.data.locate import KnownCorpus, RemoteFile, home
from polyhead.data.text_files import CHUNK, unpacked
from polyhead.errors import ConfigError, DataError, MissingError, PolyheadError

Progress = Callable[[str, int, int], None]  # file, bytes so far, bytes in all

PACKED_EXTRA = 1 << 16  # bytes that gzip may add to incompressible data
RETRIED = {408, 425, 429, 500, 502, 503, 504}  # status codes


class RetryPolicy(NamedTuple):
    """Number of attempts, and timeouts of an answer, between two attempts and of a whole file."""

    attempts: int = 3
    answer_seconds: float = 20.0
    pause_seconds: float = 1.0  # doubled after every try
    file_seconds: float = 600.0


DEFAULT_POLICY = RetryPolicy()


class NetworkFailure(Exception):
    """A failure that is retried."""


def fetch(
    corpus: KnownCorpus,
    folder: Path | None = None,
    *,
    base_url: str | None = None,
    progress: Progress = lambda _name, _n_bytes, _total: None,
    policy: RetryPolicy = DEFAULT_POLICY,
) -> list[Path]:
    """Download all files of the corpus that are missing or wrong, and return their paths."""
    if corpus.kind == "made":
        raise ConfigError(f"{corpus.name} is generated with: {corpus.command}", "wrong_command")
    folder = folder or home() / corpus.name
    mirror = base_url or os.environ.get("POLYHEAD_MIRROR")
    paths = [folder / file.name for file in corpus.files]
    for path, file in zip(paths, corpus.files, strict=True):
        url = file.url
        if mirror:
            url = f"{mirror.rstrip('/')}/{corpus.name}/{url.rsplit('/', 1)[1]}"
        if not is_whole(path, file):
            _download(url, path, file, progress, policy)
    return paths


def is_whole(path: Path, file: RemoteFile) -> bool:
    """Return whether the file exists with the right contents."""
    try:
        if path.stat().st_size != file.n_bytes:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def _download(
    url: str, path: Path, file: RemoteFile, progress: Progress, policy: RetryPolicy
) -> None:
    """Download a file, retrying when the network fails; leave nothing behind if it fails."""
    if not is_safe(url):
        raise ConfigError(f"{url}: only https is allowed (http for localhost)", "unsafe_url")
    part = path.with_name(f".{file.name}.{os.getpid()}.part")
    problem = NetworkFailure("not attempted")
    for attempt in range(policy.attempts):
        if attempt:
            time.sleep(policy.pause_seconds * 2 ** (attempt - 1))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as out:
                _copy(url, out, file, progress, policy)
                out.flush()
                os.fsync(out.fileno())
            part.replace(path)
            return
        except NetworkFailure as failure:
            problem = failure
        except OSError as error:  # of the disk
            message = f"{path}: cannot be written ({error.strerror or error})"
            raise PolyheadError(message, "cannot_write") from None
        finally:
            with suppress(OSError):  # usually renamed
                part.unlink()
    raise MissingError(
        f"cannot download {url} ({problem}; attempts: {policy.attempts}). Check the network, set "
        f"POLYHEAD_MIRROR to a mirror, or save the unpacked file as {path}.",
        "download_failed",
    )


def _copy(
    url: str, out: IO[bytes], file: RemoteFile, progress: Progress, policy: RetryPolicy
) -> None:
    digest, n_bytes = hashlib.sha256(), 0
    with open_url(url, policy) as response:
        download = LimitedResponse(response, url, file.n_bytes + PACKED_EXTRA, policy)
        for chunk in unpacked(download, url):
            n_bytes += len(chunk)
            if n_bytes > file.n_bytes:
                message = f"{url}: larger than the {file.n_bytes:,} bytes of {file.name}"
                raise DataError(message, "wrong_size")
            digest.update(chunk)
            out.write(chunk)
            progress(file.name, n_bytes, file.n_bytes)
    if digest.hexdigest() != file.sha256:
        raise DataError(
            f"{url}: wrong contents of {file.name} (SHA-256 {digest.hexdigest()}, expected "
            f"{file.sha256}); nothing was saved. Download it from elsewhere.",
            "wrong_checksum",
        )


class LimitedResponse(io.BufferedIOBase):
    """A server's response, with limits on size and time."""

    def __init__(
        self, response: http.client.HTTPResponse, url: str, limit: int, policy: RetryPolicy
    ) -> None:
        self.response, self.url, self.limit = response, url, limit
        self.deadline = time.monotonic() + policy.file_seconds
        length = response.headers.get("Content-Length", "")
        self.expected = int(length) if length.isdecimal() else None
        self.n_bytes = 0

    def read1(self, size: int = CHUNK) -> bytes:
        if self.n_bytes == self.expected:
            return b""
        if time.monotonic() > self.deadline:
            raise NetworkFailure(f"timeout after {self.n_bytes:,} bytes")
        try:
            chunk = self.response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            raise NetworkFailure(_describe(error)) from None
        self.n_bytes += len(chunk)
        if self.n_bytes > self.limit:
            raise DataError(f"{self.url}: more than {self.limit:,} bytes", "wrong_size")
        if not chunk and self.expected is not None:
            raise NetworkFailure(f"ended after {self.n_bytes:,} of {self.expected:,} bytes")
        return chunk


def open_url(url: str, policy: RetryPolicy) -> Any:
    """Open a URL; raise NetworkFailure for what may be retried, other errors for the rest."""
    handlers: list[urllib.request.BaseHandler] = [SafeRedirects()]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))  # no proxy for localhost
    request = urllib.request.Request(url, headers={"User-Agent": "polyhead"})
    try:
        return urllib.request.build_opener(*handlers).open(request, timeout=policy.answer_seconds)
    except urllib.error.HTTPError as error:
        with error:
            if error.code in RETRIED:
                raise NetworkFailure(f"status {error.code}") from None
            message = f"{url}: the server answered {error.code} {error.reason}"
            raise MissingError(message, "download_failed") from None
    except (OSError, http.client.HTTPException) as error:
        raise NetworkFailure(_describe(error)) from None


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects only to safe addresses, and never from another host to localhost."""

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str
    ) -> Any:
        if not is_safe(newurl) or (is_loopback(newurl) and not is_loopback(req.full_url)):
            raise MissingError(f"{req.full_url}: unsafe redirect to {newurl}", "unsafe_url")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def is_safe(url: str) -> bool:
    """Return whether a URL may be opened: https, or http on localhost."""
    return urlsplit(url).scheme == "https" or (urlsplit(url).scheme == "http" and is_loopback(url))


def is_loopback(url: str) -> bool:
    """Return whether a URL is on localhost."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _describe(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, TimeoutError):
        return "timeout"
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner) or type(inner).__name__
