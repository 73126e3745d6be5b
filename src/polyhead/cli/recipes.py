"""`polyhead recipes` and `polyhead show`."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polyhead.training.config import read_run, recipe_names


def list_recipes() -> None:
    """Names and descriptions."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in recipe_names():
        table.add_row(name, Text(read_run(name).description))
    Console(soft_wrap=True).print(table)


def show_recipe(recipe: str, overrides: tuple[str, ...]) -> None:
    """Every value, the defaults filled in."""
    print(read_run(recipe, overrides).toml(), end="")
