"""The commands that let systems compete: compare and ladder.

The imports stand inside the commands, because `--help` must answer before torch could be loaded.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from polyhead.cli.options import Files, app

Recipe = Annotated[
    str | None, typer.Argument(help="A recipe, for its data and tokens; none with --source.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Changes for everybody: train.max_tokens=1000.", metavar="[KEY=VALUE]..."),
]
Time = Annotated[
    str | None, typer.Option(help="Processors' time of training, each: 90s, 20m, 1h30m.")
]
Flops = Annotated[str | None, typer.Option(help="Or FLOPs of training, each: 5e14.")]
Systems = Annotated[str | None, typer.Option(help="Some of them: transformer,convs2s; see --list.")]
Seeds = Annotated[int, typer.Option(help="Train each so many times.")]
Teams = Annotated[list[str] | None, typer.Option(help="seeds, or systems joined by +; repeatable.")]
Metric = Annotated[
    str | None, typer.Option(help="bleu, or wer: lines not exactly right, as for pronunciations.")
]
Folder = Annotated[
    Path | None, typer.Option(help="Where to work; runs/COMMAND-RECIPE unless given.")
]
PairFiles = Annotated[
    list[Path] | None, typer.Option(help="TSV or JSON lines with both sides; repeatable.")
]
Encoding = Annotated[str | None, typer.Option(help="Of all files, such as cp949.")]
Language = Annotated[str | None, typer.Option(help="ko or en; the terminal's unless given.")]
Listing = Annotated[bool, typer.Option("--list", help="Show the systems and leave.")]

COMPARE = """
The paper's Table 2 on your data: train every system alike, and set them out in a table.

polyhead compare multi30k-de-en --budget 20m
polyhead compare multi30k-de-en --flops 5e14 --systems transformer,convs2s,gnmt --seeds 3
polyhead compare --source train.ko --target train.en --budget 10m --run runs/mine-compared
polyhead compare g2p-ko --budget 10m --metric wer
"""
LADDER = """
From a sentence as one vector to attention: every rung, and every score function, alike.

polyhead ladder multi30k-de-en --budget 10m
polyhead ladder multi30k-de-en --budget 5m --systems none,dot,additive --seeds 3
polyhead ladder --source train.ko --target train.en --budget 5m
"""


class WithoutTeams(TyperCommand):
    """A command whose systems compete one by one: it has no --ensemble."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All options but that one."""
        return [option for option in super().get_params(ctx) if option.name != "ensemble"]


def command(name: str) -> Callable[..., None]:
    """A command that runs the contest of this name; the options of all contests are the same."""

    def contest(
        recipe: Recipe = None,
        overrides: Overrides = None,
        budget: Time = None,
        flops: Flops = None,
        systems: Systems = None,
        seeds: Seeds = 1,
        ensemble: Teams = None,
        metric: Metric = None,
        run: Folder = None,
        source: Files = None,
        target: Files = None,
        pairs: PairFiles = None,
        valid_source: Files = None,
        valid_target: Files = None,
        valid_pairs: PairFiles = None,
        test_source: Files = None,
        test_target: Files = None,
        test_pairs: PairFiles = None,
        encoding: Encoding = None,
        lang: Language = None,
        list_only: Listing = False,
    ) -> None:
        """Train every system of a contest alike, and set them out in a table."""
        files = _named({
            "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
            "valid_target": valid_target, "valid_pairs": valid_pairs,
        })  # fmt: skip
        tests = _named(
            {"test_source": test_source, "test_target": test_target, "test_pairs": test_pairs}
        )
        from polyhead.cli.comparison import ContestWords, run_contest

        words = ContestWords(
            name, recipe, tuple(overrides or ()), budget, flops, systems, seeds,
            tuple(ensemble or ()), metric, run, files, tests, lang, encoding, list_only,
        )  # fmt: skip
        raise typer.Exit(run_contest(words))

    return contest


app.command("compare", help=COMPARE)(command("compare"))
app.command("ladder", help=LADDER, cls=WithoutTeams)(command("ladder"))


def _named(files: dict[str, list[Path] | None]) -> dict[str, list[str]]:
    """Files by name, as text."""
    return {name: [str(path) for path in paths or ()] for name, paths in files.items()}
