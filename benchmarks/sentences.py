"""Split texts into sentences as others expect it: our rules, and sentencex alone.

    python benchmarks/sentences.py
    python benchmarks/sentences.py --lines ko=tatoeba/ko-en.test.ko --record

The cases are pySBD's golden rules of English and sentencex's own tests (texts of one line), read
from the source distributions that are fetched from the package index of pip. With `--lines`, real
lines that end in a stop are joined three by three, 1,000 times for each file, and must come apart.
A text counts if all its sentences are right, but for white space around them.
"""

import ast
import os
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from random import Random
from urllib.parse import urljoin
from urllib.request import urlopen

import sentencex
from measuring import RESULTS, commit, parser, record, run, table
from pip._internal.models.index import PyPI

from polyhead.data.text_files import read_lines
from polyhead.errors import DataError
from polyhead.pipelines.sentences import split_sentences

VERSIONS = {"pysbd": "0.3.3", "sentencex": "1.0.32"}
GOLDEN = "benchmarks/english_golden_rules.py"
HEADING = "Sentences"
COLUMNS = ("cases", "language", "texts", "ours", "sentencex")
MANY = 20  # cases of a language that has a row of its own
N_JOINS, N_LINES, SEED = 1_000, 3, 1
STOP = re.compile(r"[.!?…。！？][\"”’')\]]*$")

Case = tuple[str, list[str]]
SPLITTERS: tuple[Callable[[str, str], list[str]], ...] = (
    lambda language, text: split_sentences(text, language),
    sentencex.segment,
)


def source(package: str) -> dict[str, str]:
    """Fetch a source distribution; return its texts by path."""
    name = f"{package}-{VERSIONS[package]}"
    index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/") + f"/{package}/"
    with urlopen(index) as reply:
        link = re.search(rf'href="([^"]*{name}\.tar\.gz)', reply.read().decode())
    if link is None:
        raise DataError(f"{index}: no source distribution {name}", "not_found")
    with urlopen(urljoin(index, link[1])) as reply:
        content = BytesIO(reply.read())
    with tarfile.open(fileobj=content) as archive:
        return {
            item.name.removeprefix(f"{name}/"): stream.read().decode()
            for item in archive
            if item.name.endswith((".py", ".txt")) and (stream := archive.extractfile(item))
        }


def golden_rules() -> list[Case]:
    """Return pySBD's golden rules of English."""
    tree = ast.parse(source("pysbd")[GOLDEN])
    (value,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    return list(ast.literal_eval(value))


def own_tests() -> Iterator[tuple[str, list[Case]]]:
    """Yield sentencex's own tests of each language, as far as their texts are one line."""
    for name, content in sorted(source("sentencex").items()):
        if not re.fullmatch(r"tests/[a-z]{2}\.txt", name):
            continue
        lines = [line for line in content.splitlines() if not line.startswith("#")]
        parts = [part.split("\n---\n") for part in "\n".join(lines).split("\n===")]
        cases = [(part[0].strip(), part[1].strip().split("\n")) for part in parts if len(part) == 2]
        yield Path(name).stem, [case for case in cases if "\n" not in case[0]]


def joins(path: str) -> list[Case]:
    """Return joins of real lines."""
    lines = [line.strip() for line in read_lines(path) if STOP.search(line.strip())]
    random = Random(SEED)
    drawn = [random.sample(lines, N_LINES) for _ in range(N_JOINS)]
    return [(" ".join(texts), texts) for texts in drawn]


def row(name: str, language: str, cases: Sequence[Case]) -> list[str]:
    """Count the right texts of each splitter."""
    right = [
        sum([s.strip() for s in split(language, text)] == [*map(str.strip, texts)]
            for text, texts in cases)
        for split in SPLITTERS
    ]  # fmt: skip
    return [name, language, f"{len(cases):,}", *(f"{n:,}" for n in right)]


def main(words: Sequence[str]) -> int:
    """Count on all cases, and print or record the table."""
    options = parser(__doc__)
    options.add_argument("--lines", action="append", default=[], help="LANGUAGE=FILE of real lines")
    options.add_argument("--record", action="store_true", help="append to RESULTS.md")
    args = options.parse_args(words)
    rows = [row("pySBD's golden rules", "en", golden_rules())]
    few: list[list[str]] = []
    for language, cases in own_tests():
        counted = row("sentencex's tests", language, cases)
        (rows if len(cases) >= MANY else few).append(counted)
    sums = [sum(int(cells[n]) for cells in few) for n in range(2, len(COLUMNS))]
    rows.append(["sentencex's tests", f"{len(few)} others", *map(str, sums)])
    for given in args.lines:
        language, path = given.split("=", 1)
        rows.append(row(f"joins of {Path(path).name}", language, joins(path)))
    lines = table(COLUMNS, rows)
    print("\n".join(lines))
    if args.record:
        command = shlex.join(["python", "benchmarks/sentences.py", *words])
        about = f"{time.strftime('%Y-%m-%d', time.gmtime())}, commit {commit()}, `{command}`"
        record(RESULTS, HEADING, [f"- {about}", "", *lines])
    return 0


if __name__ == "__main__":
    run(main)
