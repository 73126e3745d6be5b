"""Open damaged and hostile files of every kind, and count what they do to the process.

    python benchmarks/fuzz.py                                10,000 and 2,000 of each kind
    python benchmarks/fuzz.py --kinds image,idx --n 200

Every mutant is opened by the code that opens a stranger's file, in a fork of this process. It is a
failure if anything but a PolyheadError escapes, if the process dies, if a mutant takes more than
5 s of processor time, or if it takes more memory, here or in a child process, than twice its size
plus 300 MB (500 MB for tables). A mutant depends on kind, seed and number alone:
`--first 1234 --n 1` repeats one.
"""

import json
import os
import resource
import select
import signal
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fuzz_mutants import KINDS, Mutant
from fuzz_tables import TABLES
from measuring import RESULTS, commit, parser, record_row, run, table, table_row

from polyhead.errors import ConfigError, PolyheadError
from polyhead.sandbox import _SANDBOXES

MAX_SECONDS = 5.0
PATIENCE = 120.0  # seconds without a result, on a busy machine
BATCH = 500  # mutants of one fork
WATCH_SECONDS = 0.004
HEADING = "Hostile files"
KINDS.update(TABLES)
COLUMNS = (
    "file", "mutants", "opened", "refused in one line", "failures", "slowest", "most memory",
    "when",
)  # fmt: skip


class Outcome(NamedTuple):
    """Effect of a mutant: `error` is empty, the code of a PolyheadError, or a traceback."""

    number: int
    error: str
    refused: bool
    seconds: float = 0.0
    megabytes: float = 0.0
    size: int = 0
    most: float = 0.0  # megabytes

    @property
    def failed(self) -> bool:
        """Return whether this must not happen."""
        too_large = self.megabytes > self.most + 2 * self.size / 2**20
        return bool(self.error and not self.refused) or self.seconds > MAX_SECONDS or too_large


NOTHING = Outcome(-1, "", False)


@dataclass
class Tally:
    """Results of one kind."""

    opened: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    slowest: Outcome = NOTHING
    largest: Outcome = NOTHING

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.opened += not outcome.error
        self.codes[outcome.error] += outcome.refused
        self.failures += [outcome] * outcome.failed
        self.slowest = max(self.slowest, outcome, key=lambda o: o.seconds)
        self.largest = max(self.largest, outcome, key=lambda o: o.megabytes)

    def row(self, kind: str) -> list[str]:
        """Return the cells of a row of the table."""
        refused, failed = sum(self.codes.values()), len(self.failures)
        total = self.opened + refused + sum(bool(o.error and not o.refused) for o in self.failures)
        counts = (f"{n:,}" for n in (total, self.opened, refused, failed))
        worst = (f"{self.slowest.seconds:.1f} s", f"{self.largest.megabytes:.0f} MB")
        return [kind, *counts, *worst, f"{time.strftime('%Y-%m-%d', time.gmtime())}, {commit()}"]


def fuzz(kind: str, n: int, *, seed: int = 1, first: int = 0, tell: Callable[[str], None]) -> Tally:
    """Open n mutants of a kind."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        mutant = KINDS[kind].make(Path(folder))
        numbers = list(range(first, first + n))
        while numbers:
            batch = numbers[:BATCH]
            n_done = 0
            for outcome in forked(lambda batch=batch: open_all(mutant, batch, kind, seed)):
                if isinstance(outcome, int):  # the process died, or was killed because it hung
                    outcome = Outcome(batch[n_done], f"ended with {outcome}", False)
                tally.add(outcome)
                n_done += 1
                if outcome.failed:
                    tell(f"{kind} {outcome.number}: {outcome}")
            numbers = numbers[n_done:]
    return tally


def forked(work: Callable[[], Any]) -> Any:
    """Yield the outcomes that a forked process reports, until it ends or hangs."""
    inbox, outbox = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(inbox)
        os.setpgid(0, 0)
        status = 1
        try:
            with open(outbox, "w", buffering=1, encoding="utf-8") as reports:
                for outcome in work():
                    reports.write(json.dumps(outcome) + "\n")
            status = 0
        finally:
            os._exit(status)
    os.close(outbox)
    with open(inbox, encoding="utf-8", buffering=1) as reports:
        while select.select([reports], [], [], PATIENCE)[0]:
            line = reports.readline()
            if not line:
                break
            yield Outcome(*json.loads(line))
        else:
            os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        yield status


def open_all(mutant: Callable[[Random], Mutant], numbers: list[int], kind: str, seed: int) -> Any:
    """Open mutants one after the other; yield an outcome for each."""
    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
    watch = ChildWatch()
    for name in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), name)
    for number in numbers:
        size, opening, most = mutant(Random(f"{kind} {seed} {number}"))
        watch.peak, before, started = 0.0, memory("VmRSS"), processor_seconds()
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        error, refused = "", False
        try:
            opening()
        except PolyheadError as problem:
            one_line = "\n" not in str(problem) and len(str(problem)) < 1000
            error, refused = problem.code if one_line else f"long message: {problem}", one_line
        except BaseException:
            error = traceback.format_exc()[-1500:]
        own, seconds = memory("VmHWM") - before, processor_seconds() - started
        yield Outcome(number, error, refused, seconds, max(own, watch.peak), size, most)


class ChildWatch:
    """Thread that records the peak of the child processes' memory."""

    def __init__(self) -> None:
        self.peak = 0.0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        """Read every few milliseconds, since a child may end at any time."""
        while True:
            for sandbox in list(_SANDBOXES):
                if sandbox._child is not None:
                    self.peak = max(self.peak, memory("VmHWM", sandbox._child.pid))
            time.sleep(WATCH_SECONDS)


def memory(name: str, pid: int | str = "self") -> float:
    """Return an entry of a process's status in megabytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0) / 1024


def processor_seconds() -> float:
    """Return the time of this process and of its children, running or ended."""
    times, running = os.times(), 0.0
    for sandbox in list(_SANDBOXES):
        with suppress(OSError):
            if sandbox._child is not None:
                stat = Path(f"/proc/{sandbox._child.pid}/stat").read_text().rpartition(")")[2]
                running += sum(map(int, stat.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return sum(times[:4]) + running


def main(words: Sequence[str]) -> int:
    """Open mutants as the command line says; return 1 if one of them failed."""
    options = parser(__doc__)
    options.add_argument("--kinds", default=",".join(KINDS), help="of mutants (default: all)")
    options.add_argument("--n", type=int, help="mutants of each kind")
    options.add_argument("--first", type=int, default=0, help="number of the first mutant")
    options.add_argument("--seed", type=int, default=1, help="of the mutants")
    options.add_argument("--record", action="store_true", help="append to RESULTS.md")
    args = options.parse_args(words)
    unknown = [kind for kind in args.kinds.split(",") if kind not in KINDS]
    if unknown:
        raise ConfigError(f"--kinds {unknown[0]}: there are {', '.join(KINDS)}", "unknown_kind")
    failures, rows = 0, []
    for kind in args.kinds.split(","):
        n = args.n or KINDS[kind].count
        tally = fuzz(kind, n, seed=args.seed, first=args.first, tell=print)
        failures += len(tally.failures)
        rows.append(tally.row(kind))
        print(table_row(rows[-1]), dict(tally.codes))
        if args.record:
            record_row(RESULTS, HEADING, COLUMNS, rows[-1])
    print("\n".join(table(COLUMNS, rows)))
    return int(failures > 0)


if __name__ == "__main__":
    run(main)
