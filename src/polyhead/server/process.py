"""Server process: load the models, serve them, and shut down gracefully.

SIGTERM or the first Ctrl-C: /health/ready and new requests get 503, accepted requests are finished,
and the process exits with 0, at the latest after `drain_seconds`. A second Ctrl-C exits at once. If
something hangs, the process exits with 1 at most `LAST_SECONDS` after the drain.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import uvicorn

from polyhead.engines.obstacles import torch_notice
from polyhead.errors import ConfigError
from polyhead.pipelines.backends import DecodingPipeline
from polyhead.pipelines.base import Pipeline
from polyhead.server.app import Application
from polyhead.server.connections import ConnectionLimits, LimitedConnection, open_files_limit
from polyhead.server.model_registry import ModelRegistry, load_models
from polyhead.server.settings import MAX_CONNECTIONS, Settings

POLL_SECONDS = 0.02
LAST_SECONDS = 4.0  # after the drain, for connections and threads
TEXT_THREADS = 2  # that tokenize long texts; each takes turns with the event loop
SWITCH_SECONDS = 0.001  # after which the model thread yields the interpreter to requests


class SignalFreeServer(uvicorn.Server):
    """Uvicorn without its signal handlers, which exit with 143."""

    capture_signals = contextlib.nullcontext  # type: ignore[assignment]


def serve(
    models: Sequence[Path], settings: Settings, report: Callable[[str], None] = lambda _: None
) -> None:
    """Serve models until a signal stops the process; `report` gets the address and notices."""
    listener = bind(settings)  # before the models are loaded, so that errors come early
    try:
        registry = load_models(models, settings.device, settings.engine, settings.compute_type)
        for served, path in zip(registry.models, models, strict=True):
            about = served.about
            if about.use == "translate" and not (about.source_language and about.target_language):
                report(
                    f"{path}: languages unknown, clients see them as source and target; name them "
                    f"with: polyhead languages {path} ko-en"
                )
            notice = engine_notice(served.model, settings.engine) if registry.use_torch else None
            if notice is not None:
                report(f"{path}: {notice}")
        has_stopped = asyncio.run(run(registry, settings, listener, report))
    finally:
        faulthandler.cancel_dump_traceback_later()
        listener.close()
    if not has_stopped:
        report("model thread did not stop; exiting")
        os._exit(1)  # a normal exit would wait for the thread


def engine_notice(model: Pipeline, engine: str) -> str | None:
    """Return what torch computes although CTranslate2 may be chosen, or None."""
    if engine != "auto" or not isinstance(model, DecodingPipeline):
        return None
    if model.use == "generate" and "ctranslate2" in model.engines:
        return "greedy search uses ctranslate2, sampling torch"
    reason = model.obstacle()
    return reason and torch_notice(reason)


def use_threads(number: int, models: ModelRegistry) -> None:
    """Set the number of threads of torch, if a model uses it."""
    if models.use_torch:
        from torch import set_num_threads

        set_num_threads(number)


def bind(settings: Settings) -> socket.socket:
    """Return the listening socket."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":  # on Windows it would let two servers share a port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(
            f"cannot bind {settings.host}:{settings.port} ({error}); "
            "choose another --host or --port",
            "cannot_bind",
        ) from None
    return listener


async def run(
    models: ModelRegistry,
    settings: Settings,
    listener: socket.socket,
    report: Callable[[str], None],
) -> bool:
    """Serve until a signal comes and accepted requests are done; return `Application.close`."""
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(TEXT_THREADS, "text"))
    for name in ("python_multipart", "asyncio"):  # malformed forms and lost clients log a lot
        logging.getLogger(name).setLevel(logging.ERROR)
    threads = settings.threads or max(1, (os.cpu_count() or 2) - 1)
    app = Application(models, settings, partial(use_threads, threads, models))
    limits = ConnectionLimits(open_files_limit(MAX_CONNECTIONS), settings.head_seconds)
    config = uvicorn.Config(
        app, http=LimitedConnection.with_limits(limits), ws="none", lifespan="off",
        interface="asgi3", log_level="error", access_log=False, server_header=False,
        proxy_headers=False, backlog=1024, h11_max_incomplete_event_size=32 * 1024,
        timeout_keep_alive=30, timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = SignalFreeServer(config)
    stop = asyncio.Event()
    _handle_signals(stop, server)
    app.start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        while not (server.started or serving.done()):
            await asyncio.sleep(POLL_SECONDS)
        host, port = listener.getsockname()[:2]
        served = [f"{m.name} ({m.about.use}, {m.about.engine})" for m in models.models]
        report(
            f"Serving {', '.join(served)} at "
            f"http://{f'[{host}]' if ':' in host else host}:{port}/ (Ctrl-C stops the server)"
        )
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            report("stopping: finishing accepted requests, rejecting new ones")
            faulthandler.dump_traceback_later(settings.drain_seconds + LAST_SECONDS, exit=True)
            draining = asyncio.create_task(drain(app, settings))
            await asyncio.wait({serving, draining}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()  # after a second Ctrl-C
            server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        has_stopped = app.close()
    return has_stopped


async def drain(app: Application, settings: Settings) -> None:
    """Reject new requests and wait for the open ones."""
    app.security.is_draining = True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.drain_seconds):
            while app.security.n_open:
                await asyncio.sleep(POLL_SECONDS)


def _handle_signals(stop: asyncio.Event, server: SignalFreeServer) -> None:
    def handle(number: int) -> None:
        if stop.is_set() and number == signal.SIGINT:
            server.should_exit = server.force_exit = True
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, handle, number)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda n, _: loop.call_soon_threadsafe(handle, n))
