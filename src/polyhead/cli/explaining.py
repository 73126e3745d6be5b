"""The commands that explain and prepare: recipes, the notes, costs, this machine, corpora.

The imports stand inside the commands, because `--help` must answer before torch could be loaded.
"""

from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import Files, app, data


@app.command()
def recipes() -> None:
    """List the recipes that come with polyhead."""
    from polyhead.cli.recipes import list_recipes

    list_recipes()


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="A recipe or a TOML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
) -> None:
    """Show a recipe with every value, the defaults filled in, as a TOML file.

    polyhead show small > mine.toml
    """
    from polyhead.cli.recipes import show_recipe

    show_recipe(recipe, tuple(overrides or ()))


@app.command()
def verify(
    chapter_or_id: Annotated[list[str] | None, typer.Argument(help="Such as masks B3.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Show what there is.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    lang: Annotated[str | None, typer.Option(help="ko or en; the terminal's unless given.")] = None,
    explain: Annotated[str | None, typer.Option(help="All about one.", metavar="ID")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with drawings here.")] = None,
) -> None:
    """Compute every claim of the study notes, and show where they are wrong.

    polyhead verify masks B3
    polyhead verify --explain C7
    polyhead verify --html report.html
    """
    from polyhead.cli.notes import VerifyWords, run_verify

    words = VerifyWords(tuple(chapter_or_id or ()), only_list, json_out, lang, explain, html)
    raise typer.Exit(run_verify(words))


@app.command()
def cost(
    recipe: Annotated[str, typer.Argument(help="A recipe or a TOML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="Of the whole training, source and target; the recipe's if not given."),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(help="Tokens of a sentence; 30 or a language model's window unless given."),
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count parameters, FLOPs and memory of a recipe before it is trained.

    polyhead cost base
    polyhead cost small model.stack.d_model=512 --tokens 20000000
    """
    from polyhead.cli.cost import run_cost

    run_cost(recipe, tuple(overrides or ()), tokens=tokens, length=length, as_json=json_out)


@app.command()
def doctor() -> None:
    """Explain this machine: versions, cores, memory, disk, browser, fonts."""
    from polyhead.cli.doctor import examine

    raise typer.Exit(examine())


@app.command()
def demo(
    run: Annotated[Path, typer.Option(help="Where to work.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps only, to see that it works.")
    ] = False,
) -> None:
    """Train a Korean to English translator from nothing, score it, use it, look inside."""
    from polyhead.cli.demo import run_demo

    raise typer.Exit(run_demo(run, quick=quick))


@data.command("list")
def data_list() -> None:
    """List the corpora that polyhead knows, and whether they are here."""
    from polyhead.cli.data import list_corpora

    list_corpora()


@data.command("make")
def data_make(
    name: Annotated[str, typer.Argument(help="schedules")],
    output: Annotated[Path | None, typer.Option(help="A folder; the cache unless given.")] = None,
    size: Annotated[int, typer.Option(help="Training pairs.")] = 12_000,
    seed: Annotated[int, typer.Option(help="Another seed, another corpus.")] = 1,
) -> None:
    """Write the embedded Korean-English corpus.

    polyhead data make schedules --output data/schedules
    """
    from polyhead.cli.data import make_corpus

    make_corpus(name, output, size, seed)


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A corpus from `polyhead data list`.")],
    output: Annotated[Path | None, typer.Option(help="A folder; the cache unless given.")] = None,
) -> None:
    """Download a corpus and verify its checksums.

    polyhead data get multi30k
    """
    from polyhead.cli.data import get_corpus

    get_corpus(name, output)


@data.command("check")
def data_check(
    source: Files = None,
    target: Files = None,
    pairs: Annotated[list[Path] | None, typer.Option(help="TSV or JSON lines.")] = None,
    test_source: Files = None,
    test_target: Files = None,
    encoding: Annotated[str, typer.Option(help="Of all files.")] = "utf-8",
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for what would spoil training: misalignment, duplicates, leaks from the test set, …

    polyhead data check --source a.ko --target a.en --test-source b.ko --test-target b.en
    """
    from polyhead.cli.data import check_corpus

    sides = {"source": source, "target": target, "pairs": pairs}
    tests = {"source": test_source, "target": test_target}
    raise typer.Exit(
        check_corpus(
            {n: tuple(f or ()) for n, f in sides.items()},
            {n: tuple(f or ()) for n, f in tests.items()},
            encoding,
            as_json=json_out,
        )
    )
