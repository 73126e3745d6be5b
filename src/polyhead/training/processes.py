"""The processes of one training run, as `torchrun` starts them.

    torchrun --nproc-per-node 2 -m -- polyhead train small train.accumulate=4 …

An update is `train.accumulate` batches, whatever the number of processes. Each process computes
an equal, contiguous share of them, and gradients are added in a fixed binary tree:

    (g₀ + g₁) + (g₂ + g₃)      one process: all of it; two: one half each; four: one gradient each

So the sums, and with them the weights, are the same to the last bit on 1, 2, 4, … processes of one
thread each. Between processes the upper levels of the tree are computed by recursive halving: at
level l a process sends half of its numbers to the process whose rank differs in bit l, and adds
what it receives to the other half; then the sums are sent back the same way. Each of W processes
sends 2 N (W - 1) / W of N numbers, as many as in a ring.

Only the first process writes files. Messages between processes are JSON, never pickled objects.

`launch` starts them on this machine. They find each other in a file of a temporary directory that
only this user can open, and accept connections on the loopback interface only.
"""

import json
import math
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE, Popen
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from polyhead.data.batches.base import STOP_SIGNALS
from polyhead.errors import ConfigError, PolyheadError, ReportedElsewhere

T = TypeVar("T")
R = TypeVar("R")
STORE = "POLYHEAD_STORE"  # URI of the file in which processes started by `launch` find each other
VARIABLES = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # set by torchrun
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1")
POLL = 0.05  # seconds between two looks
NOTICE, GRACE = 3, 30  # seconds to end without a signal, and after SIGTERM until SIGKILL
PREPARATION = timedelta(days=1)  # while the first process reads and encodes the data


class Summed(NamedTuple):
    """A loss summed over predictions, computed in `pieces` batches with `tokens` tokens."""

    total: float
    predictions: int
    pieces: int
    tokens: int = 0

    def plus(self, other: "Summed") -> "Summed":
        """Return the sum of both."""
        return Summed._make(a + b for a, b in zip(self, other, strict=True))


class Processes:
    """The processes of a run. A single one needs no communication: every method returns at once."""

    def __init__(self, rank: int = 0, world: int = 1, seconds: int = 1800) -> None:
        """seconds: how long a process waits for the others in one exchange."""
        self.rank, self.world, self.seconds = rank, world, seconds
        self.signal = 0  # the first one that this process received
        self._agreed = 0
        self._has_failed = False  # and all processes know it
        self.in_step = False  # True for a sharded model, whose forward passes need all processes
        self._patient = dist.new_group(backend="gloo", timeout=PREPARATION) if world > 1 else None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def agreed_signal(self) -> int:
        """The signal that any process had received before the last update, or 0."""
        return self._agreed if self.world > 1 else self.signal

    def share_of(self, n_batches: int) -> range:
        """Return the batches of an update that this process computes."""
        n_own = n_batches // self.world
        return range(self.rank * n_own, (self.rank + 1) * n_own)

    def check(self, accumulate: int, *, exact: bool) -> None:
        """Raise ConfigError if the batches of an update cannot be shared equally."""
        if accumulate % self.world:
            raise ConfigError(
                f"train.accumulate = {accumulate}: an update cannot be shared among {self.world} "
                f"processes. Set train.accumulate={self.world}, or a multiple, and divide "
                "train.max_tokens by it for updates of the same size.",
                "indivisible_update",
            )
        if exact and self.world & (self.world - 1):
            raise ConfigError(
                f"{self.world} processes: sums in a fixed order need 1, 2, 4, 8, … processes. Use "
                "such a number, or set train.exact=false.",
                "inexact_processes",
            )

    def first(self, function: Callable[[], R], *, patient: bool = False) -> R | None:
        """Call a function in the first process while the others wait; its error ends all.

        patient: wait as long as the preparation of a large corpus takes.
        """
        return self.each(lambda: function() if self.is_first else None, patient=patient)

    def each(self, function: Callable[[], R], *, patient: bool = False) -> R:
        """Call a function, which may use `map`, in every process; an error of any ends all."""
        if self.world == 1:
            return function()
        try:
            result = function()
        except PolyheadError as error:
            if not self._has_failed:
                self._gather_or_fail(None, error, patient=patient)
            raise
        self._gather_or_fail(None, None, patient=patient)
        return result

    def from_first(self, value: Any) -> Any:
        """Return the first process's value, which JSON can hold."""
        return self.gather(value if self.is_first else None)[0]

    def map(
        self, function: Callable[[T], R], items: Sequence[T], *, decoding: bool = False
    ) -> list[R]:
        """Apply a function to all items, shared among the processes; every one gets all results.

        Results are values that JSON can hold. They come in the order of the items. An error in
        any process ends all.
        decoding: the number of forward passes depends on the item. With a sharded model all
            processes then compute all items, else equally many: some compute the last one again.
        """
        if self.world == 1 or (self.in_step and decoding):
            return [function(item) for item in items]
        mine = list(items[self.rank :: self.world])
        if self.in_step and len(mine) < math.ceil(len(items) / self.world):
            mine.append(items[-1])
        own: list[R] = []
        problem = None
        try:
            own += [function(item) for item in mine]
        except PolyheadError as error:
            problem = error
        parts = self._gather_or_fail(own, problem)
        return [parts[number % self.world][number // self.world] for number in range(len(items))]

    def _gather_or_fail(
        self, value: Any, problem: PolyheadError | None, *, patient: bool = False
    ) -> list[Any]:
        """Gather values; if a process has an error, the first such process raises it for all."""
        code = None if problem is None else problem.exit_code
        codes, values = zip(*self.gather([code, value], patient=patient), strict=True)
        failed = [rank for rank in range(self.world) if codes[rank] is not None]
        if not failed:
            return list(values)
        self._has_failed = True
        if problem is not None and self.rank == failed[0]:
            raise problem
        raise ReportedElsewhere(codes[failed[0]])

    def gather(self, value: Any, *, patient: bool = False) -> list[Any]:
        """Return the values of all processes, in the order of their ranks."""
        if self.world == 1:
            return [value]
        group = self._patient if patient else None
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(self.world)]
        with self.waiting():
            dist.all_gather(sizes, torch.tensor([len(content)]), group=group)
            longest = max(int(size) for size in sizes)
            padded = torch.zeros(longest, dtype=torch.uint8)
            padded[: len(content)] = content
            contents = [torch.empty_like(padded) for _ in range(self.world)]
            dist.all_gather(contents, padded, group=group)
        return [
            json.loads(received[: int(size)].numpy().tobytes())
            for received, size in zip(contents, sizes, strict=True)
        ]

    def add_up(
        self, parameters: Sequence[nn.Parameter], summed: Summed, *, exact: bool = True
    ) -> Summed:
        """Add the gradients of all processes, and their losses; all agree on a received signal."""
        if self.world == 1:
            return summed
        used = [not self.in_step and parameter.grad is not None for parameter in parameters]
        numbers = torch.tensor([*summed, self.signal, *used], dtype=torch.float64)
        rows = [torch.empty_like(numbers) for _ in range(self.world)]
        with self.waiting():
            dist.all_gather(rows, numbers)
            table = torch.stack(rows)
            self._agreed = int(table[:, 4].max())
            chosen = [p for p, row in zip(parameters, table[:, 5:].any(0), strict=True) if row]
            if chosen:  # a sharded model has added its gradients in the backward pass
                self._add_gradients(chosen, exact=exact)
        predictions, pieces, tokens = table[:, 1:4].sum(0).long().tolist()
        return Summed(fold(table[:, 0].tolist()), predictions, pieces, tokens)

    def _add_gradients(self, parameters: Sequence[nn.Parameter], *, exact: bool) -> None:
        """Add the gradients of all processes; a missing one is zero."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        if exact:
            self._sum_in_tree(flat)
        else:
            dist.all_reduce(flat)
        sizes = [p.numel() for p in parameters]
        for parameter, part in zip(parameters, flat.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)

    def norm(self, own: Tensor) -> Tensor:
        """Return the norm of a gradient, given that of the share that this process has."""
        if not self.in_step:
            return own
        square = own.double().square()
        with self.waiting():
            dist.all_reduce(square)
        return square.sqrt()

    def _sum_in_tree(self, flat: Tensor) -> None:
        """Add a vector of all processes in place, by recursive halving and doubling."""
        low, high, bit = 0, len(flat), 1
        halves = []
        while bit < self.world:
            middle = (low + high) // 2
            lower, upper = flat[low:middle], flat[middle:high]
            kept, sent = (upper, lower) if self.rank & bit else (lower, upper)
            received = torch.empty_like(kept)
            self._exchange(sent, received, self.rank ^ bit)
            kept += received
            halves.append((kept, sent, self.rank ^ bit))
            low, high = (middle, high) if self.rank & bit else (low, middle)
            bit *= 2
        for kept, sent, partner in reversed(halves):
            self._exchange(kept, sent, partner)

    def _exchange(self, sent: Tensor, received: Tensor, partner: int) -> None:
        """Send a tensor to another process and receive one."""
        pairs = ((dist.isend, sent), (dist.irecv, received))
        operations = [dist.P2POp(way, part, partner) for way, part in pairs if len(part)]
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Turn the end or silence of another process into an error of one line."""
        try:
            yield
        except RuntimeError as error:
            self._has_failed = True
            raise self.lost() from error

    def lost(self) -> PolyheadError:
        """Return the error that another process ended or does not answer."""
        return PolyheadError(
            f"process {self.rank}: another process of this run ended, or did not answer within "
            f"{self.seconds} seconds. Saved checkpoints are intact; run the same command "
            "again to resume.",
            "process_lost",
        )


def is_lost_connection(error: BaseException) -> bool:
    """Return True for an error of gloo or NCCL, as in the forward pass of a sharded model."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def fold(numbers: Sequence[float]) -> float:
    """Add numbers in the order of the tree."""
    if len(numbers) == 1:
        return numbers[0]
    middle = left_size(len(numbers))
    return fold(numbers[:middle]) + fold(numbers[middle:])


def left_size(n_leaves: int) -> int:
    """Return how many leaves of a tree are below its left branch."""
    return n_leaves - n_leaves // 2


@contextmanager
def join_processes(seconds: int = 1800) -> Iterator[Processes]:
    """Join the processes that torchrun or `launch` started; without them there is one."""
    rank, world = (int(os.environ.get(name, 1)) for name in ("RANK", "WORLD_SIZE"))
    if not is_started_by_torchrun() or world == 1:
        yield Processes()
        return
    if STORE in os.environ:
        threading.Thread(target=end_with_launcher, daemon=True).start()
    has_gpus = torch.cuda.is_available()
    if has_gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    own = not dist.is_initialized()
    if own:
        backend = "cpu:gloo,cuda:nccl" if has_gpus else "gloo"
        place, wait = os.environ.get(STORE), timedelta(seconds=seconds)  # None: torchrun's
        dist.init_process_group(backend, place, wait, world, rank)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), seconds)
    finally:
        if own:
            dist.destroy_process_group()


@contextmanager
def handle_signals(processes: Processes) -> Iterator[None]:
    """Record the first signal instead of being killed; a second Ctrl-C stops at once."""

    def record(number: int, _: FrameType | None) -> None:
        if processes.world > 1 and processes.signal:
            return  # torchrun repeats signals, and ends processes that do not react
        if processes.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        processes.signal = number

    before: dict[int, Callable[..., Any] | int | None] = {}
    try:
        with suppress(ValueError):  # signals can be handled in the main thread only
            for number in STOP_SIGNALS:
                if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, record)  # nohup ignores SIGHUP
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, signal.SIG_DFL if handler is None else handler)


def is_started_by_torchrun() -> bool:
    """Return True in a process that torchrun, or `launch`, has started."""
    return STORE in os.environ or os.environ.keys() >= VARIABLES


def launch(words: Sequence[str], n_processes: int) -> int:
    """Run `polyhead WORDS` in several processes; return the exit code of the first that failed.

    Each has one thread, unless OMP_NUM_THREADS is set. If one fails, the others are ended. Signals
    are forwarded to all; a second Ctrl-C kills them. They end if this process is killed.
    """
    workers: list[Popen[bytes]] = []
    received: list[int] = []

    def forward(number: int, _: object) -> None:
        received.append(number)
        for worker in workers:
            if received.count(signal.SIGINT) > 1:
                worker.kill()
            elif os.name != "nt":  # there the console sends Ctrl-C to all
                worker.send_signal(number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # others cannot handle signals
        for number in (getattr(signal, name) for name in FORWARDED if hasattr(signal, name)):
            if signal.getsignal(number) != signal.SIG_IGN:  # by nohup
                before[number] = signal.signal(number, forward)
    try:
        with tempfile.TemporaryDirectory(prefix="polyhead-") as folder:
            environment = {"OMP_NUM_THREADS": "1", **os.environ, **loopback()}
            environment |= {STORE: Path(folder, "store").as_uri(), "WORLD_SIZE": str(n_processes)}
            command = [sys.executable, "-m", "polyhead", *words]
            try:
                for rank in map(str, range(n_processes)):
                    own = {**environment, "RANK": rank, "LOCAL_RANK": rank}
                    workers.append(Popen(command, env=own, stdin=PIPE, start_new_session=True))
                for number in received:  # before all had started
                    workers[-1].send_signal(number)
                return wait(workers)
            finally:
                end(workers)
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def loopback() -> dict[str, str]:
    """Return the variables that keep gloo and NCCL on the loopback interface."""
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {f"{library}_SOCKET_IFNAME": names[0] for library in ("GLOO", "NCCL") if names}


def wait(workers: Sequence[Popen[bytes]]) -> int:
    """Wait until all processes have ended, or one failed; return its exit code, else 0."""
    while True:
        codes = [worker.poll() for worker in workers]
        if failed := [code for code in codes if code]:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if None not in codes:
            return 0
        time.sleep(POLL)


def end(workers: Sequence[Popen[bytes]]) -> None:
    """End the processes that still run: most notice that one is lost, others save first."""
    notice = GRACE if any((w.poll() or 0) > 128 for w in workers) else NOTICE  # after a signal
    for seconds, stop in ((notice, Popen.terminate), (GRACE, Popen.kill)):
        latest = time.monotonic() + seconds
        while any(worker.poll() is None for worker in workers) and time.monotonic() < latest:
            time.sleep(POLL)
        for worker in workers:
            stop(worker)
    for worker in workers:
        worker.communicate()


def end_with_launcher() -> None:
    """Wait in a thread until the launcher ends, which closes standard input; then save and end."""
    os.read(0, 1)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(128 + signal.SIGTERM)
