"""From what was asked to what will be done: who competes, on what, for how long, in which folder.

contest.json     what was agreed at the start: a comparison that goes on must agree with it
tokenizer/       learned once, used by everybody
data/            what was held out, if something had to be
budget.json      what a step of each system takes, and how many steps the budget allows
runs/NAME-SEED   a run each, as `polyhead train` makes them
results/, outputs/    what the examination found, and the translations
table.md, table.html, table.json
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyhead.checkpoint import atomic_dir as store
from polyhead.compare.budget import TimeBudget
from polyhead.compare.data import CompareData, prepare
from polyhead.compare.systems import HOME, Contest, System, choose, configuration
from polyhead.config import read, set_by_path
from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES
from polyhead.pipelines.evaluate import Metric
from polyhead.training.config import DEFAULT_RECIPE, LISTS, build, find_recipe
from polyhead.training.run_dir import fingerprint

AGREED, BUDGETS = "contest.json", "budget.json"
OTHER = {  # of what is not one thing
    "files": "other files", "test files": "other test files", "data": "other data",
    "changes": "other overrides",
}  # fmt: skip
TEN = "everybody is validated and saved ten times"
DECIDED = {  # overrides that would not count, and why
    "model.family": "it is what is compared; choose with --systems",
    "train.steps": "the budget decides; say --budget or --flops",
    "train.epochs": "the budget decides; say --budget or --flops",
    "train.seed": "seeds are 1, 2, …; say how many with --seeds",
    "train.validate_every": TEN, "train.save_every": TEN, "train.log_every": TEN, "train.keep": TEN,
}  # fmt: skip
SEEDS = "seeds"  # --ensemble seeds: of all seeds of each system


@dataclass(frozen=True)
class CompareRequest:
    """What was said."""

    contest: Contest
    folder: Path
    budget: TimeBudget
    recipe: str | None = None
    changes: tuple[str, ...] = ()
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    seeds: int = 1
    metric: Metric | None = None
    ensembles: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparePlan:
    """What will be done."""

    contest: Contest
    folder: Path
    budget: TimeBudget
    name: str  # of the data
    base: dict[str, Any]
    home: bool
    changes: tuple[str, ...]
    material: CompareData
    systems: tuple[System, ...]
    seeds: int
    metric: Metric
    ensembles: tuple[tuple[str, ...], ...] = ()  # of the best-known names; see `members`
    ensembles_of_seeds: bool = False

    def values(self, system: System) -> dict[str, Any]:
        """The configuration of a system before its steps are known."""
        return configuration(system, self.base, home=self.home, changes=self.changes)


def make_plan(asked: CompareRequest) -> ComparePlan:
    """Check everything that can be checked before hours are spent."""
    if asked.seeds < 1:
        raise ConfigError(f"--seeds {asked.seeds}: expected at least 1")
    own = any(asked.files.values())
    if asked.recipe is None and not own:
        raise ConfigError(
            "say what to compare on: a recipe such as multi30k-de-en, or your own text with "
            "--source FILE --target FILE"
        )
    systems = choose(asked.contest, asked.systems)
    teams = read_teams(asked, systems)
    base = read_recipe(asked.recipe or DEFAULT_RECIPE)
    refuse_others(asked.recipe, base)
    home = not own and base.get("data") == read(find_recipe(HOME)).get("data")
    if own:
        kept = {k: v for k, v in base.get("data", {}).items() if k not in (*LISTS, "corpus")}
        base["data"] = kept | {name: list(paths) for name, paths in asked.files.items() if paths}
    changes = change_material(base, asked.changes)
    for system in systems:  # a wrong name or type is found now
        check(system, configuration(system, base, home=home, changes=changes))
    refuse_foreign(asked.folder)
    forget_unbegun(asked.folder)
    material = prepare(base.get("data", {}), asked.tests, asked.folder / "data", own=own)
    metric = asked.metric or ("wer" if base.get("text", {}).get("jamo") else "bleu")
    plan = ComparePlan(
        asked.contest,
        asked.folder,
        asked.budget,
        Path(asked.recipe or "own text").stem,
        {**base, "data": material.data},
        home,
        changes,
        material,
        systems,
        asked.seeds,
        metric,
        tuple(team for team in teams if team != (SEEDS,)),
        (SEEDS,) in teams,
    )
    agree(plan, asked)
    return plan


def read_recipe(name: str) -> dict[str, Any]:
    """A recipe; who gave text instead of one is told how to give it."""
    try:
        return read(find_recipe(name))
    except ConfigError as error:
        if not Path(name).is_file() or Path(name).suffix == ".toml":
            raise
        raise ConfigError(
            f"{error}; if this is text to learn from, write --source {name} --target FILE"
        ) from None


def check(system: System, values: dict[str, Any]) -> None:
    """Say whose sizes and training an override does not fit; data and tokens are everybody's."""
    try:
        build(values)
    except ConfigError as error:
        if not str(error).startswith(("model.", "train.")):
            raise
        raise ConfigError(f"{system.name}: {error}") from None


def refuse_others(recipe: str | None, base: Mapping[str, Any]) -> None:
    """Only translators compete; a recipe for something else has nothing for them to learn from."""
    family = base.get("model", {}).get("family", "transformer")
    if family not in FAMILIES or FAMILIES[family].task != "translation":
        raise ConfigError(
            f"{recipe}: a recipe of the family {family}, which does not translate; compare on one "
            "such as multi30k-de-en, or on your own text with --source FILE --target FILE"
        )


def change_material(base: dict[str, Any], changes: Sequence[str]) -> tuple[str, ...]:
    """Make the changes that concern the material; return those that concern each system."""
    of_systems = []
    for change in changes:
        name = change.partition("=")[0].strip()
        if name in DECIDED:
            raise ConfigError(f"{name} cannot be set in a comparison: {DECIDED[name]}")
        if change.startswith(("data.", "text.", "decode.")):
            set_by_path(base, change)
        elif change.startswith(("model.", "train.")):
            of_systems.append(change)
        else:
            raise ConfigError(
                f"{change}: write an override as data.NAME=VALUE, or with text., model., train. or "
                "decode."
            )
    return tuple(of_systems)


def read_teams(asked: CompareRequest, systems: Sequence[System]) -> list[tuple[str, ...]]:
    """`seeds`, or names joined by +, each of which must compete."""
    names = [system.name for system in systems]
    teams = []
    for given in asked.ensembles:
        team = tuple(given.split("+"))
        if team == (SEEDS,):
            if asked.seeds < 2:
                raise ConfigError("--ensemble seeds: needs several, such as --seeds 3")
        elif len(set(team)) < len(team):
            raise ConfigError(
                f"--ensemble {given}: a system twice says the same twice; for several seeds of it "
                "write --seeds 3 --ensemble seeds"
            )
        elif len(team) < 2 or set(team) - set(names):
            raise ConfigError(
                f"--ensemble {given}: expected seeds, or at least two of the systems that compete "
                f"joined by +, such as {'+'.join(names[:2])}"
            )
        teams.append(team)
    return teams


def refuse_foreign(folder: Path) -> None:
    """A comparison gets a folder of its own."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / AGREED).is_file():
        raise ConfigError(f"{folder} holds other things than a comparison; choose another --run")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose another --run")


def forget_unbegun(folder: Path) -> None:
    """What was agreed before anything was trained, and then came to nothing, binds nobody."""
    if (folder / AGREED).is_file() and not (folder / BUDGETS).exists():
        with store.os_errors_as_polyhead_errors(folder):
            (folder / AGREED).unlink()
            for name in ("data", "tokenizer"):
                if (folder / name).is_dir():
                    shutil.rmtree(folder / name)


def agree(plan: ComparePlan, asked: CompareRequest) -> None:
    """Write down what was agreed, or make sure that this is the same comparison.

    Systems and seeds may be added later: what is finished is not done again.
    """
    now = {
        "contest": plan.contest.name,
        "budget": str(plan.budget),
        "recipe": asked.recipe,
        "files": {name: list(paths) for name, paths in asked.files.items() if paths},
        "test files": {name: list(paths) for name, paths in asked.tests.items() if paths},
        "data": {k: v for k, v in plan.base.items() if k in ("data", "text", "decode")},
        "changes": list(plan.changes),
        "metric": plan.metric,
        "test set": fingerprint([*plan.material.sources, *plan.material.references]),
    }
    now = json.loads(json.dumps(now))
    path = plan.folder / AGREED
    if not path.exists():
        with store.os_errors_as_polyhead_errors(path):
            plan.folder.mkdir(parents=True, exist_ok=True)
        store.write_text(path, json.dumps(now, ensure_ascii=False, indent=1) + "\n")
        return
    before = read_json(path)
    for name, value in now.items():
        if before.get(name) != value:
            shown = ""
            if name not in ("data", "test set"):
                shown = f" ({_told(before.get(name))}, not {_told(value)})"
            raise ConfigError(
                f"{plan.folder} was begun with {OTHER.get(name, f'another {name}')}{shown}; go on "
                "as it began, or choose another --run"
            )


def _told(value: Any) -> str:
    """A value of an agreement as it was written on the command line."""
    if isinstance(value, dict):
        options = [(name.replace("_", "-"), path) for name in value for path in value[name]]
        return _told([f"--{name} {path}" for name, path in options])
    return (" ".join(value) if isinstance(value, list) else value) or "none"


def read_json(path: Path) -> dict[str, Any]:
    """A file of ours; whatever is wrong with it is said in one line."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is damaged; remove it, and the same command makes it anew")
    return values
