"""`polyhead compare`: several systems under the same budget."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from typer import Argument, Exit, Option

from polyhead.cli.options import (
    FileEncoding,
    Files,
    Images,
    Labelled,
    Language,
    Overrides,
    Pairs,
    PlainText,
    as_strings,
    split_recipe,
)
from polyhead.cli.streams import counting, say
from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from polyhead.experiments.plan import CompareRequest
    from polyhead.experiments.results import ComparisonTable, TableRow
    from polyhead.experiments.systems import Contest, Scale

RECIPE_HELP = "Recipe; with --vary or several recipes, what is compared, else data and tokenizer."
SYSTEMS_HELP = "Systems, e.g. transformer,convs2s (default: see --list)."
ENSEMBLE_HELP = "Also score an ensemble: systems joined by +, or seeds; repeatable."
SCALE_HELP = "Sizes: small, as in the recipes for two cores; or paper, as published."
PROCESSES_HELP = "Processes on this machine; each trains and scores one run at a time."
METRIC_HELP = "Score that orders the rows, e.g. accuracy; of texts bleu, or wer: exact lines."
VARY_HELP = "Setting and values to compare: KEY=VALUE,VALUE, or recipe=NAME,NAME; repeatable."
BASELINE_HELP = "Variant or system to test against (default: the first)."
PLAN_HELP = "Plan: table2, ladder, pretraining, electra, images, or a TOML file."


def compare(
    recipe: str | None = Argument(None, help=RECIPE_HELP),
    overrides: Overrides = None,
    vary: list[str] | None = Option(None, help=VARY_HELP),
    plan: str | None = Option(None, help=PLAN_HELP),
    budget: str | None = Option(None, help="CPU time per system, e.g. 90s, 20m, 1h30m."),
    steps: int | None = Option(None, help="Or training steps per system."),
    systems: str | None = Option(None, help=SYSTEMS_HELP),
    seeds: int = Option(1, help="Number of runs per system, with different seeds."),
    baseline: str | None = Option(None, help=BASELINE_HELP),
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
    text: PlainText = None,
    valid_text: PlainText = None,
    test_text: PlainText = None,
    data: Labelled = None,
    valid_data: Labelled = None,
    test_data: Labelled = None,
    images: Images = None,
    valid_images: Images = None,
    test_images: Images = None,
    encoding: FileEncoding = None,
    lang: Language = None,
    processes: int = Option(1, min=1, help=PROCESSES_HELP),
    list_only: bool = Option(False, "--list", help="List the systems and exit."),
) -> None:
    """Train and tabulate variants under the same budget.

    With --vary all combinations of values of any settings, for any task; with --plan the systems
    of a plan; otherwise those of Table 2 of Vaswani et al. 2017, on your data.

    polyhead compare gpt-tiny --vary model.positions=rotary,learned --seeds 3 --budget 5m
    polyhead compare --vary recipe=vit-digits,resnet-digits --vary data.max_examples=99,800
    polyhead compare --plan pretraining --text mine.txt --data mine.tsv --budget 10m
    polyhead compare multi30k-de-en --budget 20m
    polyhead compare multi30k-de-en --steps 2000 --systems transformer,convs2s,gnmt --seeds 3
    polyhead compare --source train.ko --target train.en --budget 10m --run runs/mine-compared
    polyhead compare g2p-ko --budget 10m --metric wer
    polyhead compare multi30k-de-en --steps 2000 --seeds 2 --processes 2
    polyhead compare --list --scale paper
    """
    from polyhead.experiments.comparison import make_request
    from polyhead.experiments.variants import find_plan
    from polyhead.i18n import chosen_language

    if list_only:
        contest = find_plan(plan or "table2")
        list_systems(contest, check_scale(scale), chosen_language(lang))
        return
    names, changes = comparison_recipes(recipe, overrides, encoding)
    if plan is None and not (vary or len(names) > 1 or baseline):
        plan = "table2"
    files = {
        "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
        "valid_target": valid_target, "valid_pairs": valid_pairs, "text": text,
        "valid_text": valid_text, "data": data, "valid_data": valid_data, "images": images,
        "valid_images": valid_images, "test_source": test_source, "test_target": test_target,
        "test_pairs": test_pairs, "test_text": test_text, "test_data": test_data,
        "test_images": test_images,
    }  # fmt: skip
    request = make_request(
        names, vary=vary or (), plan=plan, budget=(budget, steps),
        systems=split_names(systems), seeds=seeds, baseline=baseline, metric=metric, run=run,
        overrides=changes, files=as_strings(files), ensembles=tuple(ensemble or ()),
        scale=check_scale(scale), processes=processes,
    )  # fmt: skip
    raise Exit(run_comparison(request, lang))


def check_scale(scale: str) -> "Scale":
    """Return the value of --scale."""
    from polyhead.experiments.systems import Scale

    for name in get_args(Scale):
        if scale == name:
            return name
    raise ConfigError(f"--scale {scale}: expected {' or '.join(get_args(Scale))}", "unknown_scale")


def list_systems(contest: "Contest", scale: "Scale", language: str) -> None:
    """Print every system with its sizes, its parameters and its deviations from its paper."""
    from polyhead.config import read
    from polyhead.cost.breakdown import count_parameters
    from polyhead.experiments.configuration import deviations, sizes_of
    from polyhead.experiments.systems import HOME, system_values
    from polyhead.experiments.table import in_words, listed, sized_title
    from polyhead.training.config import build, find_recipe

    if not contest.translates:
        for system in contest.systems:
            print(f"{system.name:<22}{system.title}")
        return
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
    from polyhead.config import read
    from polyhead.experiments.runner import compare_systems
    from polyhead.experiments.table import best_row
    from polyhead.experiments.worker_pool import Interrupted
    from polyhead.i18n import chosen_language
    from polyhead.models.registry import command_of
    from polyhead.training.display import TrainingScreen
    from polyhead.training.run_dir import CONFIG

    language = chosen_language(lang)
    try:
        outcome = compare_systems(
            request, language=language, reporter=TrainingScreen(), counting=counting
        )
    except Interrupted as stopped:
        say("Saved. Run the same command again to resume.")
        return 128 + stopped.signal
    except KeyboardInterrupt:  # outside of training, which handles the signal itself
        say("Interrupted; finished parts are saved. Run the same command again to resume.")
        return 130
    if sys.stdout.isatty():
        print_table(outcome.table, language)
    else:
        print(outcome.text, end="")
    say(f"written: {', '.join(str(path) for path in outcome.files)}")
    models = model_dirs(best_row(outcome.table), request.folder)
    family = read(models[0] / CONFIG)["model"]["family"]
    say(f"Use the best with: {command_of(family)} {' '.join(map(str, models))}")
    return 0


def split_names(systems: str | None) -> tuple[str, ...]:
    """Return the names between commas; none without the option, which means the default ones."""
    if systems is None:
        return ()
    names = tuple(name.strip() for name in systems.split(",") if name.strip())
    if not names:
        message = f"--systems {systems!r}: no systems named (see --list)"
        raise ConfigError(message, "unknown_system")
    return names


def comparison_recipes(
    recipe: str | None, overrides: list[str] | None, encoding: str | None
) -> tuple[list[str], tuple[str, ...]]:
    """Return the recipes and the changed values, or raise if these are text files."""
    recipe, changes, others = split_recipe(recipe, overrides)
    if recipe and others and Path(recipe).is_file() and Path(others[0]).is_file():
        raise ConfigError(
            f"{recipe} {others[0]}: not a recipe. For text write --source {recipe} --target "
            f"{others[0]}",
            "files_without_option",
        )
    recipes = [recipe, *others] if recipe else []
    return recipes, (*changes, *([] if encoding is None else [f"data.encoding={encoding}"]))


def model_dirs(row: "TableRow", folder: Path) -> list[Path]:
    """Return the run directories behind a row: that of its first seed, or those of an ensemble."""
    return [folder / "runs" / run for run in row.members or [f"{row.system}-{row.seeds[0]}"]]


def print_table(table: "ComparisonTable", language: str) -> None:
    """Print the main columns of the table on a terminal, the best row in bold."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    from polyhead.experiments.table import best_row, brief, lead, remarks

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
