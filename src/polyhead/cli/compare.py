"""`polyhead compare` and `polyhead ladder`: several systems under the same budget."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from typer import Argument, Exit, Option
from typer.core import TyperCommand

from polyhead.cli.options import (
    FileEncoding,
    Files,
    Language,
    Overrides,
    Pairs,
    as_strings,
    check_metric,
    split_recipe,
)
from polyhead.cli.streams import counting, say
from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from polyhead.compare.plan import CompareRequest
    from polyhead.compare.results import ComparisonTable, TableRow
    from polyhead.compare.systems import Contest, Scale

RECIPE_HELP = "Recipe whose data and tokenizer to use; omit with --source."
SYSTEMS_HELP = "Systems, e.g. transformer,convs2s (default: see --list)."
ENSEMBLE_HELP = "Also score an ensemble: systems joined by +, or seeds; repeatable."
SCALE_HELP = "Sizes: small, as in the recipes for two cores; or paper, as published."
PROCESSES_HELP = "Processes on this machine; each trains and scores one run at a time."
METRIC_HELP = "bleu; or wer: share of lines that are not exact, e.g. pronunciations."


class LadderCommand(TyperCommand):
    """A command without the options that only Table 2 has: --ensemble and --scale."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all other options."""
        params = super().get_params(ctx)
        return [option for option in params if option.name not in ("ensemble", "scale")]


def comparison_command(name: str, text: str) -> Callable[..., None]:
    """Return the command that runs the comparison of this name; all have the same options."""

    def command(
        recipe: str | None = Argument(None, help=RECIPE_HELP),
        overrides: Overrides = None,
        budget: str | None = Option(None, help="CPU time per system, e.g. 90s, 20m, 1h30m."),
        flops: str | None = Option(None, help="Or training FLOPs per system, e.g. 5e14."),
        systems: str | None = Option(None, help=SYSTEMS_HELP),
        seeds: int = Option(1, help="Number of runs per system, with different seeds."),
        ensemble: list[str] | None = Option(None, help=ENSEMBLE_HELP),
        scale: str = Option("small", help=SCALE_HELP),
        metric: str | None = Option(None, help=METRIC_HELP),
        run: Path | None = Option(None, help="Working directory (default: runs/COMMAND-RECIPE)."),
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
        processes: int = Option(1, min=1, help=PROCESSES_HELP),
        list_only: bool = Option(False, "--list", help="List the systems and exit."),
    ) -> None:
        from polyhead.compare.budget import read_budget
        from polyhead.compare.plan import CompareRequest
        from polyhead.compare.systems import CONTESTS
        from polyhead.i18n import chosen_language

        contest = CONTESTS[name]
        if list_only:
            list_systems(contest, check_scale(scale), chosen_language(lang))
            return
        recipe, changes = comparison_recipe(recipe, overrides, encoding)
        files = as_strings({
            "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
            "valid_target": valid_target, "valid_pairs": valid_pairs,
        })  # fmt: skip
        tests = {"test_source": test_source, "test_target": test_target, "test_pairs": test_pairs}
        request = CompareRequest(
            contest, run or Path("runs") / f"{name}-{Path(recipe).stem if recipe else 'own'}",
            read_budget(budget, flops), recipe=recipe, changes=changes, files=files,
            tests=as_strings(tests), systems=split_names(systems, contest), seeds=seeds,
            metric=None if metric is None else check_metric(metric),
            ensembles=tuple(ensemble or ()), scale=check_scale(scale), processes=processes,
        )  # fmt: skip
        raise Exit(run_comparison(request, lang))

    command.__doc__ = text
    return command


compare = comparison_command(
    "compare",
    """Train and tabulate systems under the same budget.

    The systems are those of Table 2 of Vaswani et al. 2017, on your data.

    polyhead compare multi30k-de-en --budget 20m
    polyhead compare multi30k-de-en --flops 5e14 --systems transformer,convs2s,gnmt --seeds 3
    polyhead compare --source train.ko --target train.en --budget 10m --run runs/mine-compared
    polyhead compare g2p-ko --budget 10m --metric wer
    polyhead compare multi30k-de-en --flops 5e14 --seeds 2 --processes 2
    polyhead compare --list --scale paper
    """,
)
ladder = comparison_command(
    "ladder",
    """Compare seq2seq models from no attention to full attention.

    Also the score functions of attention.

    polyhead ladder multi30k-de-en --budget 10m
    polyhead ladder multi30k-de-en --budget 5m --systems none,dot,additive --seeds 3
    polyhead ladder --source train.ko --target train.en --budget 5m
    """,
)


def check_scale(scale: str) -> "Scale":
    """Return the value of --scale."""
    from polyhead.compare.systems import Scale

    for name in get_args(Scale):
        if scale == name:
            return name
    raise ConfigError(f"--scale {scale}: expected {' or '.join(get_args(Scale))}", "unknown_scale")


def list_systems(contest: "Contest", scale: "Scale", language: str) -> None:
    """Print every system with its sizes, its parameters and its deviations from its paper."""
    from polyhead.compare.configuration import deviations, sizes_of
    from polyhead.compare.systems import HOME, system_values
    from polyhead.compare.table import in_words, listed, sized_title
    from polyhead.config import read
    from polyhead.cost.breakdown import count_parameters
    from polyhead.training.config import build, find_recipe

    base = read(find_recipe(HOME))
    for system in contest.systems:
        run = build(system_values(system, base, home=True, scale=scale), any_size=True)
        sizes = sizes_of(run.model) if system.preset else None
        title = sized_title(system.title_at(scale), sizes, language)
        paper = f" ({system.paper})" if system.paper else ""
        optional = "" if system.name in contest.usual else "; only if named with --systems"
        print(f"{system.name:<22}{title}{paper}{optional}")
        if system.preset:
            n_parameters = sum(count_parameters(run.family, run.model).values())
            text = in_words("list entry", language).format(
                n=f"{n_parameters / 1e6:,.1f}",
                preset=system.preset,
                list=listed(deviations(system, run)),
            )
            print(f"{'':<22}{text}")


def run_comparison(request: "CompareRequest", lang: str | None) -> int:
    """Compare, print the table and return the exit code; an interrupted comparison is saved."""
    from polyhead.compare.runner import compare_systems
    from polyhead.compare.table import best_row
    from polyhead.compare.worker_pool import Interrupted
    from polyhead.i18n import chosen_language
    from polyhead.training.display import TrainingScreen

    language = chosen_language(lang)
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
    models = model_dirs(best_row(outcome.table), request.folder)
    say(f"Use the best with: polyhead translate {' '.join(map(str, models))}")
    return 0


def split_names(systems: str | None, contest: "Contest") -> tuple[str, ...]:
    """Return the names between commas; none without the option, which means the default ones."""
    if systems is None:
        return ()
    names = tuple(name.strip() for name in systems.split(",") if name.strip())
    if not names:
        example = ",".join(contest.usual[:2])
        message = f"--systems {systems!r}: no systems named, e.g. {example} (see --list)"
        raise ConfigError(message, "unknown_system")
    return names


def comparison_recipe(
    recipe: str | None, overrides: list[str] | None, encoding: str | None
) -> tuple[str | None, tuple[str, ...]]:
    """Return the recipe and the changed values, or raise if there is another name."""
    recipe, changes, others = split_recipe(recipe, overrides)
    if recipe and others and Path(recipe).is_file() and Path(others[0]).is_file():
        raise ConfigError(
            f"{recipe} {others[0]}: not a recipe. For text write --source {recipe} --target "
            f"{others[0]}",
            "files_without_option",
        )
    if recipe and others:
        raise ConfigError(
            f"{others[0]}: expected an override such as train.max_tokens=1000; {recipe} is the "
            "recipe",
            "unexpected_argument",
        )
    return recipe, (*changes, *([] if encoding is None else [f"data.encoding={encoding}"]))


def model_dirs(row: "TableRow", folder: Path) -> list[Path]:
    """Return the run directories behind a row: that of its first seed, or those of an ensemble."""
    return [folder / "runs" / run for run in row.members or [f"{row.system}-{row.seeds[0]}"]]


def print_table(table: "ComparisonTable", language: str) -> None:
    """Print the main columns of the table on a terminal, the best row in bold."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    from polyhead.compare.table import best_row, brief, lead, remarks

    (first, *headings), *cells = brief(table, language)
    columns = [Column(heading, justify="right", overflow="fold") for heading in headings]
    grid = Table(Column(first, overflow="fold"), *columns, box=SIMPLE_HEAD)
    best = best_row(table)
    for row, values in zip(table.rows, cells, strict=True):
        grid.add_row(*values, style="bold" if row is best else None)
    console = Console(highlight=False, markup=False)
    console.print(lead(table, language))
    console.print(grid)
    for remark in remarks(table, language):
        console.print(remark)
