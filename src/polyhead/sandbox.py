"""Child processes with limits, for libraries that parse untrusted files.

    parent                                child: python -I, one module, no torch
    Sandbox.call(function, …)   ──────▶   function(…) of that module
    value, contents             ◀──────   or the reason why there is none

A message is JSON and raw bytes over pipes. A request has limits of memory (RLIMIT_AS; on macOS the
parent watches the resident size) and of processor time (on Windows: elapsed time only). A child
that dies, hangs or exceeds a limit is killed, the caller gets one error, and the next request
starts a new child. A child can write no files and ends with its parent. It is not isolated in any
other way: the limits are against crashes, hangs and exhausted memory, not against code.
"""

import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from io import FileIO
from typing import Any, NamedTuple

PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START = "import sys; sys.path[:] = sys.argv[2:]; from polyhead.sandbox import serve; serve()"
NEEDED = {"SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}  # where Python's libraries are
ENVIRONMENT = {  # all others: a child sees no key or password
    "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1",
}  # fmt: skip
SIZE = struct.Struct("<Q")  # of the JSON, which has the sizes of the contents
MAX_MESSAGE = 2**28  # bytes
PATIENCE = 10  # times its processor time that a request may take on a busy machine
WATCH_SECONDS = 0.25
SHOWN = 200  # characters of a library's message

Contents = Sequence[bytes]


class Limits(NamedTuple):
    """Limits of a request: constants, and what is added for each megabyte of its contents."""

    megabytes: float
    seconds: float
    more_megabytes: float = 2.0
    more_seconds: float = 5.0

    def of(self, n_bytes: int) -> tuple[float, float]:
        """Return the megabytes and seconds that a request with contents of a size may take."""
        size = n_bytes / 2**20
        return self.megabytes + size * self.more_megabytes, self.seconds + size * self.more_seconds


class Request(NamedTuple):
    """A function of the child's module, its arguments as JSON, and bytes."""

    function: str
    arguments: Sequence[Any] = ()
    contents: Contents = ()


class Sandbox:
    """A child process that runs functions of one module, one request at a time.

    module: its functions take the contents and the arguments of a request, and return a value and
        contents. A ValueError is a reason for the caller; after any other exception the child is
        replaced.
    error: makes the caller's exception from a reason of one line.
    setup: the first request of every child; `start` returns its value.

    Threads may share a sandbox. A forked process gets a child of its own.
    """

    def __init__(
        self,
        module: str,
        error: Callable[[str], Exception],
        limits: Limits,
        setup: Request | None = None,
    ) -> None:
        self.module, self.error, self.limits, self.setup = module, error, limits, setup
        self._setup_value: Any = None
        self.forget()
        _SANDBOXES.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a copy without a child, for processes that are spawned."""
        return Sandbox, (self.module, self.error, self.limits, self.setup)

    def forget(self) -> None:
        """Leave the child, if any, to the process that started it."""
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._watch: _Watch | None = None

    def start(self) -> Any:
        """Start the child unless it runs; return the value of its setup."""
        with self._lock:
            self._running()
            return self._setup_value

    def call(
        self, function: str, *arguments: Any, contents: Contents = ()
    ) -> tuple[Any, list[bytes]]:
        """Return what a function of the module returns, a value and contents."""
        with self._lock:
            return self._exchange(self._running(), Request(function, arguments, contents))

    def close(self) -> None:
        """End the child; a further request starts another one."""
        with self._lock:
            self._stop()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._stop()
        paths = [path for path in sys.path if path]  # without the current directory
        self._child = child = subprocess.Popen(
            [sys.executable, "-I", "-c", START, self.module, *paths, PACKAGES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # messages of libraries
            env={key: os.environ[key] for key in NEEDED & os.environ.keys()} | ENVIRONMENT,
            bufsize=0,
            start_new_session=True,  # no Ctrl-C
        )
        self._end, self._watch = weakref.finalize(self, _kill, child), _Watch(child)
        if self.setup is not None:
            try:
                self._setup_value, _ = self._exchange(child, self.setup)
            except BaseException:
                self._stop()
                raise
        return child

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._child = self._end = None

    def _exchange(
        self, child: "subprocess.Popen[bytes]", request: Request
    ) -> tuple[Any, list[bytes]]:
        megabytes, seconds = self.limits.of(sum(map(len, request.contents)))
        head = [request.function, list(request.arguments), megabytes, seconds]
        assert self._watch is not None
        watch = self._watch
        watch.set(megabytes, seconds)
        state, value = "", None
        contents: list[bytes] = []
        try:
            with suppress(OSError, EOFError):  # a closed pipe has several errors on Windows
                _send(child.stdin, head, request.contents)
                (state, value), contents = _receive(child.stdout)
        finally:  # also after Ctrl-C, with an answer on its way
            if state not in ("value", "refused"):
                self._stop()
            watch.set(math.inf, math.inf)
        if state == "value":
            return value, contents
        raise self.error(value or watch.reason or _cause(child.returncode, megabytes, seconds))


_SANDBOXES: "weakref.WeakSet[Sandbox]" = weakref.WeakSet()


def _forget_all() -> None:
    """Close a forked process's copies of the pipes, so that they end with the parent."""
    for sandbox in list(_SANDBOXES):
        child, end = sandbox._child, sandbox._end
        if child is not None and end is not None:
            end.detach()
            _close(child)
        sandbox.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _Watch:
    """A thread that kills a child whose request takes too long, or too much memory on macOS."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self.child, self.reason = child, ""
        self.megabytes, self.latest = math.inf, math.inf
        threading.Thread(target=self.run, daemon=True).start()

    def set(self, megabytes: float, seconds: float) -> None:
        """Set the limits of the next request."""
        self.megabytes, self.latest = megabytes, time.monotonic() + PATIENCE * seconds

    def run(self) -> None:
        """Kill the child at the first limit; return when it has ended."""
        while self.child.returncode is None:
            time.sleep(WATCH_SECONDS)
            if math.isinf(self.latest):
                continue
            if time.monotonic() > self.latest:
                self.reason = "it took too long"
            elif sys.platform == "darwin" and _resident(self.child.pid) > self.megabytes:
                self.reason = too_large(self.megabytes)
            if self.reason:
                return self.child.kill()
        return None


def _kill(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.wait()
    _close(child)


def _close(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _cause(status: int | None, megabytes: float, seconds: float) -> str:
    name = signal.Signals(-status).name if status is not None and status < 0 else f"exit {status}"
    if name == "SIGPROF":
        return f"it took more than {seconds:.0f} s of processor time"
    return f"its library crashed ({name}), or it needs more than {megabytes:.0f} MB of memory"


def too_large(megabytes: float) -> str:
    """Return the reason for a request that exceeds its memory."""
    return f"it needs more than {megabytes:.0f} MB of memory"


def _resident(pid: int) -> float:
    """Return the resident megabytes of a process on macOS."""
    ps = subprocess.run(["/bin/ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)
    return int(ps.stdout or 0) / 1024


def _send(pipe: Any, head: Any, contents: Contents) -> None:
    text = json.dumps([head, [len(content) for content in contents]]).encode()
    for part in (SIZE.pack(len(text)) + text, *contents):
        rest = memoryview(part)
        while rest:
            rest = rest[pipe.write(rest) :]


def _receive(pipe: Any) -> tuple[Any, list[bytes]]:
    head, sizes = json.loads(_read(pipe, SIZE.unpack(_read(pipe, SIZE.size))[0]))
    if sum(sizes) > MAX_MESSAGE:
        raise EOFError
    return head, [_read(pipe, size) for size in sizes]


def _read(pipe: Any, size: int) -> bytes:
    if size > MAX_MESSAGE:
        raise EOFError
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        n_read = pipe.readinto(rest)
        if not n_read:
            raise EOFError
        rest = rest[n_read:]
    return bytes(data)


def serve() -> None:
    """Answer requests until the parent closes the pipe; runs in the child."""
    requests, replies = FileIO(os.dup(0)), FileIO(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # libraries may print
    module = vars(import_module(sys.argv[1]))
    with suppress(EOFError, BrokenPipeError):
        while True:
            (function, arguments, megabytes, seconds), contents = _receive(requests)
            _limit(megabytes, seconds)
            value, results = None, ()
            try:
                value, results = module[function](contents, *arguments)
                state = "value"
            except ValueError as error:
                state, value = "refused", _line(error)
            except MemoryError:
                state, value = "failed", too_large(megabytes)
            except BaseException as error:  # PanicException of Rust is not an Exception
                state, value = "failed", f"{type(error).__name__}: {_line(error)}"
            del contents
            _limit(None, 0)
            _send(replies, [state, value], results)
            del results


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:SHOWN] or type(error).__name__


def _limit(megabytes: float | None, seconds: float) -> None:
    """Set the limits of a request, or remove them."""
    if sys.platform == "win32":
        return
    import resource

    signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends a process; 0: never
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        limit = most if megabytes is None else now + int(megabytes * 2**20)
        resource.setrlimit(resource.RLIMIT_AS, (limit if most < 0 else min(limit, most), most))
