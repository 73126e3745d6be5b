"""Run a comparison: train every system, score it, and write table.md, table.html, table.json.

Finished systems are not trained again; an interrupted training is resumed exactly where it stopped.
"""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead import devices
from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.compare.budget import TimingReporter, with_steps
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
from polyhead.config import from_dict, set_by_path
from polyhead.data.config import DataConfig
from polyhead.data.parallel import load_parallel
from polyhead.errors import DataError, Diverged
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import TokenizerPair, save_tokenizers
from polyhead.training.config import build
from polyhead.training.run_dir import TOKENIZER, fingerprint
from polyhead.training.run_log import ProgressReporter, RunLog
from polyhead.training.tasks.base import load_or_train_tokenizers
from polyhead.training.tasks.translation import EncodedPairs, encode_pairs
from polyhead.training.trainer import train

PROBE_STEPS, SHORT_PROBE_STEPS = 60, 6  # that are timed
Progress = Callable[[int], None]  # takes the number of items that were finished
Counting = Callable[[str, int], AbstractContextManager[Progress]]  # takes a title and a total


class Interrupted(Exception):
    """A training was stopped by a signal; everything is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"signal {signal}")
        self.signal = signal


@dataclass(frozen=True)
class SharedData:
    """Vocabulary and encoded training pairs, the same for every system."""

    tokenizers: TokenizerPair
    pairs: EncodedPairs


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
    reporter: ProgressReporter | None = None,
    counting: Counting = lambda _title, _total: nullcontext(lambda _: None),
) -> ComparisonOutcome:
    """Train and score every system, and write the table."""
    reporter = ProgressReporter() if reporter is None else reporter
    plan = make_plan(request)
    results = run_systems(plan, reporter, counting)
    ensembles = run_ensembles(plan, results, reporter, counting)
    reporter.stage("testing for significance")
    table = summarize(plan, results, ensembles)
    text = markdown(table, language)
    plain, page, data = (plan.folder / f"table.{kind}" for kind in ("md", "html", "json"))
    write_file(plain, text)
    write_file(page, render(table, language))
    write_json(data, table)
    return ComparisonOutcome(table, text, (plain, page, data))


def run_systems(
    plan: ComparePlan, reporter: ProgressReporter, counting: Counting
) -> list[SystemResult]:
    """Return the results of all systems and seeds in the order of the table."""
    for notice in plan.test.notices:
        reporter.notice(notice)
    seeds = range(1, plan.request.seeds + 1)
    entries = [(system, seed) for system in plan.systems for seed in seeds]
    paths = [plan.folder / "results" / f"{system.name}-{seed}.json" for system, seed in entries]
    shared: SharedData | None = None
    for number, ((system, seed), path) in enumerate(zip(entries, paths, strict=True), start=1):
        if path.exists():
            continue
        shared = read_shared(plan, reporter) if shared is None else shared
        position = f"[{number}/{len(entries)}]"
        named_seed = f", seed {seed}" if len(seeds) > 1 else ""
        left = time_left(plan, sum(not path.exists() for path in paths[number - 1 :]))
        title = system.title_at(plan.request.scale)
        reporter.stage(f"{position} {title}{named_seed}{left}")
        folders = train_system(plan, shared, system, seed, reporter)
        reporter.stage(f"{position} evaluating {title}")
        with counting("evaluating", len(DECODINGS) * len(plan.test.sources)) as progress:
            write_json(path, score_system(plan, shared.pairs, system, seed, folders, progress))
    return [read_json(path, SystemResult) for path in paths]


def run_ensembles(
    plan: ComparePlan, results: list[SystemResult], reporter: ProgressReporter, counting: Counting
) -> list[SystemResult]:
    """Return the results of all ensembles."""
    by_run = {(result.system, result.seed): result for result in results}
    scored = []
    for name, runs in plan.ensembles.items():
        kind = "team" if "+" in name else f"{SEEDS}{len(runs)}"
        path = plan.folder / "results" / f"{name}-{kind}.json"
        if not path.exists():
            reporter.stage(f"evaluating the ensemble {name} ({len(runs)} members)")
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


def read_shared(plan: ComparePlan, reporter: ProgressReporter) -> SharedData:
    """Learn the vocabulary, and encode the training text with it."""
    reporter.stage("reading the data")
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
    plan: ComparePlan, shared: SharedData, system: System, seed: int, reporter: ProgressReporter
) -> list[Path]:
    """Train all stages for as many steps as the budget allows; return their run directories.

    Only the directory of the last stage has no number of a stage.
    """
    stages = [f"-stage-{number}" for number in range(1, len(system.stages))]
    folders = [plan.folder / "runs" / f"{system.name}-{seed}{stage}" for stage in (*stages, "")]
    for number, folder in enumerate(folders):
        values = plan.values(system)
        for change in system.stages[number].changes:
            set_by_path(values, change)
        values["train"]["seed"] = seed
        if number:
            values["train"]["init"] = str(folders[number - 1])
        steps = steps_within_budget(plan, shared, system, number, values, reporter)
        try:
            train_run(with_steps(values, steps), folder, shared, reporter)
        except Diverged as error:
            raise Diverged(
                f"{system.name}, seed {seed}: {error}; or leave it out of --systems", "diverged"
            ) from None
    return folders


def train_run(
    values: dict[str, Any], folder: Path, shared: SharedData, reporter: ProgressReporter
) -> TimingReporter:
    """Train in a directory that has the common vocabulary; its time.json gets the updates' time."""
    if not (folder / TOKENIZER).exists():
        with atomic_dir(folder / TOKENIZER) as draft:
            save_tokenizers(shared.tokenizers, draft)
    device = devices.choose(values["train"].get("device", "auto"))
    timing = TimingReporter(reporter, on_cpu=device.type == "cpu")
    result = train(build(values), folder, reporter=timing)
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
    reporter: ProgressReporter,
) -> int:
    """Return how many steps the budget allows; measured once for each system and stage."""
    path, budget = plan.folder / BUDGETS, plan.request.budget
    known = read_json(path, dict) if path.exists() else {}
    key = system.name if len(system.stages) == 1 else f"{system.name}, stage {stage + 1}"
    if key not in known:
        if budget.unit == "seconds":
            reporter.stage(f"timing {values['description']}")
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
    timing = train_run(probe, folder, shared, ProgressReporter())
    shutil.rmtree(folder)
    return timing.seconds_per_step
