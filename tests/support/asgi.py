"""Server without sockets: its event loop runs in a thread, and requests are function calls."""

import asyncio
import json
import threading
from dataclasses import dataclass

from polyhead.server.app import Application
from polyhead.server.settings import Settings

LOCAL = (("host", "127.0.0.1:8000"),)
JSON = ("content-type", "application/json")
PNG = ("content-type", "image/png")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


async def call(app, method, path, body=b"", headers=(), query=b"", left=None, received=None):
    """Send one request. Setting the event `left` disconnects the client."""
    left = left or asyncio.Event()
    inbox = [{"type": "http.request", "body": body, "more_body": False}]
    sent = [] if received is None else received

    async def receive():
        if inbox:
            return inbox.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    named = dict(LOCAL) | {name.lower(): value for name, value in headers}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "headers": raw,
        "raw_path": path.encode("utf-8", "replace"), "query_string": query, "root_path": "",
        "scheme": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
        "server": ("127.0.0.1", 8000), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await app(scope, receive, send)
    if not sent:
        return None  # the client had disconnected
    start, *parts = sent
    return Answer(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(part.get("body", b"") for part in parts),
    )


class Running:
    """Application that runs in its own thread."""

    def __init__(self, registry, settings=None):
        self.app = Application(registry, settings or Settings())
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.loop.call_soon_threadsafe(self.app.start)

    def run(self, coroutine, timeout=120):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def call(self, method, path, body=b"", headers=(), query=b""):
        return self.run(call(self.app, method, path, body, headers, query))

    def get(self, path, *headers):
        return self.call("GET", path, headers=headers)

    def post(self, path, content, *headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.call("POST", path, body, (JSON, *headers))

    def close(self):
        self.app.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()
