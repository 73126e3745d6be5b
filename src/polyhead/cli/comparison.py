"""`polyhead compare` and `polyhead ladder`: the work behind the commands."""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from polyhead.cli.console import TrainingScreen, counting, say
from polyhead.compare.budget import read_budget
from polyhead.compare.plan import CompareRequest
from polyhead.compare.results import ComparisonTable, TableRow
from polyhead.compare.runner import Interrupted, compare_systems
from polyhead.compare.systems import CONTESTS, Contest
from polyhead.compare.table import best_row, brief, lead, warnings
from polyhead.errors import ConfigError
from polyhead.i18n import chosen_language
from polyhead.pipelines.evaluation import Metric


@dataclass(frozen=True)
class ContestWords:
    """What was said on the command line."""

    contest: str
    recipe: str | None
    overrides: tuple[str, ...]
    budget: str | None
    flops: str | None
    systems: str | None
    seeds: int
    ensembles: tuple[str, ...]
    metric: str | None
    run: Path | None
    files: dict[str, list[str]]
    tests: dict[str, list[str]]
    lang: str | None
    encoding: str | None = None
    list_only: bool = False


def run_contest(words: ContestWords) -> int:
    """Compare, print the table, and say where it is. 130 after Ctrl-C; everything is saved."""
    contest = CONTESTS[words.contest]
    if words.list_only:
        print("\n".join(listed(contest)))
        return 0
    language = chosen_language(words.lang)
    if words.metric is not None and words.metric not in get_args(Metric):
        raise ConfigError(f"--metric {words.metric}: expected bleu or wer")
    recipe, overrides = told_apart(words)
    stem = Path(recipe).stem if recipe else "own"
    asked = CompareRequest(
        contest,
        words.run or Path("runs") / f"{words.contest}-{stem}",
        read_budget(words.budget, words.flops),
        recipe,
        overrides,
        words.files,
        words.tests,
        named(words.systems, contest),
        words.seeds,
        words.metric,  # type: ignore[arg-type]
        words.ensembles,
    )
    try:
        found = compare_systems(
            asked, language=language, reporter=TrainingScreen(), counting=counting
        )
    except Interrupted as stopped:
        say("saved; the same command goes on from there")
        return 130 if stopped.signal == signal.SIGINT else 0
    except KeyboardInterrupt:  # not while training, which ends by itself
        say("stopped; what is finished is saved, and the same command goes on from there")
        return 130
    if sys.stdout.isatty():
        show(found.table, language)
    else:
        print(found.text, end="")
    say(f"written: {', '.join(str(path) for path in found.files)}")
    models = " ".join(map(str, models_of(best_row(found.table), asked.folder)))
    say(f"the best can be used with: polyhead translate {models}")
    return 0


def listed(contest: Contest) -> list[str]:
    """A line a system; those that take part only if they are named say so."""
    lines = []
    for system in contest.systems:
        paper = f" ({system.paper})" if system.paper else ""
        absent = "" if system.name in contest.usual else "; only if named with --systems"
        lines.append(f"{system.name:<22}{system.title}{paper}{absent}")
    return lines


def named(systems: str | None, contest: Contest) -> tuple[str, ...]:
    """Names between commas; none without the option, which means the usual ones."""
    if systems is None:
        return ()
    names = tuple(name.strip() for name in systems.split(",") if name.strip())
    if not names:
        raise ConfigError(
            f"--systems {systems!r}: names nobody; write some, such as "
            f"{','.join(contest.usual[:2])}, or leave it out for the usual ones (--list)"
        )
    return names


def told_apart(words: ContestWords) -> tuple[str | None, tuple[str, ...]]:
    """The recipe, if there is one, and the overrides, in whichever order they came."""
    given = [*([] if words.recipe is None else [words.recipe]), *words.overrides]
    recipes = [word for word in given if "=" not in word]
    if len(recipes) > 1:
        if all(Path(word).is_file() for word in recipes):
            raise ConfigError(
                f"{' '.join(recipes)}: files without an option; if they are text to learn from, "
                f"write --source {recipes[0]} --target {recipes[1]}"
            )
        raise ConfigError(
            f"{recipes[1]}: neither a second recipe ({recipes[0]} is the first) nor an override, "
            "which has a name and a value: train.max_tokens=1000"
        )
    overrides = [word for word in given if "=" in word]
    if words.encoding is not None:
        overrides.append(f"data.encoding={words.encoding}")
    return next(iter(recipes), None), tuple(overrides)


def models_of(row: TableRow, folder: Path) -> list[Path]:
    """The folders of the models behind a row: its first seed's, or those of an ensemble."""
    return [folder / "runs" / name for name in row.runs]


def show(table: ComparisonTable, language: str) -> None:
    """The table as a terminal can hold it: what matters most, the best in bold."""
    heads, *rows = brief(table, language)
    shown = Table(box=SIMPLE_HEAD)
    for number, head in enumerate(heads):
        shown.add_column(head, justify="right" if number else "left", overflow="fold")
    top = best_row(table)
    for one, row in zip(table.rows, rows, strict=True):
        shown.add_row(*row, style="bold" if one is top else None)
    screen = Console(highlight=False, markup=False)
    screen.print(lead(table, language))
    screen.print(shown)
    for warning in warnings(table, language):
        screen.print(warning)
