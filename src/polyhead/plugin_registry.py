"""Registries of named parts, and the plug-ins that add names to them.

A plug-in is a Python file or module that registers parts when it is imported (`polyhead.plugins`
has the decorators). It is loaded by `--plugin`, by `polyhead.load_plugin`, by the environment
variable POLYHEAD_PLUGINS, which child processes inherit, or by an entry point of the group
`polyhead.plugins`. The last two are loaded when a name is looked up that is not built in, or when
names are listed, so that other commands start as fast as without them. A model directory is data:
it can name a plug-in in a message, and never loads one.
"""

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from polyhead.config import suggest
from polyhead.errors import ConfigError, MissingError, PolyheadError

T = TypeVar("T")
VARIABLE = "POLYHEAD_PLUGINS"  # files and modules, separated as in PATH
GROUP = "polyhead.plugins"  # of entry points
SHOWN = 60  # characters of a name in a message
REGISTRIES: dict[str, "Registry[Any]"] = {}  # by kind
_loaded: dict[str, str] = {}  # files and modules, and the plug-in's name
_loading: list[str] = []  # names of plug-ins that are being imported


class UnknownNameError(ConfigError, KeyError):
    """A name that is not in a registry."""

    __str__ = Exception.__str__  # a KeyError shows its message in quotes


class Registry(Mapping[str, T], Generic[T]):
    """Parts of one kind by name: those of the package, and those that plug-ins registered.

    kind: what the parts are, for messages, such as "attention kernel".
    """

    def __init__(self, kind: str, parts: Mapping[str, T]) -> None:
        self.kind = kind
        self._parts = dict(parts)
        self._plugins: dict[str, str] = {}
        REGISTRIES[kind] = self

    __hash__ = object.__hash__  # a registry marks the type of a field: Annotated[str, REGISTRY]
    __eq__ = object.__eq__

    def add(self, name: str, part: T, source: object = None) -> None:
        """Register a part of a plug-in.

        source: the function or class that makes the part, by default the part itself.
        """
        owner = self._plugins.get(name, "polyhead")
        if name in self._parts:
            raise ConfigError(
                f"the {self.kind} {name!r} is already registered by {owner}. Choose another name.",
                "name_taken",
            )
        defined_in = str(getattr(part if source is None else source, "__module__", "__main__"))
        self._parts[name] = part
        self._plugins[name] = _loading[-1] if _loading else defined_in

    def plugin_of(self, name: str) -> str | None:
        """Return the plug-in that registered a name; None for a part of the package."""
        return self._plugins.get(name)

    def remove_plugin(self, plugin: str) -> None:
        """Remove the parts that a plug-in registered."""
        for name in [name for name, owner in self._plugins.items() if owner == plugin]:
            del self._parts[name], self._plugins[name]

    def check(self, name: str, path: str) -> None:
        """Raise ConfigError if the value of a setting is unknown."""
        if name not in self:
            raise self._unknown(name, f"{path} = {name[:SHOWN]!r}: unknown {self.kind}")

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise self._unknown(name, f"unknown {self.kind} {str(name)[:SHOWN]!r}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._parts:
            load_available()
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        load_available()
        return iter(dict(self._parts))

    def __len__(self) -> int:
        load_available()
        return len(self._parts)

    def _unknown(self, name: str, problem: str) -> UnknownNameError:
        code = f"unknown_{self.kind.replace(' ', '_')}"
        return UnknownNameError(f"{problem}{suggest(str(name), self)}", code)


def resolve(part: Any) -> Any:
    """Return a class, or import the one of the package that is written as "module:Class".

    Only parts of the package are written so: layers above are named without importing them.
    """
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)


def load_available() -> None:
    """Load the plug-ins of POLYHEAD_PLUGINS and of installed packages that are not loaded yet."""
    if _loading:  # a plug-in looks up a name
        return
    named = [place for place in os.environ.get(VARIABLE, "").split(os.pathsep) if place]
    for place in [*named, *_entry_points()]:
        _load(place)


@cache
def _entry_points() -> list[str]:
    from importlib.metadata import entry_points  # not at every start

    return [point.module for point in entry_points(group=GROUP)]


def load_plugin(place: str | Path) -> str:
    """Load a plug-in in this process and in those that it starts; return its name.

    place: a Python file, or the name of a module.

    Raises MissingError if it is not found, ConfigError if it fails or registers nothing.

    Example: `polyhead.load_plugin("linear_attention.py")`
    """
    key = str(place)
    if key.endswith(".py") or os.sep in key or isinstance(place, Path):
        key = str(Path(place).expanduser().resolve())
    name = _load(key)
    known = [other for other in os.environ.get(VARIABLE, "").split(os.pathsep) if other]
    if key not in known:
        os.environ[VARIABLE] = os.pathsep.join([*known, key])
    return name


def _load(place: str) -> str:
    """Import a plug-in once; undo its registrations if it fails."""
    if place in _loaded:
        return _loaded[place]
    path = Path(place) if place.endswith(".py") or os.sep in place else None
    name = place if path is None else path.stem
    _loading.append(name)
    try:
        if path is None:
            import_module(name)
        else:
            _import_file(path)
        _check_registered(name, place)
    except BaseException as error:
        for registry in REGISTRIES.values():
            registry.remove_plugin(name)
        sys.modules.pop(name, None)
        if isinstance(error, PolyheadError) or not isinstance(error, Exception | SystemExit):
            raise
        raise _failed(place, name, error) from error
    finally:
        _loading.pop()
    _loaded[place] = name
    return name


def _import_file(path: Path) -> None:
    """Import a file under its own name; its directory ends sys.path, as child processes need."""
    if not path.is_file():
        raise MissingError(f"there is no plug-in {path}", "missing_plugin")
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()  # the file may be new
    spec = importlib.util.find_spec(path.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        raise ConfigError(
            f"{path}: there is another module named {path.stem}. Rename the file.", "name_taken"
        )
    import_module(path.stem)


def _check_registered(name: str, place: str) -> None:
    package = name.partition(".")[0]
    for registry in REGISTRIES.values():
        for owner in registry._plugins.values():
            if owner.partition(".")[0] == package:
                return
    raise ConfigError(
        f"the plug-in {place} registers nothing. Use a decorator of polyhead.plugins in it.",
        "empty_plugin",
    )


def _failed(place: str, name: str, error: BaseException) -> PolyheadError:
    """Return the error of a plug-in that is not found, or that raised an exception."""
    if isinstance(error, ModuleNotFoundError):
        if error.name in (name, name.partition(".")[0]):
            return MissingError(f"there is no file or module {place}", "missing_plugin")
        problem = f"the plug-in {place} needs {error.name}, which is not installed"
        return MissingError(problem, "missing_package")
    frames = traceback.extract_tb(error.__traceback__)
    last = ([frame for frame in frames if frame.filename == place] or frames)[-1]
    file, line = last.filename, last.lineno
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ConfigError(
        f"the plug-in {place} failed ({file}, line {line}): {reason}", "plugin_failed"
    )
