"""A claim is worth nothing if it holds whatever the code does: break the library, see the row red.

A break is an edit of one function of the library, given as text. The edited function is compiled
and its code put into the running one, so that everybody who has imported it gets the broken one;
if the text is no longer in the source, the test says so instead of passing.
"""

import ast
import inspect
import textwrap
from typing import Any, NamedTuple

import pytest

from polyhead.cost.published import estimated_flops
from polyhead.data.batches.masked import mask_tokens
from polyhead.data.batches.translation import collate
from polyhead.layers.attention import (
    MultiHeadAttention,
    attention_weights,
    fused,
    softmax_of_visible,
)
from polyhead.layers.attention_scores import General, ScoredAttention
from polyhead.layers.embeddings import TokenEmbedding
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import Arrangement
from polyhead.layers.lsh.hashing import sort_by_bucket
from polyhead.layers.masks import Mask, not_padding
from polyhead.layers.norms import standardise
from polyhead.layers.positions import SinusoidalPositions, rotation
from polyhead.layers.recurrent import RNNCell
from polyhead.layers.reversible import _Reversible
from polyhead.layers.transformer_stack import Residual, TransformerBlock, TransformerStack
from polyhead.models.electra import Electra
from polyhead.models.vit import PatchEmbed
from polyhead.notes.claims import find_claim
from polyhead.notes.runner import run_claims
from polyhead.training.optim import noam


class Break(NamedTuple):
    """What goes wrong, where, by which edit, and which claims must notice."""

    name: str
    part: Any
    old: str
    new: str
    red: tuple[str, ...]


BREAKS = (
    Break("sine and cosine are swapped", SinusoidalPositions.forward,
          "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]", ("F5", "F6")),
    Break("a mask of zeros on the scores", softmax_of_visible,
          'float("-inf")', "0.0", ("D2", "D4", "D6")),
    Break("softmax over the wrong axis", softmax_of_visible,
          ".softmax(dim=-1)", ".softmax(dim=-2)", ("B1", "B2")),
    Break("scores are not scaled", attention_weights,
          " / math.sqrt(q.size(-1))", "", ("B1", "D2")),
    Break("keys and queries are swapped", attention_weights,
          "q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)", ("B1",)),
    Break("the kernel hides the future from nobody", fused,
          "is_causal=causal", "is_causal=False", ("D1", "D9")),
    Break("keys are taken for values", MultiHeadAttention.project,
          "self.w_v(y)", "self.w_k(y)", ("C1", "C3")),
    Break("heads are glued together crosswise", MultiHeadAttention._merge,
          "x.transpose(1, 2).flatten(-2)", "x.flatten(1).unflatten(1, (x.size(2), -1))",
          ("C1", "C3")),
    Break("the causal mask is off by one", Mask.dense,
          "diagonal=n_keys - n_queries", "diagonal=n_keys - n_queries + 1", ("D3", "D6")),
    Break("padding is seen", not_padding, "ids != pad", "ids == ids", ("D7", "D8")),
    Break("the cache forgets", BlockCache.extend, "if not self.capacity", "if True", ("D11",)),
    Break("the decoder asks itself", TransformerBlock.recall,
          "project(memory.states)", "project(h)", ("E1", "E2")),
    Break("the residual is left out", Residual.forward,
          "self.dropout.onto(x, ", "self.dropout(", ("E1", "G1", "G4")),
    Break("variance is divided by n - 1", standardise,
          "unbiased=False", "unbiased=True", ("G7", "G8")),
    Break("the feed-forward network mixes positions", FeedForward._feed,
          "self.w_1(x)", "self.w_1(x.flip(-2))", ("G12",)),
    Break("words are not scaled", TokenEmbedding.forward, "self.scale * ", "", ("H7", "F12")),
    Break("blocks stand side by side", TransformerStack.forward,
          "x = block(x, mask", "x = x + 0 * block(x, mask", ("H1",)),
    Break("the decoder reads its labels", collate, "[BOS, *target[:-1]]", "target", ("H4", "A5")),
    Break("no warm-up", noam, "min(step**-0.5, step * warmup**-1.5)", "step**-0.5", ("H8",)),
    Break("the rotation turns the other way", rotation,
          "[cos, sin, -sin, cos]", "[cos, -sin, sin, cos]", ("F8",)),
    Break("the recurrent cell has no bound", RNNCell.forward, "torch.tanh(", "(", ("A1",)),
    Break("the weighted sum is not normalised", ScoredAttention.weights,
          "softmax_of_visible(self.score(q, k), mask)", "self.score(q, k)", ("A6", "A7", "A8")),
    Break("the bilinear score forgets its matrix", General.prepare,
          'torch.einsum("bhqi,hij->bhqj", q, self.w)', "q", ("B6",)),
    Break("all blanks are [MASK]", mask_tokens, "(fate < config.masked)", "(fate < 1)", ("K3",)),
    Break("what was masked counts as replaced", Electra.forward,
          "forged != ids", "chosen", ("M1",)),
    Break("patches are read by columns", PatchEmbed.forward,
          "self.stem(images))", "self.stem(images)).transpose(2, 3)", ("L1",)),
    Break("the cost forgets how many devices there were", estimated_flops,
          "seconds * devices * sustained", "seconds * sustained", ("J11",)),
    Break("buckets are not sorted", sort_by_bucket,
          "+ buckets.flatten(0, 2)", "+ 0 * buckets.flatten(0, 2)", ("N7",)),
    Break("chunks look ahead instead of back", Arrangement.sees,
          "(back == 1)", "(back == -1)", ("N8",)),
    Break("the way back adds what it should subtract", _Reversible.backward,
          "_minus(y_2, moved)", "y_2 + moved", ("N9",)),
    Break("the window is one too wide", LocalAttention._visible,
          "distance <= self.window", "distance <= self.window + 1", ("I4",)),
)  # fmt: skip


def function_of(part):
    """The function itself, below the wrappers that check its types."""
    return inspect.unwrap(part)


def broken_code(one):
    """The code of the edited function, compiled as a part of its own module."""
    function = function_of(one.part)
    source = textwrap.dedent(inspect.getsource(function.__code__))
    assert one.old in source, f"{function.__qualname__} has no {one.old!r} to break"
    tree = ast.parse(source.replace(one.old, one.new))
    tree.body[0].decorator_list = []
    names = dict(function.__globals__)
    exec(compile(tree, "broken", "exec"), names)
    return names[function.__name__].__code__


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one.name)
def test_a_break_turns_its_rows_red(monkeypatch, one):
    checks = [find_claim(id) for id in one.red]
    assert {
        row.claim.id: row.verdict for row in run_claims(checks) if row.verdict == "BROKEN"
    } == {}
    monkeypatch.setattr(function_of(one.part), "__code__", broken_code(one))
    red = {row.claim.id for row in run_claims(checks) if row.verdict == "BROKEN"}
    assert red == set(one.red)


def test_there_are_enough_breaks_and_they_differ():
    assert len({(one.part, one.old, one.new) for one in BREAKS}) == len(BREAKS) >= 12


def test_a_break_is_undone_when_its_test_is(monkeypatch):
    one = BREAKS[0]
    before = function_of(one.part).__code__
    with monkeypatch.context() as patch:
        patch.setattr(function_of(one.part), "__code__", broken_code(one))
        assert function_of(one.part).__code__ is not before
    assert function_of(one.part).__code__ is before
