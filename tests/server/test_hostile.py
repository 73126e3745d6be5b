"""Hostile requests: no response is a 5xx, and the server stays alive.

Most are calls without a socket; random bytes and schemathesis, which generates requests from the
API description, use a real process.
"""

import asyncio
import contextlib
import random
import signal
import socket
from dataclasses import replace

import pytest
import requests
import schemathesis
from asgi import call
from foreign_models import HOSTILE_PARTS, word_tokenizer
from hostile_requests import any_request
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

N_CALLS, N_RAW, N_EXAMPLES = 6_000, 1_500, 25  # `benchmarks/serve_hostile.py fuzz` sends more
CHECKS = [not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
          checks.response_schema_conformance]  # fmt: skip
HOSTILE = {
    "a lone surrogate": b'{"text": "\\ud800"}',
    "a surrogate in a name": b'{"text": "a", "\\udfff": 1}',
    "NaN": b'{"text": "a", "length_penalty": NaN}',
    "infinity": b'{"text": "a", "length_penalty": Infinity}',
    "1e400": b'{"text": "a", "length_penalty": 1e400}',
    "a number of 10,000 digits": b'{"text": "a", "beam": ' + b"9" * 10_000 + b"}",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"text":' * 100_000,
    "closed deep lists": b'{"text": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "no UTF-8": b'{"text": "\xff\xfe"}',
    "overlong UTF-8": b'{"text": "\xc0\x80"}',
    "UTF-16": '{"text": "a"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"text": "a"}',
    "nothing": b"", "a list": b"[]", "null": b"null", "a text": b'"text"',
    "cut off": b'{"text": "a', "two": b'{"text": "a"}{"text": "b"}',
    "a comment": b'{"text": "a" /* b */}',
    "many names": b"{" + b",".join(b'"n%d": 1' % n for n in range(50_000)) + b"}",
    "a long name": b'{"' + b"n" * 900_000 + b'": 1, "text": "a"}',
    "an unknown field": b'{"text": "a", "__class__": {}}',
}  # fmt: skip
READ = {  # unusual, but valid
    "NUL": b'{"text": "a\\u0000b", "max_length": 4}',
    "right to left": '{"text": "\u202eabc\u2066", "max_length": 4}'.encode(),
    "noncharacters": '{"text": "\uffff\ufdd0\U0010ffff", "max_length": 4}'.encode(),
    "zalgo": ('{"text": "a' + "\u0300" * 500 + '", "max_length": 4}').encode(),
    "emoji": '{"text": "👩‍👩‍👧‍👦🏳️‍🌈", "max_length": 4}'.encode(),
    "one long word": b'{"text": "' + b"x" * 9_000 + b'", "max_length": 2, "beam": 1}',
    "a pair of surrogates": b'{"text": "\\ud83d\\ude00", "max_length": 4}',
    "spaces": b'{"text": "' + b" " * 5_000 + b'"}',
    "control characters": b'{"text": "\\u0001\\u001b[31m\\u007f", "max_length": 4}',
    "the same name twice": b'{"text": 5, "text": "a", "max_length": 4}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_rejected(server, body):
    answer = server.post("/v1/translate", body)
    assert 400 <= answer.status < 500
    assert set(answer.json()) <= {"error", "field", "code"}
    assert len(answer.body) < 2_000


@pytest.mark.parametrize("body", READ.values(), ids=READ)
def test_unusual_texts_are_translated(server, body):
    answer = server.post("/v1/translate", body)
    assert answer.status == 200, answer.body
    answer.body.decode("utf-8")


# Sent without a socket


def test_random_requests_never_cause_a_server_error(server):
    statuses = {}

    async def send(number):
        method, path, body, headers, query = sent = any_request(random.Random(number))
        answer = await call(server.app, method, path, body, headers, query)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        assert answer.status < 500, (sent, answer)
        if answer.status >= 400 and method != "HEAD":
            assert "error" in answer.json()

    async def send_all():
        for start in range(0, N_CALLS, 50):
            await asyncio.gather(*(send(n) for n in range(start, start + 50)))

    server.run(send_all(), timeout=600)
    assert sum(statuses.values()) == N_CALLS
    assert statuses[200] > 0.03 * N_CALLS  # not all are rejected early
    assert {400, 404, 405, 413, 415, 422} <= set(statuses)
    assert server.app.scheduler.worker.queue == []
    assert server.app.security.n_open == 0


# Sent through a socket

LENGTHS = (b"-1", b"0", b"29", b"31", b"1e3", b"30\r\nX: \0")
CHUNKS = (b"0\r\n\r\n", b"zz\r\n", b"5\r\nabc", b"-1\r\n", b"ffffffffffffffff\r\n", b"1;" * 99)


def raw(draw, host):
    """Return bytes that may start like HTTP."""
    whole = (
        f"POST /v1/translate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        'Content-Length: 30\r\n\r\n{"text": "a", "max_length": 2}'
    ).encode()
    head, _ = whole.replace(b"Content-Length: 30", b"Transfer-Encoding: chunked").split(b"\r\n\r\n")
    mutable = bytearray(whole)
    for _ in range(draw.randint(1, 8)):
        mutable[draw.randrange(len(mutable))] = draw.randrange(256)
    return draw.choice((
        bytes(mutable),
        draw.randbytes(draw.randrange(1, 200)),
        whole[: draw.randrange(1, len(whole))],
        whole.replace(b"30", draw.choice(LENGTHS)),
        head + b"\r\n\r\n" + draw.choice(CHUNKS),
        whole.replace(b"HTTP/1.1", draw.choice((b"HTTP/9.9", b"HTTP/1.0", b"", b"\xff"))) * 2,
    ))  # fmt: skip


def test_random_bytes_do_not_stop_the_process(process):
    draw = random.Random(7)
    for _ in range(N_RAW):
        with socket.create_connection((process.host, process.port), timeout=20) as connection:
            connection.sendall(raw(draw, f"{process.host}:{process.port}"))
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except ConnectionResetError:
                continue
        if answer:
            assert answer.startswith(b"HTTP/1.1 ")
            assert int(answer[9:12]) < 500, answer
    _is_alive(process)


def test_request_headers_are_limited(process):
    with socket.create_connection((process.host, process.port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    _is_alive(process)


def _is_alive(process):
    assert process.process.poll() is None
    assert requests.get(f"{process.url}/health/ready", timeout=30).status_code == 200


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_responses_conform_to_the_api_description(process, mode):
    session = requests.Session()
    api = schemathesis.openapi.from_url(f"{process.url}/openapi.json")
    sent = []
    for result in api.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=N_EXAMPLES, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def keep(case):
            cheap(case)
            sent.append(case.path)
            case.call_and_validate(checks=CHECKS, session=session)

        if mode == GenerationMode.POSITIVE or operation.body:
            keep()
    assert len(sent) >= 8 * N_EXAMPLES
    assert {"/translate", "/v1/attention", "/v1/classify"} <= set(sent)
    _is_alive(process)


def cheap(case):
    """Limit the output of slow routes."""
    limit = "max_length" if case.path in ("/v1/translate", "/v1/beam") else "max_tokens"
    slow = ("/v1/translate", "/v1/generate", "/v1/steps", "/v1/beam", "/v1/completions")
    text = isinstance(case.body, dict) and case.body.get("text", case.body.get("prompt"))
    if case.path in slow and isinstance(text, str):
        case.body[limit] = 2


def test_a_tokenizer_that_fails_on_a_text_costs_one_answer(served, another):
    """The text ends the tokenizer's process; the model thread serves the next request."""
    filler = served("fill").model
    foreign = word_tokenizer(len(filler.tokenizer), **HOSTILE_PARTS["regex"])
    pair = replace(filler.tokenizers, source=foreign, target=foreign)
    saved = replace(filler.saved, tokenizers=pair)
    filler = filler.from_saved(saved, filler.name, filler.device)
    server = another(replace(served("fill"), model=filler))
    for _ in range(2):
        assert server.post("/v1/fill", {"text": "w5 [MASK]"}).status == 200
        answer = server.post("/v1/fill", {"text": "a" * 40 + " [MASK]"})
        assert answer.status == 503
        assert "tokenizer" in answer.json()["error"]


def test_what_is_not_http_leaves_no_line_in_the_log(start):
    running = start("--api-key", "long enough")
    head = b"POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    sent = [(head + b"ZZ\r\n", b"", 400), (head, b"ZZ\r\n", 401), (b"ZZ\r\n\r\n", b"ZZ", 400),
            (upgrade, b"ZZ\r\n\r\n", 200),
            (head.replace(b"POST", b"HEAD") + b"ZZ\r\n", b"", 400)]  # fmt: skip
    for first, then, status in sent * 10:
        with socket.create_connection((running.host, running.port), timeout=20) as connection:
            connection.sendall(first)
            assert int(connection.recv(4096)[9:12]) == status
            with contextlib.suppress(OSError):  # the server may have closed the connection
                connection.sendall(then)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
    _is_alive(running)
    running.process.send_signal(signal.SIGTERM)
    (_, log) = running.process.communicate(timeout=60)
    assert len(log.splitlines()) == 1, log  # "stopping: …"
