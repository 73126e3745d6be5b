"""`polyhead data list`, `make`, `get` and `check`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from polyhead.cli.options import Encoding, Files, Json, Pairs, as_strings
from polyhead.errors import ConfigError, DataError

Output = Annotated[Path | None, Option(help="Directory to write (default: the cache).")]


def list_corpora() -> None:
    """List the known corpora and where they are installed."""
    from rich.console import Console
    from rich.table import Column, Table

    from polyhead.data.locate import KNOWN

    headings = ("name", "languages", "installed", "description", "licence")
    columns = [Column(heading, overflow="fold") for heading in headings]
    table = Table(*columns, box=None, pad_edge=False)
    for known in KNOWN.values():
        place = str(known.installed() or f"no: {known.command}")
        languages = " ".join(known.languages)
        table.add_row(known.name, languages, place, known.description, known.licence)
    Console(soft_wrap=False).print(table)


def make_corpus(
    name: str = Argument(help="Name of a generated corpus: schedules."),
    output: Output = None,
    size: int = Option(12_000, help="Number of training pairs."),
    seed: int = Option(1, help="Random seed."),
) -> None:
    """Generate the embedded Korean-English corpus.

    polyhead data make schedules --output data/schedules
    """
    from polyhead.data.locate import home, lookup
    from polyhead.data.schedules.generator import write

    if lookup(name).kind != "made":
        raise ConfigError(f"{name} is downloaded with: polyhead data get {name}", "wrong_command")
    print(*write(output or home() / name, n_train=size, seed=seed), sep="\n")


def get_corpus(
    name: str = Argument(help="Name of a corpus from `polyhead data list`."), output: Output = None
) -> None:
    """Download a corpus and verify its checksums.

    polyhead data get multi30k
    """
    from polyhead.cli.console import download_progress
    from polyhead.data.download import fetch
    from polyhead.data.locate import lookup

    with download_progress() as progress:
        paths = fetch(lookup(name), output, progress=progress)
    print(*paths, sep="\n")


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
    raise Exit(DataError.exit_code if report.worst == "error" else 0)
