"""`polyhead recipes` and `polyhead show`."""

from pathlib import Path
from typing import Any

from polyhead.cli.options import Overrides, RecipeName, is_model_dir
from polyhead.errors import ConfigError


def recipes() -> None:
    """List the recipes that come with polyhead."""
    from polyhead.cli.console import print_definitions
    from polyhead.training.config import read_run, recipe_names

    runs = {name: read_run(name) for name in recipe_names()}
    for task in dict.fromkeys(run.task for run in runs.values()):
        rows = {name: run.description for name, run in runs.items() if run.task == task}
        print(f"{task.replace('_', ' ')}:")
        print_definitions(rows)


def show(recipe: RecipeName, overrides: Overrides = None) -> None:
    """Print the configuration of a recipe or a model as TOML.

    Comments say where it can be exported to.

    All defaults are filled in. The name may also be a model family or a published size, such as
    bert-large: printed are its task, its number of parameters and its [model] table. Of a model or
    run directory, its [model] table is printed.

    polyhead show small > mine.toml
    polyhead show bert-large
    polyhead show runs/mine
    """
    from polyhead.models.registry import list_models
    from polyhead.training.config import read_run, recipe_names

    is_dir = is_model_dir(Path(recipe))
    if recipe not in recipe_names() and (is_dir or recipe in list_models()):
        if overrides:
            raise ConfigError(
                f"{recipe} is a model, not a recipe; overrides are for recipes", "not_a_recipe"
            )
        print((describe_dir if is_dir else describe_model)(recipe), end="")
    else:
        run = read_run(recipe, overrides or ())
        print(describe_exports(run.family, run.model, run.text) + run.toml(), end="")


def describe_exports(family: str, config: object, text: Any) -> str:
    """Return comment lines with the targets of `polyhead export`, and obstacles to others."""
    from polyhead.convert.targets import reachable

    names, obstacles = reachable(family, config, text)
    targets = [f"hf ({name})" if target == "hf" else target for target, name in names.items()]
    lines = [f"export: {', '.join(targets) or 'none'}"]
    lines += [f"not {target}: {reason}" for target, reason in obstacles.items()]
    return "".join(f"# {line}\n" for line in lines)


def describe_dir(path: str) -> str:
    """Return export targets and the [model] table of a model directory as TOML."""
    from polyhead.checkpoint.model_dir import load_model
    from polyhead.config import plain, to_toml

    saved = load_model(Path(path))
    text = None if saved.tokenizers is None else saved.tokenizers.config
    table = {"model": {"family": saved.family, **plain(saved.config)}}
    return describe_exports(saved.family, saved.config, text) + to_toml(table)


def describe_model(name: str) -> str:
    """Return task, number of parameters and [model] table of a family or a preset as TOML."""
    import torch

    from polyhead.config import plain, to_toml
    from polyhead.models.registry import FAMILIES, create_model, find_config

    family, config = find_config(name)
    with torch.device("meta"):
        n_parameters = sum(weight.numel() for weight in create_model(name).parameters())
    size = f"# {name}: {FAMILIES[family].task}, {n_parameters:,} parameters\n"
    return size + to_toml({"model": {"family": family, **plain(config)}})
