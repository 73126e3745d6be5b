"""Downloads from local servers: working, broken, slow, unreachable and hostile."""

import gzip
import hashlib
import io
import os
import random
import socket
import tarfile
import threading
import time
import urllib.request
import zipfile
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from expected_errors import raises

from polyhead.data.catalog import KNOWN, CorpusFile, Download, KnownCorpus
from polyhead.data.download import RetryPolicy, SafeRedirects, fetch, is_loopback, is_safe
from polyhead.data.locate import SUMS, home, installed
from polyhead.errors import ConfigError, DataError, MissingError, PolyheadError

SHORT = RetryPolicy(attempts=2, answer_seconds=5, pause_seconds=0.01, file_seconds=60)
TEXT = "".join(f"sentence number {n}\n" for n in range(2_000)).encode()
PACKED = gzip.compress(TEXT)


def corpus_of(contents, name="small"):
    downloads = (
        Download(f"https://example.invalid/{file}.gz", (described(file, data),))
        for file, data in contents.items()
    )
    return known(*downloads, name=name)


def described(name, data):
    return CorpusFile(name, len(data), sha256(data))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def known(*downloads, name="small"):
    return KnownCorpus(name, "a corpus for this test", ("xx",), "none", "fetched", downloads)


SMALL = corpus_of({"a.txt": TEXT})


@pytest.fixture
def serve():
    """Return a function that starts a server with this handler; servers record their requests."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.requests.append(self.path)
                server.ranges.append(self.headers.get("Range"))
                answer(self)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.requests, server.ranges = [], []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def send(handler, data, *, status=200, length=None):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data) if length is None else length))
    handler.end_headers()
    handler.wfile.write(data)


def sending(data, **options):
    return lambda handler: send(handler, data, **options)


def check_error(kind, code, server, folder, *mentions, policy=SHORT):
    url = server if isinstance(server, str) else server.url
    with raises(kind, code, *mentions) as caught:
        fetch(SMALL, folder, base_url=url, policy=policy)
    assert "\n" not in str(caught.value)


def is_empty(folder):
    return list(folder.rglob("*")) == []


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_is_downloaded_and_unpacked(packed, serve, tmp_path):
    server = serve(sending(gzip.compress(TEXT) if packed else TEXT))
    folder, calls = tmp_path / "deep" / "folder", []
    paths = fetch(SMALL, folder, base_url=f"{server.url}/", progress=lambda *c: calls.append(c))
    assert paths == [folder / "a.txt"]
    n_sent = len(PACKED if packed else TEXT)
    assert calls[-1] == ("a.txt.gz", n_sent, n_sent)
    assert calls == sorted(calls)
    assert (folder / "a.txt").read_bytes() == TEXT
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert server.requests == ["/small/a.txt.gz"]


def test_only_wrong_files_are_downloaded_again(serve, tmp_path):
    server = serve(sending(TEXT))
    for _ in range(3):
        fetch(SMALL, tmp_path, base_url=server.url)
    assert len(server.requests) == 1
    for damage in (TEXT[:-1], TEXT[:-1] + b"x", b""):
        (tmp_path / "a.txt").write_bytes(damage)
        fetch(SMALL, tmp_path, base_url=server.url)
        assert (tmp_path / "a.txt").read_bytes() == TEXT
    assert len(server.requests) == 4


def test_the_environment_names_a_mirror(serve, tmp_path, monkeypatch):
    server = serve(sending(TEXT))
    monkeypatch.setenv("POLYHEAD_MIRROR", server.url)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # not used for localhost
    fetch(SMALL, tmp_path)
    assert server.requests == ["/small/a.txt.gz"]


def test_a_wrong_checksum_is_an_error_and_keeps_the_old_file(serve, tmp_path):
    wrong = TEXT[:-2] + b"X\n"
    server = serve(sending(gzip.compress(wrong)))
    (tmp_path / "a.txt").write_bytes(b"older")
    digests = [hashlib.sha256(data).hexdigest() for data in (wrong, TEXT)]
    check_error(DataError, "wrong_checksum", server, tmp_path, *digests)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"older"
    assert len(server.requests) == 1, "not retried"


@pytest.mark.parametrize(
    ("answer", "kind", "code", "mention", "n_requests"),
    [
        (sending(TEXT[:99], length=len(TEXT)), MissingError, "download_failed", "99 of 40,890", 2),
        (sending(PACKED[:99], length=9_999), MissingError, "download_failed", "99 of 9,999", 2),
        (sending(PACKED[:-10]), DataError, "damaged_gzip", "", 1),
        (sending(bytes(400_000)), DataError, "wrong_size", "106,426 bytes", 1),
        (sending(TEXT[:-10]), DataError, "wrong_checksum", "", 1),
        (sending(TEXT + bytes(500_000)), DataError, "wrong_size", "", 1),
        (sending(gzip.compress(TEXT + bytes(500_000))), DataError, "wrong_size", "", 1),
        (sending(gzip.compress(b"") * 20_000), DataError, "wrong_size", "106,426 bytes", 1),
        (sending(b"", status=404), MissingError, "download_failed", "404 Not Found", 1),
    ],
    ids=["incomplete", "incomplete gzip", "truncated gzip", "too many", "truncated", "larger",
         "larger gzip", "empty members", "missing"],
)  # fmt: skip
def test_a_wrong_answer_leaves_nothing(answer, kind, code, mention, n_requests, serve, tmp_path):
    server = serve(answer)
    check_error(kind, code, server, tmp_path, mention)
    assert len(server.requests) == n_requests
    assert is_empty(tmp_path)


def test_an_endless_answer_is_aborted(serve, tmp_path):
    sent = []

    def pour(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(1_000):
            handler.wfile.write(bytes(1 << 16))
            sent.append(1 << 16)

    server = serve(lambda handler: ignore_disconnect(pour, handler))
    check_error(DataError, "wrong_size", server, tmp_path)
    assert sum(sent) < 30 << 20
    assert is_empty(tmp_path)


def ignore_disconnect(pour, handler):
    with suppress(OSError):  # the client disconnects
        pour(handler)


def test_temporary_failures_are_retried(serve, tmp_path):
    answers = iter(
        [sending(b"busy", status=503), sending(TEXT[:99], length=len(TEXT)), sending(TEXT)]
    )
    server = serve(lambda handler: next(answers)(handler))
    fetch(SMALL, tmp_path, base_url=server.url, policy=SHORT._replace(attempts=3))
    assert (tmp_path / "a.txt").read_bytes() == TEXT
    assert len(server.requests) == 3


def test_pauses_between_attempts_double(serve, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    server = serve(sending(b"busy", status=503))
    policy = SHORT._replace(attempts=4, pause_seconds=1.5)
    check_error(MissingError, "download_failed", server, tmp_path, "503", policy=policy)
    assert pauses == [1.5, 3.0, 6.0]


@pytest.mark.parametrize("after", [0, 100])
def test_a_hanging_server_times_out(after, serve, tmp_path):
    released = threading.Event()

    def hang(handler):
        if after:
            send(handler, TEXT[:after], length=len(TEXT))
            handler.wfile.flush()
        released.wait(10)

    server = serve(hang)
    started = time.monotonic()
    policy = SHORT._replace(answer_seconds=0.3)
    check_error(MissingError, "download_failed", server, tmp_path, "timeout", policy=policy)
    seconds = time.monotonic() - started
    released.set()
    assert seconds < 8
    assert is_empty(tmp_path)


def test_a_slow_server_times_out(serve, tmp_path):
    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(TEXT)))
        handler.end_headers()
        for byte in TEXT[:200]:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(0.02)

    server = serve(lambda handler: ignore_disconnect(drip, handler))
    policy = SHORT._replace(attempts=1, file_seconds=0.3)
    check_error(MissingError, "download_failed", server, tmp_path, "timeout", policy=policy)
    assert is_empty(tmp_path)


def test_an_unreachable_server_is_an_error(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    check_error(MissingError, "download_failed", url, tmp_path, "Connection refused")
    assert MissingError.exit_code == 3


def test_only_https_and_localhost_are_allowed(tmp_path):
    for url in (
        "http://example.invalid",
        "ftp://127.0.0.1",
        "file:///etc",
        "http://127.0.0.1.evil",
    ):
        check_error(ConfigError, "unsafe_url", url, tmp_path, url)
    assert is_safe("https://example.invalid/x")
    assert is_loopback("http://localhost:1/")
    assert is_loopback("http://[::1]:1/")
    assert not is_loopback("http://localhost.example.invalid/")


def test_unsafe_redirects_are_errors(serve, tmp_path):
    def to(place):
        def redirect(handler):
            handler.send_response(302)
            handler.send_header("Location", place)
            handler.end_headers()

        return redirect

    good = serve(sending(TEXT))
    fetch(SMALL, tmp_path / "good", base_url=serve(to(f"{good.url}/x")).url, policy=SHORT)
    assert (tmp_path / "good" / "a.txt").read_bytes() == TEXT
    for place in ("http://example.invalid/", "ftp://127.0.0.1/x"):
        server = serve(to(place))
        check_error(MissingError, "unsafe_url", server, tmp_path / "bad", place)
    assert is_empty(tmp_path / "bad")


def test_redirects_from_other_hosts_to_localhost_are_errors():
    far = urllib.request.Request("https://example.invalid/a")
    with raises(MissingError, "unsafe_url", "http://127.0.0.1/x"):
        SafeRedirects().redirect_request(far, None, 302, "Found", {}, "http://127.0.0.1/x")


def test_an_unwritable_directory_is_an_error(serve, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    server = serve(sending(TEXT))
    check_error(PolyheadError, "cannot_write", server, tmp_path / "file" / "folder", "a.txt")


def test_a_full_disk_keeps_the_old_file(serve, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    (tmp_path / "a.txt").write_bytes(b"older")
    monkeypatch.setattr(os, "fsync", full)
    check_error(PolyheadError, "cannot_write", serve(sending(TEXT)), tmp_path, "No space left")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_an_interruption_leaves_no_files(serve, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    server = serve(sending(TEXT))
    with pytest.raises(KeyboardInterrupt):
        fetch(SMALL, tmp_path, base_url=server.url, progress=interrupt)
    assert is_empty(tmp_path)


def test_a_generated_corpus_is_not_downloaded(tmp_path):
    with raises(ConfigError, "wrong_command", "polyhead data make schedules"):
        fetch(KNOWN["schedules"], tmp_path)


# Resuming

LARGE = random.Random(5).randbytes(3 << 20)
RESUMED = known(Download("https://example.invalid/b.bin", (described("b.bin", LARGE),)))


def ranged(data, stop_at=None, etag='"1"'):
    """Answer with ranges, and break the connection once after `stop_at` bytes."""
    stops = [] if stop_at is None else [stop_at]

    def answer(handler):
        wanted, condition = handler.headers.get("Range"), handler.headers.get("If-Range")
        start = int(wanted[6:-1]) if wanted and condition in (None, etag) else 0
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if etag:
            handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        handler.wfile.write(data[start : stops.pop() if stops else None])

    return answer


def test_a_broken_download_is_resumed_where_it_stopped(serve, tmp_path):
    server = serve(ranged(LARGE, stop_at=2_000_000))
    fetch(RESUMED, tmp_path, base_url=server.url, policy=SHORT)
    assert (tmp_path / "b.bin").read_bytes() == LARGE
    assert server.ranges == [None, "bytes=2000000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["b.bin"]


def test_a_later_process_resumes_a_large_part(serve, tmp_path):
    server = serve(ranged(LARGE, stop_at=2_000_000))
    with raises(MissingError, "download_failed"):
        fetch(RESUMED, tmp_path, base_url=server.url, policy=SHORT._replace(attempts=1))
    (part,) = tmp_path.iterdir()
    assert part.name.startswith(".")
    part.rename(tmp_path / ".b.bin.999999999.part")  # of a process that no longer runs
    fetch(RESUMED, tmp_path, base_url=server.url, policy=SHORT)
    assert (tmp_path / "b.bin").read_bytes() == LARGE
    assert server.ranges == [None, "bytes=2000000-"]


@pytest.mark.parametrize(
    ("part", "ranges"),
    [(b"x" * 2_000_000, ["bytes=2000000-", None]), (LARGE + b"x", ["bytes=3145729-", None])],
    ids=["other contents", "too long"],
)
def test_a_wrong_part_is_discarded(part, ranges, serve, tmp_path):
    def answer(handler):
        if handler.headers.get("Range") == "bytes=3145729-":
            send(handler, b"", status=416)
        else:
            ranged(LARGE)(handler)

    server = serve(answer)
    (tmp_path / ".b.bin.999999999.part").write_bytes(part)
    fetch(RESUMED, tmp_path, base_url=server.url, policy=SHORT)
    assert (tmp_path / "b.bin").read_bytes() == LARGE
    assert server.ranges == ranges


@pytest.mark.parametrize(("etag", "ranges"), [('"1"', [None, "bytes=9-"]), (None, [None, None])])
def test_without_a_checksum_only_the_same_file_is_resumed(etag, ranges, serve, tmp_path):
    unpublished = known(Download("https://example.invalid/c.txt", (CorpusFile("c.txt"),)))
    server = serve(ranged(TEXT, stop_at=9, etag=etag))
    fetch(unpublished, tmp_path, base_url=server.url, policy=SHORT)
    assert (tmp_path / "c.txt").read_bytes() == TEXT
    assert server.ranges == ranges


# Archives, and files without a published checksum


def tar(contents, kind=tarfile.GNU_FORMAT, packed="gz"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{packed}", format=kind) as archive:
        for name, data in contents.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            archive.addfile(item, io.BytesIO(data))
    return file.getvalue()


def zipped(contents):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return file.getvalue()


PARK = {"./._p.ko": b"mac", "../../p.ko": TEXT, "x/" * 90 + "p.other": b"o", "d/p.en": PACKED}
MEMBERS = (CorpusFile("p.ko"), CorpusFile("p.en"))


@pytest.mark.parametrize(
    ("name", "data"),
    [("p.tar.gz", tar(PARK)), ("p.tar.gz", tar(PARK, tarfile.PAX_FORMAT)), ("p.zip", zipped(PARK))],
    ids=["GNU", "pax", "zip"],
)
def test_members_are_read_by_name_and_pinned_by_the_first_download(name, data, serve, tmp_path):
    folder = tmp_path / "deep" / "corpus"
    sent = [data]
    server = serve(lambda handler: send(handler, sent[0]))
    corpus = known(Download(f"https://example.invalid/{name}", MEMBERS, is_archive=True))
    paths = fetch(corpus, folder, base_url=server.url, policy=SHORT)
    assert [path.read_bytes() for path in paths] == [TEXT, PACKED]
    assert sorted(path.name for path in folder.iterdir()) == [SUMS, "p.en", "p.ko"]
    assert list(tmp_path.rglob("p.ko")) == [folder / "p.ko"]
    assert f"{sha256(TEXT)}  p.ko" in (folder / SUMS).read_text().splitlines()
    fetch(corpus, folder, base_url=server.url, policy=SHORT)
    assert len(server.requests) == 1
    (folder / "p.ko").write_bytes(b"damaged")
    sent[0] = tar(PARK | {"../../p.ko": b"changed"})
    with raises(DataError, "wrong_checksum", sha256(TEXT)):
        fetch(corpus, folder, base_url=server.url, policy=SHORT)
    assert (folder / "p.ko").read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (tar({"a/p.ko": TEXT}), "missing_member"),
        (gzip.compress(tar(PARK, packed="")[:9_000]), "damaged_archive"),
        (tar(PARK)[:-99], "damaged_gzip"),
        (zipped(PARK)[:-30], "damaged_archive"),
        (gzip.compress(b"\xff" * 2_000), "damaged_archive"),
        (b"<html>no archive</html>", "damaged_archive"),
        (tar(PARK | {"p.en": bytes(3_000)}), "wrong_size"),
    ],
    ids=["missing", "cut tar", "cut gzip", "cut zip", "no tar", "no archive", "too large"],
)
def test_a_bad_archive_leaves_nothing(data, code, serve, tmp_path, monkeypatch):
    monkeypatch.setattr("polyhead.data.download.MAX_UNPUBLISHED", len(TEXT))
    monkeypatch.setattr("polyhead.data.download.PACKED_EXTRA", 1 << 20)
    members = (MEMBERS[0], CorpusFile("p.en", 2_000 if code == "wrong_size" else 0))
    corpus = known(Download("https://example.invalid/p.tar.gz", members, is_archive=True))
    with raises(DataError, code):
        fetch(corpus, tmp_path / "c", base_url=serve(sending(data)).url, policy=SHORT)
    assert is_empty(tmp_path)


def test_an_archive_with_a_wrong_checksum_is_not_opened(serve, tmp_path):
    download = Download("https://example.invalid/p.zip", MEMBERS, True, 9, sha256(b"right"))
    server = serve(sending(zipped(PARK)))
    with raises(DataError, "wrong_checksum", "p.zip"):
        fetch(known(download), tmp_path / "c", base_url=server.url, policy=SHORT)
    assert is_empty(tmp_path)


def test_a_corpus_is_installed_when_all_its_files_are_complete(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("POLYHEAD_DATA", raising=False)
    corpus = known(
        Download("https://example.invalid/p.zip", MEMBERS, is_archive=True), *SMALL.downloads
    )
    folder = home() / "small"
    folder.mkdir(parents=True)
    assert installed(corpus) is None
    data = {"/small/p.zip": zipped(PARK), "/small/a.txt.gz": PACKED}
    server = serve(lambda handler: send(handler, data[handler.path]))
    fetch(corpus, base_url=server.url, policy=SHORT)
    assert installed(corpus) == folder
    for name, damage in (("a.txt", TEXT[:-1]), (SUMS, b"")):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(damage)
        assert installed(corpus) is None
        (folder / name).write_bytes(content)
    (folder / "a.txt").rename(folder / "a.txt.gz")
    assert installed(corpus) == folder
    (folder / "p.en").unlink()
    assert installed(corpus) is None
