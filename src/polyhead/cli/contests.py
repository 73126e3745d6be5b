"""`polyhead compare` and `polyhead ladder`: the work behind the commands."""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from polyhead.api.comparing.budget import read_budget
from polyhead.api.comparing.contest import compete
from polyhead.api.comparing.planning import Asked
from polyhead.api.comparing.running import Interrupted
from polyhead.api.comparing.systems import CONTESTS
from polyhead.api.evaluation import Metric
from polyhead.cli.screen import TrainingScreen, say
from polyhead.cli.verifying import chosen_language
from polyhead.errors import ConfigError


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
    list_only: bool = False


def run_contest(words: ContestWords) -> int:
    """Compare, print the table, and say where it is. 130 after Ctrl-C; everything is saved."""
    contest = CONTESTS[words.contest]
    if words.list_only:
        for system in contest.systems:
            print(f"{system.name:<22}{system.title}{f' ({system.paper})' if system.paper else ''}")
        return 0
    language = chosen_language(words.lang)
    if words.metric is not None and words.metric not in get_args(Metric):
        raise ConfigError(f"--metric {words.metric}: expected bleu or wer")
    recipe, overrides = words.recipe, words.overrides
    if recipe is not None and "=" in recipe:  # own files need no recipe
        overrides = (recipe, *overrides)
        recipe = None
    stem = Path(recipe).stem if recipe else "own"
    asked = Asked(
        contest,
        words.run or Path("runs") / f"{words.contest}-{stem}",
        read_budget(words.budget, words.flops),
        recipe,
        overrides,
        words.files,
        words.tests,
        tuple(name.strip() for name in (words.systems or "").split(",") if name.strip()),
        words.seeds,
        words.metric,  # type: ignore[arg-type]
        words.ensembles,
    )
    try:
        found = compete(asked, language=language, watcher=TrainingScreen())
    except Interrupted as stopped:
        say("saved; the same command goes on from there")
        return 130 if stopped.signal == signal.SIGINT else 0
    print(found.text, end="")
    say(f"written: {', '.join(str(path) for path in found.files)}")
    return 0
