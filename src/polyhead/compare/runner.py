"""Run a comparison: train every system, score it, and write table.md, table.html, table.json.

Finished systems are not trained again; an interrupted training is resumed exactly where it stopped.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyhead import devices
from polyhead.checkpoint.atomic_dir import atomic_dir, os_errors_as_polyhead_errors
from polyhead.compare.budget import TimingReporter, affordable_steps, probe_steps, with_steps
from polyhead.compare.ensembles import run_ensembles
from polyhead.compare.page import render
from polyhead.compare.plan import BUDGETS, ComparePlan, CompareRequest, make_plan
from polyhead.compare.results import (
    ComparisonTable,
    SystemResult,
    read_json,
    read_result,
    result_file,
    to_json,
    write_file,
    write_json,
)
from polyhead.compare.scoring import (
    flops_per_token,
    measured_flops_per_token,
    n_translations,
    score_system,
)
from polyhead.compare.systems import System
from polyhead.compare.table import markdown, summarize
from polyhead.config import from_dict, set_by_path
from polyhead.data.batches.translation import Pair, TranslationBatches
from polyhead.data.config import DataConfig
from polyhead.data.parallel import load_parallel
from polyhead.errors import DataError, Diverged
from polyhead.pipelines.translator import Translator
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import TokenizerPair, save_tokenizers
from polyhead.training.config import RunConfig, build
from polyhead.training.run_dir import TOKENIZER, fingerprint
from polyhead.training.run_log import NullReporter, ProgressReporter, RunLog
from polyhead.training.tasks.base import load_or_train_tokenizers
from polyhead.training.trainer import TrainResult, train

Progress = Callable[[int], None]  # takes the number of items that were finished
Counting = Callable[[str, int], AbstractContextManager[Progress]]  # takes a title and a total


def no_progress(_title: str, _total: int) -> AbstractContextManager[Progress]:
    """Report no progress."""
    return nullcontext(lambda _: None)


class Interrupted(Exception):
    """A training was stopped by a signal; everything is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"signal {signal}")
        self.signal = signal


@dataclass(frozen=True)
class SharedData:
    """Vocabulary and encoded training pairs, the same for every system."""

    tokenizers: TokenizerPair
    pairs: list[Pair]


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
    counting: Counting = no_progress,
) -> ComparisonOutcome:
    """Train and score every system, and write the table."""
    reporter = NullReporter() if reporter is None else reporter
    plan = make_plan(request)
    results = run_systems(plan, reporter, counting)
    ensembles = run_ensembles(plan, results, reporter, counting)
    reporter.stage("testing for significance")
    table = summarize(plan, results, ensembles)
    text = markdown(table, language)
    page, data, plain = (plan.folder / f"table.{kind}" for kind in ("html", "json", "md"))
    write_file(plain, text)
    write_file(page, render(table, language))
    write_json(data, table.to_json())
    return ComparisonOutcome(table, text, (plain, page, data))


def run_systems(
    plan: ComparePlan, reporter: ProgressReporter, counting: Counting = no_progress
) -> list[SystemResult]:
    """Return the results of all systems and seeds in the order of the table."""
    for notice in plan.test.notices:
        reporter.notice(notice)
    entries = [(system, seed) for system in plan.systems for seed in range(1, plan.seeds + 1)]
    files = [result_file(plan.folder, system.name, seed) for system, seed in entries]
    results: list[SystemResult] = []
    shared: SharedData | None = None
    for number, ((system, seed), path) in enumerate(zip(entries, files, strict=True), start=1):
        if not path.exists():
            shared = read_shared(plan, reporter) if shared is None else shared
            position = f"[{number}/{len(entries)}]"
            named_seed = f", seed {seed}" if plan.seeds > 1 else ""
            left = time_left(plan, sum(not file.exists() for file in files[number - 1 :]))
            reporter.stage(f"{position} {system.title}{named_seed}{left}")
            folders = [
                train_stage(plan, shared, system, seed, stage, reporter)
                for stage in range(len(system.stages))
            ]
            reporter.stage(f"{position} evaluating {system.title}")
            with counting("evaluating", n_translations(plan.test.sources)) as progress:
                result = score_system(plan, shared.pairs, (system, seed), folders, progress)
            write_json(path, to_json(result))
        results.append(read_result(path))
    return results


def time_left(plan: ComparePlan, n_left: int) -> str:
    """Describe the training time of the systems that are left, if the budget is a time."""
    if plan.budget.seconds is None:
        return ""
    minutes = round(n_left * plan.budget.seconds / 60)
    plural = "s" * (minutes != 1)
    return f" ({minutes:,} minute{plural} of training left in all)" if minutes else ""


def read_shared(plan: ComparePlan, reporter: ProgressReporter) -> SharedData:
    """Learn the vocabulary, and encode the training text with it."""
    reporter.stage("reading the data")
    data = from_dict(DataConfig, plan.base["data"], "data.")
    text = from_dict(TextConfig, plan.base.get("text", {}), "text.")
    train_pairs = load_parallel(data, seed=1).train
    _check_same_text(plan.folder, [*train_pairs.sources, *train_pairs.targets])
    log = RunLog(plan.folder, reporter)
    tokens = load_or_train_tokenizers(
        plan.folder / TOKENIZER, train_pairs.sources, train_pairs.targets, text, log
    )
    source = tokens.source.encode_batch(train_pairs.sources)
    target = tokens.target.encode_batch(train_pairs.targets)
    pairs = [
        pair for pair in zip(source, target, strict=True) if max(map(len, pair)) <= data.max_length
    ]
    if not pairs:
        raise DataError(
            f"all training pairs are longer than {data.max_length} tokens; raise data.max_length",
            "all_too_long",
        )
    return SharedData(tokens, pairs)


def _check_same_text(folder: Path, lines: Sequence[str]) -> None:
    """Raise DataError if the training text changed since the comparison was started."""
    path, now = folder / "text.json", {"training": fingerprint(lines)}
    if not path.exists():
        write_json(path, now)
    elif read_json(path) != now:
        raise DataError(
            f"{folder}: the training text changed since this comparison was started. Restore the "
            "files, or choose another --run.",
            "data_changed",
        )


def stage_folder(plan: ComparePlan, system: System, seed: int, stage: int) -> Path:
    """Return the run directory of a stage; only that of the last stage has no stage number."""
    is_last = stage == len(system.stages) - 1
    return plan.folder / "runs" / f"{system.name}-{seed}{'' if is_last else f'-stage-{stage + 1}'}"


def train_stage(
    plan: ComparePlan,
    shared: SharedData,
    system: System,
    seed: int,
    stage: int,
    reporter: ProgressReporter,
) -> Path:
    """Train one stage for as many steps as the budget allows; return its run directory."""
    folder = stage_folder(plan, system, seed, stage)
    values = plan.values(system)
    for change in system.stages[stage].changes:
        set_by_path(values, change)
    values["train"]["seed"] = seed
    if stage:
        values["train"]["init"] = str(stage_folder(plan, system, seed, stage - 1))
    steps = steps_within_budget(plan, shared, (system, stage), values, reporter)
    timing = TimingReporter(reporter, on_cpu=_on_cpu(values))
    try:
        result = _train(build(with_steps(values, steps)), folder, shared, timing)
    except Diverged as error:
        raise Diverged(
            f"{system.name}, seed {seed}: {error}; or leave it out of --systems", "diverged"
        ) from None
    _add_time(folder, timing)
    if result.signal is not None:
        raise Interrupted(result.signal)
    return folder


def _train(
    run: RunConfig, folder: Path, shared: SharedData, reporter: ProgressReporter
) -> TrainResult:
    """Train in a directory that has the common vocabulary."""
    place = folder / TOKENIZER
    if not place.exists():
        with os_errors_as_polyhead_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with atomic_dir(place) as draft:
            save_tokenizers(shared.tokenizers, draft)
    return train(run, folder, reporter=reporter)


def steps_within_budget(
    plan: ComparePlan,
    shared: SharedData,
    system_and_stage: tuple[System, int],
    values: dict[str, Any],
    reporter: ProgressReporter,
) -> int:
    """Return how many steps the budget allows; measured once for each system and stage."""
    system, number = system_and_stage
    path = plan.folder / BUDGETS
    known = read_json(path) if path.exists() else {}
    key = system.name if len(system.stages) == 1 else f"{system.name}, stage {number + 1}"
    if key not in known:
        if plan.budget.flops is None:
            cost = {"seconds_per_step": seconds_per_step(plan, shared, values, reporter)}
        else:
            cost = {"flops_per_step": flops_per_step(build(values), shared)}
        share = system.stages[number].share
        known[key] = cost | {"steps": affordable_steps(plan.budget, share, cost)}
        write_json(path, known)
    return int(known[key]["steps"])


def seconds_per_step(
    plan: ComparePlan, shared: SharedData, values: dict[str, Any], reporter: ProgressReporter
) -> float:
    """Time a few training steps in a temporary run."""
    reporter.stage(f"timing {values['description']}")
    folder, timing = plan.folder / "probe", TimingReporter(on_cpu=_on_cpu(values))
    if folder.exists():
        shutil.rmtree(folder)
    probe = with_steps(values, probe_steps(plan.budget))
    probe["train"] |= {
        "validate_every": 10**9, "save_every": 10**9, "bleu_sentences": 0, "judge_by": "loss",
    }  # fmt: skip
    result = _train(build(probe), folder, shared, timing)
    shutil.rmtree(folder)
    if result.signal is not None:
        raise Interrupted(result.signal)
    return timing.seconds_per_step


def flops_per_step(run: RunConfig, shared: SharedData) -> float:
    """Return the FLOPs of a step: the tokens of an average batch, times FLOPs per token.

    Training by reward has no formula: it is measured on the model that it is initialized from.
    """
    vocab = shared.tokenizers
    sizes = {"source_vocab": len(vocab.source), "target_vocab": len(vocab.target)}
    run = replace(run, model=replace(run.model, **sizes))
    batches = TranslationBatches(lambda _: shared.pairs, run.train.max_tokens, run.train.seed)
    n_tokens = sum(len(source) + len(target) for source, target in shared.pairs)
    if run.train.reward.samples and run.train.init is not None:
        model = Translator.from_dir(run.train.init).models[0].model
        per_token = measured_flops_per_token(model, run, shared.pairs)
    else:
        per_token = flops_per_token(run, shared.pairs)
    return per_token * n_tokens / batches.n_batches(0) * run.train.accumulate


def _on_cpu(values: dict[str, Any]) -> bool:
    return devices.choose(values["train"].get("device", "auto")).type == "cpu"


def _add_time(folder: Path, timing: TimingReporter) -> None:
    """Add the time of this process's updates to that of earlier ones."""
    path = folder / "time.json"
    before = read_json(path) if path.exists() else {"steps": 0, "seconds": 0.0}
    steps, seconds = before["steps"] + len(timing.moments), before["seconds"] + sum(timing.moments)
    write_json(path, {"steps": steps, "seconds": seconds})
