"""Entry point of `polyhead`: run a command, turn errors into one line and an exit code.

Errors caused by the input are printed as one line on stderr, with the exit code of
`polyhead.errors`; any other exception is a bug and keeps its traceback. A command is a function
whose parameters are its options; it imports what it needs when it runs, so that `--help` does not
have to load torch.
"""

import errno
import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from polyhead.cli.attention import attention
from polyhead.cli.classify import classify
from polyhead.cli.compare import LadderCommand, compare, ladder
from polyhead.cli.convert import average, export_model, import_model
from polyhead.cli.cost import cost
from polyhead.cli.data import cache, check_corpus, get_corpus, list_corpora, make_corpus
from polyhead.cli.demo import demo
from polyhead.cli.doctor import doctor
from polyhead.cli.evaluate import evaluate
from polyhead.cli.fill import detect, fill
from polyhead.cli.generate import generate
from polyhead.cli.languages import languages
from polyhead.cli.notes import verify
from polyhead.cli.recipes import recipes, show
from polyhead.cli.serve import serve
from polyhead.cli.train import train
from polyhead.cli.translate import translate
from polyhead.errors import PolyheadError, torch_needed


class GroupedHelp(TyperGroup):
    """Commands of the help in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        for title, names in SECTIONS.items():
            limit = formatter.width - 6 - max(map(len, self.commands))
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{n:9}", self.commands[n].get_short_help_str(limit)) for n in names]
                )


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)  # of the disk behind stdout
app = typer.Typer(
    name="polyhead",
    cls=GroupedHelp,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="List, generate, download and check corpora.")
app.add_typer(data, name="data")
SECTIONS = {  # of `polyhead --help`
    "Train and score": ("train", "evaluate", "compare", "ladder", "average"),
    "Use a model": ("translate", "generate", "fill", "detect", "classify", "attention", "serve"),
    "Models and data": ("recipes", "show", "cost", "data", "languages", "import", "export"),
    "Learn and check": ("demo", "verify", "doctor"),
}
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train, "translate": translate, "generate": generate, "fill": fill, "detect": detect,
    "classify": classify, "evaluate": evaluate, "attention": attention, "serve": serve,
    "compare": compare, "ladder": ladder, "average": average, "import": import_model,
    "export": export_model, "languages": languages, "recipes": recipes, "show": show,
    "cost": cost, "verify": verify, "doctor": doctor, "demo": demo,
}  # fmt: skip
DATA_COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_corpora, "make": make_corpus, "get": get_corpus, "check": check_corpus,
    "cache": cache,
}  # fmt: skip
for program, commands in ((app, COMMANDS), (data, DATA_COMMANDS)):
    for name, function in commands.items():
        # click, on which typer is built, does not fill a paragraph that starts with \b
        text = (inspect.getdoc(function) or "").replace("\n\npolyhead ", "\n\n\b\npolyhead ")
        kind = LadderCommand if function is ladder else None
        program.command(name, help=text, cls=kind)(function)


@app.callback(invoke_without_command=True)
def polyhead(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Train Transformers on your own text or images, look inside them, and use them."""
    if version:
        from polyhead import __version__

        print(f"polyhead {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    argv: the arguments after the program's name (default: those of the process).
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:  # polyhead help train
        words = [*words[1:], "--help"]
    elif words in ([], ["data"]):
        words.append("--help")
    replace_unencodable()
    try:
        with torch_needed():
            code = get_command(app).main(args=words, prog_name="polyhead", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except PolyheadError as error:
        return report(error, error.exit_code)
    except TyperException as error:
        return report(PolyheadError(usage_message(error), "bad_usage"), 2)
    except OSError as error:  # other errors of files are handled where the files are read
        if error.errno in FULL:
            discard_output()
            message = f"cannot write {error.filename or 'the output'}: {error.strerror}"
            return report(PolyheadError(message, "io"), PolyheadError.exit_code)
        if error.errno != errno.ENAMETOOLONG:
            raise
        message = f"{str(error.filename)[:80]}…: file name too long"
        return report(PolyheadError(message, "file_name_too_long"), 2)
    except SystemExit:  # raised by typer when the reader of our output has closed the pipe
        discard_output()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130


def replace_unencodable() -> None:
    """Print a question mark where the locale's encoding lacks a character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def usage_message(error: TyperException) -> str:
    """Return what is wrong with the arguments, with the setting or the command that was meant."""
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "polyhead")
    option = getattr(error, "option_name", "")
    if option and command.split()[-1] in ("train", "compare", "ladder", "cost", "show"):
        from polyhead.training.config import setting_of

        if setting := setting_of(option.lstrip("-").replace("-", "_")):
            return f"{option}: no such option. Settings are given as {setting}=VALUE"
    return f"{error.format_message().rstrip('.')}; see {command} --help"


def discard_output() -> None:
    """Send what is still buffered nowhere, so that Python does not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: PolyheadError, exit_code: int) -> int:
    """Print an error as one line and return the exit code."""
    print(f"polyhead: {error}", file=sys.stderr)
    return exit_code
