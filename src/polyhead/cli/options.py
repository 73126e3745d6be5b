"""The commands' shared words: the program itself, and the options that several commands have."""

import inspect
from pathlib import Path
from typing import Annotated

import typer

from polyhead.errors import ConfigError

app = typer.Typer(
    name="polyhead",
    help="Train a Transformer on your own text, see what its heads look at, put it to use.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="Corpora: list, make, check, fetch.", no_args_is_help=True)
app.add_typer(data, name="data")

Model = Annotated[Path, typer.Argument(help="A model's folder, or a run's.", metavar="MODEL")]
Models = Annotated[
    list[Path], typer.Argument(help="A model's folder, or a run's; several make an ensemble.")
]
Files = Annotated[list[Path] | None, typer.Option(help="Text, one sentence a line; repeatable.")]
PlainText = Annotated[
    list[Path] | None, typer.Option(help="Plain text for models of one language; repeatable.")
]
Labelled = Annotated[
    list[Path] | None, typer.Option(help="Texts and their labels, TSV or JSON lines; repeatable.")
]
Images = Annotated[
    list[Path] | None,
    typer.Option(help="A folder for each class, a tar of them, or an idx file; repeatable."),
]
ImageSize = Annotated[
    str | None, typer.Option(help="Of images: resize to so many pixels, such as 56 or 56x48.")
]
Encoding = Annotated[str, typer.Option(help="Of text that is read, such as cp949.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]


def as_text(given: str, name: str) -> str:
    """A text of the command line, unless its bytes were no text."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{name}: not UTF-8 text; convert it, for instance by iconv -f cp949 -t utf-8"
        ) from None
    return given


def keep_examples(program: typer.Typer) -> None:
    r"""Show the examples of every command's help as they are written, one a line.

    A paragraph that begins with \b is not filled by click, on which typer is built.
    """
    for command in program.registered_commands:
        text = inspect.cleandoc(command.help or inspect.getdoc(command.callback) or "")
        command.help = text.replace("\n\npolyhead ", "\n\n\b\npolyhead ")
