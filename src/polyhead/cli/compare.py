"""`polyhead compare` and `polyhead ladder`: several systems under the same budget."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from polyhead.cli.options import (
    FileEncoding,
    Files,
    Language,
    Overrides,
    Pairs,
    as_strings,
    split_recipe,
)
from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from polyhead.compare.results import ComparisonTable, TableRow
    from polyhead.compare.systems import Contest

Recipe = Annotated[
    str | None,
    typer.Argument(help="Recipe whose data and tokenizer to use; omit with --source."),
]
Budget = Annotated[str | None, typer.Option(help="CPU time per system, e.g. 90s, 20m, 1h30m.")]
Flops = Annotated[str | None, typer.Option(help="Or training FLOPs per system, e.g. 5e14.")]
Systems = Annotated[
    str | None, typer.Option(help="Systems, e.g. transformer,convs2s (default: see --list).")
]
Seeds = Annotated[int, typer.Option(help="Number of runs per system, with different seeds.")]
Ensembles = Annotated[
    list[str] | None,
    typer.Option(help="Also score an ensemble: systems joined by +, or seeds; repeatable."),
]
Metric = Annotated[
    str | None,
    typer.Option(help="bleu; or wer: share of lines that are not exact, e.g. pronunciations."),
]
Run = Annotated[Path | None, typer.Option(help="Working directory (default: runs/COMMAND-RECIPE).")]
List = Annotated[bool, typer.Option("--list", help="List the systems and exit.")]


class WithoutEnsembles(TyperCommand):
    """A command without the option --ensemble."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all other options."""
        return [option for option in super().get_params(ctx) if option.name != "ensemble"]


def comparison_command(name: str, text: str) -> Callable[..., None]:
    """Return the command that runs the comparison of this name; all have the same options."""

    def command(
        recipe: Recipe = None,
        overrides: Overrides = None,
        budget: Budget = None,
        flops: Flops = None,
        systems: Systems = None,
        seeds: Seeds = 1,
        ensemble: Ensembles = None,
        metric: Metric = None,
        run: Run = None,
        source: Files = None,
        target: Files = None,
        pairs: Pairs = None,
        valid_source: Files = None,
        valid_target: Files = None,
        valid_pairs: Pairs = None,
        test_source: Files = None,
        test_target: Files = None,
        test_pairs: Pairs = None,
        encoding: FileEncoding = None,
        lang: Language = None,
        list_only: List = False,
    ) -> None:
        if list_only:
            return list_systems(name)
        files = as_strings({
            "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
            "valid_target": valid_target, "valid_pairs": valid_pairs,
        })  # fmt: skip
        tests = as_strings(
            {"test_source": test_source, "test_target": test_target, "test_pairs": test_pairs}
        )
        code = run_comparison(
            name, recipe=recipe, overrides=overrides, budget=budget, flops=flops, systems=systems,
            seeds=seeds, ensembles=ensemble, metric=metric, run=run, files=files, tests=tests,
            encoding=encoding, lang=lang,
        )  # fmt: skip
        raise typer.Exit(code)

    command.__doc__ = text
    return command


compare = comparison_command(
    "compare",
    """Train every system under the same budget and tabulate the results.

    The systems are those of Table 2 of Vaswani et al. 2017, on your data.

    polyhead compare multi30k-de-en --budget 20m
    polyhead compare multi30k-de-en --flops 5e14 --systems transformer,convs2s,gnmt --seeds 3
    polyhead compare --source train.ko --target train.en --budget 10m --run runs/mine-compared
    polyhead compare g2p-ko --budget 10m --metric wer
    """,
)
ladder = comparison_command(
    "ladder",
    """Compare seq2seq models from no attention to full attention, and the score functions.

    polyhead ladder multi30k-de-en --budget 10m
    polyhead ladder multi30k-de-en --budget 5m --systems none,dot,additive --seeds 3
    polyhead ladder --source train.ko --target train.en --budget 5m
    """,
)


def run_comparison(
    name: str, *, recipe: str | None, overrides: list[str] | None, budget: str | None,
    flops: str | None, systems: str | None, seeds: int, ensembles: list[str] | None,
    metric: str | None, run: Path | None, files: dict[str, list[str]],
    tests: dict[str, list[str]], encoding: str | None, lang: str | None,
) -> int:  # fmt: skip
    """Compare, print the table and return the exit code; an interrupted comparison is saved."""
    from polyhead.cli.console import TrainingScreen, counting, say
    from polyhead.compare.budget import read_budget
    from polyhead.compare.plan import CompareRequest
    from polyhead.compare.runner import Interrupted, compare_systems
    from polyhead.compare.systems import CONTESTS
    from polyhead.compare.table import best_row
    from polyhead.i18n import chosen_language
    from polyhead.pipelines.evaluation import Metric

    language = chosen_language(lang)
    if metric is not None and metric not in get_args(Metric):
        raise ConfigError(f"--metric {metric}: expected bleu or wer", "unknown_metric")
    recipe, changes, others = split_recipe(recipe, overrides)
    if recipe and others:
        raise unexpected_name(recipe, others[0])
    if encoding is not None:
        changes.append(f"data.encoding={encoding}")
    folder = run or Path("runs") / f"{name}-{Path(recipe).stem if recipe else 'own'}"
    request = CompareRequest(
        contest=CONTESTS[name],
        folder=folder,
        budget=read_budget(budget, flops),
        recipe=recipe,
        changes=tuple(changes),
        files=files,
        tests=tests,
        systems=split_names(systems, CONTESTS[name]),
        seeds=seeds,
        metric=metric,  # type: ignore[arg-type]
        ensembles=tuple(ensembles or ()),
    )
    try:
        outcome = compare_systems(
            request, language=language, reporter=TrainingScreen(), counting=counting
        )
    except Interrupted as stopped:
        say("Saved. Run the same command again to resume.")
        return 130 if stopped.signal == signal.SIGINT else 0
    except KeyboardInterrupt:  # outside of training, which handles the signal itself
        say("Interrupted; finished parts are saved. Run the same command again to resume.")
        return 130
    if sys.stdout.isatty():
        print_table(outcome.table, language)
    else:
        print(outcome.text, end="")
    say(f"written: {', '.join(str(path) for path in outcome.files)}")
    models = " ".join(map(str, model_dirs(best_row(outcome.table), folder)))
    say(f"Use the best with: polyhead translate {models}")
    return 0


def list_systems(name: str) -> None:
    """Print a line per system; those outside the default selection are marked."""
    from polyhead.compare.systems import CONTESTS

    for system in CONTESTS[name].systems:
        paper = f" ({system.paper})" if system.paper else ""
        optional = "" if system.name in CONTESTS[name].usual else "; only if named with --systems"
        print(f"{system.name:<22}{system.title}{paper}{optional}")


def split_names(systems: str | None, contest: "Contest") -> tuple[str, ...]:
    """Return the names between commas; none without the option, which means the default ones."""
    if systems is None:
        return ()
    names = tuple(name.strip() for name in systems.split(",") if name.strip())
    if not names:
        raise ConfigError(
            f"--systems {systems!r}: no systems named, e.g. {','.join(contest.usual[:2])} (see "
            "--list)",
            "unknown_system",
        )
    return names


def unexpected_name(recipe: str, other: str) -> ConfigError:
    """Return the error for a second argument that is no override."""
    if Path(recipe).is_file() and Path(other).is_file():
        return ConfigError(
            f"{recipe} {other}: not a recipe. For text write --source {recipe} --target {other}",
            "files_without_option",
        )
    return ConfigError(
        f"{other}: expected an override such as train.max_tokens=1000; {recipe} is the recipe",
        "unexpected_argument",
    )


def model_dirs(row: "TableRow", folder: Path) -> list[Path]:
    """Return the run directories behind a row: that of its first seed, or those of an ensemble."""
    return [folder / "runs" / run for run in row.members or [f"{row.system}-{row.seeds[0]}"]]


def print_table(table: "ComparisonTable", language: str) -> None:
    """Print the main columns of the table on a terminal, the best row in bold."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from polyhead.compare.table import best_row, brief, lead, warnings

    headings, *cells = brief(table, language)
    grid = Table(box=SIMPLE_HEAD)
    for number, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if number else "left", overflow="fold")
    best = best_row(table)
    for row, values in zip(table.rows, cells, strict=True):
        grid.add_row(*values, style="bold" if row is best else None)
    console = Console(highlight=False, markup=False)
    console.print(lead(table, language))
    console.print(grid)
    for warning in warnings(table, language):
        console.print(warning)
