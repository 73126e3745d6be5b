"""A check taken apart for reading: where its code stands, and a script that anybody can run.

The script is made from the check's own source. Its body becomes the lines of the script, the
imports of the chapter that it uses stand above it, and helpers of the chapter are imported from
there. It is written so that it also works when it is pasted into Python's prompt, which ends a loop
at an empty line and nowhere else.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from polyhead.notes.claims import Check

PACKAGE = Path(__file__).parents[2]  # the folder that holds the package


@dataclass(frozen=True)
class SourceLocation:
    """Where a part of the library stands."""

    name: str
    path: str  # from the package's folder on, such as polyhead/layers/attention.py
    line: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def places(check: Check) -> list[SourceLocation]:
    """The code that implements what the check claims."""
    return [place(part) for part in check.code]


def place(part: Any) -> SourceLocation:
    """The file and the lines of a function, a method, a class or a module of ours."""
    if isinstance(part, ModuleType):
        file = Path(str(part.__file__))
        n_lines = len(file.read_text(encoding="utf-8").splitlines())
        return SourceLocation(part.__name__, _relative(file), 1, n_lines)
    part = part.fget if isinstance(part, property) else part
    named = part if hasattr(part, "__qualname__") else type(part)
    file = _file(named.__module__)
    node = _definition(ast.parse(file.read_text(encoding="utf-8")), named.__qualname__)
    return SourceLocation(named.__qualname__, _relative(file), node.lineno, _last_line(node))


def snippet(check: Check) -> str:
    """The check as a script that can be saved, or pasted into Python, and prints its finding."""
    text = _file(check.run.__module__).read_text(encoding="utf-8")
    tree = ast.parse(text)
    function = _definition(tree, check.run.__name__)
    assert isinstance(function, ast.FunctionDef)
    lines = ["import torch", *_imports(tree, function, check.run.__module__), ""]
    lines += ["torch.manual_seed(0)"]
    if _ends_with_its_only_return(function):
        lines += _body(text, function)
    else:
        source = textwrap.dedent("\n".join(_lines(text, function.lineno, _last_line(function))))
        lines += [*_without_empty(source.splitlines()), "", f"finding = {function.name}()"]
    return "\n".join([*lines, "print(finding)"]) + "\n"


# The body


def _body(text: str, function: ast.FunctionDef) -> list[str]:
    """The function's statements as lines at the margin; its return becomes `finding = …`."""
    statements = function.body
    if ast.get_docstring(function) is not None:
        statements = statements[1:]
    lines: list[str] = []
    at = _last_line(function.body[0]) + 1 if statements is not function.body else 0
    for statement in statements:
        first = _first_line(statement)
        between = _lines(text, at, first - 1) if at else []
        lines += [line for line in between if line.strip()]  # comments
        own = _without_empty(_lines(text, first, _last_line(statement)))
        if isinstance(statement, ast.Return):
            own[0] = own[0].replace("return ", "finding = ", 1)
        compound = hasattr(statement, "body")
        lines += [*own, ""] if compound else own
        at = _last_line(statement) + 1
    return textwrap.dedent("\n".join(lines)).splitlines()


def _ends_with_its_only_return(function: ast.FunctionDef) -> bool:
    return isinstance(function.body[-1], ast.Return) and len(list(_returns(function))) == 1


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    """The return statements of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child
        elif not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield from _returns(child)


def _without_empty(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip()]


# The imports


def _imports(tree: ast.Module, function: ast.FunctionDef, module: str) -> list[str]:
    """What the function uses of what its module imports or defines, as import lines."""
    used = {
        node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)
    }
    if not _ends_with_its_only_return(function) and function.returns is not None:
        used |= {n.id for n in ast.walk(function.returns) if isinstance(n, ast.Name)}
    wanted: dict[str, list[str]] = {}  # module → names; a plain import has none
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.split(".")[0]) in used and alias.name != "torch":
                    wanted[_named(alias)] = []
        elif isinstance(node, ast.ImportFrom):
            names = [_named(alias) for alias in node.names if (alias.asname or alias.name) in used]
            if names:
                wanted.setdefault(node.module or "", []).extend(names)
        else:
            own = [name for name in _defined(node) if name in used]
            if own:
                wanted.setdefault(module, []).extend(own)
    return [f"from {m} import {', '.join(n)}" if n else f"import {m}" for m, n in wanted.items()]


def _named(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement at the margin of a module gives to something."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


# Source


def _file(module: str) -> Path:
    return Path(str(inspect.getsourcefile(importlib.import_module(module))))


def _relative(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix() if file.is_relative_to(PACKAGE) else file.name


def _definition(tree: ast.AST, qualified: str) -> ast.FunctionDef | ast.ClassDef:
    """The function or class of this name; `Outer.inner` is looked for inside Outer."""
    outer, _, name = qualified.rpartition(".")
    return next(
        node
        for node in ast.walk(_definition(tree, outer) if outer else tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    )


def _lines(text: str, first: int, last: int) -> list[str]:
    return text.splitlines()[first - 1 : last]


def _first_line(node: ast.stmt) -> int:
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
        return node.decorator_list[0].lineno
    return node.lineno


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
