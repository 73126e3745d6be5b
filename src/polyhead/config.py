"""Configuration files: TOML to nested dataclasses and back.

Every option is a field of the dataclass that uses it; this module knows none of them. Unknown
names, wrong types and missing values are errors. Types are checked strictly: "5" is not a number.
Plain values of plain types are compared here; pydantic, whose import takes longer than a sentence
to translate, decides all other cases and says what is wrong.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from polyhead.bounds import Bounds, Choices
from polyhead.errors import ConfigError

T = TypeVar("T")
SHOWN = 60  # characters of a wrong value in a message
MAX_INTEGER = 2**32  # also of a seed
MAX_FLOAT = 1e9  # its square is finite in single precision


def read(path: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read a TOML file and apply overrides such as `train.steps=500`; return plain values."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}", "no_config_file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read as UTF-8 text: {error}", "unreadable_config"
        ) from None
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits
        raise ConfigError(f"{path}: not valid TOML: {error}", "invalid_toml") from None
    for override in overrides:
        set_by_path(values, override)
    return values


def from_dict(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build a dataclass from plain values, checking all names and types."""
    try:
        check_names(kind, values, where)
        try:
            return _build(kind, values)
        except (TypeError, ValueError):  # also a missing value, or raised by __post_init__
            return _validated(kind, values, where)
    except UnicodeEncodeError as error:
        bad = error.object[max(0, error.start - SHOWN) : error.end]
        raise ConfigError(
            f"{_table(where)}: {bad!r} cannot be encoded as UTF-8", "invalid_value"
        ) from None
    except (ValueError, RecursionError):
        raise ConfigError(
            f"{_table(where)}: a value is too large or too deeply nested", "invalid_value"
        ) from None


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    """Build a dataclass from values that obviously have its types."""
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: _convert(hints[name], value) for name, value in values.items()})


def _convert(hint: Any, value: Any) -> Any:
    """Return a value as the type of its field; TypeError if pydantic must look at it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (bool, int, NoneType) and type(value) is hint:
        return value
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint is str and type(value) is str and value.encode() is not None:
        return value
    if origin is Literal and type(value) is str and value in arguments:
        return value
    if origin is tuple and arguments[1:] == (...,) and type(value) is list:
        return tuple(_convert(arguments[0], item) for item in value)
    if origin is Annotated and isinstance(arguments[1], Bounds | Choices):
        plain_value, limits = _convert(arguments[0], value), arguments[1]
        if not isinstance(limits, Bounds) or limits.low <= plain_value <= limits.high:
            return plain_value  # `check_names` has compared choices
    if origin in (Union, UnionType) and len(arguments) == 2 and arguments[1] is NoneType:
        return None if value is None else _convert(arguments[0], value)
    if is_dataclass(hint) and type(value) is dict:
        return _build(hint, value)
    raise TypeError(f"{value!r} is not obviously {hint}")


@cache  # a server needs the same ones for every request
def _checker(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _validated(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Build a dataclass with pydantic, or raise the first problem that it finds."""
    from pydantic import ValidationError

    text = json.dumps(values, default=str, ensure_ascii=False).encode()
    try:
        return _checker(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise _first_problem(error.errors(include_url=False), where) from None


def check_names(kind: Any, values: Mapping[str, Any], where: str) -> None:
    """Refuse unknown names and numbers that are too large, also in nested tables."""
    hints = get_type_hints(kind, include_extras=True)
    known = [field.name for field in fields(kind)]
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                f"{where}{_shown(name)}: no such option{suggest(name, known)}", "unknown_key"
            )
        _check_numbers(value, f"{where}{name}")
        for choices, word in _choices(hints[name], value):
            choices.check(word, f"{where}{name}")
        inner = next((k for k in (hints[name], *get_args(hints[name])) if is_dataclass(k)), None)
        if inner is not None and isinstance(value, Mapping):
            check_names(inner, value, f"{where}{name}.")


def _choices(hint: Any, value: Any) -> Iterator[tuple[Choices, str]]:
    """Yield the words of a value with the names that are valid there."""
    if get_origin(hint) is Annotated:
        choices = get_args(hint)[1]
        if isinstance(choices, Choices) and isinstance(value, str):
            yield choices, value
        return
    for inner in get_args(hint):
        for item in value if isinstance(value, list | tuple) else [value]:
            yield from _choices(inner, item)


def chosen_names(config: Any) -> Iterator[tuple[Choices, str]]:
    """Yield the names that a configuration chooses, also in nested ones, with all valid ones."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from chosen_names(value)
        else:
            yield from _choices(hints[field.name], value)


def _check_numbers(value: Any, path: str) -> None:
    if isinstance(value, list | tuple):
        for item in value:
            _check_numbers(item, path)
    elif isinstance(value, float) and not abs(value) <= MAX_FLOAT:  # or not a number
        expected = f"should be a finite number up to {MAX_FLOAT:g}"
        raise ConfigError(f"{path} = {value}: {expected}", "invalid_value")
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        shown = _shown(str(value)) if abs(value) < 10**SHOWN else "a long number"
        raise ConfigError(f"{path} = {shown}: should be at most {MAX_INTEGER:,}", "invalid_value")


def _first_problem(problems: list[Any], where: str) -> ConfigError:
    first = problems[0]
    path = where + ".".join(str(part) for part in first["loc"])
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "missing":
        return ConfigError(f"{path}: this option is required{more}", "missing_key")
    if first["type"] == "value_error":  # raised by __post_init__
        return ConfigError(f"{_table(path)}: {message}{more}", "invalid_value")
    message = message[0].lower() + message[1:].replace("Input should be", "should be")
    message = message.replace("input should be", "should be")
    value = _shown(repr(first["input"]))
    return ConfigError(f"{_table(path)} = {value}: {message}{more}", "invalid_value")


def _table(where: str) -> str:
    return where.rstrip(".") or "configuration"


def _shown(text: str) -> str:
    """Return the beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def set_by_path(values: dict[str, Any], override: str) -> None:
    """Apply an override: `a.b=1` sets values["a"]["b"] to 1. The right side is TOML or a word."""
    path, separator, text = override.partition("=")
    path = path.strip()
    if not separator or not path:
        raise ConfigError(
            f"{override!r}: write an override as name=value, as in train.steps=500", "bad_override"
        )
    *parents, last = path.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{override!r}: {parent} is a value, not a table", "bad_override")
    try:
        values[last] = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        values[last] = text.strip()


def setting_keys(table: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield the names of the values in nested tables, such as train.schedule.rate."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from setting_keys(value, f"{where}{name}.")
        elif where:
            yield where + name


@cache
def habits() -> dict[str, Any]:
    """Return the table of names that other tools use, and the right ones here."""
    return tomllib.loads(Path(__file__).with_name("habits.toml").read_text(encoding="utf-8"))


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest known one, or all of them."""
    known = list(known)
    if meant := habits()["settings"].get(name):
        last = meant.rpartition(".")[2]
        return f"; did you mean {last if last in known else meant}?"
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def plain(config: Any) -> dict[str, Any]:
    """Return a dataclass as plain values of TOML and JSON, without tuples and paths."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(config), default=str))
    return values


def to_toml(values: Mapping[str, Any], table: str = "") -> str:
    """Return plain values as a TOML file, without those that are None."""
    lines = [
        f"{name} = {_toml_value(value)}"
        for name, value in values.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    text = "\n".join(lines) + "\n" if lines else ""
    for name, inner in values.items():
        if isinstance(inner, Mapping):
            path = f"{table}.{name}" if table else name
            text += f"\n[{path}]\n" + to_toml(inner, path).lstrip("\n")
    return text


def _toml_value(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML forbids it


def differences(before: Mapping[str, Any], after: Mapping[str, Any], where: str = "") -> list[str]:
    """Return the changes between two configurations as lines: `train.steps: 100 → 200`."""
    changes = []
    for name in [*before, *(n for n in after if n not in before)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changes += differences(old, new, f"{where}{name}.")
        elif old != new:
            changes.append(f"{where}{name}: {old!r} → {new!r}")
    return changes
