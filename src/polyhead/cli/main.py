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
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from polyhead.cli.options import ARGUMENTS
from polyhead.config import habits
from polyhead.errors import ConfigError, PolyheadError, ReportedElsewhere, torch_needed
from polyhead.plugin_registry import load_plugin
from polyhead.tasks.verbs import VERBS


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
SECTIONS = {  # of `polyhead --help`
    "Train and score": ("train", "evaluate", "compare", "runs", "average"),
    "Use a model": (
        *("translate", "generate", "fill", "detect", "classify", "tag", "answer", "embed"),
        *("attention", "serve"),
    ),
    "Models and data": ("recipes", "show", "cost", "data", "languages", "import", "export"),
    "Learn and check": ("demo", "verify", "doctor"),
}
COMMANDS = {  # modules of polyhead.cli, and their functions
    "train": "train.train", "translate": "translate.translate", "generate": "generate.generate",
    "fill": "use.fill", "detect": "use.detect", "classify": "classify.classify",
    "tag": "use.tag", "answer": "use.answer", "embed": "embed.embed",
    "evaluate": "evaluate.evaluate", "attention": "attention.attention", "serve": "serve.serve",
    "compare": "compare.compare", "average": "convert.average",
    "import": "convert.import_model", "export": "convert.export_model",
    "languages": "languages.languages", "recipes": "recipes.recipes", "show": "recipes.show",
    "cost": "cost.cost", "verify": "notes.verify", "doctor": "doctor.doctor", "demo": "demo.demo",
    "runs": "runs.runs",
}  # fmt: skip
DELETING = ("--fresh", "--prune", "--all")  # options that no hint proposes
PLUGIN = "--plugin"
PLUGIN_HELP = "Every command takes --plugin FILE_OR_MODULE (repeatable): load a plug-in first."
DATA_COMMANDS = {
    "list": "data.list_corpora", "make": "data.make_corpus", "get": "data.get_corpus",
    "check": "data.check_corpus", "cache": "data.cache",
}  # fmt: skip


def program(name: str = "") -> Any:
    """Return the program with the command of this name, or with all if there is none.

    One command starts faster than all, whose modules and options are then not needed.
    """
    app = typer.Typer(
        name="polyhead",
        cls=GroupedHelp,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True, epilog=PLUGIN_HELP)(polyhead)
    if name in COMMANDS:
        add_commands(app, {name: COMMANDS[name]})
        return get_command(app)
    if name not in ("", "data") and name[0] != "-" and name in VERBS:  # of a plug-in
        from polyhead.cli.use import command_of

        add_command(app, name, command_of(name))
        return get_command(app)
    data = typer.Typer(help="List, generate, download and check corpora.")
    app.add_typer(data, name="data")
    add_commands(app, COMMANDS)
    add_commands(data, DATA_COMMANDS)
    return get_command(app)


def add_commands(app: typer.Typer, commands: Mapping[str, str]) -> None:
    """Import commands and add them to a program."""
    for name, place in commands.items():
        module, _, attribute = place.partition(".")
        add_command(app, name, getattr(import_module(f"polyhead.cli.{module}"), attribute))


def add_command(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Add a command with its docstring as help."""
    # click, on which typer is built, does not fill a paragraph that starts with \b
    text = (inspect.getdoc(function) or "").replace("\n\npolyhead ", "\n\n\b\npolyhead ")
    app.command(name, help=text, epilog=PLUGIN_HELP)(function)


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
    replace_unencodable()
    try:
        with torch_needed():
            words = load_plugins(sys.argv[1:] if argv is None else argv)
            code = run(words)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except PolyheadError as error:
        return report(error, error.exit_code)
    except (SystemExit, BrokenPipeError):  # the reader of our output has closed the pipe
        discard_output()
        return 0
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
    except (KeyboardInterrupt, typer.Abort):
        return 130


def load_plugins(arguments: Sequence[str]) -> list[str]:
    """Load the plug-ins of `--plugin PLACE` and `--plugin=PLACE`; return the other arguments."""
    words, waiting = list[str](), iter(arguments)
    for word in waiting:
        name, separator, place = word.partition("=")
        if word == "--":  # the rest is text
            words += [word, *waiting]
        elif name != PLUGIN:
            words.append(word)
        elif place := place if separator else next(waiting, ""):
            load_plugin(place)
        else:
            raise ConfigError("--plugin: expected a Python file or a module", "bad_usage")
    return words


def run(words: list[str]) -> Any:
    """Run a command and return its exit code, if it has one."""
    if words[:1] == ["help"]:  # polyhead help train
        words = [*words[1:], "--help"]
    elif words in ([], ["data"]):
        words = [*words, "--help"]
    if words[0] == "ladder":  # its former name
        words = ["compare", "--plan", "ladder", *words[1:]]
    ARGUMENTS.set(words)
    return program(words[0]).main(args=words, prog_name="polyhead", standalone_mode=False)


def replace_unencodable() -> None:
    """Print a question mark where the locale's encoding lacks a character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def usage_message(error: Any) -> str:
    """Return what is wrong with the arguments, with the option or the command that was meant."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "polyhead")
    if hasattr(error, "possibilities") and context is not None:  # an unknown option
        option, command = error.option_name, path.split()[-1]
        names = [parameter.name for parameter in context.command.params]
        tables = [habits()["with"].get(name, {}) for name in names]
        if "overrides" in names:
            from polyhead.training.config import setting_of

            key, comma, remark = (setting_of(option[2:].replace("-", "_")) or "").partition(",")
            tables.insert(0, {option: f"Write {key}=VALUE{comma}{remark}."} if key else {})
        tables.insert(0, habits()["options"].get(command, {}))
        answers = [table[option] for table in tables if option in table]
        if answers:
            return f"{option}: no such option. {answers[0]}"
        error.possibilities = [p for p in error.possibilities or () if p not in DELETING]
    if path in ("polyhead", "polyhead data"):
        word = ARGUMENTS.get()[path.count(" ")]
        if answer := habits()["commands"].get(word):
            return f"{word}: no such command. {answer}"
    return f"{error.format_message().rstrip('.')}; see {path} --help"


def discard_output() -> None:
    """Send what is still buffered nowhere, so that Python does not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: PolyheadError, exit_code: int) -> int:
    """Print an error as one line, unless another process does, and return the exit code."""
    if not isinstance(error, ReportedElsewhere):
        print(f"polyhead: {error}", file=sys.stderr)
    return exit_code
