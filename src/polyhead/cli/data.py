"""`polyhead data list`, `make`, `get` and `check`."""

from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import Encoding, Files, Json, Pairs, as_strings
from polyhead.errors import ConfigError, DataError

Output = Annotated[Path | None, typer.Option(help="Directory to write (default: the cache).")]


def list_corpora() -> None:
    """List the known corpora and where they are installed."""
    from rich.console import Console
    from rich.table import Table

    from polyhead.data.catalog import KNOWN

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "languages", "installed", "description", "licence"):
        table.add_column(heading, overflow="fold")
    for corpus in KNOWN.values():
        place = str(corpus.installed() or f"no: {corpus.command}")
        table.add_row(
            corpus.name, " ".join(corpus.languages), place, corpus.description, corpus.licence
        )
    Console(soft_wrap=False).print(table)


def make_corpus(
    name: Annotated[str, typer.Argument(help="Name of a generated corpus: schedules.")],
    output: Output = None,
    size: Annotated[int, typer.Option(help="Number of training pairs.")] = 12_000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
) -> None:
    """Generate the embedded Korean-English corpus.

    polyhead data make schedules --output data/schedules
    """
    from polyhead.data.catalog import make_corpus as write_corpus

    for path in write_corpus(name, output, size, seed):
        print(path)


def get_corpus(
    name: Annotated[str, typer.Argument(help="Name of a corpus from `polyhead data list`.")],
    output: Output = None,
) -> None:
    """Download a corpus and verify its checksums.

    polyhead data get multi30k
    """
    from polyhead.cli.console import download_progress
    from polyhead.data.catalog import lookup
    from polyhead.data.download import fetch

    with download_progress() as progress:
        paths = fetch(lookup(name), output, progress=progress)
    for path in paths:
        print(path)


def check_corpus(
    source: Files = None,
    target: Files = None,
    pairs: Pairs = None,
    test_source: Files = None,
    test_target: Files = None,
    encoding: Encoding = "utf-8",
    json_out: Json = False,
) -> None:
    """Report problems of a parallel corpus: misalignment, duplicates, overlap with the test set.

    Exits with 4 if a problem would spoil training.

    polyhead data check --source a.ko --target a.en --test-source b.ko --test-target b.en
    """
    from polyhead.data.doctor.checks import check_files

    files = as_strings({"source": source, "target": target, "pairs": pairs})
    if not any(files.values()):
        raise ConfigError(
            "no corpus given; expected --source FILE --target FILE, or --pairs FILE", "no_input"
        )
    tests = as_strings({"source": test_source, "target": test_target})
    report = check_files(files, tests, encoding)
    print(report.to_json() if json_out else report.text())
    raise typer.Exit(DataError.exit_code if report.worst == "error" else 0)
