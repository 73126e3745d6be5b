"""The plan of the house, enforced: who may import whom, and how long anything may be.

A rule that is only written down is broken by the third contributor.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "polyhead"
FILES = sorted(set(ROOT.rglob("*.py")) - {ROOT / "__init__.py"})

FOUNDATION = {"errors", "config", "devices", "i18n", "special_tokens"}
MAY_IMPORT = {  # every package, and the packages it may import
    "errors": set(),
    "special_tokens": set(),
    "config": {"errors"},
    "devices": {"errors"},
    "i18n": {"errors"},
    "render": {"errors"},
    "layers": {"errors"},
    "models": {"layers"},
    "tokenizers": {"errors", "special_tokens"},
    "data": {"tokenizers", *FOUNDATION},
    "checkpoint": {"models", "tokenizers", *FOUNDATION},
    "decoding": {"errors", "special_tokens"},
    "metrics": {"errors"},
    "training": {
        "data", "models", "checkpoint", "decoding", "metrics", "layers", "tokenizers", "cost",
        "pipelines", *FOUNDATION,
    },
    "pipelines": {
        "checkpoint", "data", "decoding", "metrics", "layers", "models", "tokenizers", "training",
        *FOUNDATION,
    },
    "viz": {"pipelines", "layers", "render", "tokenizers", "decoding", "data", "models",
            "training", "checkpoint", *FOUNDATION},
    "convert": {"models", "layers", "tokenizers", "checkpoint", "decoding", "training", "data",
                *FOUNDATION},
    "cost": {"models", "layers", "training", "data", "tokenizers", *FOUNDATION},
    "compare": {
        "training", "pipelines", "cost", "metrics", "render", "data", "tokenizers", "checkpoint",
        "decoding", "models", "notes", "layers", *FOUNDATION,
    },
    "notes": {
        "tokenizers", "data", "layers", "models", "training", "decoding", "viz", "cost", "render",
        *FOUNDATION,
    },
    "server": {"pipelines", "viz", "decoding", "tokenizers", "data", "training", *FOUNDATION},
    "cli": {
        "training", "pipelines", "viz", "convert", "cost", "compare", "notes", "data", "server",
        "checkpoint", "models", *FOUNDATION,
    },
    "__main__": {"cli"},
}  # fmt: skip
MAX_FILE, MAX_FUNCTION = 400, 60

files = pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))


def room(file):
    return file.relative_to(ROOT).with_suffix("").parts[0]


def imported_rooms(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}:{node.lineno}: write the full import path"
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("polyhead."):
                yield name.split(".")[1], node.lineno


@files
def test_imports_point_downwards(file):
    allowed = MAY_IMPORT[room(file)] | {room(file)}
    for other, line in imported_rooms(file):
        assert other in allowed, f"{file.name}:{line}: {room(file)} may not import {other}"


@files
def test_nothing_is_too_long(file):
    source = file.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_FILE, "split this file by what its halves are about"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            length = node.end_lineno - node.body[0].lineno + 1
            assert length <= MAX_FUNCTION, f"{node.name} has a body of {length} lines"


@files
def test_no_function_swallows_unknown_arguments(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            assert node.args.kwarg is None, f"{node.name} takes **{node.args.kwarg.arg}"


@files
def test_every_module_says_what_it_is(file):
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
