"""Errors that a user can cause.

The command line prints such an error as one line, without a traceback, and exits with `exit_code`:

    1  the machine failed (disk, memory)       4  the data cannot be used
    2  the command or the configuration        5  the model is unusable or unsafe
    3  the environment lacks something         6  training diverged

Every error has a stable `code` such as "unknown_key", for tests, HTTP clients and translations; the
message may be reworded at any time. Any other exception that escapes is a bug and keeps its
traceback.
"""

from typing import ClassVar


class PolyheadError(Exception):
    """Base of all errors caused by input or environment.

    message: what is wrong, what was expected, what to do; at most two sentences.
    code: stable identifier in snake case.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ConfigError(PolyheadError):
    """Invalid command, option or configuration."""

    exit_code = 2


class MissingError(PolyheadError):
    """Missing package, file or download."""

    exit_code = 3


class DataError(PolyheadError):
    """Unusable corpus or input file."""

    exit_code = 4


class CheckpointError(PolyheadError):
    """Missing, damaged, unsafe or incompatible model."""

    exit_code = 5


class Diverged(PolyheadError):
    """Training diverged: the loss or a gradient is not finite."""

    exit_code = 6
