"""The server and hostile clients: connections that wait, and random requests.

    idle    a client alone, and beside 1,000 connections that are idle, send half a head or half a
            body, or are opened and closed all the time: its median wait at most 3 times as long
    fuzz    random requests (seeded) without a socket: no status above 499 but 503, and at most 5 %
            more memory after the last than after the first tenth
    log     random and broken requests (seeded) through sockets, half of them with the API key: no
            status above 499 but 503, no traceback, less than one log line per ten requests
    health  /health/live beside 900 clients that send short texts or long ones without a pause: each
            answer within 2 s

All train tiny models first, unless --model names a translator (not for fuzz). Clients and server
use this machine only.
"""

import argparse
import asyncio
import contextlib
import http.client
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import measuring
import torch
from serve_client import MAX_OPEN, Server, closed, started

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from asgi import Running, call
from hostile_requests import any_request
from pretrained import configured, pretrain, write_labelled
from tiny import train_tiny
from tiny_gpt import train_gpt
from tiny_images import train_on_pictures

from polyhead.server.model_registry import load_models
from polyhead.training.trainer import train

SENT = {
    "idle": b"",
    "half a head": b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nX",
    "half a body": b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
    "reconnecting": b"",
}
SLOWER_BAR, MEMORY_BAR, LINES_BAR, HEALTH_BAR = 3.0, 0.05, 0.1, 2.0
KEY = "correct horse battery"
N_OPEN = 50  # connections of random requests
TEXTS = ["내일 회의가 있어요.", "오늘은 금요일입니다."]


def hold(host: str, port: int, kind: str, count: int) -> None:
    """Keep connections open until standard input ends; open a lost one again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100,) * 2)
    asyncio.run(_hold(host, port, kind, count))


async def _hold(host: str, port: int, kind: str, count: int) -> None:
    async def one() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(SENT[kind])
                if kind != "reconnecting":
                    await reader.read()
                writer.close()
            except OSError:
                pass
            await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


def idle(words: argparse.Namespace) -> list[str]:
    """Return a table of a client's median wait, alone and beside each kind of connection."""
    with tempfile.TemporaryDirectory() as folder:
        model = words.model or train_tiny(Path(folder))
        with started(Path(model), "--threads", "1") as server:
            closed(server, TEXTS, 2, 20, 1)  # warm up
            rows = [_idle_row(server, kind, words) for kind in SENT]
    columns = [f"beside {words.connections:,} connections", "times the wait alone", "bar"]
    return measuring.table(columns, rows)


def _idle_row(server: Server, kind: str, words: argparse.Namespace) -> list[str]:
    ratios, failed = [], 0
    for _ in range(words.rounds):
        alone = _median_wait(server, words.requests)
        command = [sys.executable, __file__, "hold", server.host, str(server.port), kind]
        with subprocess.Popen(
            [*command, str(words.connections)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as attacker:
            assert attacker.stdin is not None
            assert attacker.stdout is not None
            attacker.stdout.readline()
            beside = _median_wait(server, words.requests)
            attacker.stdin.close()
            attacker.kill()
        ratios.append(beside[0] / alone[0])
        failed += alone[1] + beside[1]
    kept = statistics.median(ratios) <= SLOWER_BAR and not failed
    shown = f"{SLOWER_BAR:g}, all answered: {'kept' if kept else f'MISSED ({failed} failed)'}"
    return [kind, str(measuring.spread(ratios)), shown]


def _median_wait(server: Server, requests: int) -> tuple[float, int]:
    """Return the median wait of new connections with one request each, and failed requests."""
    waits, failed = [], 0
    body = b'{"text": "\xeb\x82\xb4\xec\x9d\xbc", "beam": 1, "max_length": 8}'
    head = (
        f"POST /v1/translate HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(requests):
        began = time.perf_counter()
        try:
            with socket.create_connection((server.host, server.port), timeout=30) as connection:
                connection.sendall(head.encode() + body)
                answer = connection.recv(65536)
            failed += not answer.startswith(b"HTTP/1.1 200")
        except OSError:
            failed += 1
        waits.append(time.perf_counter() - began)
    return statistics.median(waits), failed


def fuzz(words: argparse.Namespace) -> list[str]:
    """Return a table of statuses and of the memory."""
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place, name) for name in ("pairs", "gpt", "bert", "kinds", "images")}
        for folder in folders.values():
            folder.mkdir()
        files = write_labelled(folders["kinds"])
        train(configured("classify-small", files), folders["kinds"] / "run")
        runs = [
            train_tiny(folders["pairs"]), train_gpt(folders["gpt"]),
            pretrain(folders["bert"], "bert-tiny"), folders["kinds"] / "run",
            train_on_pictures(folders["images"], "colours"),
        ]  # fmt: skip
        server = Running(load_models(runs, "cpu"))
    statuses: Counter[int] = Counter()
    first = max(1, words.requests // 10)
    _send(server, range(first), statuses)
    before = _resident()
    _send(server, range(first, words.requests), statuses)
    growth = _resident() / before - 1
    server.close()
    wrong = sum(n for status, n in statuses.items() if status >= 500 and status != 503)
    counts = ", ".join(f"{status}: {n:,}" for status, n in sorted(statuses.items()))
    rows = [
        ["answers", counts, f"no 5xx but 503: {'kept' if not wrong else f'MISSED ({wrong})'}"],
        ["memory", f"{before / 1024:.0f} MB {growth:+.1%}",
         f"{MEMORY_BAR:.0%}: {'kept' if growth <= MEMORY_BAR else 'MISSED'}"],
    ]  # fmt: skip
    return measuring.table([f"{words.requests:,} random requests", "", "bar"], rows)


def _send(server: Running, numbers: Sequence[int], statuses: Counter[int]) -> None:
    async def send(number: int) -> None:
        method, path, body, headers, query = any_request(random.Random(number))
        answer = await call(server.app, method, path, body, headers, query)
        statuses[answer.status] += 1

    async def send_all() -> None:
        for start in range(0, len(numbers), 50):
            await asyncio.gather(*map(send, numbers[start : start + 50]))

    server.run(send_all(), timeout=7200)


def _resident() -> int:
    """Return the resident memory of this process in kB (Linux)."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize() // 1024


def log(words: argparse.Namespace) -> list[str]:
    """Return a table of statuses and of the lines that the server wrote."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        model = words.model or train_tiny(Path(folder))
        with started(Path(model), "--threads", "1", "--api-key", KEY) as server:
            log_lines = server.process.stderr
            assert log_lines is not None
            reader = threading.Thread(target=lambda: lines.extend(log_lines))
            reader.start()
            statuses = asyncio.run(_send_broken(server, words.requests))
            alive = server.process.poll() is None
            code = server.stop()
            reader.join()
    wrong = sum(n for status, n in statuses.items() if status >= 500 and status != 503)
    counts = ", ".join(f"{status or 'none'}: {n:,}" for status, n in sorted(statuses.items()))
    n_traces = sum(line.startswith("Traceback") for line in lines)
    is_short = len(lines) < max(2, LINES_BAR * words.requests)  # one says that it stops
    rows = [
        ["answers", counts, f"no 5xx but 503: {'kept' if not wrong else f'MISSED ({wrong})'}"],
        ["tracebacks", str(n_traces), "0: " + ("MISSED" if n_traces else "kept")],
        ["log lines", f"{len(lines):,}", f"{LINES_BAR:g} a request: {_kept(is_short)}"],
        ["exit code", str(code), f"0, not before it is stopped: {_kept(alive and code == 0)}"],
    ]
    return measuring.table([f"{words.requests:,} hostile requests", "", "bar"], rows)


def _kept(is_kept: bool) -> str:
    return "kept" if is_kept else "MISSED"


def _broken(draw: random.Random, host: str) -> bytes:
    """Return a random request as bytes: whole, changed, cut off, or with a bad chunk."""
    method, path, body, headers, query = any_request(draw)
    fields = {"host": host, "connection": "close", "content-length": str(len(body))}
    fields |= {"authorization": f"Bearer {KEY}"} if draw.random() < 0.5 else {}
    fields |= dict(headers)
    kind = draw.random()
    if kind < 0.15:
        del fields["content-length"]
        fields["transfer-encoding"] = "chunked"
        body = draw.choice((b"ZZ\r\n", b"5\r\nabc", b"-1\r\n", b"0\r\n\r\n", b"1;" * 99))
    head = f"{method} {path}?{query.decode('latin-1')} HTTP/1.1\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    whole = bytearray(head.encode("utf-8", "surrogatepass") + b"\r\n" + body)
    if kind > 0.8:
        for _ in range(draw.randint(1, 8)):
            whole[draw.randrange(len(whole))] = draw.randrange(256)
    return bytes(whole[: draw.randrange(1, len(whole))] if kind > 0.9 else whole)


async def _send_broken(server: Server, n_requests: int) -> Counter[int]:
    """Send requests; count the statuses, 0 for none. Each tenth client leaves without reading."""
    statuses: Counter[int] = Counter()
    numbers = iter(range(n_requests))

    async def client() -> None:
        for number in numbers:
            draw, status = random.Random(number), 0
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(_broken(draw, f"{server.host}:{server.port}"))
                if number % 10 == 0:
                    writer.transport.abort()
                else:
                    if number % 10 < 4:  # the server then closes; broken ones wait for its limit
                        writer.write_eof()
                    answer = await asyncio.wait_for(reader.read(), 60)
                    status = int(answer[9:12]) if answer else 0
                writer.close()
            statuses[status] += 1

    await asyncio.gather(*(client() for _ in range(N_OPEN)))
    return statuses


def health(words: argparse.Namespace) -> list[str]:
    """Return a table of the waits for /health/live beside busy clients."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = words.model or train_tiny(Path(folder))
        for kind in ("short", "long"):
            waits = []
            with started(Path(model)) as server:
                command = [sys.executable, __file__, "load", server.host, str(server.port), kind]
                with subprocess.Popen(command) as clients:
                    files = Path(f"/proc/{server.process.pid}/fd")
                    while clients.poll() is None and len(list(files.iterdir())) < MAX_OPEN:
                        time.sleep(0.1)  # until all are connected (Linux)
                    for _ in range(words.requests):
                        waits.append(_health_wait(server))
                        time.sleep(0.05)
                    clients.kill()
            shown = f"{statistics.median(waits):.3f} s, at most {max(waits):.3f} s"
            rows.append([f"{kind} texts", shown, f"{HEALTH_BAR:g} s: {_kept(max(waits) < 2)}"])
    return measuring.table([f"/health/live beside {MAX_OPEN} clients", "", "bar"], rows)


def _health_wait(server: Server) -> float:
    """Return the seconds until the answer of a new connection; infinite if it is not 200."""
    began = time.perf_counter()
    try:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
        connection.request("GET", "/health/live")
        is_alive = connection.getresponse().status == 200
        connection.close()
    except OSError:
        is_alive = False
    return time.perf_counter() - began if is_alive else float("inf")


def load(host: str, port: int, kind: str) -> None:
    """Send texts by many clients without a pause, until the process is killed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN + 100,) * 2)
    texts = TEXTS if kind == "short" else [" ".join(TEXTS * 30)]
    closed(Server(None, host, port), texts, MAX_OPEN, 10**9, 1)  # type: ignore[arg-type]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and record if asked to."""
    if arguments[:1] == ["hold"]:
        hold(arguments[1], int(arguments[2]), arguments[3], int(arguments[4]))
        return 0
    if arguments[:1] == ["load"]:
        load(arguments[1], int(arguments[2]), arguments[3])
        return 0
    measures = {"idle": (idle, 200), "fuzz": (fuzz, 200_000), "log": (log, 50_000),
                "health": (health, 200)}  # fmt: skip
    parser = measuring.parser(__doc__)
    parser.add_argument("what", choices=list(measures))
    parser.add_argument("--model", type=Path, default=None, help="a translator, not for fuzz")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=0, help="default: of each measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    measure, n_requests = measures[words.what]
    words.requests = words.requests or n_requests
    torch.set_num_threads(1)
    where = measuring.environment("serve_hostile.py", arguments)
    report = [*where, "", *measure(words)]
    print("\n".join(["", *report]))
    if words.record:
        measuring.record(measuring.RESULTS, "The server and hostile clients", report)
    return 0


if __name__ == "__main__":
    measuring.run(main)
