"""`polyhead data list|make|get|check`."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from polyhead.api.corpora import DataConfig, check, get, listed, make
from polyhead.cli.screen import say
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
    for path in get(name, output, say):
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
    names = {name: tuple(str(p) for p in paths) for name, paths in files.items()}
    train = DataConfig(**names, encoding=encoding)
    test = None
    if any(tests.values()):
        test = DataConfig(**{n: tuple(str(p) for p in f) for n, f in tests.items()}, encoding=encoding)
    report = check(train, test)
    print(report.to_json() if as_json else report.text())
    return 4 if report.worst == "error" else 0
