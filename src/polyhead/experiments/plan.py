"""Plan of a comparison: systems, data, budget and directory.

contest.json     the plan: a comparison that is resumed must have the same
tokenizer/       of translators that are compared with one vocabulary
data/            held-out text of these, if the data has no test or validation set
budget.json      cost of a step of each system, and how many steps the budget allows
runs/NAME-SEED   run directories of `polyhead train`
results/, outputs/    scores, and outputs for every example
table.md, table.html, table.json
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from polyhead.atomic_file import os_errors_as_polyhead_errors
from polyhead.checkpoint.atomic_dir import DRAFT
from polyhead.config import read, set_by_path
from polyhead.cost.breakdown import count_parameters, step_memory
from polyhead.data.file_sums import fingerprint
from polyhead.devices import memory_size
from polyhead.errors import ConfigError
from polyhead.experiments.budget import Budget
from polyhead.experiments.corpus import PLAN, CompareData, prepare
from polyhead.experiments.results import read_json, write_json
from polyhead.experiments.systems import HOME, Contest, Scale, System, select_systems, system_values
from polyhead.models.registry import FAMILIES
from polyhead.pipelines.evaluation import Metric
from polyhead.training.config import DEFAULT_RECIPE, READ, build, find_recipe, with_files
from polyhead.training.run_dir import INPUTS

BUDGETS = "budget.json"
OTHERS = {  # plural names of differences
    "files": "other files", "test files": "other test files", "data": "other data",
    "changes": "other overrides",
}  # fmt: skip
TEN = "every system is validated and saved ten times"
FIXED = {  # overrides that would have no effect, and why
    "model.family": "systems are chosen with --systems",
    "train.steps": "use --budget or --steps",
    "train.epochs": "use --budget or --steps",
    "train.seed": "seeds are 1, 2, …; use --seeds",
    "train.validate_every": TEN, "train.save_every": TEN, "train.log_every": TEN, "train.keep": TEN,
}  # fmt: skip
SEEDS = "seeds"  # --ensemble seeds: of all seeds of each system


@dataclass(frozen=True)
class CompareRequest:
    """Options of a comparison."""

    contest: Contest
    folder: Path
    budget: Budget
    recipe: str | None = None
    changes: tuple[str, ...] = ()
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    seeds: int = 1
    metric: str | None = None
    ensembles: tuple[str, ...] = ()
    scale: Scale = "small"
    processes: int = 1  # that share the runs


@dataclass(frozen=True)
class ComparePlan:
    """A checked comparison, ready to run; `ensembles` has names and seeds of their members."""

    request: CompareRequest
    base: dict[str, Any]  # the recipe, with the data of the comparison
    home: bool  # its data are those that the systems' recipes were made for
    changes: tuple[str, ...]  # overrides of every system
    test: CompareData | None  # of translators; the runs of other plans read their data themselves
    systems: tuple[System, ...]
    metric: Metric  # of texts
    ensembles: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The comparison's directory."""
        return self.request.folder

    def run_folders(self, system: System, seed: int) -> list[Path]:
        """Return the run directories of all stages; only that of the last one has no number."""
        names = [
            f"{system.origin if stage.recipe and system.origin else system.name}-{seed}-stage-{n}"
            for n, stage in enumerate(system.stages[:-1], start=1)
        ]
        return [self.folder / "runs" / name for name in (*names, f"{system.name}-{seed}")]

    def stage(
        self, system: System, seed: int, number: int
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return values and overrides of a stage, without its steps.

        It starts from the stage before.
        """
        stage = system.stages[number]
        overrides: tuple[str, ...] = ()
        if self.test is not None:
            values = system_values(
                system, self.base, home=self.home, changes=self.changes, scale=self.request.scale
            )
            for change in stage.changes:
                set_by_path(values, change)
        else:
            files = self.request.files
            if stage.files:
                files = {name: paths for name, paths in files.items() if name in stage.files}
            values = with_files(read(find_recipe(stage.recipe or system.recipe)), files)
            overrides = stage.changes
            if not stage.recipe:
                overrides = (*system.changes, *overrides, *self.changes, *system.variation)
        train = values["train"] = {**values.get("train", {}), "seed": seed}
        if number:
            train["init"] = str(self.run_folders(system, seed)[number - 1])
        return values, overrides


def make_plan(request: CompareRequest) -> ComparePlan:
    """Check the options, prepare the data, and return the plan."""
    if request.seeds < 1:
        raise ConfigError(f"--seeds {request.seeds}: expected at least 1", "out_of_range")
    return (plan_translators if request.contest.translates else plan_variants)(request)


def plan_variants(request: CompareRequest) -> ComparePlan:
    """Check that every variant can be built, and that all are scored alike."""
    systems = select_systems(request.contest, request.systems)
    fixed = FIXED if request.budget.unit != "recipe" else {"train.seed": FIXED["train.seed"]}
    for change in (*request.changes, *(c for system in systems for c in system.variation)):
        check_not_fixed(change, fixed)
    plan = ComparePlan(request, {}, False, request.changes, None, systems, "bleu")
    tasks: dict[str, str] = {}
    for system in systems:
        for number in range(len(system.stages)):
            with named_errors(system.title):
                run = build(*plan.stage(system, 1, number))
        tasks.setdefault(run.task, system.title)
    if len(tasks) > 1:
        (task, name), (other_task, other), *_ = tasks.items()
        raise ConfigError(
            f"{name} is trained for {task}, {other} for {other_task}; expected one task",
            "several_tasks",
        )
    check_tests(request, run.task)
    plan = replace(plan, metric=text_metric(request, jamo=run.text.jamo))
    check_directory(request.folder)
    check_same_plan(plan)
    return plan


def check_tests(request: CompareRequest, task: str) -> None:
    """Refuse test files that the task does not read."""
    for name in (name for name, files in request.tests.items() if files):
        if task in READ and name.removeprefix("test_") not in READ[task].split():
            message = f"{name}: models for {task.replace('_', ' ')} do not read it. Leave it out."
            raise ConfigError(message, "wrong_data")


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Name the system in errors of its model or its training."""
    try:
        yield
    except ConfigError as error:
        if not str(error).startswith(("model", "train.", "data.", "text.", "decode.")):
            raise
        raise ConfigError(f"{name}: {error}", error.code) from None


def plan_translators(request: CompareRequest) -> ComparePlan:
    """Prepare the common data of systems that translate, and check that they can be built."""
    if request.metric not in (None, *get_args(Metric)):
        raise ConfigError(f"--metric {request.metric}: expected bleu or wer", "unknown_metric")
    check_tests(request, "translation")
    own = any(request.files.values())
    if request.recipe is None and not own:
        raise ConfigError(
            "no data to compare on: give a recipe such as multi30k-de-en, or your own text with "
            "--source FILE --target FILE",
            "no_data",
        )
    systems = select_systems(request.contest, request.systems)
    ensembles = read_ensembles(request, [system.name for system in systems])
    base = read_recipe(request.recipe or DEFAULT_RECIPE)
    home = not own and base.get("data") == read(find_recipe(HOME)).get("data")
    base = with_files(base, request.files)
    base.get("data", {}).pop("adapt", None)  # all systems have the same settings
    changes = apply_data_overrides(base, request.changes)
    for system in systems:
        with named_errors(system.name):
            values = system_values(system, base, home=home, changes=changes, scale=request.scale)
            run = build(values)
            if request.scale == "paper":
                check_training_memory(run.family, run.model)
    check_directory(request.folder)
    test = prepare(base.get("data", {}), request.tests, request.folder / "data", own=own)
    metric = text_metric(request, jamo=base.get("text", {}).get("jamo", False))
    base["data"] = test.data
    plan = ComparePlan(request, base, home, changes, test, systems, metric, ensembles)
    check_same_plan(plan)
    return plan


def check_training_memory(family: str, config: Any) -> None:
    """Refuse a model whose weights, gradients and moments do not fit into the memory."""
    n_parameters = sum(count_parameters(family, config).values())
    weights = step_memory(n_parameters, None, 0, 0)
    needed, memory = weights.parameters + weights.gradients + weights.moments, memory_size()
    if memory is not None and needed > memory:
        raise ConfigError(
            f"model: {n_parameters:,} parameters need {needed / 2**30:,.0f} GB to be trained, more "
            f"than this machine's {memory / 2**30:,.0f}. Leave it out of --systems.",
            "out_of_memory",
        )


def read_recipe(name: str) -> dict[str, Any]:
    """Read a recipe for translation; the error for a text file says how to give text."""
    try:
        base = read(find_recipe(name))
    except ConfigError as error:
        if not Path(name).is_file() or Path(name).suffix == ".toml":
            raise
        raise ConfigError(
            f"{error}. If this is training text, write --source {name} --target FILE.",
            "text_as_recipe",
        ) from None
    family = base.get("model", {}).get("family")
    if family in FAMILIES and FAMILIES[family].task != "translation":
        raise ConfigError(
            f"{name}: the family {family} does not translate. Use a recipe such as "
            "multi30k-de-en, or your own text with --source FILE --target FILE.",
            "not_translation",
        )
    return base


def check_not_fixed(change: str, fixed: Mapping[str, str]) -> None:
    """Refuse the override of a setting that the comparison itself sets."""
    name = change.partition("=")[0].strip()
    if name in fixed:
        raise ConfigError(
            f"{name} cannot be set in a comparison: {fixed[name]}", "fixed_in_comparison"
        )


def text_metric(request: CompareRequest, *, jamo: bool) -> Metric:
    """Return the metric of texts: as requested, or the share of wrong lines for pronunciations."""
    return "wer" if request.metric == "wer" or (request.metric is None and jamo) else "bleu"


def apply_data_overrides(base: dict[str, Any], changes: Sequence[str]) -> tuple[str, ...]:
    """Apply the overrides of data, text and decode; return those of the systems."""
    system_changes = []
    for change in changes:
        check_not_fixed(change, FIXED)
        if change.startswith(("data.", "text.", "decode.")):
            set_by_path(base, change)
        elif change.startswith(("model.", "train.")):
            system_changes.append(change)
        else:
            raise ConfigError(
                f"{change}: write an override as data.NAME=VALUE, or with text., model., train. or "
                "decode.",
                "invalid_override",
            )
    return tuple(system_changes)


def read_ensembles(
    request: CompareRequest, systems: Sequence[str]
) -> dict[str, list[tuple[str, int]]]:
    """Parse --ensemble: `seeds`, or names of compared systems, joined by +."""
    ensembles = {}
    if SEEDS in request.ensembles:
        seeds = range(1, request.seeds + 1)
        ensembles = {name: [(name, seed) for seed in seeds] for name in systems}
    for given in request.ensembles:
        members, problem = given.split("+"), ""
        if len(set(members)) < len(members):
            problem = " lists the same system twice. For several seeds of it write --seeds 3 "
            problem += "--ensemble seeds."
        elif given == SEEDS and request.seeds < 2:
            problem = ": needs several seeds, e.g. --seeds 3"
        elif given != SEEDS and (len(members) < 2 or set(members) - set(systems)):
            problem = ": expected seeds, or at least two compared systems joined by +, such as "
            problem += "+".join(systems[:2])
        if problem:
            raise ConfigError(f"--ensemble {given}{problem}", "invalid_ensemble")
        if given != SEEDS:
            ensembles[given] = [(name, 1) for name in members]
    return ensembles


def check_directory(folder: Path) -> None:
    """Raise ConfigError if the path is not a comparison's; delete a plan that never started."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Choose another --run.", "not_a_comparison")
    has_plan = (folder / PLAN).is_file()
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if not has_plan and not all(name == INPUTS or DRAFT.fullmatch(name) for name in names):
        raise ConfigError(
            f"{folder} is not a comparison's directory. Choose another --run.", "not_a_comparison"
        )
    if has_plan and not (folder / BUDGETS).exists():
        with os_errors_as_polyhead_errors(folder):
            for name in ("data", "tokenizer"):
                if (folder / name).is_dir():
                    shutil.rmtree(folder / name)
            (folder / PLAN).unlink()  # last: without it the directory would not be ours


def check_same_plan(plan: ComparePlan) -> None:
    """Write the plan, or raise ConfigError if it differs from the one that was started.

    Systems and seeds may be added later.
    """
    request = plan.request
    now = {
        "contest": request.contest.name,
        "budget": str(request.budget),
        "recipe": request.recipe,
        "files": {name: list(paths) for name, paths in request.files.items() if paths},
        "test files": {name: list(paths) for name, paths in request.tests.items() if paths},
        "data": {k: v for k, v in plan.base.items() if k in ("data", "text", "decode")},
        "changes": list(plan.changes),
        "metric": plan.metric,
    }
    if plan.test is not None:
        now["test set"] = fingerprint([*plan.test.sources, *plan.test.references])
    if request.scale != "small":  # not written by earlier versions
        now["scale"] = request.scale
    path = plan.folder / PLAN
    if not path.exists() or not read_json(path, dict):
        write_json(path, now)
    before = read_json(path, dict)
    written = json.loads(json.dumps(now))
    for name in {**before, **written}:
        value = written.get(name)
        if before.get(name) != value:
            shown = ""
            if name not in ("data", "test set"):
                shown = f" ({_as_options(before.get(name))}, not {_as_options(value)})"
            raise ConfigError(
                f"{plan.folder} was started with {OTHERS.get(name, f'another {name}')}{shown}. "
                "Use the original options to resume, or choose another --run.",
                "plan_changed",
            )


def _as_options(value: Any) -> str:
    """Return a value of the plan as it was written on the command line."""
    if isinstance(value, dict):
        options = [(name.replace("_", "-"), path) for name in value for path in value[name]]
        return _as_options([f"--{name} {path}" for name, path in options])
    return (" ".join(value) if isinstance(value, list) else value) or "none"
