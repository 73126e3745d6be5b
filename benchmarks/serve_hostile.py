"""The server and hostile clients: connections that wait, and random requests.

    idle    a client alone, and beside 1,000 connections that are idle, send half a head or half a
            body, or are opened and closed all the time: its median wait at most 3 times as long
    fuzz    random requests (seeded) without a socket: no status above 499 but 503, and at most 5 %
            more memory after the last than after the first tenth

Both train tiny models first, unless --model names a translator (idle). Clients and server use this
machine only.
"""

import argparse
import asyncio
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import measuring
import torch
from serve_client import Server, closed, started

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
SLOWER_BAR, MEMORY_BAR = 3.0, 0.05
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
        with started(Path(model), 1) as server:
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


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and record if asked to."""
    if arguments[:1] == ["hold"]:
        hold(arguments[1], int(arguments[2]), arguments[3], int(arguments[4]))
        return 0
    parser = measuring.parser(__doc__)
    parser.add_argument("what", choices=("idle", "fuzz"))
    parser.add_argument("--model", type=Path, default=None, help="a translator, for idle")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=0, help="default: 200 and 200,000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    words.requests = words.requests or (200 if words.what == "idle" else 200_000)
    torch.set_num_threads(1)
    where = measuring.environment("serve_hostile.py", arguments)
    report = [*where, "", *(idle if words.what == "idle" else fuzz)(words)]
    print("\n".join(["", *report]))
    if words.record:
        measuring.record(measuring.RESULTS, "The server and hostile clients", report)
    return 0


if __name__ == "__main__":
    measuring.run(main)
