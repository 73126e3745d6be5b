"""Errors that a user can cause, and that therefore must say what to do.

The command line prints these as one line, without a traceback, and leaves with `exit_code`:

    1  the machine gave up (disk, memory)      4  the data cannot be used
    2  the command or the configuration        5  the model is unusable or unsafe
    3  the environment lacks something         6  training diverged

Anything else that escapes is a bug of ours and keeps its traceback.
"""

from typing import ClassVar


class PolyheadError(Exception):
    """Base of all errors that are the input's fault, not the program's."""

    exit_code: ClassVar[int] = 1


class ConfigError(PolyheadError):
    """A command or a configuration that cannot be read or makes no sense."""

    exit_code = 2


class MissingError(PolyheadError):
    """Something that must be installed or fetched first."""

    exit_code = 3


class DataError(PolyheadError):
    """A corpus that cannot be used as it is."""

    exit_code = 4


class CheckpointError(PolyheadError):
    """A model that is missing, broken, unsafe, or of another kind."""

    exit_code = 5


class Diverged(PolyheadError):
    """Training left the road: the loss or a gradient is no longer a number."""

    exit_code = 6
