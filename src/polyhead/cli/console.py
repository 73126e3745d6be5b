"""Progress bars on stderr and lists on stdout."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from polyhead.cli.streams import say
from polyhead.training.display import stderr_console


def print_definitions(rows: Mapping[str, str]) -> None:
    """Print names and texts on stdout, wrapped at words on a terminal and not at all elsewhere."""
    indent = max(map(len, rows)) + 4
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10**6
    for name, text in rows.items():
        start = f"  {name:{indent - 2}}"
        print(
            textwrap.fill(
                text, max(width, indent + 20), initial_indent=start, subsequent_indent=" " * indent
            )
        )


@contextmanager
def progress_bar(activity: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for a known number of items on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = stderr_console()
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(activity, total=total)
        yield lambda n: bar.advance(task, n)


@contextmanager
def download_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of downloads: a bar per file on a terminal, else a line per file."""
    console = stderr_console()
    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:

        def advance(name: str, n_bytes: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
                if not console.is_terminal:
                    say(f"downloading {name} ({total:,} bytes)")
            bar.update(tasks[name], completed=n_bytes)

        yield advance
