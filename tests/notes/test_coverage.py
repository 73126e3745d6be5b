"""Every row of the notes is covered by a claim, a test or a remark (tests/notes/coverage.toml)."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from polyhead.notes.claims import load_claims

ROOT = Path(__file__).parents[2]
ROWS = {"A": 19, "B": 20, "C": 10, "D": 11, "E": 4, "F": 14, "G": 15, "H": 14, "I": 6, "J": 14,
        "K": 4, "L": 6, "M": 9, "N": 11}  # fmt: skip
IDS = [f"{letter}{number}" for letter, n in ROWS.items() for number in range(1, n + 1)]
TABLE = tomllib.loads(Path(__file__).with_name("coverage.toml").read_text(encoding="utf-8"))
OWNERS = {
    id: [owners] if isinstance(owners, str) else owners
    for letter in ROWS
    for id, owners in TABLE[letter].items()
}
SYSTEMS = TABLE["systems"]
NAMED = (
    "RNN", "LSTM", "seq2seq", "teacher forcing", "RNN + attention, mean",
    "RNN + attention, positional", "RNN + attention, content", "RNN + attention, query and content",
    "score dot", "score scaled dot", "score general", "score additive", "Transformer base",
    "Transformer big", "self-attention", "masked attention", "cross-attention",
    "multi-head attention", "restricted attention", "BatchNorm", "LayerNorm", "InstanceNorm",
    "GroupNorm", "positions counting", "positions normalised", "positions binary",
    "positions sinusoid", "positions learned", "warm-up", "ByteNet", "Deep-Att + PosUnk",
    "GNMT + RL", "ConvS2S", "MoE", "BERT", "GPT", "ViT", "PatchEmbed", "ELECTRA", "GAN contrast",
    "Reformer LSH", "Reformer chunking", "Reformer reversible", "Figure 3", "1D-CNN contrast",
    "Multi30k notebook",
)  # fmt: skip


@cache
def checked():
    """Return the ids of all claims."""
    return {claim.id for claim in load_claims()}


def missing(id, owner):
    """Return why an owner does not exist, or an empty text."""
    kind, _, where = owner.partition(": ")
    if kind == "check":
        return "" if (where or id) in checked() else "polyhead verify has no such claim"
    if kind == "test":
        return missing_test(where)
    if kind == "remark":
        return missing_remark(where)
    return f"{owner!r} is neither a check, a test nor a remark"


def missing_test(where):
    path, _, name = where.partition("::")
    if not (ROOT / path).is_file():
        return f"{path}: no such file"
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return "" if name in names and name.startswith("test_") else f"{path} has no test {name!r}"


def missing_remark(where):
    path, _, anchor = where.partition("#")
    if not path.startswith("docs/en/") or not anchor:
        return f"{where}: expected docs/en/CHAPTER.md#ANCHOR"
    for file in (path, path.replace("docs/en/", "docs/ko/", 1)):
        if not (ROOT / file).is_file():
            return f"{file}: no such file"
        if anchor not in anchors((ROOT / file).read_text(encoding="utf-8")):
            return f"{file} has no anchor {anchor!r}"
    return ""


def anchors(text):
    """Return the ids in a text, and those that GitHub makes of headings."""
    written = re.findall(r"<a id=\"([^\"]+)\">", text)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {
        *written,
        *(re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-") for words in headings),
    }


def test_the_table_has_exactly_the_rows_and_systems_of_the_notes_and_all_checks():
    assert list(OWNERS) == IDS
    assert set(SYSTEMS) == set(NAMED)
    assert checked() <= {id for id, owners in OWNERS.items() if "check" in owners}


@pytest.mark.parametrize("id", IDS)
def test_every_row_has_an_owner_that_exists(id):
    assert OWNERS[id], f"{id} has no owner"
    assert {owner: missing(id, owner) for owner in OWNERS[id]} == dict.fromkeys(OWNERS[id], "")


@pytest.mark.parametrize("name", NAMED)
def test_every_system_that_the_notes_name_is_covered(name):
    owner = SYSTEMS[name]
    assert owner in OWNERS or missing("", owner) == ""


@pytest.mark.parametrize(
    ("owner", "problem"),
    [
        ("check", "polyhead verify has no such claim"),
        ("check: Z8", "polyhead verify has no such claim"),
        ("test: tests/notes/test_nothing.py::test_it", "no such file"),
        ("test: tests/notes/test_coverage.py::test_nothing", "has no test"),
        ("test: tests/notes/test_coverage.py::anchors", "has no test"),
        ("remark: docs/en/nothing.md#x", "no such file"),
        ("remark: README.md", "expected docs/en/CHAPTER.md#ANCHOR"),
        ("unknown", "neither"),
    ],
)
def test_a_missing_owner_is_reported(owner, problem):
    assert problem in missing("Z9", owner)
