"""Server process: start, shutdown and command-line errors."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from served_models import SOURCE

from polyhead.cli.main import main

QUICK = {"text": "a", "max_length": 2, "beam": 1}


def post(running, content):
    """Translate; return the status."""
    return requests.post(f"{running.url}/v1/translate", json=content, timeout=60).status_code


def raw_post(content):
    """Return the bytes of a request."""
    body = json.dumps(content).encode()
    return (
        b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )


def waiting(running, count):
    """Wait until this many requests are open."""
    for _ in range(500):
        text = requests.get(f"{running.url}/metrics", timeout=60).text
        if float(text.split("\npolyhead_open_requests ")[1].split()[0]) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("too few open requests")


def test_sigterm_finishes_accepted_requests_and_exits_with_0(start):
    running = start()
    request, place = raw_post(QUICK), (running.host, running.port)
    clients = [socket.create_connection(place, timeout=60) for _ in range(3)]
    for client in clients:
        client.sendall(request[:-1])  # accepted; its body is complete later
    waiting(running, 4)  # with the request for the metrics
    late = socket.create_connection(place, timeout=60)  # accepted, but without a request
    running.process.send_signal(signal.SIGTERM)
    assert "stopping" in running.process.stderr.readline()
    late.sendall(request)
    refused = late.recv(4096)
    late.close()
    for client in clients:
        client.sendall(request[-1:])
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 200")
        client.close()
    assert running.process.wait(60) == 0
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"retry-after" in refused


HANGING = """
import sys, time
from pathlib import Path
from polyhead.server.process import serve
from polyhead.engines.ctranslate2_engine import CTranslate2Backend
from polyhead.pipelines.torch_backend import RunningSearch
from polyhead.server.routes import translation_routes
from polyhead.server.settings import Settings


def hang(*_, **__):
    print("hanging", file=sys.stderr, flush=True)
    time.sleep(1000)

{name} = hang
settings = Settings(port=0, drain_seconds=0.5, device="cpu", engine="{engine}")
serve([Path(sys.argv[1])], settings, lambda line: print(line, file=sys.stderr, flush=True))
"""


@pytest.mark.parametrize(
    ("engine", "name", "reason"),
    [
        ("torch", "RunningSearch.add_ids", "did not stop"),
        ("ctranslate2", "CTranslate2Backend.decode", "did not stop"),
        ("torch", "translation_routes.split_text", "Timeout (0:00:04.500000)!"),
    ],
)
def test_a_hanging_server_exits_with_1(models, engine, name, reason):
    code = HANGING.format(name=name, engine=engine)
    words = [sys.executable, "-c", code, str(models["translate"])]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            host, port = re.search(r"//(.*):(\d+)/", process.stderr.readline()).groups()
            with socket.create_connection((host, int(port))) as client:
                client.sendall(raw_post({"text": "가 " * 300}))
                assert process.stderr.readline() == "hanging\n"
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 1
            assert reason in process.stderr.read()
        finally:
            process.kill()


def test_short_responses_are_sent_without_delay(start):
    """Without TCP_NODELAY the body would wait 40 ms for the acknowledgement of the head."""
    running = start()
    connection = http.client.HTTPConnection(running.host, running.port, timeout=60)

    def is_quick():
        began = time.monotonic()
        connection.request("GET", "/health/live")
        connection.getresponse().read()
        return time.monotonic() - began < 0.03

    rounds = (sum(is_quick() for _ in range(30)) for _ in range(20))  # the machine may be busy
    assert any(n_quick > 5 for n_quick in rounds)
    connection.close()


def test_an_idle_server_exits_at_once(start):
    running = start()
    assert post(running, QUICK) == 200
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(20) == 0


def test_excess_requests_get_429(start):
    running = start("--queue", "4")
    text = {"text": "가 나 다 " * 20, "max_length": 60, "beam": 8}
    statuses = set()
    with ThreadPoolExecutor(40) as clients:
        for _ in range(10):  # on a busy machine the clients may be slower than the server
            statuses |= set(clients.map(lambda _: post(running, text), range(40)))
            if 429 in statuses:
                break
    assert statuses == {200, 429}
    assert post(running, QUICK) == 200


def test_an_address_in_use_is_reported(process, models, capfd):
    words = ["serve", str(models["translate"]), "--port", str(process.port)]
    assert main(words) == 2
    assert f"cannot bind 127.0.0.1:{process.port}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "give --api-key"),
        (["--api-key", "short"], "at least 8"),
        (["--port", "70000"], "port = 70000"),
        (["--queue", "0"], "queue = 0"),
        (["--allow-host", "A.example", "--allow-host", "b:1"], "--allow-host b:1"),
    ],
)
def test_invalid_options_are_reported(words, message, capfd, monkeypatch):
    monkeypatch.delenv("POLYHEAD_API_KEY", raising=False)
    assert main(["serve", "anything", *words]) == 2
    assert message in capfd.readouterr().err
