"""Edits that break one part of the library, and the claims that must detect them.

An edited function is compiled and its code assigned to the original, so that all modules use the
broken one; if the text to edit is no longer in the source, the test fails. A few parts are replaced
as a whole instead.
"""

import ast
import inspect
import textwrap
from collections import defaultdict
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from polyhead.cost import breakdown, published
from polyhead.cost.formulas import Cost
from polyhead.data.batches.masked import mask_tokens
from polyhead.data.batches.translation import shift_right
from polyhead.decoding.ensemble import Ensemble
from polyhead.layers import embeddings, norms
from polyhead.layers.attention import (
    NO_MASK,
    FullAttention,
    Mask,
    MultiHeadAttention,
    attention,
    attention_weights,
    fused,
    not_padding,
    softmax_of_visible,
)
from polyhead.layers.attention_scores import Dot, General, ScaledDot, ScoredAttention
from polyhead.layers.convolution import Convolution
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh import hashing
from polyhead.layers.lsh.attention import Arrangement, _weights
from polyhead.layers.lsh.chunked import LSHPlan
from polyhead.layers.mixture_of_experts import BalancedGate, Gate, HierarchicalGate
from polyhead.layers.recurrent import LookBack, Network, Recurrence, RNNCell, lstm_step, turned
from polyhead.layers.reversible import _Reversible
from polyhead.layers.transformer_stack import Residual, TransformerBlock, TransformerStack
from polyhead.models import gpt, transformer
from polyhead.models.baselines.attention_ladder import ByContent, ByPosition, Equal
from polyhead.models.baselines.convs2s import ConvAttention
from polyhead.models.baselines.deep_att import DeepAtt
from polyhead.models.baselines.gnmt import GNMT
from polyhead.models.baselines.seq2seq import Seq2Seq
from polyhead.models.bert import BERT
from polyhead.models.electra import Electra, draw, narrowed
from polyhead.models.transformer import Transformer
from polyhead.models.vit import PatchEmbed, ViT, cut
from polyhead.notes.chapters import complexity_claims, electra_claims
from polyhead.notes.claims import find_claim, load_claims
from polyhead.notes.verification import run_claims
from polyhead.render import svg
from polyhead.training.losses import TranslationLoss
from polyhead.training.optim import noam


class Edit(NamedTuple):
    """An edit of a function, and the claims that fail; after them "…" if others may fail too."""

    name: str
    part: Any
    old: str
    new: str
    fails: str


EDITS = (
    # Attention and heads
    Edit("kernel without scale", fused, "scale=scale", "scale=1.0", "B1 B4 B15 C1 C3 C6 C7"),
    Edit("scale of the whole model", fused,
         "scale=scale", "scale=(q.size(1) * q.size(-1)) ** -0.5", "B1 B4"),
    Edit("kernel without mask", fused, "attn_mask=allowed", "attn_mask=None", "B1"),
    Edit("kernel without causal mask", fused, "is_causal=causal", "is_causal=False", "D1 D9 …"),
    Edit("attention to neighbours only", fused, "attn_mask=allowed",
         "attn_mask=torch.ones(q.size(-2), k.size(-2)).tril(1).triu(-1).bool()",
         "A12 A15 B1 B18 …"),
    Edit("scores not scaled", attention_weights, " / math.sqrt(q.size(-1))", "", "B1 D2 …"),
    Edit("keys and queries swapped", attention_weights,
         "q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)", "B1 K1 …"),
    Edit("formula without softmax", attention,
         "attention_weights(q, k, mask)", "(q @ k.mT)", "B1 B9 B12 …"),
    Edit("softmax over the wrong axis", softmax_of_visible,
         ".softmax(dim=-1)", ".softmax(dim=-2)", "A6 A7 A8 A16 B1 B2 B8 C8 …"),
    Edit("attention to oneself", softmax_of_visible, "scores.softmax(dim=-1)",
         "(scores + 9 * torch.eye(scores.size(-1))[: scores.size(-2)]).softmax(dim=-1)", "B19 …"),
    Edit("hidden rows not set to zero", softmax_of_visible,
         "weights.masked_fill(~allowed, 0.0)", "weights", "C7"),
    Edit("keys used as values", MultiHeadAttention.project,
         "self.w_v(y)", "self.w_k(y)", "B10 C1 C3 …"),
    Edit("values used as keys", MultiHeadAttention.project,
         "self.w_k(y)", "self.w_v(y)", "B10 C1 C2 C3 C6 …"),
    Edit("queries without gradient", MultiHeadAttention.forward,
         "self.w_q(x)", "self.w_q(x).detach()", "B17"),
    Edit("last projection applied twice", MultiHeadAttention.forward,
         "self.w_o(context", "(lambda y: self.w_o(self.w_o(y)))(context", "E1 E3"),
    Edit("attention of another width", MultiHeadAttention.forward,
         "self.w_o(context", "(lambda y: self.w_o(y)[..., :-1])(context",
         "G2 G3 G4 G13"),
    Edit("heads merged in the wrong order", MultiHeadAttention.forward,
         "context.transpose(1, 2).flatten(-2)",
         "context.flatten(1).unflatten(1, (context.size(2), -1))",
         "C1 C3 …"),
    Edit("heads that are all the first", MultiHeadAttention._split,
         ".transpose(1, 2)", ".transpose(1, 2)[:, :1].expand(-1, self.n_heads, -1, -1)", "C5 …"),
    Edit("indivisible width accepted", MultiHeadAttention.__init__,
         "if d_model % n_heads", "if False", "C4"),
    Edit("kernel that saves all weights", FullAttention.forward,
         "fused(q, k, v, mask, self.dropout if self.training else 0.0)",
         "attention_weights(q, k, mask) @ v", "I6"),
    Edit("general score without its matrix", General.prepare,
         'torch.einsum("bhqi,hij->bhqj", q, self.w)', "q", "B6"),
    Edit("general score with a transposed matrix", General.prepare, "hij->", "hji->", "B6"),
    Edit("self-attention to the memory", TransformerBlock.forward,
         "self.attend(h, mask, cache, places)",
         "self.self_attention(h, self.self_attention.project(memory.states))", "B7"),
    Edit("attention computed twice", attention,
         "attention_weights(q, k, mask) @ v",
         "(attention_weights(q, k, mask) @ v + attention_weights(q, k, mask) @ v) / 2",
         "I1 I6"),
    # Masks
    Edit("a mask of zeros on the scores", softmax_of_visible,
         'float("-inf")', "0.0", "D2 D4 D6"),
    Edit("fill value beyond 16 bits", softmax_of_visible, 'float("-inf")', "-1e10", "D5"),
    Edit("mask not applied to the scores", softmax_of_visible,
         "if allowed is None", "if True", "A6 A19 D2 D4 D6 D10"),
    Edit("kernel that gets no mask", FullAttention.forward,
         "mask, self.dropout", "Mask(), self.dropout", "D1 D7 D9 D11"),
    Edit("causal mask one to the right", Mask.dense,
         "n_keys - n_queries)", "n_keys - n_queries + 1)", "D2 D3 D6 D8 D10"),
    Edit("causal mask one to the left", Mask.dense,
         "n_keys - n_queries)", "n_keys - n_queries - 1)", "D2 D3 D6 D8"),
    Edit("padding visible", not_padding, "ids != pad", "ids == ids", "D7 D8"),
    Edit("cache without memory", BlockCache.extend, "if not self.capacity", "if True", "D11"),
    # Cross-attention
    Edit("cross-attention to the decoder", TransformerBlock.recall,
         "project(memory.states)", "project(h)", "E1 E2 E4"),
    Edit("queries from the encoder", TransformerBlock.recall,
         "self.cross_attention(h, cache.memory, memory.mask)",
         "self.cross_attention(memory.states, self.cross_attention.project(h))[:, : h.size(1)]",
         "E1 E2 E4"),
    # Positions and embeddings
    Edit("sine and cosine swapped", embeddings.SinusoidalPositions.forward,
         "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]", "F5 F6 F8 F12"),
    Edit("offset ignored", embeddings.SinusoidalPositions.forward,
         "torch.arange(offset, offset + length", "torch.arange(length", "F8"),
    Edit("sinusoids as parameters", embeddings.SinusoidalPositions.__init__,
         'self.register_buffer("rate", frequencies(d_model), persistent=False)',
         "self.rate = nn.Parameter(frequencies(d_model))", "F11 H6"),
    Edit("wrong frequencies", embeddings.frequencies, "10000.0", "1000.0", "F5 F6 F7 F9"),
    Edit("rotation in the other direction", embeddings.rotation,
         "[cos, sin, -sin, cos]", "[cos, -sin, sin, cos]", "F8"),
    Edit("digits reversed", embeddings.BinaryPositions.forward,
         "torch.arange(self.d_model - 1, -1, -1)", "torch.arange(self.d_model)", "F4"),
    Edit("counts that ignore the length", embeddings.NormalisedPositions.forward,
         "/ max(1, ", "/ max(10, ", "F3"),
    Edit("table longer than it is", embeddings.LearnedPositions.forward,
         "if offset + length > self.table.num_embeddings", "if False", "F10"),
    Edit("embeddings not scaled", embeddings.TokenEmbedding.forward, "self.scale * ", "", "F12 H7"),
    Edit("block that knows the order", TransformerBlock.forward,
         "self.self_residual(x,", "self.self_residual(x + torch.arange(x.size(1))[:, None],",
         "F1"),
    # The block
    Edit("no residual connection", Residual.forward,
         "self.dropout.onto(x, ", "self.dropout(", "B19 E1 G1 G2 G4 G15"),
    Edit("norm always before the sub-layer", Residual.__init__,
         'config.norm == "pre"', "True", "G4 G11 G15"),
    Edit("model without norms", Residual.__init__,
         "nn.LayerNorm(config.d_model, eps=config.norm_eps)", "nn.Identity()", "H11"),
    Edit("variance divided by n - 1", norms.standardise,
         "unbiased=False", "unbiased=True", "G5 G6 G7 G8 G14 …"),
    Edit("layer norm over samples", norms.LayerNorm.forward,
         "(-1,)", "(0 if x.dim() > 1 else -1,)", "G5 G8 G9"),
    Edit("bias and weight swapped", norms.LayerNorm.forward,
         "* self.weight + self.bias", "* (1 + self.bias) + self.weight - 1", "G6"),
    Edit("batch norm without batch", norms.BatchNorm.forward,
         "self.affine_map(standardise(x, axes, self.eps))", "x", "G8 G9"),
    *(Edit(f"{norm.__name__} 0.1 % too large", norm.forward,
           "self.affine_map(", "1.001 * self.affine_map(", "G8")
      for norm in (norms.BatchNorm, norms.InstanceNorm, norms.GroupNorm)),
    Edit("smaller feed-forward networks", FeedForward.__init__,
         "self.w_1 = ", "d_ff //= 2; self.w_1 = ", "A17 …"),
    Edit("feed-forward network that mixes positions", FeedForward.forward,
         "self.w_1(x)", "self.w_1(x.flip(-2))", "G4 G12"),
    Edit("another activation", FeedForward.__init__,
         "ACTIVATIONS[activation]()", "nn.Tanh()", "G4 G12"),
    Edit("feed-forward network without chunks", FeedForward.forward,
         "if not self.chunk", "if True", "N10"),
    # The model and its training
    Edit("blocks that do not follow each other", TransformerStack.forward,
         "x = block(x, mask", "x = x + 0 * block(x, mask", "H1 …"),
    Edit("unregistered tensor with gradient", Transformer.hidden,
         "self.embed_target(target)",
         "torch.ones(1, requires_grad=True) * self.embed_target(target)", "H6"),
    Edit("last choice instead of first", Transformer.step,
         "return self.to_logits", "return -self.to_logits", "H14"),
    Edit("decoder that ignores its output", Transformer.step,
         "last.view(-1, 1)", "torch.ones_like(last.view(-1, 1))", "H14"),
    Edit("training word by word", Transformer.forward,
         "self.to_logits(self.hidden(source, target))",
         "torch.cat([self.to_logits(self.hidden(source, target[:, : n + 1]))[:, -1:] "
         "for n in range(target.size(1))], 1)", "H9"),
    Edit("decoder reads its labels", shift_right,
         "F.pad(labels[:, :-1], (1, 0), value=BOS)", "labels", "A5 H4"),
    Edit("mean instead of sum", TranslationLoss.__call__,
         "Loss(total,", "Loss(total / len(labels),", "H3"),
    Edit("no warm-up", noam, "min(step**-0.5, step * warmup**-1.5)", "step**-0.5", "H8"),
    Edit("larger of both rates", noam, "min(step**-0.5", "max(step**-0.5", "H8"),
    Edit("rate without width", noam, "d_model**-0.5", "1", "H8"),
    Edit("steps counted from zero", noam, "min(step**-0.5", "min((step + 1) ** -0.5", "H8"),
    # Complexity and cost
    Edit("parallel recurrence", Recurrence.forward,
         "self.cells(x, state if len(state) > 1 else state[0])",
         "(x @ self.cells.weight_ih_l0, state)", "I2"),
    Edit("window one too wide", LocalAttention._visible,
         "distance <= self.window", "distance <= self.window + 1", "I4"),
    Edit("cost without number of devices", published.estimated_flops,
         "seconds * devices * sustained", "seconds * sustained", "J11"),
    # The systems of Table 2
    Edit("LSTM gates swapped", lstm_step,
         "i, f, new, o =", "f, i, new, o =", "A18 A19 J2 J3 J5 J6 J7"),
    Edit("expert weights that do not sum to 1", Gate.route, ".softmax(-1)", ".sigmoid()", "J5"),
    Edit("balanced weights that do not sum to 1", BalancedGate.forward,
         "gates = kept / ", "gates = kept + 0 * ", "J5"),
    Edit("groups without weights", HierarchicalGate.forward,
         "first.weights[at] * inner.weights", "inner.weights", "J5"),
    Edit("dilation ignored", Convolution.__init__, "= dilation", "= 1", "I3 J1"),
    Edit("learned positions that ignore the offset", embeddings.LearnedPositions.forward,
         "weight[offset : offset + length]", "weight[:length]", "J4 J8"),
    Edit("initial embeddings √d too large", transformer.xavier,
         "std=module.embedding_dim**-0.5", "std=1.0", "F12"),
    Edit("embeddings multiplied by d", embeddings.TokenEmbedding.__init__,
         "math.sqrt(d_model) if", "d_model if", "F12 J1 J9 J10"),
    Edit("additive score without tanh", Network.forward, "torch.tanh(", "(", "A19 J2 J3 J6 J7"),
    Edit("GNMT that queries with the new state", GNMT.decode_all,
         "before if self.queries_past else u", "u", "J3"),
    Edit("GNMT without residual connections", GNMT.upper_layers, "new + x if", "new if", "J3 J7"),
    Edit("Deep-Att that reads from the left only", DeepAtt.run_encoder,
         "(number + starts_right) % 2", "False", "J2 J6"),
    Edit("no √s in ConvS2S", ConvAttention.attend,
         " * _root_length(encoding.memory)", "", "J4 J8"),
    Edit("ensemble of geometric means", Ensemble.step,
         ".logsumexp(0) - math.log(len(log_p))", ".mean(0)", "J6 J7 J8"),
    # Recurrent networks
    Edit("recurrent cell without tanh", RNNCell.forward, "torch.tanh(", "(", "A1 A2"),
    Edit("recurrent cell without matrix", RNNCell.forward, "self.w_h(h)", "h", "A1 A2 A3"),
    Edit("source not reversed", turned,
         "lengths[:, None] - 1 - place", "place + 0 * lengths[:, None]", "A4 A18"),
    Edit("always the correct words", Seq2Seq._choose_input, "(forced,", "(forced | True,", "A5"),
    Edit("positions counted from the end", ByPosition.forward,
         "self.b[:n_keys]", "self.b[:n_keys].flip(0)", "A7"),
    Edit("values that are not h", LookBack.forward, "k, h, memory", "k, 2 * h, memory", "A6 B11 …"),
    Edit("decoder states as keys", LookBack.forward,
         "self.kernel(states[:, None], k, h, memory.mask)[:, 0]",
         "self.kernel(h, states[:, None], states[:, None])[:, 0, : states.size(1)]",
         "A9 A10 A13 …"),
    Edit("weights not normalised", ScoredAttention.weights,
         "softmax_of_visible(self.score(q, k), mask)", "self.score(q, k)", "A6 A7 A8 A16 A19"),
    Edit("hard attention", ScoredAttention.weights,
         "softmax_of_visible(self.score(q, k), mask)",
         "F.one_hot(self.score(q, k).argmax(-1), k.size(-2)).to(q.dtype)", "A6 A7 A8 A19"),
    # BERT, ELECTRA, ViT
    Edit("all selected tokens become [MASK]", mask_tokens,
         "(fate < config.masked)", "(fate < 1)", "K3"),
    Edit("output at shifted positions", BERT.fill,
         "chosen.flatten()", "chosen.roll(1, 1).flatten()", "K3"),
    Edit("untied output layer", BERT.__init__, "if config.tie", "if False", "M4"),
    Edit("masked tokens labelled as replaced", Electra.forward, "forged != ids", "chosen",
         "M1 M5"),
    Edit("gradient through samples", Electra.forward,
         "self.suspect(forged)", "self.suspect(forged) + generated.mean()", "M4 M7"),
    Edit("models that share nothing", Electra.__init__,
         'config.sharing == "embeddings"', "False", "M3 …"),
    Edit("constant instead of samples", draw,
         "torch.searchsorted(sums, u, right=True)[:, 0]",
         "torch.full((len(sums),), 5)", "M1 …"),
    Edit("generator of full size", narrowed, "if fraction == 1", "if True", "M5 M6"),
    Edit("patches read by columns", PatchEmbed.forward,
         "self.stem(images))", "self.stem(images)).transpose(2, 3)", "L1 …"),
    Edit("remainder dropped", cut, "or height % patch or width % patch", "", "L5"),
    Edit("image without positions", ViT.tokens,
         "x + self.places(self.grid_of(images))", "x", "F13 L2 L4"),
    Edit("last token instead of class token", ViT.forward,
         "first_positions(x)", "first_positions(x) + x.size(1) - 1", "L4"),
    # The Reformer
    Edit("keys not normalised", _weights,
         "F.normalize(k, dim=-1, eps=TINY)", "k", "N6 …"),
    Edit("one end of the axes", hashing.farthest,
         "half = y.size(-1)", "return y.argmax(-1).to(y.dtype)", "N4 …"),
    Edit("buckets not sorted", hashing.sort_by_bucket,
         "+ buckets.flatten(0, 2)", "+ 0 * buckets.flatten(0, 2)", "N7 …"),
    Edit("random buckets", hashing.farthest, "half = y.size(-1)",
         "return torch.randint(2 * y.size(-1), y.shape[:-1]).to(y.dtype)", "N3 N4 N5"),
    Edit("pairs counted in every round", LSHPlan._in_round,
         "return out", "return out.zero_()", "N5"),
    Edit("next chunk instead of previous", Arrangement.sees, "(back == 1)", "(back == -1)",
         "N8 …"),
    Edit("backward adds instead of subtracting", _Reversible.backward,
         "_minus(y_2, moved)", "y_2 + moved", "N9"),
)  # fmt: skip


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


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_claims_fail_when_a_function_is_edited(monkeypatch, edit):
    function = inspect.unwrap(edit.part)
    monkeypatch.setattr(function, "__code__", code_of(function, edit.old, edit.new))
    check_failing(edit.fails)


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
