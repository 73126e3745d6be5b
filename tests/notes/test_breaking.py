"""Edits that break one part of the library, and the claims that must detect them.

An edited function is compiled and its code assigned to the original, so that all modules use the
broken one; if the text to edit is no longer in the source, the test fails. The edits are in
breaking.toml. A few parts are replaced as a whole instead.
"""

import ast
import inspect
import textwrap
import tomllib
from collections import defaultdict
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from polyhead.cost import breakdown, published
from polyhead.cost.formulas import Cost
from polyhead.layers import norms
from polyhead.layers.attention import NO_MASK
from polyhead.layers.attention_scores import Dot, ScaledDot
from polyhead.layers.recurrent import Recurrence
from polyhead.models import gpt, transformer
from polyhead.models.baselines.attention_ladder import ByContent, Equal
from polyhead.notes.chapters import complexity_claims, electra_claims
from polyhead.notes.claims import find_claim, load_claims
from polyhead.notes.verification import run_claims
from polyhead.render import svg

TABLE = Path(__file__).with_name("breaking.toml").read_text(encoding="utf-8")
EDITS = {name: edit for topic in tomllib.loads(TABLE).values() for name, edit in topic.items()}


def attention_word_by_word(q, k, v):
    rows = [q[:, :, :1]]
    for n in range(q.size(2)):
        rows.append(F.softmax(rows[-1] @ k.mT, -1) @ v + q[:, :, n : n + 1])
    return torch.cat(rows[1:], 2)


def encode_without_memory(self, x, _lengths):
    batch, length, width = x.shape
    states, last = self.cells(x.reshape(batch * length, 1, width))
    return states.view(batch, length, -1), (last.view(1, batch, length, -1)[:, :, 0],)


def equal_initial_weights(model):
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)


REPLACEMENTS = {  # owner, attribute, replacement, and the claims that fail
    "score without scale": (ScaledDot, "prepare", Dot.prepare, "B3 B8 B16 B20"),
    "norm of the note corrected": (norms.NotesLayerNorm, "forward", norms.LayerNorm.forward, "G7"),
    "layer norm as in the note": (norms.LayerNorm, "forward", norms.NotesLayerNorm.forward,
                                  "G5 G6 G7 G8 G11 G14"),
    "scores that ignore the words": (ByContent, "forward", Equal.forward, "A8"),
    "encoder without memory": (Recurrence, "encode", encode_without_memory, "A4 A14 A15 …"),
    "layers initialized equally": (transformer, "xavier", equal_initial_weights, "H5"),
    "GPT sees the future": (gpt, "causal_mask", lambda *_, **__: NO_MASK, "D10 K4"),
    "one colour": (svg, "PALETTE", ("#0060c4",), "K1"),
    "ReLU instead of GELU": (nn.GELU, "forward", lambda _, x: F.relu(x), "L4"),
    "another weight of the loss": (electra_claims, "SPOTTING_WEIGHT", 1.0, "M9"),
    "attention word by word": (complexity_claims, "attention", attention_word_by_word, "I5 …"),
    "work without the weighted sum": (complexity_claims, "self_attention_work",
                                      lambda n, d: 2 * n * n * d, "I1"),
    "cost without output layer": (breakdown, "output_layer", lambda *_: Cost(), "J12"),
    "other dropout in backward": (torch, "set_rng_state", lambda _: None, "N9"),
}  # fmt: skip


def code_of(function, old, new):
    """Compile the edited function as a part of its module, with the same free variables."""
    source = textwrap.dedent(inspect.getsource(function.__code__))
    assert old in source, f"{function.__qualname__} has no {old!r} to break"
    tree = ast.parse(source.replace(old, new))
    tree.body[0].decorator_list = []
    free = ", ".join(function.__code__.co_freevars)
    outer = ast.parse(f"def outer({free}):\n    return {function.__name__}")
    outer.body[0].body[:0] = tree.body
    names = dict(function.__globals__)
    exec(compile(outer, "broken", "exec"), names)
    return names["outer"](*function.__code__.co_freevars).__code__


def check_failing(fails):
    """Check that these claims fail, and no other of their chapters unless the text ends with …"""
    expected = set(fails.removesuffix(" …").split())
    by_chapter = defaultdict(list)
    for claim in load_claims():
        by_chapter[claim.chapter].append(claim)
    claims = [find_claim(id) for id in sorted(expected)]
    if not fails.endswith("…"):
        claims = [c for chapter in {claim.chapter for claim in claims} for c in by_chapter[chapter]]
    assert {row.claim.id for row in run_claims(claims) if row.verdict == "BROKEN"} == expected


@pytest.mark.parametrize("name", EDITS)
def test_claims_fail_when_a_function_is_edited(monkeypatch, name):
    path, old, new, fails = EDITS[name]
    module, _, function_name = path.partition(":")
    function = inspect.unwrap(attrgetter(function_name)(import_module(f"polyhead.{module}")))
    monkeypatch.setattr(function, "__code__", code_of(function, old, new))
    check_failing(fails)


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_claims_fail_when_a_part_is_replaced(monkeypatch, name):
    owner, attribute, replacement, fails = REPLACEMENTS[name]
    load_claims()  # before any patch
    monkeypatch.setattr(owner, attribute, replacement)
    check_failing(fails)


@pytest.mark.parametrize("name", published.TABLE_2)
@pytest.mark.parametrize("field", published.PublishedSystem._fields[1:])
def test_a_mistyped_figure_of_table_2_is_detected(monkeypatch, name, field):
    row = published.TABLE_2[name]
    figure = getattr(row, field)
    changed = row._replace(**{field: 1.0 if figure is None else figure * 1.01})
    monkeypatch.setitem(published.TABLE_2, name, changed)
    assert not find_claim(f"J{1 + list(published.TABLE_2).index(name)}").check().holds


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_claims_about_recurrent_networks_hold_for_other_seeds(seed, monkeypatch):
    start = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda _: start(seed))
    claims = [claim for claim in load_claims() if claim.chapter == "recurrent"]
    assert [row.claim.id for row in run_claims(claims) if not row.result.holds] == []
