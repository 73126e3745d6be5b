"""Scores of a run of any task: what its validation reports, on the validation or a test set.

A test set takes the place of the validation files: so nothing here depends on the task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean as mean
from typing import Any

from polyhead import devices
from polyhead.checkpoint.model_dir import SavedModel, load_model
from polyhead.checkpoint.model_files import resolve
from polyhead.data.config import FORMER
from polyhead.experiments.plan import ComparePlan
from polyhead.experiments.results import (
    SystemResult,
    TrainingCost,
    read_json,
    write_file,
    write_json,
)
from polyhead.experiments.scoring import (
    learning_curve,
    measured_flops_per_token,
    score_outputs,
    time_and_tokens,
    total_cost,
)
from polyhead.experiments.systems import System
from polyhead.metrics.bleu import Score
from polyhead.metrics.error_rates import error_rates
from polyhead.metrics.named_metrics import registered_metric
from polyhead.pipelines.evaluation import Metric
from polyhead.tasks.base import Outputs
from polyhead.training.callbacks import Callback
from polyhead.training.config import build, run_values
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog, read_metrics
from polyhead.training.tasks.base import TaskSetup, TrainingTask
from polyhead.training.tasks.from_object import training_of

FLOPS = "flops.json"


def score_run(
    plan: ComparePlan, system: System, seed: int, folders: Sequence[Path]
) -> SystemResult:
    """Score the best model of a run, and measure what all its stages cost."""
    tests = {name: files for name, files in plan.request.tests.items() if files}
    saved, setup = load_run(folders[-1], tests)
    processes = Processes()
    metrics = setup.validate(saved.model, int(saved.about["step"]), processes)
    scores = {name: Score(name, float(value), None, None, "") for name, value in metrics.items()}
    key, outputs = f"{system.name}-{seed}", None
    if setup.outputs is not None:
        outputs = setup.outputs(saved.model, processes)
        scores |= output_scores(outputs, plan.metric)
        judge_by = saved.about["run"]["train"]["judge_by"]
        for name, value in registered_metric(judge_by, outputs.lines, outputs.references).items():
            scores[name] = Score(name, value, None, None, "plug-in")
        for kind, lines in (("outputs", outputs.lines), ("references", outputs.references)):
            text = "".join(f"{line}\n" for line in lines)
            write_file(plan.folder / "outputs" / f"{key}.{kind}.txt", text)
    return SystemResult(
        system=system.name,
        seed=seed,
        parameters=sum(p.numel() for p in saved.model.parameters()),
        training=total_cost(run_cost(folder) for folder in folders),
        decoding=None,
        scores={"test" if tests else "validation": scores},
        curve=learning_curve([read_metrics(folders[-1])], [1.0]),
        examples=0 if outputs is None else len(outputs.lines),
        exact="" if outputs is None else outputs.metric,
    )


def failed(system: System, seed: int) -> SystemResult:
    """Return the result of a run that diverged: no scores."""
    return SystemResult(system.name, seed, 0, TrainingCost(0, 0, 0.0, 0.0, 0.0), None, {}, [])


def load_run(
    folder: Path, tests: Mapping[str, Sequence[str]] | None = None
) -> tuple[SavedModel, TaskSetup]:
    """Return the best model of a run, and its task set up with the validation or the test set."""
    values = run_values(resolve(folder))
    run = build(values | {"data": FORMER | values["data"]}, any_size=True)
    saved = load_model(folder, str(devices.choose(run.train.device)))
    files: dict[str, Any] = {}
    if tests:  # in place of all validation files
        files = {name: () for name in vars(run.data) if name.startswith("valid_")}
        files |= {f"valid_{n.removeprefix('test_')}": tuple(paths) for n, paths in tests.items()}
    train = replace(run.train, judge_by="loss", bleu_sentences=0)  # `outputs` translates all
    run = replace(run, data=replace(run.data, **files), train=train)
    task: TrainingTask = training_of(run.task)
    corpus, _ = task.read_data(run)
    log = RunLog(folder, Callback())
    log.silence()
    return saved, task.setup(run, RunDir(folder), corpus, log)


def output_scores(outputs: Outputs, metric: Metric) -> dict[str, Score]:
    """Return the scores of outputs, with bootstrap intervals over the examples."""
    if not outputs.metric:
        return score_outputs(outputs.lines, outputs.references, metric)
    wrong, _ = error_rates(outputs.lines, outputs.references)
    low, high = (None if end is None else 1 - end / 100 for end in (wrong.high, wrong.low))
    share = mean(a == b for a, b in zip(outputs.lines, outputs.references, strict=True))
    return {outputs.metric: Score(outputs.metric, float(share), low, high, "")}


def run_cost(folder: Path) -> TrainingCost:
    """Return steps, tokens, time and measured FLOPs of a run; the last are kept in a file."""
    spent, path = time_and_tokens(folder), folder / FLOPS
    if not path.exists():
        saved, setup = load_run(folder)
        per_token = measured_flops_per_token(saved.model, setup.objective, setup.batches)
        write_json(path, {"flops_per_token": per_token})
    flops: Any = read_json(path, dict)["flops_per_token"]
    return replace(spent, flops_measured=float(flops) * spent.tokens)
