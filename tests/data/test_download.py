"""Fetching, against servers on this machine that are honest, broken, slow, dead or hostile."""

import gzip
import hashlib
import os
import re
import socket
import threading
import time
import urllib.request
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from polyhead.data.download import Patience, SafeRedirects, fetch, is_loopback, is_safe
from polyhead.data.locate import KNOWN, KnownCorpus, RemoteFile
from polyhead.errors import ConfigError, DataError, MissingError, PolyheadError

SHORT = Patience(attempts=2, answer_seconds=5, pause_seconds=0.01, file_seconds=60)
TEXT = "".join(f"sentence number {n}\n" for n in range(2_000)).encode()


def corpus_of(contents, name="small"):
    files = tuple(
        RemoteFile(file, f"https://example.invalid/{file}.gz", len(data),
                   hashlib.sha256(data).hexdigest())
        for file, data in contents.items()
    )  # fmt: skip
    return KnownCorpus(name, "a corpus for this test", ("xx",), "none", "fetched", files)


SMALL = corpus_of({"a.txt": TEXT})


@pytest.fixture
def serve():
    """Start servers whose every answer is made by a function; they note what they are asked for."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                answer(self)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.asked = []
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


def complaint(kind, server, folder, corpus=SMALL, patience=SHORT):
    url = server if isinstance(server, str) else server.url
    with pytest.raises(kind) as caught:
        fetch(corpus, folder, base_url=url, patience=patience)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def nothing_in(folder):
    return list(folder.rglob("*")) == []


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_is_fetched_checked_and_unpacked(packed, serve, tmp_path):
    server = serve(sending(gzip.compress(TEXT) if packed else TEXT))
    folder = tmp_path / "deep" / "folder"
    assert fetch(SMALL, folder, base_url=server.url + "/") == [folder / "a.txt"]
    assert (folder / "a.txt").read_bytes() == TEXT
    assert [path.name for path in folder.iterdir()] == ["a.txt"], "nothing else is left there"
    assert server.asked == ["/small/a.txt.gz"]


def test_a_good_file_is_not_fetched_again_but_a_bad_one_is(serve, tmp_path):
    server = serve(sending(TEXT))
    for _ in range(3):
        fetch(SMALL, tmp_path, base_url=server.url)
    assert len(server.asked) == 1
    for damage in (TEXT[:-1], TEXT[:-1] + b"x", b""):
        (tmp_path / "a.txt").write_bytes(damage)
        fetch(SMALL, tmp_path, base_url=server.url)
        assert (tmp_path / "a.txt").read_bytes() == TEXT
    assert len(server.asked) == 4


def test_the_mirror_may_be_named_by_the_environment(serve, tmp_path, monkeypatch):
    server = serve(sending(TEXT))
    monkeypatch.setenv("POLYHEAD_MIRROR", server.url)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which must not be used for loopback
    fetch(SMALL, tmp_path)
    assert server.asked == ["/small/a.txt.gz"]


def test_progress_is_reported_to_the_last_byte(serve, tmp_path):
    calls = []
    server = serve(sending(gzip.compress(TEXT)))
    fetch(SMALL, tmp_path, base_url=server.url, progress=lambda *call: calls.append(call))
    assert calls[-1] == ("a.txt", len(TEXT), len(TEXT))
    assert [call[1] for call in calls] == sorted(call[1] for call in calls)


def test_a_wrong_checksum_is_refused_and_what_was_there_stays(serve, tmp_path):
    wrong = TEXT[:-2] + b"X\n"
    server = serve(sending(gzip.compress(wrong)))
    (tmp_path / "a.txt").write_bytes(b"older")
    assert complaint(DataError, server, tmp_path) == (
        f"{server.url}/small/a.txt.gz: not the a.txt that was expected; its SHA-256 is "
        f"{hashlib.sha256(wrong).hexdigest()}, not {hashlib.sha256(TEXT).hexdigest()}; "
        "nothing was kept, fetch it from elsewhere"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"older"
    assert len(server.asked) == 1, "what is wrong stays wrong"


@pytest.mark.parametrize("data", [TEXT, gzip.compress(TEXT)], ids=["plain", "packed"])
def test_an_answer_that_breaks_off_is_tried_again_and_then_an_error(data, serve, tmp_path):
    server = serve(sending(data[: len(data) // 2], length=len(data)))
    assert complaint(MissingError, server, tmp_path) == (
        f"cannot fetch {server.url}/small/a.txt.gz (cut off after {len(data) // 2:,} of "
        f"{len(data):,} bytes; 2 tries): connect to the network, set POLYHEAD_MIRROR to a place "
        f"that has it, or put the unpacked file at {tmp_path / 'a.txt'} yourself"
    )
    assert len(server.asked) == 2
    assert nothing_in(tmp_path)


def test_a_truncated_file_on_the_server_is_an_error_of_its_contents(serve, tmp_path):
    packed = gzip.compress(TEXT)
    server = serve(sending(packed[:-10]))
    message = complaint(DataError, server, tmp_path)
    assert message.endswith("a.txt.gz: gzip data that is cut off; copy or fetch the file again")
    server = serve(sending(TEXT[:-10]))
    assert "not the a.txt that was expected" in complaint(DataError, server, tmp_path)
    assert nothing_in(tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_more_than_was_expected_is_refused(packed, serve, tmp_path):
    data = TEXT + b"x" * 500_000
    server = serve(sending(gzip.compress(data) if packed else data))
    assert "a.txt.gz: " in complaint(DataError, server, tmp_path)
    assert nothing_in(tmp_path)


def test_an_endless_answer_is_broken_off(serve, tmp_path):
    sent = []

    def pour(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(1_000):
            handler.wfile.write(bytes(1 << 16))
            sent.append(1 << 16)

    server = serve(lambda handler: pour_quietly(pour, handler))
    # which of two limits is met first depends on how the bytes arrive
    assert re.search("larger than the|more than", complaint(DataError, server, tmp_path))
    assert sum(sent) < 30 << 20
    assert nothing_in(tmp_path)


def pour_quietly(pour, handler):
    with suppress(OSError):  # the other side hangs up, as it should
        pour(handler)


def test_packed_data_that_unpacks_to_nothing_for_ever_is_broken_off(serve, tmp_path):
    server = serve(sending(gzip.compress(b"") * 20_000))
    limit = len(TEXT) + (1 << 16)
    assert complaint(DataError, server, tmp_path) == (
        f"{server.url}/small/a.txt.gz: more than {limit:,} bytes, which it must not have"
    )
    assert nothing_in(tmp_path)


def test_a_failure_that_passes_is_overcome(serve, tmp_path):
    answers = iter(
        [sending(b"busy", status=503), sending(TEXT[:99], length=len(TEXT)), sending(TEXT)]
    )
    server = serve(lambda handler: next(answers)(handler))
    fetch(SMALL, tmp_path, base_url=server.url, patience=SHORT._replace(attempts=3))
    assert (tmp_path / "a.txt").read_bytes() == TEXT
    assert len(server.asked) == 3


def test_the_pauses_between_tries_double(serve, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    server = serve(sending(b"busy", status=503))
    patience = SHORT._replace(attempts=4, pause_seconds=1.5)
    assert "(the server answered 503; 4 tries)" in complaint(
        MissingError, server, tmp_path, patience=patience
    )
    assert pauses == [1.5, 3.0, 6.0]


def test_what_is_not_there_is_not_asked_for_again(serve, tmp_path):
    server = serve(sending(b"", status=404))
    assert complaint(MissingError, server, tmp_path) == (
        f"{server.url}/small/a.txt.gz: the server answered 404 Not Found"
    )
    assert len(server.asked) == 1


@pytest.mark.parametrize("after", [0, 100])
def test_a_server_that_hangs_is_given_up(after, serve, tmp_path):
    released = threading.Event()

    def hang(handler):
        if after:
            send(handler, TEXT[:after], length=len(TEXT))
            handler.wfile.flush()
        released.wait(10)

    server = serve(hang)
    started = time.monotonic()
    patience = SHORT._replace(answer_seconds=0.3)
    message = complaint(MissingError, server, tmp_path, patience=patience)
    took = time.monotonic() - started
    released.set()
    assert "(no answer in time; 2 tries)" in message
    assert took < 8
    assert nothing_in(tmp_path)


def test_a_server_that_drips_is_given_up(serve, tmp_path):
    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(TEXT)))
        handler.end_headers()
        for byte in TEXT[:200]:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(0.02)

    server = serve(lambda handler: pour_quietly(drip, handler))
    patience = SHORT._replace(attempts=1, file_seconds=0.3)
    message = complaint(MissingError, server, tmp_path, patience=patience)
    assert "(too slow: " in message
    assert "; 1 try)" in message
    assert nothing_in(tmp_path)


def test_no_network_is_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    message = complaint(MissingError, url, tmp_path)
    assert message.startswith(f"cannot fetch {url}/small/a.txt.gz (Connection refused; 2 tries): ")
    assert MissingError.exit_code == 3


def test_only_https_and_this_machine_are_asked(tmp_path):
    for url in (
        "http://example.invalid",
        "ftp://127.0.0.1",
        "file:///etc",
        "http://127.0.0.1.evil",
    ):
        assert complaint(ConfigError, url, tmp_path) == (
            f"{url}/small/a.txt.gz: not fetched; give an https address (http only for this machine)"
        )
    assert is_safe("https://example.invalid/x")
    assert is_loopback("http://localhost:1/")
    assert is_loopback("http://[::1]:1/")
    assert not is_loopback("http://localhost.example.invalid/")


def test_a_server_may_not_send_us_anywhere_unsafe(serve, tmp_path):
    def to(place):
        def redirect(handler):
            handler.send_response(302)
            handler.send_header("Location", place)
            handler.end_headers()

        return redirect

    good = serve(sending(TEXT))
    fetch(SMALL, tmp_path / "good", base_url=serve(to(f"{good.url}/x")).url, patience=SHORT)
    assert (tmp_path / "good" / "a.txt").read_bytes() == TEXT
    for place in ("http://example.invalid/", "ftp://127.0.0.1/x"):
        server = serve(to(place))
        assert complaint(MissingError, server, tmp_path / "bad") == (
            f"{server.url}/small/a.txt.gz: the server points to {place}, which is not safe"
        )
    assert nothing_in(tmp_path / "bad")


def test_a_server_far_away_may_not_send_us_to_this_machine():
    far = urllib.request.Request("https://example.invalid/a")
    with pytest.raises(MissingError, match=r"points to http://127\.0\.0\.1/x, which"):
        SafeRedirects().redirect_request(far, None, 302, "Found", {}, "http://127.0.0.1/x")


def test_a_folder_that_cannot_be_written_is_one_line(serve, tmp_path):
    (tmp_path / "file").write_text("in the way")
    server = serve(sending(TEXT))
    message = complaint(PolyheadError, server, tmp_path / "file" / "folder")
    assert (
        message == f"{tmp_path / 'file' / 'folder' / 'a.txt'}: cannot be written (Not a directory)"
    )


def test_a_full_disk_loses_nothing(serve, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    (tmp_path / "a.txt").write_bytes(b"older")
    monkeypatch.setattr(os, "fsync", full)
    message = complaint(PolyheadError, serve(sending(TEXT)), tmp_path)
    assert message == f"{tmp_path / 'a.txt'}: cannot be written (No space left on device)"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_an_interruption_leaves_no_rest(serve, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    server = serve(sending(TEXT))
    with pytest.raises(KeyboardInterrupt):
        fetch(SMALL, tmp_path, base_url=server.url, progress=interrupt)
    assert nothing_in(tmp_path)


def test_what_is_made_is_not_fetched(tmp_path):
    with pytest.raises(ConfigError) as caught:
        fetch(KNOWN["schedules"], tmp_path)
    assert str(caught.value) == (
        "schedules is not fetched but made, by: polyhead data make schedules"
    )


@pytest.mark.parametrize("name", ["multi30k", "tinyshakespeare"])
def test_the_real_corpora_come_from_a_mirror(name, tmp_path, real_data):
    handler = partial(SimpleHTTPRequestHandler, directory=str(real_data))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        paths = fetch(KNOWN[name], tmp_path, base_url=url, patience=SHORT)
        server.shutdown()
    assert [path.name for path in paths] == [file.name for file in KNOWN[name].files]
    for path, file in zip(paths, KNOWN[name].files, strict=True):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
