"""Kill training at random moments, many times, and compare with an uninterrupted run.

    python benchmarks/kill.py --kills 1000
    python benchmarks/kill.py --kills 200 --processes 1 2 4
    python benchmarks/kill.py --kills 300 --mid-save 150 --tasks all --store both --processes 1 2

Each run is of one of --tasks, its examples in memory or in a token store, which every run writes
anew. A tiny model with dropout saves after every step, and waiting for the disk is made slow enough
that much of its life is spent in the middle of a save. Each session is a fork of this process
(torch is imported once) and dies by SIGKILL: either after a random time, or at a random one of its
own operations on files, which finds the moments between two renamings that no clock would hit.
After every kill the newest sound checkpoint must be, to the last bit, the one that the undisturbed
run had at that step; when a run has come to its end, so must its loss curve and its final state.

With --processes, each session has one of these numbers of processes, in turn, and one of its
processes is killed; the others must end by themselves. The undisturbed run has one process.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle, product
from pathlib import Path
from random import Random
from typing import Any

import measuring
import torch

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from text_heads import write_rows
from tiny_images import TINY as TINY_VIT
from tiny_images import write_pictures
from token_data import write_questions, write_tagged

from polyhead.atomic_file import TEMPORARY
from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint.model_dir import load_model
from polyhead.checkpoint.model_files import resolve
from polyhead.data.schedules import generator as schedules
from polyhead.errors import CheckpointError, PolyheadError
from polyhead.training.config import RunConfig, build, read_run
from polyhead.training.trainer import train

STEPS = 16
TRAIN = {
    "steps": STEPS, "max_tokens": 300, "save_every": 1, "log_every": 1, "keep": 2,
    "validate_every": 5, "bleu_sentences": 0, "schedule.warmup": 4,
}  # fmt: skip
SIZES = ("n_layers=2", "d_model=16", "n_heads=2", "d_ff=32", "dropout=0.1")
TASKS = {  # recipe, place of the sizes, entries of the vocabulary
    "translation": ("small", "model.stack", 900),
    "language_modeling": ("gpt-tiny", "model.stack", 700),
    "masked_lm": ("bert-tiny", "model.stack", 700),
    "replaced_token_detection": ("electra-tiny", "model.stack", 700),
    "text_classification": ("classify-small", "model.encoder.stack", 340),
    "sentence_embedding": ("embed-small", "model.encoder.stack", 340),
    "token_classification": ("tagger-small", "model.encoder.stack", 300),
    "question_answering": ("qa-small", "model.encoder.stack", 310),
    "image_classification": ("", "", 0),
}
DISK_SECONDS = 0.002  # about half of the time is then spent in saving
TIMES = ("seconds", "tokens_per_second")
LOST = 3  # exit code of a process that lost another one
PATIENCE = 60  # seconds in which the others must end
START_SECONDS = 1.0  # until several processes have joined
MAX_OPERATIONS = 200  # on files, before a session dies; a save takes about 25
WATCHED = ("open", "os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "os.chmod")


@dataclass
class Counts:
    """Counts of events. All but the first three must be zero in the end."""

    kills: int = 0
    in_mid_save: int = 0
    finished_runs: int = 0
    different_runs: int = 0  # another loss curve or another final state
    wrong_checkpoints: int = 0  # accepted, but not what the undisturbed run had at that step
    damaged_checkpoints: int = 0  # with the name of a checkpoint, but not whole
    wrong_models: int = 0  # that a command would load, but that no undisturbed run had
    lost_saves: int = 0  # more than one save interval was lost
    hangs: int = 0  # processes that did not end after another one was killed

    @property
    def failures(self) -> int:
        """Number of failures."""
        return sum(list(vars(self).values())[3:])


def prepare(folder: Path, task: str, stored: bool) -> RunConfig:
    """Return a tiny run of a task on a small corpus below `folder`."""
    settings = [f"train.{name}={value}" for name, value in TRAIN.items()]
    if task == "image_classification":
        images = str(write_pictures(folder / "pictures"))
        data = {"images": [images], "store": "always" if stored else "never"}
        run = build({**TINY_VIT, "data": data})
        return replace(run, train=read_run("small", settings, {}).train)
    recipe, sizes, vocab = TASKS[task]
    settings += [f"{sizes}.{size}" for size in SIZES]
    settings += [f"text.vocab={vocab}"]
    settings += [f"data.store={'always' if stored else 'never'}"]
    run = read_run(recipe, settings, write_corpus(folder, task))
    return replace(run, train=replace(run.train, epochs=None))


def write_corpus(folder: Path, task: str) -> dict[str, list[str]]:
    """Write a few hundred examples of a task; return the option and its files."""
    if task == "text_classification":
        return {"labelled": [str(write_rows(folder, "pairs"))]}
    if task == "sentence_embedding":
        return {"pairs": [str(write_rows(folder, "sentences"))]}
    if task == "token_classification":
        return {"labelled": [str(write_tagged(folder / "tags.conll", 120))]}
    if task == "question_answering":
        return {"labelled": [str(write_questions(folder / "questions.jsonl", 120))]}
    pairs = schedules.generate(240, 0, 0, 3).train
    files = {"source": folder / "train.ko", "target": folder / "train.en"}
    for path, side in zip(files.values(), zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    if task == "translation":
        return {name: [str(path)] for name, path in files.items()}
    return {"text": [str(files["source"])]}


def trace(folder: Path) -> dict[str, Any]:
    """Return the files of a finished run without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    curve = [{name: v for name, v in line.items() if name not in TIMES} for line in lines]
    return {"curve": curve, "state": state(folder / "last")}


def state(checkpoint: Path) -> dict[str, Any]:
    """Return a checkpoint's bits."""
    numbers = json.loads((checkpoint / "training.json").read_text())
    del numbers["progress"]["seconds"]
    sums = {
        name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "training.safetensors")
    }
    return {"numbers": numbers, **sums}


def undisturbed(run: RunConfig, folder: Path) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Run without kills; return its trace and its state after every step.

    It runs in this process, so that the forks find everything imported that they will need.
    """
    train(replace(run, train=replace(run.train, keep=STEPS + 1)), folder)
    states = {step: state(path) for step, path in store.list_checkpoints(folder / "checkpoints")}
    return trace(folder), states


def session(
    run: RunConfig, folder: Path, prologue: Callable[[], None], variables: dict[str, str]
) -> int:
    """Train in a fork of this process, on a slow disk; its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.environ.update(variables)
        slow_disk()
        prologue()
        train(run, folder)
        code = 0
    except PolyheadError as error:
        code = LOST if error.code in ("process_lost", "reported_elsewhere") else 1
        if code == 1:
            traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def variables_of(n_processes: int) -> list[dict[str, str]]:
    """Return the variables that torchrun would set for each process."""
    if n_processes == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(n_processes)}
    return [{**common, "RANK": str(rank)} for rank in range(n_processes)]


def wait(process: int) -> int:
    """Return the exit code of a fork; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def wait_for_others(processes: Sequence[int]) -> tuple[list[int], int]:
    """Return the exit codes of forks, and how many had to be killed because they hung."""
    codes, left, latest = [], list(processes), time.monotonic() + PATIENCE
    while left and time.monotonic() < latest:
        for process in list(left):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                codes.append(os.waitstatus_to_exitcode(status))
                left.remove(process)
        time.sleep(0.005)
    for process in left:
        os.kill(process, signal.SIGKILL)
        wait(process)
    return codes, len(left)


def slow_disk() -> None:
    """Skip fsync, which takes long and only protects against power failures."""
    os.fsync = lambda _: time.sleep(DISK_SECONDS)  # type: ignore[assignment]


def die_at(operation: int, folder: Path) -> None:
    """Die at the n-th operation on a file of the run or of the cache."""
    places = (str(folder), os.environ["XDG_CACHE_HOME"])
    left = operation

    def count(event: str, words: tuple[Any, ...]) -> None:
        nonlocal left
        if event in WATCHED and str(words[0]).startswith(places):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def torture(
    run: RunConfig, folder: Path, random: Random, counts: Counts, *,
    kills: int, mid_save: int, worlds: Sequence[int] = (1,),
) -> None:  # fmt: skip
    """Kill sessions until there were enough kills and the last run has come to its end.

    Both numbers are of all runs together, from the first run on.
    """
    run = replace(run, train=replace(run.train, accumulate=max(worlds)))
    expected, states = undisturbed(run, folder / "whole")
    cache = folder / "cache-of-sessions"  # empty at the start of a run: stores are also killed
    os.environ["XDG_CACHE_HOME"] = str(cache)
    started = time.perf_counter()
    if wait(session(run, folder / "timed", lambda: None, {})) != 0:
        raise SystemExit("an uninterrupted session has failed")
    seconds = time.perf_counter() - started
    counts.different_runs += trace(folder / "timed") != expected
    place, world = folder / "run", cycle(worlds)
    while (missing := counts.kills < kills or counts.in_mid_save < mid_save) or place.exists():
        code = one_session(run, place, random, seconds if missing else None, next(world), counts)
        if code == 0:
            counts.finished_runs += 1
            counts.different_runs += trace(place) != expected
            shutil.rmtree(place)
            shutil.rmtree(cache, ignore_errors=True)
        elif code == -signal.SIGKILL:
            counts.kills += 1
            inspect(place, states, counts)
        else:
            raise SystemExit(f"a session ended with exit code {code}")


def one_session(
    run: RunConfig,
    place: Path,
    random: Random,
    seconds: float | None,
    world: int,
    counts: Counts,
) -> int:
    """Train, and die on the way unless `seconds`, the time of a whole run, is None."""
    operation = random.randrange(1, MAX_OPERATIONS) if random.random() < 0.5 else 0
    prologues: list[Callable[[], None]] = [lambda: None] * world
    if seconds is not None and operation:  # only the first process writes
        prologues[0] = lambda: die_at(operation, place)
    processes = [
        session(run, place, prologue, variables)
        for prologue, variables in zip(prologues, variables_of(world), strict=True)
    ]
    victim = 0
    if seconds is not None and not operation:
        time.sleep(random.uniform(0, seconds / 3) + (START_SECONDS if world > 1 else 0))
        victim = random.randrange(world)
        os.kill(processes[victim], signal.SIGKILL)
    code = wait(processes.pop(victim))
    codes, hangs = wait_for_others(processes)
    counts.hangs += hangs
    allowed = {0} if code == 0 else {0, LOST}
    if set(codes) - allowed:
        raise SystemExit(f"processes ended with {codes} after exit code {code}")
    return code


def inspect(place: Path, states: dict[int, dict[str, Any]], counts: Counts) -> None:
    """Return the state that a kill has left behind."""
    checkpoints = place / "checkpoints"
    counts.in_mid_save += any(checkpoints.glob(f"{TEMPORARY}*"))
    newest, complaints = store.newest_checkpoint(checkpoints)
    counts.damaged_checkpoints += len(complaints)
    logged = last_logged(place)
    if newest is None:
        counts.lost_saves += logged > 1
        return
    step = int(newest.name.removeprefix("step-"))
    counts.wrong_checkpoints += state(newest) != states[step]
    counts.lost_saves += logged > step + 1
    with suppress(CheckpointError):  # a run without a model yet
        about = load_model(place).about
        counts.wrong_models += state(resolve(place)) != states[about["step"]]


def last_logged(place: Path) -> int:
    """Return the last step that the metrics know of; a torn line does not count."""
    if not (place / "metrics.jsonl").exists():
        return 0
    whole = (place / "metrics.jsonl").read_text().split("\n")[:-1]
    return max((json.loads(line)["step"] for line in whole), default=0)


def main() -> int:
    """Read the words, kill, print what happened; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--mid-save", type=int, default=0, help="of the kills, at least")
    parser.add_argument("--tasks", nargs="+", default=["translation"], choices=[*TASKS, "all"])
    parser.add_argument("--store", choices=("never", "always", "both"), default="never")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, nargs="+", default=[1], help="of the sessions")
    parser.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    words = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    random, counts = Random(words.seed), Counts()
    tasks = TASKS if "all" in words.tasks else words.tasks
    stores = {"never": [False], "always": [True], "both": [False, True]}[words.store]
    runs = list(product(tasks, stores))
    for number, (task, stored) in enumerate(runs, start=1):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
            run = prepare(Path(folder), task, stored)
            print(f"{task}{', stored' if stored else ''}: {counts.kills:,} kills", file=sys.stderr)
            torture(
                run, Path(folder), random, counts, kills=words.kills * number // len(runs),
                mid_save=words.mid_save * number // len(runs), worlds=words.processes,
            )  # fmt: skip
    for name, value in vars(counts).items():
        print(f"{name.replace('_', ' '):20} {value:6,}")
    minutes = f"{(time.perf_counter() - started) / 60:.1f}"
    print(f"{'minutes':20} {minutes:>6}")
    if words.record:
        names = [name.replace("_", " ") for name in vars(counts)]
        columns = ["date", "commit", "seed", "tasks", "processes", *names]
        worlds = ", ".join(map(str, words.processes))
        kinds = f"{', '.join(words.tasks)}; store {words.store}"
        row = [time.strftime("%Y-%m-%d"), measuring.commit(), str(words.seed), kinds, worlds]
        row += [f"{value:,}" for value in vars(counts).values()]
        measuring.record_row(
            measuring.RESULTS,
            "Runs and processes killed at any moment",
            [*columns, "minutes"],
            [*row, minutes],
        )
    return 1 if counts.failures else 0


if __name__ == "__main__":
    sys.exit(main())
