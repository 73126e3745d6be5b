"""Entry point of `polyhead`: run a command, turn errors into one line and an exit code.

Errors caused by the input are printed as one line on stderr, with the exit code of
`polyhead.errors`; any other exception is a bug and keeps its traceback. A command is a function
whose parameters are its options; it imports what it needs when it runs, so that `--help` does not
have to load torch.
"""

import errno
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from polyhead.cli.attention import attention
from polyhead.cli.classify import classify
from polyhead.cli.compare import WithoutEnsembles, compare, ladder
from polyhead.cli.convert import average, export_model, import_model
from polyhead.cli.cost import cost
from polyhead.cli.data import check_corpus, get_corpus, list_corpora, make_corpus
from polyhead.cli.demo import demo
from polyhead.cli.doctor import doctor
from polyhead.cli.evaluate import evaluate
from polyhead.cli.fill import fill
from polyhead.cli.generate import generate
from polyhead.cli.notes import verify
from polyhead.cli.recipes import recipes, show
from polyhead.cli.serve import serve
from polyhead.cli.train import train
from polyhead.cli.translate import translate
from polyhead.errors import PolyheadError

app = typer.Typer(
    name="polyhead",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="List, generate, download and check corpora.", no_args_is_help=True)
app.add_typer(data, name="data")
COMMANDS: dict[str, Callable[..., None]] = {  # in the order of `polyhead --help`
    "train": train, "translate": translate, "generate": generate, "fill": fill,
    "classify": classify, "evaluate": evaluate, "attention": attention, "serve": serve,
    "compare": compare, "ladder": ladder, "average": average, "import": import_model,
    "export": export_model, "recipes": recipes, "show": show, "cost": cost, "verify": verify,
    "doctor": doctor, "demo": demo,
}  # fmt: skip
DATA_COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_corpora, "make": make_corpus, "get": get_corpus, "check": check_corpus,
}  # fmt: skip
for program, commands in ((app, COMMANDS), (data, DATA_COMMANDS)):
    for name, function in commands.items():
        # click, on which typer is built, does not fill a paragraph that starts with \b
        text = (inspect.getdoc(function) or "").replace("\n\npolyhead ", "\n\n\b\npolyhead ")
        kind = WithoutEnsembles if function is ladder else None
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
    try:
        code = get_command(app).main(
            args=list(sys.argv[1:] if argv is None else argv),
            prog_name="polyhead",
            standalone_mode=False,
        )
        return code if isinstance(code, int) else 0
    except PolyheadError as error:
        return report(error, error.exit_code)
    except TyperException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "polyhead")
        message = f"{error.format_message().rstrip('.')}; see {command} --help"
        return report(PolyheadError(message, "bad_usage"), 2)
    except OSError as error:  # other errors of files are handled where the files are read
        if error.errno != errno.ENAMETOOLONG:
            raise
        message = f"{str(error.filename)[:80]}…: file name too long"
        return report(PolyheadError(message, "file_name_too_long"), 2)
    except SystemExit:  # raised by typer when the reader of our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130


def report(error: PolyheadError, exit_code: int) -> int:
    """Print an error as one line and return the exit code."""
    print(f"polyhead: {error}", file=sys.stderr)
    return exit_code
