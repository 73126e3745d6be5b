"""Fail or kill every command that writes, at every one of its operations on files.

    python benchmarks/faults.py
    python benchmarks/faults.py --commands train,average --stride 9

A library in C (faults.c, compiled here, loaded with LD_PRELOAD) lets the k-th write, fsync, rename,
unlink, open for writing, mkdir, ftruncate or link below a folder fail with EIO, EACCES or ENOSPC
(a full disk stays full), or sends SIGKILL, within a write after half of it. Each trial is a fork of
this process, which has imported torch. After it:

1. A failed command has ended with one line and an exit code, or with the right result.
2. Nothing under a final name is incomplete; a model that loads is one that an undisturbed run had.
3. The next command ends with the bits of the undisturbed run and leaves no drafts in a run, or it
   refuses in one line, and then what is there is complete.
"""

import ctypes
import errno
import hashlib
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import measuring
import torch
from kill import TIMES

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint.model_dir import SavedModel, load_model, weights_of, write_model
from polyhead.cli.main import main as polyhead
from polyhead.data import catalog
from polyhead.data.schedules import generator as schedules
from polyhead.errors import PolyheadError
from polyhead.models.gpt import GPT, GPTConfig

STEPS = 2
KINDS = ("write", "fsync", "rename", "unlink", "open", "mkdir", "ftruncate", "link")
FAULTS = {"SIGKILL": 0, "EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EACCES": errno.EACCES}
TINY = (
    "text.kind=words", "model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
    "model.stack.d_ff=16", "train.max_tokens=300", "train.save_every=1", "train.log_every=1",
    "train.keep=1", "train.validate_every=2", "train.bleu_sentences=2", "train.schedule.warmup=2",
    f"train.steps={STEPS}", "data.hold_out=4",
)  # fmt: skip
SYSTEM = ("data.hold_out=4", "text.vocab=600", *(word for word in TINY if word[:5] == "model"))
CORPUS = ("--source", "../train.ko", "--target", "../train.en")
RUN, OUTPUT = "run", "output"
NOT_STRUCK = "the fault did not strike"
ARMED = "POLYHEAD_FAULTS"  # in the environment of the process with the library
Table = Counter[tuple[str, str, str, bool]]  # command, operation, fault, wrong: trials


@dataclass(frozen=True)
class Command:
    """A command that writes below the working directory, and what its result must be.

    result: the bits of the result, without times; None as long as there is none.
    template: contents of the working directory before the command.
    next_words: the command that follows, if it is another one.
    names: names of the files that must be there in the end: no drafts are left.
    others: results that may be there after a fault, as that of an earlier run.
    parts: the result has parts, which may be there without the others.
    """

    name: str
    words: tuple[str, ...]
    result: Callable[[Path], Any]
    template: Path | None = None
    next_words: tuple[str, ...] | None = None
    names: Callable[[Path], Any] = lambda _: None
    others: tuple[Any, ...] = ()
    parts: bool = False

    def whole(self, left: Any, result: Any) -> bool:
        """Return whether a fault has left a result, or nothing under its name."""
        if self.parts and left:
            return any(left.items() <= (known or {}).items() for known in (result, *self.others))
        return left is None or left in (result, *self.others)


@dataclass(frozen=True)
class Outcome:
    """Exit code of a command, negative for a signal, and its messages."""

    code: int
    messages: str

    def problem(self) -> str | None:
        """Return what is wrong with an error: a traceback, or anything but one line."""
        lines = [line for line in self.messages.split("\n") if line.startswith("polyhead: ")]
        if "Traceback" in self.messages or "Exception ignored" in self.messages:
            return "traceback: " + self.messages.strip().split("\n")[-1]
        if self.code < 0 or self.code > 6 or len(lines) != 1:
            return f"exit code {self.code} with {len(lines)} messages: {self.messages[-300:]!r}"
        return None


class Machine:
    """A folder in which commands run and fail."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder / "place"
        self.shared = mmap.mmap(-1, mmap.PAGESIZE)
        self.counts = (ctypes.c_long * (len(KINDS) + 1)).from_buffer(self.shared)
        self.shim = ctypes.CDLL(None)

    def reset(self, command: Command) -> None:
        """Make the working directory what it is before the command."""
        shutil.rmtree(self.place, ignore_errors=True)
        if command.template is None:
            self.place.mkdir()
        else:
            shutil.copytree(command.template, self.place, symlinks=True)

    def run(self, words: Sequence[str], fault: tuple[int, int, int] | None = None) -> Outcome:
        """Run a command in a fork; `fault` has the kind of operation, its number and the error."""
        ctypes.memset(self.counts, 0, ctypes.sizeof(self.counts))
        log = self.folder / "messages"
        process = os.fork()
        if not process:
            code = 70
            try:
                file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
                os.dup2(file, 1)
                os.dup2(file, 2)
                os.chdir(self.place)
                kind, nth, error = fault or (-1, 0, 0)
                place = str(self.place).encode()
                self.shim.fault_arm(place, kind, ctypes.c_long(nth), error, self.counts)
                code = polyhead(list(words))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return Outcome(code, log.read_text(errors="replace"))

    def expected(self, command: Command) -> tuple[Any, Any, list[int]]:
        """Run a command undisturbed; return its result, its names and its operations by kind."""
        self.reset(command)
        with chdir(self.place), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            polyhead(list(command.words))  # in this process: forks find all modules imported
        self.reset(command)
        outcome = self.run(command.words)
        if outcome.code:
            raise SystemExit(f"{command.name}: {outcome.messages}")
        counts = list(self.counts[: len(KINDS)])
        return command.result(self.place), command.names(self.place), counts

    def trial(self, command: Command, fault: tuple[int, int, int], expected: Any) -> str | None:
        """Run a command with a fault, then the next one; return what was wrong, if anything."""
        result, names, _ = expected
        self.reset(command)
        outcome = self.run(command.words, fault)
        if not self.counts[len(KINDS)]:
            return NOT_STRUCK
        if outcome.code != -signal.SIGKILL if fault[2] == 0 else outcome.code:
            problem = outcome.problem()
            if problem:
                return problem
        try:
            left = command.result(self.place)
        except (OSError, ValueError, KeyError) as error:
            return f"exit code {outcome.code} with an unreadable result: {error}"
        if not command.whole(left, result) or (outcome.code == 0 and left != result):
            return f"exit code {outcome.code} with another result"
        again = self.run(command.next_words or command.words)
        if again.code and (problem := again.problem()):
            return f"then {problem}"
        if again.code and command.next_words:
            again = self.run(command.words)
        after = command.result(self.place), command.names(self.place)
        return None if after == (result, names) else f"then {after}: {again.messages}"


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def file_in(path: Path) -> str | None:
    """Return the checksum of a file, None if there is none."""
    return sha256(path) if path.exists() else None


def files_in(folder: Path) -> dict[str, str] | None:
    """Return the checksums of all files, without drafts; None without any."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [(str(path.relative_to(folder)), path) for path in paths]
    return {name: sha256(path) for name, path in names if "/." not in f"/{name}"} or None


def model_in(folder: Path, known: frozenset[str] = frozenset()) -> str | None:
    """Return the checksum of the weights of a model, None if there is none that loads.

    One whose weights are not among those that are `known` is named by its path.
    """
    try:
        model = load_model(folder).model
    except PolyheadError:
        return None
    digest = hashlib.sha256()
    for weight in weights_of(model).values():
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest() if not known or digest.hexdigest() in known else str(folder)


def run_in(folder: Path, known: frozenset[str]) -> Any:
    """Return weights, training state and curve of a run; None if it is sound, but not finished."""
    weights, last = model_in(folder, known), folder / "last"
    if weights is None or (weights in known and progress_of(last)["progress"]["step"] < STEPS):
        return None
    state = progress_of(last)
    del state["progress"]["seconds"]
    seed = re.search(r"seed = (\d+)", (folder / "config.toml").read_text())
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    curve = [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines]
    return seed and seed[1], weights, sha256(last / "training.safetensors"), state, curve


def progress_of(checkpoint: Path) -> dict[str, Any]:
    """Return the progress of a checkpoint, of none if there is no such one."""
    path = checkpoint / "training.json"
    return json.loads(path.read_text()) if path.is_file() else {"progress": {"step": 0}}


def names_in(folder: Path) -> list[str]:
    """Return the names of all files of a run."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def labelled_in(folder: Path, known: frozenset[str]) -> Any:
    """Return weights and languages of a run."""
    return model_in(folder, known), labels_in(folder)[-1]


def labels_in(folder: Path) -> list[Any]:
    """Return the languages of all checkpoints of a run, of which none may be damaged."""
    paths = [path for _, path in store.list_checkpoints(folder / "checkpoints")]
    return [store.verify(path) and load_model(path).about["languages"] for path in paths]


def comparison_in(folder: Path) -> Any:
    """Return scores, curves, outputs and models of a comparison; None if it is not finished."""
    if not (folder / "table.json").is_file():
        return None
    files = [folder / "table.json", *sorted((folder / "results").glob("[!.]*.json"))]
    table, *results = [json.loads(path.read_text()) for path in files]
    scores = [row["scores"] for row in (*table["rows"], *results)]
    curves = [result["curve"] for result in results]
    models = [model_in(run) for run in sorted((folder / "runs").glob("*"))]
    return scores, curves, files_in(folder / "outputs"), models


def undisturbed_models(machine: Machine, *changes: str) -> frozenset[str]:
    """Return the weights that a run has after each of its steps."""
    machine.reset(Command("", (), model_in))
    words = ("train", *TINY, "train.keep=9", *changes, *CORPUS, "--run", RUN)
    outcome = machine.run(words)
    assert outcome.code == 0, outcome.messages
    checkpoints = store.list_checkpoints(machine.place / RUN / "checkpoints")
    return frozenset(digest for _, path in checkpoints if (digest := model_in(path)))


def in_place(name: str, look: Callable[[Path], Any], place: Path) -> Any:
    """Look at a directory of the working directory."""
    return look(place / name)


def prepare(machine: Machine, chosen: Sequence[str]) -> Iterator[Command]:
    """Write the files that the chosen commands need, and return these; all if none is chosen."""
    folder = machine.folder
    sides = zip(*schedules.generate(60, 0, 0, 3).train, strict=True)
    for name, side in zip(("ko", "en"), sides, strict=True):
        (folder / f"train.{name}").write_text("".join(f"{line}\n" for line in side))
    old, new = undisturbed_models(machine), undisturbed_models(machine, "train.seed=2")
    machine.reset(Command("", (), model_in))
    machine.run(("train", *TINY, "train.keep=9", *CORPUS, "--run", RUN))
    machine.run(("average", f"{RUN}/checkpoints/step-00000001", f"{RUN}/last", "--output", OUTPUT))
    finished = machine.place.rename(folder / "finished")

    stack = replace(GPTConfig().stack, n_layers=1, d_model=12, n_heads=2)
    config = GPTConfig(vocab=29, max_length=16, stack=stack)
    torch.manual_seed(0)
    with store.atomic_dir(folder / "gpt") as draft:
        write_model(draft, SavedModel("gpt", config, GPT(config), None, {}), "")
    train = ("train", *TINY, *CORPUS, "--run", RUN)
    old_run = run_in(finished / RUN, old)
    output = partial(in_place, OUTPUT, files_in)
    corpus = folder / "corpus"
    schedules.write(corpus / OUTPUT, n_train=30)
    commands = [
        Command("train", train, partial(in_place, RUN, partial(run_in, known=old)),
                names=partial(in_place, RUN, names_in)),
        Command("train --fresh", (*train, "train.seed=2", "--fresh"),
                partial(in_place, RUN, partial(run_in, known=old | new)), finished,
                (*train, "train.seed=2"), partial(in_place, RUN, names_in), (old_run,)),
        Command("import", ("import", "../hf", "--output", OUTPUT), output),
        Command("export", ("export", "../gpt", "--output", OUTPUT), output),
        Command("average", ("average", RUN, "--output", OUTPUT), output, finished,
                others=(files_in(finished / OUTPUT),)),
        Command("evaluate", ("evaluate", RUN, *CORPUS, "--output", "lines.txt"),
                partial(in_place, "lines.txt", file_in), finished),
        Command("languages", ("languages", RUN, "de-fr"),
                partial(in_place, RUN, partial(labelled_in, known=old)), finished, None,
                partial(in_place, RUN, labels_in), (labelled_in(finished / RUN, old),)),
        Command("compare", ("compare", *SYSTEM, *CORPUS, "--steps", "2", "--systems",
                            "transformer", "--run", RUN, "--lang", "en"),
                partial(in_place, RUN, comparison_in)),
        Command("data get", ("data", "get", "tiny", "--output", OUTPUT), output, parts=True),
        Command("data make", ("data", "make", "schedules", "--size", "20", "--seed", "2",
                              "--output", OUTPUT), output, corpus,
                others=(files_in(corpus / OUTPUT),), parts=True),
    ]  # fmt: skip
    for command in commands:
        if not chosen or command.name in chosen:
            if command.name == "import":
                machine.reset(command)
                machine.run(("export", "../gpt", "--output", "../hf"))
            yield command


@contextmanager
def serve_corpus(folder: Path) -> Iterator[None]:
    """Serve a corpus of two files from another process, and make it known by name."""
    place = folder / "server" / "tiny"
    place.mkdir(parents=True)
    downloads = []
    for name in ("a.txt", "b.txt", "unpublished.txt"):  # the checksum of the last is recorded
        (place / name).write_bytes(name.encode() * 20_000)
        sums = (len(name) * 20_000, sha256(place / name)) if name < "u" else ()
        file = catalog.CorpusFile(name, *sums)
        downloads.append(catalog.Download(f"https://host/{name}", (file,)))
    catalog.KNOWN["tiny"] = catalog.KnownCorpus("tiny", "", (), "", "fetched", tuple(downloads))

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(folder / "server"))
    )
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    os.environ["POLYHEAD_MIRROR"] = f"http://127.0.0.1:{server.server_port}"
    process = os.fork()
    if not process:
        server.serve_forever()
    try:
        yield
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def torture(folder: Path, chosen: Sequence[str], stride: int, offset: int) -> Table:
    """Try every stride-th operation with every fault; print what was wrong, and count."""
    machine, counts = Machine(folder), Table()
    with serve_corpus(folder):
        for command in prepare(machine, chosen):
            expected = machine.expected(command)
            numbers = [
                (kind, n + 1) for kind, total in enumerate(expected[2]) for n in range(total)
            ]
            for kind, nth in numbers[offset::stride]:
                for fault, error in FAULTS.items():
                    problem = machine.trial(command, (kind, nth, error), expected)
                    if problem == NOT_STRUCK:  # a download came in fewer pieces
                        continue
                    counts[command.name, KINDS[kind], fault, problem is not None] += 1
                    if problem:
                        print(f"{command.name}: {fault} at {KINDS[kind]} {nth}: {problem[:400]}")
            done = sum(n for key, n in counts.items() if key[0] == command.name)
            print(f"{command.name}: {done:,} trials", flush=True)
    return counts


def report(counts: Table) -> list[str]:
    """Return a table of the trials, with those that went wrong in brackets."""
    rows = []
    for name, kind in dict.fromkeys(key[:2] for key in counts):
        cells = []
        for fault in FAULTS:
            wrong = counts[name, kind, fault, True]
            trials = wrong + counts[name, kind, fault, False]
            cells.append(f"{trials} ({wrong} wrong)" if wrong else str(trials))
        rows.append([name, kind, *cells])
    wrong = sum(n for key, n in counts.items() if key[3])
    table = measuring.table(["command", "operation", *FAULTS], rows)
    return [f"{sum(counts.values()):,} trials, {wrong} wrong.", "", *table]


def main(words: Sequence[str]) -> int:
    """Compile the library, try everything, print a table; 1 if anything was wrong."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--commands", default="", help="names, separated by commas; all by default")
    parser.add_argument("--stride", type=int, default=1, help="of operations that are tried")
    parser.add_argument("--offset", type=int, default=0, help="of the first one, to share the work")
    parser.add_argument("--record", action="store_true", help="append the table to RESULTS.md")
    options = parser.parse_args(words)
    compiler = shutil.which("cc")
    if compiler is None:
        print("faults: no C compiler (cc) found, nothing was tried")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        if ARMED not in os.environ:
            library = folder / "faults.so"
            source = Path(__file__).with_suffix(".c")
            subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
            environment = os.environ | {"LD_PRELOAD": str(library), ARMED: "1"}
            command = [sys.executable, __file__, *words]
            return subprocess.run(command, env=environment, check=False).returncode
        torch.set_num_threads(1)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        started = time.perf_counter()
        lines = measuring.environment("faults.py", words)
        chosen = [word for word in options.commands.split(",") if word]
        counts = torture(folder, chosen, options.stride, options.offset)
    lines += ["", f"{(time.perf_counter() - started) / 60:.0f} minutes. " + report(counts)[0]]
    lines += report(counts)[1:]
    print("\n".join(lines))
    if options.record:
        measuring.record(measuring.RESULTS, "Faults at every operation on files", lines)
    return 1 if any(key[3] for key in counts) else 0


if __name__ == "__main__":
    measuring.run(main)
