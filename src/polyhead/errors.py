"""Errors that a user can cause.

The command line prints such an error as one line, without a traceback, and exits with `exit_code`:

    1  the machine failed (disk, memory)       4  the data cannot be used
    2  the command or the configuration        5  the model is unusable or unsafe
    3  the environment lacks something         6  training diverged

Every error has a stable `code` such as "unknown_key", for tests, HTTP clients and translations; the
message may be reworded at any time. Any other exception that escapes is a bug and keeps its
traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

TORCH = "torch>=2.10,<3"  # as in pyproject.toml

InputCode = Literal["empty", "too_long", "bad_token"]


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra of polyhead."""
    from importlib.metadata import PackageNotFoundError, requires  # not at every start

    try:
        needed = [text.partition(";") for text in requires("polyhead") or ()]
    except PackageNotFoundError:  # run from its source tree
        needed = []
    marks = (f'extra == "{extra}"', f"extra == '{extra}'")
    packages = [name.strip() for name, _, mark in needed if mark.strip() in marks]
    names = packages or [f"polyhead[{extra}]"]
    return "pip install " + " ".join(f'"{name}"' for name in names)  # as every shell reads them


class Cancelled(Exception):
    """The computation was cancelled; there is no result."""


class PolyheadError(Exception):
    """Base of all errors caused by input or environment.

    message: what is wrong, what was expected, what to do; at most two sentences.
    code: stable identifier in snake case.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ReportedElsewhere(PolyheadError):
    """An error that the first process of a run reports; the others only end with its exit code."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("the first process of the run reports the error", "reported_elsewhere")
        self.exit_code = exit_code  # type: ignore[misc]


class ConfigError(PolyheadError):
    """Invalid command, option or configuration."""

    exit_code = 2


class InvalidInputError(ConfigError):
    """A text or a forced beginning that a model cannot take."""

    def __init__(self, message: str, code: InputCode) -> None:
        super().__init__(message, code)
        self.code: InputCode = code


class MissingError(PolyheadError):
    """Missing package, file or download."""

    exit_code = 3


@contextmanager
def torch_needed() -> Iterator[None]:
    """Turn a failed import of torch into a MissingError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise MissingError(
            f'this needs torch, which is not installed: pip install "{TORCH}"', "missing_torch"
        ) from None


class DataError(PolyheadError):
    """Unusable corpus or input file."""

    exit_code = 4


class CheckpointError(PolyheadError):
    """Missing, damaged, unsafe or incompatible model."""

    exit_code = 5


class Diverged(PolyheadError):
    """Training diverged: the loss or a gradient is not finite."""

    exit_code = 6
