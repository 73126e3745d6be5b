"""Break one expression at a time and report what no test notices.

    python tools/mutate.py metrics --count 40 --seed 3        # or data/holdout.py

A mutation, in a copy of the project, changes a comparison, an operator, a number, a condition or a
returned value, or drops a call; constants of modules stay. Tests named like the module run first,
then those that import it, then its package's. The exit code is 1 if more than a tenth survives.
"""

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "polyhead"
PAIRS = "Lt LtE, Gt GtE, Eq NotEq, In NotIn, Is IsNot, Add Sub, Mult Div, BitAnd BitOr, And Or"
SWAPPED = [pair.split() for pair in PAIRS.split(", ")]
OPERATORS = dict([*SWAPPED, *map(reversed, SWAPPED), ("Mod", "Mult"), ("FloorDiv", "Mult")])
LEFT_ALONE = {"strict", "check", "timeout", "daemon", "stacklevel", "maxsize", "encoding"}
MESSAGES = ("warn", "info", "debug", "print", "Error", "notice", "progress")
SKIPPED = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no")
IGNORED = shutil.ignore_patterns(".*", "runs")


def parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Return the children of a node that a mutation may change."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return iter(node.body)
    if isinstance(node, ast.AnnAssign):
        return filter(None, [node.value])
    is_message = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(MESSAGES)
    skipped = is_message or isinstance(node, SKIPPED) or getattr(node, "arg", "") in LEFT_ALONE
    return iter(() if skipped else ast.iter_child_nodes(node))


def swap_operator(node: ast.AST) -> ast.AST | None:
    """Return a node with another operator, if it has one; additions of texts stay."""
    operators = node.ops if isinstance(node, ast.Compare) else [getattr(node, "op", None)]
    kind = OPERATORS.get(type(operators[0]).__name__)
    is_text = any(isinstance(getattr(n, "value", n), str | ast.JoinedStr) for n in ast.walk(node))
    if kind is None or (is_text and isinstance(node, ast.BinOp | ast.AugAssign)):
        return None
    operators = [getattr(ast, kind)(), *operators[1:]]
    changed = {**vars(node), "op": operators[0], "ops": operators}
    return type(node)(**{name: changed[name] for name in node._fields})


def mutations(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield what of a node to replace, and the text to put in its place."""
    if broken := swap_operator(node):
        text = ast.unparse(broken)
        yield node, text if isinstance(node, ast.AugAssign) else f"({text})"
    elif isinstance(node, ast.UnaryOp):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield node, str(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.If | ast.IfExp):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.Return) and node.value is not None:
        yield node, "return None"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield from [(node, "pass")] if [*parts_of(node.value)] else []


def sites(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.AST, str]]:
    """Yield all mutations inside functions."""
    yield from mutations(node) if inside else ()
    for child in parts_of(node):
        yield from sites(child, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def splice(content: bytes, node: ast.AST, text: str) -> bytes:
    """Return a file with a node replaced."""
    starts = [0, *accumulate(map(len, content.splitlines(keepends=True)))]
    head = content[: starts[node.lineno - 1] + node.col_offset]
    return head + text.encode() + content[starts[node.end_lineno - 1] + node.end_col_offset :]


def groups_of_tests(file: Path) -> list[list[str]]:
    """Return the tests to run, the likeliest to notice first."""
    module = file.relative_to(SOURCE.parent).with_suffix("")
    groups: list[list[str]] = [[], [], []]
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        name, is_user = str(test.relative_to(ROOT)), ".".join(module.parts) in test.read_text()
        if is_user or name.startswith(f"tests/{module.parts[1]}/"):
            groups[0 if test.stem == f"test_{file.stem}" else 1 if is_user else 2].append(name)
    return [group for group in groups if group]


def first_failure(place: Path, tests: list[str], seconds: float) -> str:
    """Return the first of these tests of the copy that fails, or "timeout", or nothing."""
    variables = {**os.environ, "PYTHONPATH": f"{place}/src", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*PYTEST, *tests], cwd=place, env=variables, stdout=-1, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "timeout"
    assert process.returncode != -signal.SIGTERM, "pytest was ended from outside"
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
    return failed[1] if failed else "" if process.returncode in (0, 5) else tests[0]  # 5: no tests


def main() -> int:
    """Read the words, break and test, print the survivors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", help="package or file below src/polyhead")
    for option, default in {"--count": 20, "--seed": 0, "--timeout": 600}.items():
        parser.add_argument(option, type=int, default=default)
    words = parser.parse_args()
    files = sorted((SOURCE / words.target).rglob("*.py")) or [SOURCE / words.target]
    choices = [(file, *site) for file in files for site in sites(ast.parse(file.read_bytes()))]
    chosen = random.Random(words.seed).sample(choices, min(words.count, len(choices)))
    survivors, sound = 0, {""}
    with tempfile.TemporaryDirectory() as folder:
        place = shutil.copytree(ROOT, Path(folder, "copy"), ignore=IGNORED)
        for number, (file, node, text) in enumerate(chosen, start=1):
            content = (copied := place / file.relative_to(ROOT)).read_bytes()
            copied.write_bytes(splice(content, node, text))
            os.utime(copied, (number, number))  # so that no other bytecode is taken for it
            for tests in groups_of_tests(file):
                if failed := first_failure(place, tests, words.timeout):
                    break
            copied.write_bytes(content)
            tests = tests if failed == "timeout" else [failed]
            if failed not in sound and first_failure(place, tests, words.timeout):
                raise SystemExit(f"{failed} also without a mutation")
            sound.add(failed)
            survivors += not failed
            change = f"{file.name}:{node.lineno}: {ast.unparse(node)} -> {text}"
            print(failed or "SURVIVED", change, flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return survivors * 10 > len(chosen)


if __name__ == "__main__":
    sys.exit(main())
