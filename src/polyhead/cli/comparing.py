"""The commands that let systems compete: compare and ladder.

The imports stand inside the commands, because `--help` must answer before torch could be loaded.
"""

from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.words import Files, app

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
Language = Annotated[str | None, typer.Option(help="ko or en; the terminal's unless given.")]
Listing = Annotated[bool, typer.Option("--list", help="Show the systems and leave.")]


@app.command()
def compare(
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
    lang: Language = None,
    list_only: Listing = False,
) -> None:
    """The paper's Table 2 on your data: train every system alike, and set them out in a table.

    polyhead compare multi30k-de-en --budget 20m
    polyhead compare multi30k-de-en --flops 5e14 --systems transformer,convs2s,gnmt --seeds 3
    polyhead compare --source train.ko --target train.en --budget 10m --run runs/mine-compared
    polyhead compare g2p-ko --budget 10m --metric wer
    """
    files = _named({
        "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
        "valid_target": valid_target, "valid_pairs": valid_pairs,
    })  # fmt: skip
    tests = _named(
        {"test_source": test_source, "test_target": test_target, "test_pairs": test_pairs}
    )
    from polyhead.cli.contests import ContestWords, run_contest

    words = ContestWords(
        "compare", recipe, tuple(overrides or ()), budget, flops, systems, seeds,
        tuple(ensemble or ()), metric, run, files, tests, lang, list_only,
    )  # fmt: skip
    raise typer.Exit(run_contest(words))


@app.command()
def ladder(
    recipe: Recipe = None,
    overrides: Overrides = None,
    budget: Time = None,
    flops: Flops = None,
    systems: Systems = None,
    seeds: Seeds = 1,
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
    lang: Language = None,
    list_only: Listing = False,
) -> None:
    """From a sentence as one vector to attention: every rung, and every score function, alike.

    polyhead ladder multi30k-de-en --budget 10m
    polyhead ladder multi30k-de-en --budget 5m --systems none,dot,additive --seeds 3
    polyhead ladder --source train.ko --target train.en --budget 5m
    """
    files = _named({
        "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
        "valid_target": valid_target, "valid_pairs": valid_pairs,
    })  # fmt: skip
    tests = _named(
        {"test_source": test_source, "test_target": test_target, "test_pairs": test_pairs}
    )
    from polyhead.cli.contests import ContestWords, run_contest

    words = ContestWords(
        "ladder", recipe, tuple(overrides or ()), budget, flops, systems, seeds, (), metric, run,
        files, tests, lang, list_only,
    )  # fmt: skip
    raise typer.Exit(run_contest(words))


def _named(files: dict[str, list[Path] | None]) -> dict[str, list[str]]:
    """Files by name, as text."""
    return {name: [str(path) for path in paths or ()] for name, paths in files.items()}
