"""Clients of a server under load: a process that serves, and many connections that ask.

Two kinds of load. In a *closed* loop each client asks again as soon as it is answered: this finds
the capacity. In an *open* loop requests come when they come (exponential gaps), whether or not
others were answered, and each is timed from the moment it was due: this is what people see.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from polyhead.errors import PolyheadError

SOURCE = Path(__file__).parents[1] / "src"
READY = re.compile(r"http://([\d.]+):(\d+)/")
MAX_OPEN = 900  # connections
IDLE_SECONDS = 5.0  # the server ends a connection that is idle for 30


@dataclass
class Load:
    """Responses: counts by status, and seconds of the successful ones."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.statuses[200] / self.seconds

    def quantile(self, share: float) -> float:
        """Return the time within which this share of the responses came."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True)
class Server:
    """A running `polyhead serve`."""

    process: "subprocess.Popen[str]"
    host: str
    port: int

    def memory(self) -> int:
        """Its resident memory, in kB (Linux)."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        results = re.search(r"^VmRSS:\s+(\d+) kB$", text, re.M)
        assert results is not None
        return int(results[1])

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextlib.contextmanager
def started(model: Path, *options: str) -> Iterator[Server]:
    """Return a server in a process of its own, with options of `polyhead serve`."""
    command = [sys.executable, "-m", "polyhead", "serve", str(model), "--port", "0", *options]
    surroundings = {**os.environ, "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=surroundings)
    assert process.stderr is not None
    try:
        said_value = []
        for line in process.stderr:
            said_value.append(line)
            if results := READY.search(line):
                yield Server(process, results[1], int(results[2]))
                return
        raise PolyheadError(f"the server did not start: {' '.join(said_value)}")
    finally:
        process.kill()
        process.wait()


@dataclass
class Connection:
    """One connection that is kept open, and given up when it was idle: the server would end it."""

    server: Server
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    used: float = 0.0  # when it was last

    async def ask(self, text: str, beam: int) -> int:
        """Send one sentence; the status of the answer, 0 if there is none."""
        body = json.dumps({"text": text, "beam": beam}).encode()
        head = (
            f"POST /v1/translate HTTP/1.1\r\nHost: {self.server.host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        if time.perf_counter() - self.used > IDLE_SECONDS:
            self.close()
        try:
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection(
                    self.server.host, self.server.port
                )
            assert self.reader is not None
            self.writer.write(head.encode() + body)
            answer = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = re.search(r"content-length: (\d+)", answer)
            await self.reader.readexactly(int(length[1]) if length else 0)
            self.used = time.perf_counter()
            if "connection: close" in answer:
                self.close()
            return int(answer.split(" ", 2)[1])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    def close(self) -> None:
        """Hang up."""
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


def closed(server: Server, texts: Sequence[str], clients: int, requests: int, beam: int) -> Load:
    """Send `requests` requests by `clients` clients."""
    return asyncio.run(_closed(server, texts, clients, requests, beam))


async def _closed(
    server: Server, texts: Sequence[str], clients: int, requests: int, beam: int
) -> Load:
    load, numbers = Load(), iter(range(requests))

    async def client() -> None:
        connection = Connection(server)
        for number in numbers:
            started = time.perf_counter()
            status = await connection.ask(texts[number % len(texts)], beam)
            load.statuses[status] += 1
            if status == 200:
                load.waits.append(time.perf_counter() - started)
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - started
    return load


def opened(server: Server, texts: Sequence[str], rate: float, seconds: float, beam: int) -> Load:
    """Send requests at a mean rate for some seconds."""
    return asyncio.run(_opened(server, texts, rate, seconds, beam))


async def _opened(
    server: Server, texts: Sequence[str], rate: float, seconds: float, beam: int
) -> Load:
    load, free, draw = Load(), [], random.Random(1)
    gate = asyncio.Semaphore(MAX_OPEN)

    async def client(number: int, due: float) -> None:
        async with gate:
            connection = free.pop() if free else Connection(server)
            status = await connection.ask(texts[number % len(texts)], beam)
            load.statuses[status] += 1
            if status == 200:
                load.waits.append(time.perf_counter() - due)
            free.append(connection)

    started = due = time.perf_counter()
    running, number = [], 0
    while due - started < seconds:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        running.append(asyncio.create_task(client(number, due)))
        number += 1
    await asyncio.gather(*running)
    load.seconds = time.perf_counter() - started
    for connection in free:
        connection.close()
    return load
