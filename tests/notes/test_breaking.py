"""Edits that break one function of the library, and the claims that must fail.

The edited function is compiled and its code assigned to the original function, so that all modules
use the broken one. If the text to edit is no longer in the source, the test fails.
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
    Mask,
    MultiHeadAttention,
    attention_weights,
    fused,
    not_padding,
    softmax_of_visible,
)
from polyhead.layers.attention_scores import General, ScoredAttention
from polyhead.layers.embeddings import SinusoidalPositions, TokenEmbedding, rotation
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import Arrangement
from polyhead.layers.lsh.hashing import sort_by_bucket
from polyhead.layers.norms import standardise
from polyhead.layers.recurrent import RNNCell
from polyhead.layers.reversible import _Reversible
from polyhead.layers.transformer_stack import Residual, TransformerBlock, TransformerStack
from polyhead.models.electra import Electra
from polyhead.models.vit import PatchEmbed
from polyhead.notes.claims import find_claim
from polyhead.notes.verification import run_claims
from polyhead.training.optim import noam


class Break(NamedTuple):
    """An edit of a function, and the claims that must fail."""

    name: str
    part: Any
    old: str
    new: str
    ids: tuple[str, ...]


BREAKS = (
    Break("sine and cosine swapped", SinusoidalPositions.forward,
          "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]", ("F5", "F6")),
    Break("a mask of zeros on the scores", softmax_of_visible,
          'float("-inf")', "0.0", ("D2", "D4", "D6")),
    Break("softmax over the wrong axis", softmax_of_visible,
          ".softmax(dim=-1)", ".softmax(dim=-2)", ("B1", "B2")),
    Break("scores not scaled", attention_weights, " / math.sqrt(q.size(-1))", "", ("B1", "D2")),
    Break("keys and queries swapped", attention_weights,
          "q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)", ("B1",)),
    Break("kernel without causal mask", fused, "is_causal=causal", "is_causal=False", ("D1", "D9")),
    Break("keys used as values", MultiHeadAttention.project,
          "self.w_v(y)", "self.w_k(y)", ("C1", "C3")),
    Break("heads merged in the wrong order", MultiHeadAttention.forward,
          "context.transpose(1, 2).flatten(-2)",
          "context.flatten(1).unflatten(1, (context.size(2), -1))",
          ("C1", "C3")),
    Break("causal mask off by one", Mask.dense,
          "diagonal=n_keys - n_queries", "diagonal=n_keys - n_queries + 1", ("D3", "D6")),
    Break("padding visible", not_padding, "ids != pad", "ids == ids", ("D7", "D8")),
    Break("cache without memory", BlockCache.extend, "if not self.capacity", "if True", ("D11",)),
    Break("cross-attention to the decoder", TransformerBlock.recall,
          "project(memory.states)", "project(h)", ("E1", "E2")),
    Break("no residual connection", Residual.forward,
          "self.dropout.onto(x, ", "self.dropout(", ("E1", "G1", "G4")),
    Break("variance divided by n - 1", standardise,
          "unbiased=False", "unbiased=True", ("G7", "G8")),
    Break("feed-forward network that mixes positions", FeedForward.forward,
          "self.w_1(x)", "self.w_1(x.flip(-2))", ("G12",)),
    Break("embeddings not scaled", TokenEmbedding.forward, "self.scale * ", "", ("H7", "F12")),
    Break("blocks that do not follow each other", TransformerStack.forward,
          "x = block(x, mask", "x = x + 0 * block(x, mask", ("H1",)),
    Break("decoder reads its labels", collate, "[BOS, *target[:-1]]", "target", ("H4", "A5")),
    Break("no warm-up", noam, "min(step**-0.5, step * warmup**-1.5)", "step**-0.5", ("H8",)),
    Break("rotation in the other direction", rotation,
          "[cos, sin, -sin, cos]", "[cos, -sin, sin, cos]", ("F8",)),
    Break("recurrent cell without tanh", RNNCell.forward, "torch.tanh(", "(", ("A1",)),
    Break("weights not normalised", ScoredAttention.weights,
          "softmax_of_visible(self.score(q, k), mask)", "self.score(q, k)", ("A6", "A7", "A8")),
    Break("general score without its matrix", General.prepare,
          'torch.einsum("bhqi,hij->bhqj", q, self.w)', "q", ("B6",)),
    Break("all selected tokens become [MASK]", mask_tokens,
          "(fate < config.masked)", "(fate < 1)", ("K3",)),
    Break("masked tokens labelled as replaced", Electra.forward,
          "forged != ids", "chosen", ("M1",)),
    Break("patches read by columns", PatchEmbed.forward,
          "self.stem(images))", "self.stem(images)).transpose(2, 3)", ("L1",)),
    Break("cost without number of devices", estimated_flops,
          "seconds * devices * sustained", "seconds * sustained", ("J11",)),
    Break("buckets not sorted", sort_by_bucket,
          "+ buckets.flatten(0, 2)", "+ 0 * buckets.flatten(0, 2)", ("N7",)),
    Break("next chunk instead of previous", Arrangement.sees,
          "(back == 1)", "(back == -1)", ("N8",)),
    Break("backward adds instead of subtracting", _Reversible.backward,
          "_minus(y_2, moved)", "y_2 + moved", ("N9",)),
    Break("window one too wide", LocalAttention._visible,
          "distance <= self.window", "distance <= self.window + 1", ("I4",)),
)  # fmt: skip


def function_of(part):
    """Return the function below the wrappers that check its types."""
    return inspect.unwrap(part)


def broken_code(case):
    """Compile the edited function as a part of its module."""
    function = function_of(case.part)
    source = textwrap.dedent(inspect.getsource(function.__code__))
    assert case.old in source, f"{function.__qualname__} has no {case.old!r} to break"
    tree = ast.parse(source.replace(case.old, case.new))
    tree.body[0].decorator_list = []
    names = dict(function.__globals__)
    exec(compile(tree, "broken", "exec"), names)
    return names[function.__name__].__code__


def failing(ids):
    rows = run_claims([find_claim(id) for id in ids])
    return {row.claim.id for row in rows if row.verdict == "BROKEN"}


@pytest.mark.parametrize("case", BREAKS, ids=lambda case: case.name)
def test_a_break_makes_its_claims_fail_until_it_is_undone(monkeypatch, case):
    function = function_of(case.part)
    original = function.__code__
    assert failing(case.ids) == set()
    with monkeypatch.context() as patch:
        patch.setattr(function, "__code__", broken_code(case))
        assert failing(case.ids) == set(case.ids)
    assert function.__code__ is original


def test_the_breaks_are_different():
    assert len({(case.part, case.old, case.new) for case in BREAKS}) == len(BREAKS) >= 12
