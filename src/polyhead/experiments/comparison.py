"""`polyhead.compare`: comparisons in one call, from Python and from the command line."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from polyhead.config import suggest
from polyhead.data.memory import OPTIONS, split_data
from polyhead.errors import ConfigError
from polyhead.experiments.budget import read_budget
from polyhead.experiments.plan import CompareRequest, check_directory
from polyhead.experiments.runner import ComparisonOutcome, compare_systems
from polyhead.experiments.systems import Scale, select_systems
from polyhead.experiments.variants import expand, find_plan, plan_of_recipes, read_vary
from polyhead.training.callbacks import Callback
from polyhead.training.config import DEFAULT_RECIPE, RunConfig, fitting_recipe, read_run
from polyhead.training.entry import Overrides, as_overrides
from polyhead.training.run_dir import INPUTS


def compare(  # noqa: PLR0913 (one keyword per option, as on the command line)
    *recipes: str,
    vary: Mapping[str, Iterable[object]] | None = None,
    plan: str | None = None,
    budget: str | None = None,
    steps: int | None = None,
    seeds: int = 1,
    baseline: str | None = None,
    metric: str | None = None,
    run: str | Path | None = None,
    files: Mapping[str, object] | None = None,
    overrides: Overrides = (),
    processes: int = 1,
    reporter: Callback | None = None,
) -> ComparisonOutcome:
    """Train all combinations of varied settings alike, and return the table of their scores.

        polyhead.compare("gpt-tiny", vary={"model.positions": ["rotary", "learned"]}, seeds=3,
                         budget="5m")
        polyhead.compare(plan="pretraining", files={"text": "a.txt", "data": "a.tsv"}, steps=500)

    recipes: one to vary, or several to compare with each other.
    vary: values by setting; a plan has its own.
    plan: the name of a plan or the path of its TOML file, instead of recipes.
    budget, steps: CPU time of each run such as "5m", or its steps; the recipe's if neither.
    seeds: runs of each variant. baseline: the variant to test against, the first unless given.
    metric: the score that orders the rows.
    run: working directory; a comparison that was interrupted resumes in the same one.
    files: data of one's own by the names of the command line: source, target, pairs, text, data,
        images, the same with valid_ and with test_; files or examples in memory, as for
        `polyhead.train`. Those in memory are written to RUN/inputs.
    overrides: such as {"train.max_tokens": 500}, or strings.
    """
    changes, given = tuple(as_overrides(overrides)), files or {}
    varied = [f"{key}={','.join(map(_as_toml, values))}" for key, values in (vary or {}).items()]
    request = make_request(
        recipes, vary=varied, plan=plan, budget=(budget, steps), seeds=seeds,
        baseline=baseline, metric=metric, run=None if run is None else Path(run),
        overrides=changes, processes=processes, files={name: [name] for name in given},
    )  # fmt: skip
    contest = request.contest
    recipe = request.recipe if contest.translates else contest.systems[0].recipe
    options, tests = (
        read_data(given, kind, request.folder, lambda: read_run(recipe, changes))
        for kind in ("valid_", "test_")
    )
    return compare_systems(replace(request, files=options, tests=tests), reporter=reporter)


def read_data(
    given: Mapping[str, object], kind: str, folder: Path, read_config: Callable[[], RunConfig]
) -> dict[str, list[str]]:
    """Return the test files, or all others, by option of [data].

    Examples in memory are written into the directory of the comparison.
    """
    data = {}
    for name, value in given.items():
        option = name.replace("test_", "valid_")
        if option not in OPTIONS:
            raise ConfigError(f"files: no such data {name}{suggest(name, OPTIONS)}", "unknown_key")
        if name.startswith("test_") == (kind == "test_"):
            data[option] = value
    files, memory = split_data(data, folder / INPUTS)
    if memory is not None:
        check_directory(folder)
        config = read_config()
        files |= memory.write(folder / INPUTS, config.data, config.task, config.model)
    return {name.replace("valid_", kind): paths for name, paths in files.items()}


def _as_toml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def make_request(  # noqa: PLR0913 (the options of the command line)
    recipes: Sequence[str],
    *,
    vary: Sequence[str] = (),
    plan: str | None = None,
    budget: tuple[str | None, int | None] = (None, None),
    systems: tuple[str, ...] = (),
    seeds: int = 1,
    baseline: str | None = None,
    metric: str | None = None,
    run: Path | None = None,
    overrides: tuple[str, ...] = (),
    files: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ensembles: tuple[str, ...] = (),
    scale: Scale = "small",
    processes: int = 1,
) -> CompareRequest:
    """Return the comparison that these options describe."""
    options = {name.replace("data", "labelled"): list(paths) for name, paths in files.items()}
    tests = {name: options.pop(name) for name in list(options) if name.startswith("test_")}
    varied = read_vary(vary)
    recipes = [*recipes, *varied.pop("recipe", ())]
    if plan is not None:
        contest = find_plan(plan)
    else:
        contest = plan_of_recipes(recipes or [fitting_recipe(None, options) or DEFAULT_RECIPE])
    if contest.translates:
        if varied or len(recipes) > 1 or baseline:
            raise ConfigError(
                "these systems are compared as they are. Compare recipes or settings with "
                "polyhead compare RECIPE --vary KEY=VALUE,VALUE",
                "fixed_systems",
            )
        recipe = recipes[0] if recipes else None
        name = f"{contest.name}-{Path(recipe).stem if recipe else 'own'}"
    else:
        if plan is not None and recipes:
            raise ConfigError(f"{recipes[0]}: the plan has recipes of its own", "unexpected_recipe")
        if ensembles or scale != "small":
            message = "--ensemble and --scale have no effect but on systems that translate"
            raise ConfigError(message, "no_effect")
        chosen = replace(contest, systems=select_systems(contest, systems))
        contest = expand(chosen, varied or read_vary(contest.vary), baseline)
        recipe, systems, name = None, (), f"compare-{contest.name}"
    return CompareRequest(
        contest, run or Path("runs") / name,
        read_budget(*budget, is_optional=not contest.translates), recipe=recipe, changes=overrides,
        files=options, tests=tests, systems=systems, seeds=seeds, metric=metric,
        ensembles=ensembles, scale=scale, processes=processes,
    )  # fmt: skip
