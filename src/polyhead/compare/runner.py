"""Run a comparison: train every system, score it, and write table.md, table.html, table.json.

Finished systems are not trained again; an interrupted training is resumed exactly where it stopped.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from polyhead import devices
from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.compare.budget import UpdateTimer, with_steps
from polyhead.compare.page import render
from polyhead.compare.plan import BUDGETS, SEEDS, ComparePlan, CompareRequest, make_plan
from polyhead.compare.results import (
    DECODINGS,
    ComparisonTable,
    SystemResult,
    read_json,
    write_file,
    write_json,
)
from polyhead.compare.scoring import flops_per_step, score_ensemble, score_system
from polyhead.compare.systems import System
from polyhead.compare.table import markdown, summarize
from polyhead.compare.worker_pool import Interrupted, run_in_workers
from polyhead.config import from_dict, set_by_path
from polyhead.data.config import DataConfig
from polyhead.data.parallel import load_parallel
from polyhead.errors import DataError, Diverged
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import TokenizerPair, save_tokenizers
from polyhead.training.callbacks import Callback
from polyhead.training.config import build
from polyhead.training.run_dir import TOKENIZER, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import load_or_train_tokenizers
from polyhead.training.tasks.translation import EncodedPairs, encode_pairs
from polyhead.training.trainer import train

PROBE_STEPS, SHORT_PROBE_STEPS = 60, 6  # that are timed
Progress = Callable[[int], None]  # takes the number of items that were finished
Counting = Callable[[str, int], AbstractContextManager[Progress]]  # takes a title and a total


def not_counted(_title: str, _total: int) -> AbstractContextManager[Progress]:
    """Show no progress."""
    return nullcontext(lambda _: None)


@dataclass(frozen=True)
class SharedData:
    """Vocabulary and encoded training pairs, the same for every system.

    measuring: held while the cost of a step is measured, so that only one process does.
    """

    tokenizers: TokenizerPair
    pairs: EncodedPairs
    measuring: AbstractContextManager[Any] = field(default_factory=nullcontext)


@dataclass(frozen=True)
class ComparisonOutcome:
    """The table, its Markdown, and the files that were written."""

    table: ComparisonTable
    text: str
    files: tuple[Path, ...]


def compare_systems(
    request: CompareRequest,
    *,
    language: str = "en",
    reporter: Callback | None = None,
    counting: Counting = not_counted,
) -> ComparisonOutcome:
    """Train and score every system, and write the table."""
    reporter = Callback() if reporter is None else reporter
    plan = make_plan(request)
    results = run_systems(plan, reporter, counting)
    ensembles = run_ensembles(plan, results, reporter, counting)
    reporter.on_stage("testing for significance")
    table = summarize(plan, results, ensembles)
    text = markdown(table, language)
    plain, page, data = (plan.folder / f"table.{kind}" for kind in ("md", "html", "json"))
    write_file(plain, text)
    write_file(page, render(table, language))
    write_json(data, table)
    return ComparisonOutcome(table, text, (plain, page, data))


def run_systems(plan: ComparePlan, reporter: Callback, counting: Counting) -> list[SystemResult]:
    """Return the results of all systems and seeds in the order of the table."""
    for notice in plan.test.notices:
        reporter.on_notice(notice)
    seeds = range(1, plan.request.seeds + 1)
    entries = [(system, seed) for system in plan.systems for seed in seeds]
    titles = [
        f"[{number}/{len(entries)}] {system.title_at(plan.request.scale)}"
        + (f", seed {seed}" if len(seeds) > 1 else "")
        for number, (system, seed) in enumerate(entries, start=1)
    ]
    missing = {
        title: (system, seed)
        for title, (system, seed) in zip(titles, entries, strict=True)
        if not result_path(plan, system, seed).exists()
    }
    if missing and plan.request.processes > 1:
        spread(plan, missing, reporter)
    elif missing:
        shared = read_shared(plan, reporter)
        for n_done, (title, (system, seed)) in enumerate(missing.items()):
            reporter.on_stage(f"{title}{time_left(plan, len(missing) - n_done)}")
            run_system(plan, shared, system, seed, reporter, counting)
    return [read_json(result_path(plan, system, seed), SystemResult) for system, seed in entries]


def result_path(plan: ComparePlan, system: System, seed: int) -> Path:
    """Return the file of a run's result."""
    return plan.folder / "results" / f"{system.name}-{seed}.json"


def run_system(
    plan: ComparePlan, shared: SharedData, system: System, seed: int, reporter: Callback,
    counting: Counting,
) -> None:  # fmt: skip
    """Train and score a system, and write its result."""
    folders = train_system(plan, shared, system, seed, reporter)
    reporter.on_stage(f"evaluating {system.title_at(plan.request.scale)}")
    with counting("evaluating", len(DECODINGS) * len(plan.test.sources)) as progress:
        result = score_system(plan, shared.pairs, system, seed, folders, progress)
    write_json(result_path(plan, system, seed), result)


def spread(plan: ComparePlan, runs: dict[str, tuple[System, int]], reporter: Callback) -> None:
    """Run systems in several processes; before that, measure one by one what their steps cost.

    Only the cost of a later stage is measured by the process that trained the one before.
    """
    usual, n_processes = torch.get_num_threads(), plan.request.processes
    n_threads = min(usual, max(1, (os.cpu_count() or 1) // n_processes))
    torch.set_num_threads(n_threads)
    try:
        shared = read_shared(plan, reporter)
        for system, seed in runs.values():
            values = stage_values(plan, system, seed, 0)
            steps_within_budget(plan, shared, system, 0, values, reporter)
    finally:
        torch.set_num_threads(usual)
    arguments = {title: (plan.request, *run) for title, run in runs.items()}
    run_in_workers(run_alone, arguments, n_processes, n_threads, reporter)


def run_alone(
    run: tuple[CompareRequest, System, int], measuring: AbstractContextManager[Any]
) -> None:
    """Read the data, and train and score one system, in a process of its own."""
    request, system, seed = run
    plan, reporter = make_plan(request), Callback()
    shared = replace(read_shared(plan, reporter), measuring=measuring)
    run_system(plan, shared, system, seed, reporter, not_counted)


def run_ensembles(
    plan: ComparePlan, results: list[SystemResult], reporter: Callback, counting: Counting
) -> list[SystemResult]:
    """Return the results of all ensembles."""
    by_run = {(result.system, result.seed): result for result in results}
    scored = []
    for name, runs in plan.ensembles.items():
        kind = "team" if "+" in name else f"{SEEDS}{len(runs)}"
        path = plan.folder / "results" / f"{name}-{kind}.json"
        if not path.exists():
            reporter.on_stage(f"evaluating the ensemble {name} ({len(runs)} members)")
            with counting("evaluating", len(DECODINGS) * len(plan.test.sources)) as progress:
                result = score_ensemble(plan, name, [by_run[run] for run in runs], progress)
            write_json(path, result)
        scored.append(read_json(path, SystemResult))
    return scored


def time_left(plan: ComparePlan, n_left: int) -> str:
    """Describe the training time of the systems that are left, if the budget is a time."""
    budget = plan.request.budget
    minutes = round(n_left * budget.amount / 60) if budget.unit == "seconds" else 0
    plural = "s" * (minutes != 1)
    return f" ({minutes:,} minute{plural} of training left in all)" if minutes else ""


def read_shared(plan: ComparePlan, reporter: Callback) -> SharedData:
    """Learn the vocabulary, and encode the training text with it."""
    reporter.on_stage("reading the data")
    data = from_dict(DataConfig, plan.base["data"], "data.")
    text = from_dict(TextConfig, plan.base.get("text", {}), "text.")
    pairs = load_parallel(data, seed=1).train
    path, now = plan.folder / "text.json", fingerprint([*pairs.sources, *pairs.targets])
    if not path.exists():
        write_json(path, {"training": now})
    elif read_json(path, dict) != {"training": now}:
        raise DataError(
            f"{plan.folder}: the training text changed since this comparison was started. Restore "
            "the files, or choose another --run.",
            "data_changed",
        )
    log = RunLog(plan.folder, reporter)
    tokenizers = load_or_train_tokenizers(
        plan.folder / TOKENIZER, pairs.sources, pairs.targets, text, log
    )
    encoded = encode_pairs(tokenizers, pairs, data.max_length, "training", log)
    return SharedData(tokenizers, encoded)


def train_system(
    plan: ComparePlan, shared: SharedData, system: System, seed: int, reporter: Callback
) -> list[Path]:
    """Train all stages for as many steps as the budget allows; return their run directories.

    Only the directory of the last stage has no number of a stage.
    """
    folders = run_folders(plan, system, seed)
    for number, folder in enumerate(folders):
        values = stage_values(plan, system, seed, number)
        steps = steps_within_budget(plan, shared, system, number, values, reporter)
        try:
            train_run(with_steps(values, steps), folder, shared, reporter)
        except Diverged as error:
            raise Diverged(
                f"{system.name}, seed {seed}: {error}; or leave it out of --systems", "diverged"
            ) from None
    return folders


def run_folders(plan: ComparePlan, system: System, seed: int) -> list[Path]:
    """Return the run directories of all stages."""
    stages = [f"-stage-{number}" for number in range(1, len(system.stages))]
    return [plan.folder / "runs" / f"{system.name}-{seed}{stage}" for stage in (*stages, "")]


def stage_values(plan: ComparePlan, system: System, seed: int, number: int) -> dict[str, Any]:
    """Return the values of a stage's run, without its steps; it starts from the stage before."""
    values = plan.values(system)
    for change in system.stages[number].changes:
        set_by_path(values, change)
    values["train"]["seed"] = seed
    if number:
        values["train"]["init"] = str(run_folders(plan, system, seed)[number - 1])
    return values


def train_run(
    values: dict[str, Any], folder: Path, shared: SharedData, reporter: Callback
) -> UpdateTimer:
    """Train in a directory that has the common vocabulary; its time.json gets the updates' time."""
    if not (folder / TOKENIZER).exists():
        with atomic_dir(folder / TOKENIZER) as draft:
            save_tokenizers(shared.tokenizers, draft)
    device = devices.choose(values["train"].get("device", "auto"))
    timing = UpdateTimer(on_cpu=device.type == "cpu")
    result = train(build(values), folder, callbacks=[timing, reporter])
    path = folder / "time.json"
    spent = {"steps": len(timing.moments), "seconds": sum(timing.moments)}
    before = read_json(path, dict) if path.exists() else {"steps": 0, "seconds": 0.0}
    write_json(path, {name: before[name] + spent[name] for name in spent})
    if result.signal is not None:
        raise Interrupted(result.signal)
    return timing


def steps_within_budget(
    plan: ComparePlan,
    shared: SharedData,
    system: System,
    stage: int,
    values: dict[str, Any],
    reporter: Callback,
) -> int:
    """Return how many steps the budget allows; measured once for each system and stage."""
    path, budget = plan.folder / BUDGETS, plan.request.budget
    key = system.name if len(system.stages) == 1 else f"{system.name}, stage {stage + 1}"
    with shared.measuring:
        known = read_json(path, dict) if path.exists() else {}
        if key not in known:
            if budget.unit == "seconds":
                reporter.on_stage(f"timing {values['description']}")
                cost = seconds_per_step(plan, shared, values)
            else:
                cost = flops_per_step(build(values), shared.tokenizers, shared.pairs)
            steps = budget.n_steps(system.stages[stage].share, cost)
            known[key] = {f"{budget.unit}_per_step": cost, "steps": steps}
            write_json(path, known)
    return int(known[key]["steps"])


def seconds_per_step(plan: ComparePlan, shared: SharedData, values: dict[str, Any]) -> float:
    """Time a few training steps in a temporary run."""
    folder = plan.folder / "probe"
    shutil.rmtree(folder, ignore_errors=True)
    probe = with_steps(values, SHORT_PROBE_STEPS if plan.request.budget.is_short else PROBE_STEPS)
    probe["train"] |= {
        "validate_every": 10**9, "save_every": 10**9, "bleu_sentences": 0, "judge_by": "loss",
    }  # fmt: skip
    timing = train_run(probe, folder, shared, Callback())
    shutil.rmtree(folder)
    return timing.seconds_per_step
