"""`polyhead data list|make|get|check`."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from polyhead.cli.console import fetching
from polyhead.data.catalog import KNOWN, lookup
from polyhead.data.catalog import make_corpus as write_corpus
from polyhead.data.doctor.checks import check_files
from polyhead.data.download import fetch
from polyhead.errors import ConfigError


def list_corpora() -> None:
    """What is known, and what is here."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "languages", "here", "what", "licence"):
        table.add_column(heading, overflow="fold")
    for corpus in KNOWN.values():
        here = str(corpus.installed() or f"no: {corpus.command}")
        table.add_row(
            corpus.name, " ".join(corpus.languages), here, corpus.description, corpus.licence
        )
    Console(soft_wrap=False).print(table)


def make_corpus(name: str, output: Path | None, size: int, seed: int) -> None:
    """Write it and name the files."""
    for path in write_corpus(name, output, size, seed):
        print(path)


def get_corpus(name: str, output: Path | None) -> None:
    """Fetch it and name the files."""
    with fetching() as progress:
        paths = fetch(lookup(name), output, progress=progress)
    for path in paths:
        print(path)


def check_corpus(
    files: dict[str, tuple[Path, ...]],
    tests: dict[str, tuple[Path, ...]],
    encoding: str,
    *,
    as_json: bool,
) -> int:
    """Print the findings; exit code 4 if something is badly wrong."""
    if not any(files.values()):
        raise ConfigError("name the corpus: --source FILE --target FILE, or --pairs FILE")
    report = check_files(
        {name: [str(path) for path in paths] for name, paths in files.items()},
        {name: [str(path) for path in paths] for name, paths in tests.items()},
        encoding,
    )
    print(report.to_json() if as_json else report.text())
    return 4 if report.worst == "error" else 0
