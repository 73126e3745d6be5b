"""Arguments of a command in their plain form, read without typer, whose checks start slowly.

    --name VALUE    a whole or decimal number, a text or a path; of several, the last counts
    --name          a flag
    WORD...         the first parameter, a list of texts

Every other form, such as --name=VALUE, -1, --help or a mistake, is left to typer.
"""

import re
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import OptionInfo

FORMS: dict[Any, re.Pattern[str]] = {  # of the values that need no check
    int: re.compile(r"0|[1-9][0-9]{0,8}"),
    float: re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?"),
    str: re.compile(r"(?!-).+", re.DOTALL),
    Path: re.compile(r"(?!-).+", re.DOTALL),
}


def plain_arguments(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of a command's function, or None if typer must read the words."""
    hints = get_type_hints(command)
    first, *options = signature(command).parameters.values()
    values = {
        option.name: default.default
        if isinstance(default := option.default, OptionInfo)
        else default
        for option in options
    }
    texts = []
    waiting = iter(words)
    for word in waiting:
        name = word.removeprefix("--").replace("-", "_")
        if word == "-" or not word.startswith("-"):
            texts.append(word)
        elif name not in values or "_" in word:
            return None
        elif hints[name] is bool:
            values[name] = True
        else:
            kind = (get_args(hints[name]) or [hints[name]])[0]  # without None
            value = next(waiting, "")
            if kind not in FORMS or not FORMS[kind].fullmatch(value):
                return None
            values[name] = kind(value)
    return {first.name: texts, **values} if texts else None
