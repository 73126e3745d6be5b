"""`polyhead data list|make|get|check`."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from polyhead.cli.console import fetching
from polyhead.data.corpus_tools import check, get, listed, make
from polyhead.errors import ConfigError


def list_corpora() -> None:
    """What is known, and what is here."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "languages", "here", "what", "licence"):
        table.add_column(heading, overflow="fold")
    for one in listed():
        corpus = one.corpus
        here = str(one.place) if one.place else f"no: {corpus.command}"
        table.add_row(
            corpus.name, " ".join(corpus.languages), here, corpus.description, corpus.licence
        )
    Console(soft_wrap=False).print(table)


def make_corpus(name: str, output: Path | None, size: int, seed: int) -> None:
    """Write it and name the files."""
    for path in make(name, output, size, seed):
        print(path)


def get_corpus(name: str, output: Path | None) -> None:
    """Fetch it and name the files."""
    with fetching() as progress:
        paths = get(name, output, progress)
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
    report = check(
        {name: [str(path) for path in paths] for name, paths in files.items()},
        {name: [str(path) for path in paths] for name, paths in tests.items()},
        encoding,
    )
    print(report.to_json() if as_json else report.text())
    return 4 if report.worst == "error" else 0
