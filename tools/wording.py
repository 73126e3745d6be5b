"""Check the wording of code and documentation; `make lint` runs it.

    python tools/wording.py                 # everything
    python tools/wording.py src/polyhead/data tests/data README.md

Reported are words that the style replaces by the field's terms, docstrings whose first line does
not make sense alone, and locals that do not say what they hold. Code data (word lists, fixtures in
other languages) belongs into data files, which are not checked.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ("src", "tests", "benchmarks", "tools", "examples", "docs/en", "README.md",
           "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")  # fmt: skip
WORDS = {  # what is not written, and what is
    r"whoever|nobody|somebody|everybody|anybody": "caller, user, request, worker; or passive",
    r"(go|goes|going|gone|went) on\b(?! (to|the|page|line))": "resume, continue",
    r"begun": "started",
    r"(is|are|was|were|be|been|being) (told|asked|heard)": "reported, requested, recorded",
    r"the way back": "backward",
    r"nothing to complain": "no problems found",
    r"is not there|are not there": "not found",
    r"such as are": "which are",
    r"at (its|the|their) doors?|door open|left the road|the road": "a plain description",
    r"mend(s|ed|ing)?": "fix, repair",
    r"makes? no sense": "invalid",
    r"guests?|rivers?|shelf|shelves": "request, running batch, registry",
    r"dares?|speaks?|listens?|hears?|looked at by": "a plain description",
    r"by heart|of (one's|your|its|their|our) own making": "a plain description",
    r"by-and-by|thus far|hitherto|thereof|wherein|whereupon": "a plain description",
}
DOCSTRING = re.compile(r"(The same|What|Of|Whether|Who|How|Where|Why|And|So|Such|All that)\b")
LOCALS = {"found", "one", "some", "thing", "things", "what", "who", "whom", "told", "said", "asked"}
PATTERNS = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), hint) for words, hint in WORDS.items()]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def main(arguments: list[str]) -> int:
    """Print every finding; return 1 if there are any."""
    findings = [line for file in files(arguments) for line in check(file)]
    print("\n".join(findings) if findings else "wording: no findings")
    if findings:
        print(f"wording: {len(findings)} findings", file=sys.stderr)
    return int(bool(findings))


def files(names: list[str]) -> Iterator[Path]:
    """Yield the tracked Python, Markdown and build files below these paths."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *(names or CHECKED)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in sorted(set(listed.splitlines())):
        path = ROOT / name
        text = path.suffix in (".py", ".md", ".toml", "") and path.name != "wording.py"
        if text and path.is_file() and not name.startswith("tests/snapshots"):
            yield path


def check(path: Path) -> Iterator[str]:
    """Yield the findings of one file."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
    if path.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            yield from (f"{name}:{number}: {finding}" for finding in words(line))
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, tokenize.NAME):
            prose = token.string if token.type != tokenize.NAME else token.string.replace("_", " ")
            for offset, line in enumerate(prose.splitlines()):
                number = token.start[0] + offset
                yield from (f"{name}:{number}: {finding}" for finding in words(line))
    for number, finding in sorted(set(structure(ast.parse(text), name.parts[0]))):
        yield f"{name}:{number}: {finding}"


def words(line: str) -> Iterator[str]:
    """Yield the words of a line that the style replaces."""
    for pattern, hint in PATTERNS:
        for match in pattern.finditer(line):
            yield f"{match[0]!r}: write {hint}"


def structure(tree: ast.Module, top: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings that do not stand alone, and locals without a meaning."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
            first = (ast.get_docstring(node) or "").split("\n")[0]
            if match := DOCSTRING.match(first):
                yield node.body[0].lineno, f"docstring begins with {match[0]!r}: {first[:60]}"
        if top == "tests":
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in LOCALS:
            yield node.lineno, f"local {node.id!r}: name what it holds"
        if isinstance(node, ast.arg) and node.arg in LOCALS:
            yield node.lineno, f"parameter {node.arg!r}: name what it holds"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
