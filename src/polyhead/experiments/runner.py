"""Run a comparison: train every system, score it, and write table.md, table.html, table.json.

Finished systems are not trained again; an interrupted training is resumed exactly where it stopped.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from polyhead import devices
from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.config import from_dict
from polyhead.data.config import DataConfig
from polyhead.data.file_sums import fingerprint
from polyhead.errors import DataError, Diverged
from polyhead.experiments.budget import UpdateTimer, with_steps
from polyhead.experiments.page import render
from polyhead.experiments.plan import BUDGETS, SEEDS, ComparePlan, CompareRequest, make_plan
from polyhead.experiments.results import (
    DECODINGS,
    SIGNIFICANCE,
    ComparisonTable,
    SystemResult,
    read_json,
    write_file,
    write_json,
)
from polyhead.experiments.scoring import score_ensemble, score_system
from polyhead.experiments.summary import summarize
from polyhead.experiments.systems import System
from polyhead.experiments.table import best_row, first_score, headline, markdown
from polyhead.experiments.task_scores import failed, score_run
from polyhead.experiments.worker_pool import Interrupted, run_in_workers
from polyhead.render.html import iframe
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import TokenizerPair, save_tokenizers
from polyhead.training.callbacks import Callback, Callbacks
from polyhead.training.config import RunConfig, build
from polyhead.training.run_dir import TOKENIZER
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import load_or_train_tokenizers
from polyhead.training.tasks.translation import (
    EncodedPairs,
    encode_training,
    read_parallel_corpus,
)
from polyhead.training.trainer import train

PROBE_STEPS, SHORT_PROBE_STEPS = 60, 6  # that are timed
Progress = Callable[[int], None]  # takes the number of items that were finished
Counting = Callable[[str, int], AbstractContextManager[Progress]]  # takes a title and a total


def not_counted(_title: str, _total: int) -> AbstractContextManager[Progress]:
    """Show no progress."""
    return nullcontext(lambda _: None)


@dataclass(frozen=True)
class SharedData:
    """Vocabulary and encoded training pairs of translators, the same for every system.

    measuring: held while the cost of a step is measured, so that only one process does.
    """

    tokenizers: TokenizerPair | None = None
    pairs: EncodedPairs | None = None
    measuring: AbstractContextManager[Any] = field(default_factory=nullcontext)


class NoticesOnce(Callbacks):
    """Callbacks that get equal notices once: the runs of a comparison read the same data."""

    def __init__(self, member: Callback) -> None:
        super().__init__([member])
        self.seen = set[str]()

    def on_notice(self, text: str) -> None:
        if text not in self.seen:
            self.seen.add(text)
            super().on_notice(text)


@dataclass(frozen=True)
class ComparisonOutcome:
    """The table, its Markdown, and the files that were written."""

    table: ComparisonTable
    text: str
    files: tuple[Path, ...]

    def __repr__(self) -> str:
        best = best_row(self.table)
        score = f"{headline(self.table)} {first_score(self.table, best):.4g}"
        return f"ComparisonOutcome({len(self.table.rows)} rows, best: {best.title}, {score})"

    def _repr_html_(self) -> str:
        return iframe(render(self.table))


def compare_systems(
    request: CompareRequest,
    *,
    language: str = "en",
    reporter: Callback | None = None,
    counting: Counting = not_counted,
) -> ComparisonOutcome:
    """Train and score every system, and write the table."""
    reporter = NoticesOnce(Callback() if reporter is None else reporter)
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
    for notice in plan.test.notices if plan.test is not None else ():
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
    """Train and score a system, and write its result; a variant may diverge."""
    try:
        folders = train_system(plan, shared, system, seed, reporter)
    except Diverged as error:
        if plan.test is not None:
            raise
        reporter.on_notice(str(error))
        write_json(result_path(plan, system, seed), failed(system, seed))
        return
    reporter.on_stage(f"evaluating {system.title_at(plan.request.scale)}")
    if plan.test is None or shared.pairs is None:
        result = score_run(plan, system, seed, folders)
    else:
        with counting("evaluating", len(DECODINGS) * len(plan.test.sources)) as progress:
            result = score_system(plan, shared.pairs, system, seed, folders, progress)
    (plan.folder / SIGNIFICANCE).unlink(missing_ok=True)  # of earlier outputs
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
            steps_within_budget(plan, shared, system, seed, 0, reporter)
    finally:
        torch.set_num_threads(usual)
    users: dict[Path, list[tuple[System, int]]] = {}  # of pre-trainings
    for system, seed in runs.values():
        for folder in plan.run_folders(system, seed)[:-1]:
            users.setdefault(folder, []).append((system, seed))
    early = {
        f"pre-training of {folder.name}": (plan.request, *shared_by[0], True)
        for folder, shared_by in users.items()
        if len(shared_by) > 1
    }
    run_in_workers(run_alone, early, n_processes, n_threads, reporter)
    arguments = {title: (plan.request, *run, False) for title, run in runs.items()}
    run_in_workers(run_alone, arguments, n_processes, n_threads, reporter)


def run_alone(
    run: tuple[CompareRequest, System, int, bool], measuring: AbstractContextManager[Any]
) -> None:
    """Read the data, and train and score one system, in a process of its own.

    The last item of `run` is True if only the stages before the last one are trained.
    """
    request, system, seed, is_early = run
    plan, reporter = make_plan(request), Callback()
    shared = replace(read_shared(plan, reporter), measuring=measuring)
    if is_early:
        train_system(plan, shared, system, seed, reporter, n_stages=len(system.stages) - 1)
    else:
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
            n_sentences = 0 if plan.test is None else len(plan.test.sources)
            with counting("evaluating", len(DECODINGS) * n_sentences) as progress:
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
    """Learn the vocabulary of translators, and encode their training text with it."""
    if plan.test is None:
        return SharedData()
    reporter.on_stage("reading the data")
    data = from_dict(DataConfig, plan.base["data"], "data.")
    text = from_dict(TextConfig, plan.base.get("text", {}), "text.")
    pairs = read_parallel_corpus(data, seed=1)[0].train
    path, now = plan.folder / "text.json", fingerprint(chain(*pairs.columns))
    if not path.exists():
        write_json(path, {"training": now})
    elif read_json(path, dict) != {"training": now}:
        raise DataError(
            f"{plan.folder}: the training text changed since this comparison was started. Restore "
            "the files, or choose another --run.",
            "data_changed",
        )
    log, place = RunLog(plan.folder, reporter), plan.folder / TOKENIZER
    tokenizers = load_or_train_tokenizers(place, pairs.texts, pairs.labels, text, log)
    encoded = encode_training(tokenizers, place, pairs, data.max_length, log)
    return SharedData(tokenizers, encoded)


def train_system(
    plan: ComparePlan,
    shared: SharedData,
    system: System,
    seed: int,
    reporter: Callback,
    *,
    n_stages: int | None = None,
) -> list[Path]:
    """Train all stages for as many steps as the budget allows; return their run directories.

    n_stages: only the first ones.
    """
    folders = plan.run_folders(system, seed)[:n_stages]
    for number, folder in enumerate(folders):
        steps = steps_within_budget(plan, shared, system, seed, number, reporter)
        values, overrides = plan.stage(system, seed, number)
        run = build(with_steps(values, steps) if steps else values, overrides)
        try:
            train_run(run, folder, shared, reporter)
        except Diverged as error:
            raise Diverged(
                f"{system.name}, seed {seed}: {error}; or leave it out of --systems", "diverged"
            ) from None
    return folders


def train_run(run: RunConfig, folder: Path, shared: SharedData, reporter: Callback) -> UpdateTimer:
    """Train in a directory, with the common vocabulary; its time.json gets the updates' time."""
    if shared.tokenizers is not None and not (folder / TOKENIZER).exists():
        with atomic_dir(folder / TOKENIZER) as draft:
            save_tokenizers(shared.tokenizers, draft)
    device = devices.choose(run.train.device)
    timing = UpdateTimer(on_cpu=device.type == "cpu")
    result = train(run, folder, callbacks=[timing, reporter])
    path = folder / "time.json"
    spent = {"steps": len(timing.moments), "seconds": sum(timing.moments)}
    before = read_json(path, dict) if path.exists() else {"steps": 0, "seconds": 0.0}
    write_json(path, {name: before[name] + spent[name] for name in spent})
    if result.signal is not None:
        raise Interrupted(result.signal)
    return timing


def steps_within_budget(
    plan: ComparePlan, shared: SharedData, system: System, seed: int, number: int,
    reporter: Callback,
) -> int:  # fmt: skip
    """Return how many steps of a stage the budget allows; 0 for those of the recipe.

    Their cost is measured once for each system and stage.
    """
    path, budget, stage = plan.folder / BUDGETS, plan.request.budget, system.stages[number]
    key = system.origin if stage.recipe and system.origin else system.name
    key += "" if len(system.stages) == 1 else f", stage {number + 1}"
    with shared.measuring:
        known = read_json(path, dict) if path.exists() else {}
        if key not in known:
            if stage.steps or budget.unit in ("steps", "recipe"):
                steps = stage.steps or (budget.n_steps(stage.share, 1.0) if budget.amount else 0)
                known[key] = {"steps": steps}
            else:
                cost = seconds_per_step(plan, shared, plan.stage(system, seed, number), reporter)
                known[key] = {"seconds_per_step": cost, "steps": budget.n_steps(stage.share, cost)}
            write_json(path, known)
    return int(known[key]["steps"])


def seconds_per_step(
    plan: ComparePlan, shared: SharedData, stage: tuple[dict[str, Any], tuple[str, ...]],
    reporter: Callback,
) -> float:  # fmt: skip
    """Measure the time of a step in a temporary run."""
    values, overrides = stage
    reporter.on_stage(f"timing {values.get('description', '')}")
    folder = plan.folder / "probe"
    shutil.rmtree(folder, ignore_errors=True)
    is_short = plan.request.budget.is_short
    probe = with_steps(values, SHORT_PROBE_STEPS if is_short else PROBE_STEPS)
    probe["train"] |= {
        "validate_every": 10**9, "save_every": 10**9, "bleu_sentences": 0, "judge_by": "loss",
    }  # fmt: skip
    timing = train_run(build(probe, overrides), folder, shared, Callback())
    shutil.rmtree(folder)
    return timing.seconds_per_step
