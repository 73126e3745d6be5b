"""`polyhead recipes` and `polyhead show`."""

from polyhead.cli.options import Overrides, RecipeName
from polyhead.errors import ConfigError


def recipes() -> None:
    """List the recipes that come with polyhead."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from polyhead.training.config import read_run, recipe_names

    table = Table(box=None, show_header=False, pad_edge=False)
    for name in recipe_names():
        table.add_row(name, Text(read_run(name).description))
    Console(soft_wrap=True).print(table)


def show(recipe: RecipeName, overrides: Overrides = None) -> None:
    """Print the configuration of a recipe as a TOML file, with all defaults filled in.

    The name may also be a model family or a published size, such as bert-large: printed are its
    task, its number of parameters and its [model] table.

    polyhead show small > mine.toml
    polyhead show bert-large
    """
    from polyhead.models.registry import list_models
    from polyhead.training.config import read_run, recipe_names

    if recipe in list_models() and recipe not in recipe_names():
        if overrides:
            raise ConfigError(
                f"{recipe} is a model, not a recipe; overrides are for recipes", "not_a_recipe"
            )
        print(describe_model(recipe), end="")
    else:
        print(read_run(recipe, overrides or ()).toml(), end="")


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
