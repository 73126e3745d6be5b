"""Configuration: a TOML file becomes nested dataclasses, or an error that says what to change.

Every option is a field of the dataclass that uses it, with its type and its default in one place;
this module knows none of them. Unknown names, wrong types and missing values are errors, because a
typo must never train for a week. Types are checked by pydantic, strictly: "5" is not a number.
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from polyhead.errors import ConfigError

T = TypeVar("T")
# what pydantic makes of a dataclass: a server asks for the same one at every request
_checker: Callable[[Any], Any] = cache(TypeAdapter)
SHOWN = 60  # characters of a wrong value that a message repeats


def read(path: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """A file's plain values, after overrides such as `train.steps=500`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    for override in overrides:
        set_by_path(values, override)
    return values


def from_dict(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build a dataclass from plain values, checking every name and every type."""
    refuse_unknown(kind, values, where)
    try:
        text = json.dumps(values, default=str, ensure_ascii=False).encode()
        return _checker(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise ConfigError(_first_complaint(error, where)) from None
    except UnicodeEncodeError as error:
        bad = error.object[max(0, error.start - SHOWN) : error.end]
        raise ConfigError(f"{_table(where)}: {bad!r} is not text that UTF-8 can hold") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{_table(where)}: a value is too large or too deep") from None


def refuse_unknown(kind: Any, values: Mapping[str, Any], where: str) -> None:
    """Every name in `values` must be a field, every number finite, and so on inside."""
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{where}{_shown(name)}: no such option{suggest(name, known)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{where}{name} = {value}: should be a finite number")
        inner = next((k for k in (hints[name], *get_args(hints[name])) if is_dataclass(k)), None)
        if inner is not None and isinstance(value, Mapping):
            refuse_unknown(inner, value, f"{where}{name}.")


def _first_complaint(error: ValidationError, where: str) -> str:
    complaints = error.errors(include_url=False)
    first = complaints[0]
    place = where + ".".join(str(part) for part in first["loc"])
    what = " ".join(first["msg"].removeprefix("Value error, ").split())
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    if first["type"] == "missing":
        return f"{place}: this option is required{more}"
    if first["type"] == "value_error":  # raised by __post_init__
        return f"{_table(place)}: {what}{more}"
    what = what[0].lower() + what[1:].replace("Input should be", "should be")
    what = what.replace("input should be", "should be")
    return f"{_table(place)} = {_shown(repr(first['input']))}: {what}{more}"


def _table(where: str) -> str:
    return where.rstrip(".") or "configuration"


def _shown(text: str) -> str:
    """As much of a text as fits into a message, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def set_by_path(values: dict[str, Any], override: str) -> None:
    """`a.b=1` sets values["a"]["b"] to 1. The right side is read as TOML, else as a plain word."""
    path, separator, text = override.partition("=")
    path = path.strip()
    if not separator or not path:
        raise ConfigError(f"{override!r}: write an override as name=value, as in train.steps=500")
    *parents, last = path.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{override!r}: {parent} is a value, not a table")
    try:
        values[last] = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        values[last] = text.strip()


def suggest(name: str, known: Iterable[str]) -> str:
    """The likeliest meaning of a misspelt name."""
    known = list(known)
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def plain(config: Any) -> dict[str, Any]:
    """A dataclass as values that TOML and JSON know: no tuples, no paths."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(config), default=str))
    return values


def to_toml(values: Mapping[str, Any], table: str = "") -> str:
    """Plain values as a TOML file; what is None is left out, because TOML has no word for it."""
    lines = [f"{k} = {_toml_value(v)}" for k, v in values.items() if not _absent(v)]
    text = "\n".join(lines) + "\n" if lines else ""
    for name, inner in values.items():
        if isinstance(inner, Mapping):
            path = f"{table}.{name}" if table else name
            text += f"\n[{path}]\n" + to_toml(inner, path).lstrip("\n")
    return text


def _absent(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _toml_value(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML's one exception


def differences(before: Mapping[str, Any], after: Mapping[str, Any], where: str = "") -> list[str]:
    """What changed between two configurations, one line each: `train.steps: 100 → 200`."""
    found = []
    for name in [*before, *(n for n in after if n not in before)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{where}{name}.")
        elif old != new:
            found.append(f"{where}{name}: {old!r} → {new!r}")
    return found
