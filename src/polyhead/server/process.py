"""The process: load the models, listen, and leave politely.

SIGTERM (or the first Ctrl-C) begins the end: /health/ready says 503, new requests are refused with
503, those that were accepted are answered, and the process exits with 0 as soon as all are done, at
the latest after `drain_seconds`. A second Ctrl-C leaves at once. Whatever hangs is left behind: the
process then ends with 1, at the latest `LAST_SECONDS` after the drain.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import uvicorn

from polyhead.devices import keep_freed_memory
from polyhead.errors import ConfigError
from polyhead.server.app import Application
from polyhead.server.registry import ModelRegistry, fill
from polyhead.server.settings import MAX_CONNECTIONS, Settings

POLL_SECONDS = 0.02
LAST_SECONDS = 4.0  # for what is left after the drain: connections, threads
SWITCH_SECONDS = 0.001  # that the model's thread may keep the interpreter while a request waits


class Listener(uvicorn.Server):
    """Uvicorn without its own ideas about signals, which end in exit code 143."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours."""
        yield


def serve(
    models: Sequence[Path], settings: Settings, say: Callable[[str], None] = lambda _: None
) -> None:
    """Serve some models until somebody says stop."""
    listening = bind(settings)  # before the models are loaded: an address in use is known at once
    try:
        keep_freed_memory()
        shelf = fill(models, settings.device)
        stopped = asyncio.run(run(shelf, settings, listening, say))
    finally:
        faulthandler.cancel_dump_traceback_later()
        listening.close()
    if not stopped:
        say("the model does not stop; leaving without it")
        os._exit(1)  # Python itself would wait, or stumble over the thread


def bind(settings: Settings) -> socket.socket:
    """The socket to listen on."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends small answers at once (TCP_NODELAY) only if the protocol is named
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port} ({error}); "
            "choose another --host or --port"
        ) from None
    return listening


async def run(
    shelf: ModelRegistry, settings: Settings, listening: socket.socket, say: Callable[[str], None]
) -> bool:
    """Listen and answer, until a signal comes and everything that was accepted is done.

    Whether the model has stopped as well.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # strangers' forms fill no disk
    threads = settings.threads or max(1, (os.cpu_count() or 2) - 1)
    app = Application(shelf, settings, lambda: torch.set_num_threads(threads))
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=32 * 1024,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        backlog=1024,
    )
    listener = Listener(config)
    stop = asyncio.Event()
    _listen_to_signals(stop, listener)
    app.start()
    serving = asyncio.create_task(listener.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.wait())
    try:
        while not (listener.started or serving.done()):
            await asyncio.sleep(POLL_SECONDS)
        host, port = listening.getsockname()[:2]
        say(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            say("stopping: no new requests, finishing those that were accepted")
            faulthandler.dump_traceback_later(settings.drain_seconds + LAST_SECONDS, exit=True)
            draining = asyncio.create_task(drain(app, settings))
            await asyncio.wait({serving, draining}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()  # a second Ctrl-C ended it all
            listener.should_exit = True
        await serving
    finally:
        stopping.cancel()
        stopped = app.close()
    return stopped


async def drain(app: Application, settings: Settings) -> None:
    """Refuse what is new and wait for the rest."""
    app.border.draining = True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.drain_seconds):
            while app.border.n_open:
                await asyncio.sleep(POLL_SECONDS)


def _listen_to_signals(stop: asyncio.Event, listener: Listener) -> None:
    loop = asyncio.get_running_loop()

    def ask(number: int) -> None:
        if stop.is_set() and number == signal.SIGINT:
            listener.should_exit = listener.force_exit = True
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
