"""The border of the program: `polyhead` begins and ends here.

Errors of the input end as one line on stderr and the exit code of `polyhead.errors`; anything else
is our bug and keeps its traceback. The commands stand in the modules of `COMMANDS`.
"""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from polyhead.cli import commands, explaining, understanding
from polyhead.cli import compare as comparing
from polyhead.cli import serve as serving
from polyhead.cli.options import app, data, keep_examples
from polyhead.errors import PolyheadError

# imported, they have registered themselves
COMMANDS = (commands, understanding, comparing, serving, explaining)
for program in (app, data):
    keep_examples(program)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `polyhead`; returns the exit code."""
    try:
        code = get_command(app).main(
            args=list(sys.argv[1:] if argv is None else argv),
            prog_name="polyhead",
            standalone_mode=False,
        )
        return code if isinstance(code, int) else 0
    except PolyheadError as error:
        print(f"polyhead: {error}", file=sys.stderr)
        return error.exit_code
    except TyperException as error:
        print(f"polyhead: {complaint(error)}", file=sys.stderr)
        return 2
    except OSError as error:  # whatever else may go wrong with a file is explained where it is read
        if error.errno != errno.ENAMETOOLONG:
            raise
        print(f"polyhead: {str(error.filename)[:80]}…: no file has so long a name", file=sys.stderr)
        return 2
    except SystemExit:  # how typer ends when whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130


def complaint(error: TyperException) -> str:
    """What was wrong with the words of the command line, and where the right ones stand."""
    command = getattr(getattr(error, "ctx", None), "command_path", "polyhead")
    return f"{error.format_message().rstrip('.')}; see {command} --help"


@app.callback(invoke_without_command=True)
def polyhead(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Train a Transformer on your own text, see what its heads look at, put it to use."""
    if version:
        from polyhead import __version__

        print(f"polyhead {__version__}")
        raise typer.Exit
