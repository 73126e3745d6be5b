"""`polyhead runs`: the runs below a directory, without loading torch."""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

SORT_HELP = "Column, or setting such as train.schedule.rate; -score for the largest first."
FILTER_HELP = "Condition, e.g. state!=finished or model.stack.n_layers>=4; repeatable."
WIDE, NOT_NARROW = 140, ("task", "time", "date")  # columns of a terminal, and what needs them
FORMATS = ("table", "csv", "json", "html")


def runs(
    folder: Path = Argument(Path("runs"), help="Directory with runs, at any depth."),
    sort: str = Option("path", help=SORT_HELP),
    condition: list[str] | None = Option(None, "--filter", help=FILTER_HELP),
    compare: tuple[Path, Path] | None = Option(
        None, metavar="A B", help="Show settings and scores in which two runs differ."
    ),
    form: str = Option("table", "--format", help="Output: table, csv, json or html."),
) -> None:
    """List runs: task, size, steps, best score, time and state.

    polyhead runs
    polyhead runs runs/sweep --sort -score --filter task=translation --filter state=finished
    polyhead runs --filter 'model.stack.n_layers>=4' --format csv > runs.csv
    polyhead runs --compare runs/a runs/b
    """
    from polyhead.experiments.run_list import COLUMNS, compare_runs, html_page, list_runs

    if form not in FORMATS:
        raise ConfigError(f"--format {form}: expected {', '.join(FORMATS)}", "unknown_format")
    if compare is not None:
        rows: Sequence[Sequence[str]] = compare_runs(*compare)
    else:
        listed = list_runs(folder, sort=sort, filters=condition or ())
        rows = [COLUMNS, *(tuple(run.cells(folder).values()) for run in listed)]
        if form in ("csv", "json"):
            print(listed.csv() if form == "csv" else listed.json(), end="")
            return
    if form == "html":
        print(html_page(rows), end="")
    elif form == "table":
        print_rows(rows)
    else:
        raise ConfigError("--compare: expected --format table or html", "unknown_format")


def print_rows(rows: "Sequence[Sequence[str]]") -> None:
    """Print a table, the first row of which has the headings."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    head, *body = rows
    if not body:
        print("no runs" if head[0] else "no differences")
        return
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    kept = [n for n, name in enumerate(head) if console.width >= WIDE or name not in NOT_NARROW]
    columns = [Column(head[n], overflow="fold", no_wrap=n > 0 and len(head) > 3) for n in kept]
    grid = Table(*columns, box=SIMPLE_HEAD)
    for row in body:
        grid.add_row(*(row[n] for n in kept))
    console.print(grid)
