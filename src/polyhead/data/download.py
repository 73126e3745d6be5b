"""Download of known corpora, verified by size and SHA-256.

A file is written under a temporary name and renamed when its checksum is right: an existing file is
complete. Where the source publishes no checksum, that of the first download is recorded in
`SHA256SUMS` beside the files, and a later download must have the same. A broken download is resumed
where it stopped. Only https is used, and plain http for localhost. $POLYHEAD_MIRROR names another
place to download from, with the files as MIRROR/CORPUS/FILE.
"""

import glob
import hashlib
import http.client
import ipaddress
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from polyhead.data.archives import read_members
from polyhead.data.catalog import CorpusFile, Download, KnownCorpus
from polyhead.data.locate import home, record_sums, recorded_sums
from polyhead.data.text_files import CHUNK, unpacked
from polyhead.errors import ConfigError, DataError, MissingError, PolyheadError

Progress = Callable[[str, int, int], None]  # file, bytes so far, bytes in all

PACKED_EXTRA = 1 << 16  # bytes that gzip may add to incompressible data
MAX_UNPUBLISHED = 1 << 28  # bytes of a file whose size is not published
KEPT = 1 << 20  # bytes from which on a part of a failed download is kept
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


class RangeUnavailable(NetworkFailure):
    """The server has no bytes after those already here: the download starts over."""


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
    for download in corpus.downloads:
        url = f"{mirror.rstrip('/')}/{corpus.name}/{download.name}" if mirror else download.url
        if not all(is_whole(folder, file) for file in download.files):
            _Transfer(download._replace(url=url), folder, progress, policy).run()
    return [folder / file.name for file in corpus.files]


def is_whole(folder: Path, file: CorpusFile) -> bool:
    """Return whether a file exists with the right contents."""
    path, expected = folder / file.name, file.sha256 or recorded_sums(folder).get(file.name)
    try:
        if file.n_bytes and path.stat().st_size != file.n_bytes:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == expected
    except OSError:
        return False


class _Transfer:
    """One download: bytes of an address to a hidden file, from which the files are installed."""

    def __init__(
        self, download: Download, folder: Path, progress: Progress, policy: RetryPolicy
    ) -> None:
        if not is_safe(download.url):
            message = f"{download.url}: only https is allowed (http for localhost)"
            raise ConfigError(message, "unsafe_url")
        self.download, self.folder, self.progress, self.policy = download, folder, progress, policy
        self.part = folder / f".{download.name}.{os.getpid()}.part"
        self.etag = ""
        known = download.n_bytes if download.is_archive else download.files[0].n_bytes
        self.limit = (known or MAX_UNPUBLISHED) + PACKED_EXTRA

    def run(self) -> None:
        """Download and install; keep a large part of a failed download, to be resumed later."""
        created = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        is_resumable = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            was_adopted = self._adopt()
            try:
                is_resumable = self.download.is_published
                self._receive()
                is_resumable = False
                self._install()
            except DataError:
                is_resumable = False
                if not was_adopted:
                    raise
                self.part.unlink(missing_ok=True)  # the earlier part was wrong
                self._receive()
                self._install()
        except OSError as error:  # of the disk
            path = self.folder / self.download.files[0].name
            message = f"{path}: cannot be written ({error.strerror or error})"
            raise PolyheadError(message, "cannot_write") from None
        finally:
            with suppress(OSError):
                if not is_resumable or self.part.stat().st_size < KEPT:
                    self.part.unlink()
            with suppress(OSError):  # those that stay empty
                for path in created:
                    path.rmdir()

    def _adopt(self) -> bool:
        """Take over the part that a process left which no longer runs."""
        if self.download.is_published:
            for path in self.folder.glob(f".{glob.escape(self.download.name)}.*.part"):
                with suppress(OSError, ValueError):
                    if not _is_running(int(path.name.split(".")[-2])):
                        path.rename(self.part)
                        return True
        return False

    def _receive(self) -> None:
        """Download to the hidden file, resuming when the connection breaks."""
        problem = NetworkFailure("not attempted")
        for attempt in range(self.policy.attempts):
            if attempt:
                time.sleep(self.policy.pause_seconds * 2 ** (attempt - 1))
            try:
                self._receive_rest()
                return
            except NetworkFailure as failure:
                problem = failure
                if isinstance(failure, RangeUnavailable):
                    self.part.unlink(missing_ok=True)
        missing = ", ".join(str(self.folder / file.name) for file in self.download.files)
        raise MissingError(
            f"cannot download {self.download.url} ({problem}; attempts: {self.policy.attempts}). "
            f"Check the network, set POLYHEAD_MIRROR to a mirror, or save the unpacked {missing}.",
            "download_failed",
        )

    def _receive_rest(self) -> None:
        start = 0
        if self.part.exists() and (self.etag or self.download.is_published):
            start = self.part.stat().st_size
        with open_url(self.download.url, self.policy, start, self.etag) as response:
            if response.status != 206:  # the whole file
                start = 0
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise RangeUnavailable("another range than requested")
            etag = response.headers.get("ETag", "")
            self.etag = "" if etag.startswith("W/") else etag
            length = response.headers.get("Content-Length", "")
            expected = int(length) if length.isdecimal() else None
            total = start + expected if expected else self.limit - PACKED_EXTRA
            with self.part.open("ab" if start else "wb") as out:
                for chunk in self._chunks(response, expected, self.limit - start):
                    out.write(chunk)
                    self.progress(self.download.name, out.tell(), total)

    def _chunks(
        self, response: http.client.HTTPResponse, expected: int | None, limit: int
    ) -> Iterator[bytes]:
        """Yield the contents of a response, with limits on size and time."""
        deadline, n_bytes = time.monotonic() + self.policy.file_seconds, 0
        while n_bytes != expected:
            if time.monotonic() > deadline:
                raise NetworkFailure(f"timeout after {n_bytes:,} bytes")
            try:
                chunk = response.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise NetworkFailure(_describe(error)) from None
            n_bytes += len(chunk)
            if n_bytes > limit:
                raise DataError(f"{self.download.url}: more than {limit:,} bytes", "wrong_size")
            if not chunk and expected is not None:
                raise NetworkFailure(f"ended after {n_bytes:,} of {expected:,} bytes")
            if not chunk:
                return
            yield chunk

    def _install(self) -> None:
        """Check the download, and write its files under their names, all or none."""
        url, files = self.download.url, {file.name: file for file in self.download.files}
        drafts: dict[str, Path] = {}
        sums: dict[str, str] = {}
        try:
            with self.part.open("rb") as stream:
                if self.download.sha256:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                    self._check_sum(self.download.name, digest, self.download.sha256)
                    stream.seek(0)
                members = iter([(self.download.files[0].name, unpacked(stream, url))])
                if self.download.is_archive:
                    members = read_members(self.part, files)
                for name, chunks in members:
                    drafts[name] = self.folder / f".{name}.{os.getpid()}.tmp"
                    sums[name] = self._write(drafts[name], files[name], chunks)
            for name, draft in drafts.items():
                draft.replace(self.folder / name)
            record_sums(self.folder, {n: s for n, s in sums.items() if not files[n].sha256})
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)  # usually renamed

    def _write(self, draft: Path, file: CorpusFile, chunks: Iterator[bytes]) -> str:
        """Write and check a file; return its SHA-256."""
        digest, n_bytes = hashlib.sha256(), 0
        limit = file.n_bytes or MAX_UNPUBLISHED
        with draft.open("wb") as out:
            for chunk in chunks:
                n_bytes += len(chunk)
                if n_bytes > limit:
                    message = f"{self.download.url}: {file.name} has more than {limit:,} bytes"
                    raise DataError(message, "wrong_size")
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        expected = file.sha256 or recorded_sums(self.folder).get(file.name, "")
        self._check_sum(file.name, digest.hexdigest(), expected)
        return digest.hexdigest()

    def _check_sum(self, name: str, digest: str, expected: str) -> None:
        if expected and digest != expected:
            raise DataError(
                f"{self.download.url}: wrong contents of {name} (SHA-256 {digest}, expected "
                f"{expected}); nothing was saved. Download it from elsewhere.",
                "wrong_checksum",
            )


def _is_running(process: int) -> bool:
    if os.name != "posix":  # it cannot be known
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()


def open_url(url: str, policy: RetryPolicy, start: int = 0, etag: str = "") -> Any:
    """Open a URL; raise NetworkFailure for what may be retried, other errors for the rest.

    start: the first byte wanted; of a file that has changed (by its `etag`) all bytes come.
    """
    handlers: list[urllib.request.BaseHandler] = [SafeRedirects()]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))  # no proxy for localhost
    headers = {"User-Agent": "polyhead"}
    if start:
        headers |= {"Range": f"bytes={start}-"} | ({"If-Range": etag} if etag else {})
    request = urllib.request.Request(url, headers=headers)
    try:
        return urllib.request.build_opener(*handlers).open(request, timeout=policy.answer_seconds)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # the file is not longer than the part we have
                raise RangeUnavailable("range not available") from None
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
