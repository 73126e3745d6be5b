"""From recurrent networks to attention (rows A1 to A19): fading states, and attention to all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from polyhead.data.batches.translation import collate
from polyhead.layers.attention import NO_MASK, FullAttention, MultiHeadAttention
from polyhead.layers.attention_scores import ScoredAttention, make_score
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Encoding, LookBack, Recurrence, RNNCell, gru_step, lstm_step
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.models.baselines.attention_ladder import (
    ByContent,
    ByPosition,
    Equal,
    Ladder,
    LadderConfig,
)
from polyhead.models.baselines.bahdanau import Bahdanau, BahdanauConfig
from polyhead.models.baselines.luong import Luong, LuongConfig
from polyhead.models.baselines.seq2seq import Seq2Seq, Seq2SeqConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import ClaimResult, claim, close, gap, same
from polyhead.notes.numpy_recurrent import bahdanau, cho, luong, sutskever
from polyhead.notes.numpy_reference import WORDS, same_logits, twin_gap
from polyhead.viz.gradient_reach import gradient_by_word

SMALL = LadderConfig(20, 20, cell="rnn", d_model=16, dropout=0.0, max_length=8)


def weights_of(model: Ladder, source: Tensor, target: Tensor) -> Tensor:
    """Return the weights α of every decoder step over the words of the source."""
    _, h, s = model.vectors(source, target)
    kernel: Any = model.cross_attention.kernel if model.cross_attention is not None else None
    return kernel.weights(s[:, None], h[:, None])[:, 0].detach()


@claim("A1", RNNCell)
def one_step() -> ClaimResult:
    """Compare the cell with torch's of the same weights, and with the note's without W_h."""
    ours, theirs = RNNCell(3, 4), nn.RNNCell(3, 4)
    ours.w_x.weight, ours.w_h.weight = theirs.weight_ih, theirs.weight_hh
    ours.w_x.bias.data = theirs.bias_ih.data + theirs.bias_hh.data
    x, h = torch.randn(1, 3), torch.randn(1, 4)
    noted = torch.tanh(ours.w_x(x) + h)
    result = close(expected=theirs(x, h)[0], got=ours(x, h)[0], within=1e-6)
    differs = not torch.allclose(noted, theirs(x, h), atol=0.01)
    return result.with_note(noted[0].detach(), differs=differs)


@claim("A2", RNNCell)
def the_gradient_vanishes() -> ClaimResult:
    """Compare autograd with the product written out; measure the states."""
    cell, xs = RNNCell(8, 8).double(), torch.randn(20, 1, 8).double()
    w = cell.w_h.weight.data
    w *= 0.9 / torch.linalg.eigvals(w).abs().max()
    h = first = torch.zeros(1, 8).double().requires_grad_()
    product, norms = torch.eye(8).double(), []
    for t, x in enumerate(xs, start=1):
        h = cell(x, h)
        product = torch.diag(1 - h[0].detach() ** 2) @ w @ product
        if t in (1, 10, 20):
            rows = [torch.autograd.grad(unit, first, retain_graph=True)[0] for unit in h[0]]
            norms.append([float(m.detach().norm()) for m in (product, torch.cat(rows), h)])
    expected, got, sizes = zip(*norms, strict=True)
    result = same([f"{n:.2e}" for n in expected], [f"{n:.2e}" for n in got])
    vanishes = got[2] < got[1] < got[0] and got[2] < 0.9**19 * got[0]  # W_h alone, 19 steps
    noted = f"|h| = {', '.join(f'{size:.2f}' for size in sizes)}"
    return result.with_note(noted, differs=vanishes and sizes[2] > sizes[0] / 2)


@claim("A3", RNNCell)
def jacobian_of_ten_steps() -> ClaimResult:
    """Compute the largest singular value over ten steps, for a small and a large W_h."""
    cell, norms = RNNCell(6, 6), []
    nn.init.zeros_(cell.w_x.bias)

    def ten(h: Tensor) -> Tensor:
        for _ in range(10):
            h = cell(torch.zeros(1, 6), h)
        return h

    for r in (0.5, 1.5):
        nn.init.orthogonal_(cell.w_h.weight, gain=r)
        change = jacobian(ten, torch.zeros(1, 6))[0, :, 0]
        norms.append(float(torch.linalg.matrix_norm(change, 2)))
    return close(expected=[0.5**10, 1.5**10], got=norms, within=1e-5)


@claim("A4", Ladder.encode, Encoding.summary)
def influence_of_the_last_word() -> ClaimResult:
    """Find the word that moves the context most, in both directions of reading."""
    source = torch.randint(3, 20, (16, 10))

    def strongest(backwards: bool) -> int:
        model = Ladder(replace(SMALL, context="none", reverse_source=backwards)).eval()
        felt = gradient_by_word(model.embed_source, lambda: model.encode(source).summary)
        return int(felt.mean(0).argmax()) + 1

    return same(expected=[10, 1], got=[strongest(False), strongest(True)])


@claim("A5", collate, Ladder.hidden)
def teacher_forcing() -> ClaimResult:
    """Train with a batch, and with another target that must not be read."""
    batch, poisoned = collate([([5, 6, 2], [7, 8, 9, 2])]), torch.tensor([[1, 19, 18, 17]])
    forced, free = Ladder(SMALL), Ladder(replace(SMALL, teacher_forcing=0.0))
    change = gap(free(batch.source, poisoned), free(batch.source, batch.target))
    got = [batch.target[0].tolist(), batch.labels[0].tolist(), change]
    result = same(expected=[[1, 7, 8, 9], [7, 8, 9, 2], 0.0], got=got)
    reads = not torch.equal(forced(batch.source, poisoned), forced(batch.source, batch.target))
    return result.if_also(reads)


@claim("A6", Equal, Ladder.context)
def mean_of_states() -> ClaimResult:
    """Compare the context with torch's mean of the three words."""
    model = Ladder(replace(SMALL, context="mean", d_model=6)).eval()
    source, target = torch.tensor([[5, 6, 2, 0, 0], [5, 6, 7, 8, 2]]), torch.tensor([[1], [1]])
    c, h, _ = model.vectors(source, target)
    return close(expected=h[0, :3].mean(0).detach(), got=c[0, 0].detach(), within=1e-6)


@claim("A7", ByPosition, ScoredAttention.weights)
def weights_by_position() -> ClaimResult:
    """Compare the weights of two sentences without a word in common."""
    model = Ladder(replace(SMALL, context="positional")).eval()
    b = model.get_parameter("cross_attention.kernel.score.b")
    b.data[:3] = torch.tensor([0.5, 0.3, 0.2]).log()
    sentences = torch.tensor([[5, 6, 7], [8, 9, 10]])
    weights = weights_of(model, sentences, torch.tensor([[1], [1]]))[:, 0]
    return close(expected=[[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], got=weights, within=1e-6)


@claim("A8", ByContent, ScoredAttention.weights)
def weights_by_content() -> ClaimResult:
    """Compare the weights of two sentences and three steps with the formula."""
    model = Ladder(replace(SMALL, context="content")).eval()
    source, target = torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([[1, 5, 6], [1, 7, 8]])
    (w, b, v), h = model.get_submodule("cross_attention").parameters(), model.encode(source)
    scores = (torch.tanh(h.memory.states @ w.T + b) @ v[0]).detach()
    expected = scores.softmax(-1)[:, None].expand(2, 3, 3)
    result = close(expected=expected, got=weights_of(model, source, target), within=1e-6)
    return result.if_also(not torch.allclose(expected[0], expected[1], atol=1e-3))


@claim("A9", LookBack, ScoredAttention)
def weights_by_query() -> ClaimResult:
    """Choose two states whose scores are the logarithms of the expected weights."""
    wanted = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    attend = LookBack(ScoredAttention(make_score("dot", 1, 3)))
    c = attend(wanted.log()[None], Memory(torch.eye(3)[None], NO_MASK))
    return close(expected=wanted.tolist(), got=c[0], within=1e-6)


@claim("A10", LookBack, ScoredAttention.forward)
def context_of_two_words() -> ClaimResult:
    """Compare the context of two words with numbers computed by hand."""
    ln3, h = 1.0986123, torch.tensor([[[1.0986123, 4.0], [0.0, 8.0]]])
    attend = LookBack(ScoredAttention(make_score("dot", 1, 2)))
    got = attend(torch.tensor([[[1.0, 0.0]]]), Memory(h, NO_MASK))[0, 0]
    return close(expected=[0.75 * ln3, 5.0], got=got, within=1e-6)


@claim("A12", Ladder.encode, Transformer.encode)
def fading_by_distance() -> ClaimResult:
    """Measure the influence of the first word and of the last but one on the last state."""
    source, rnn = torch.randint(3, 20, (8, 20)), Ladder(SMALL).eval()
    stack = StackConfig(1, 16, 4, 32, dropout=0.0, norm="pre")
    full = Transformer(TransformerConfig(20, 20, stack=stack)).eval()
    felt = (
        gradient_by_word(rnn.embed_source, lambda: rnn.encode(source).memory.states[:, -1]),
        gradient_by_word(full.embed_source, lambda: full.encode(source).states[:, -1]),
    )
    left, kept = (float(words[:, 0].mean() / words[:, -2].mean()) for words in felt)
    result = ClaimResult("below 0.001, about 1", f"{left:.0e}, {kept:.2f}", left < 0.001)
    return result.if_also(0.5 < kept < 2)


@claim("A13", Ladder.vectors)
def attention_as_matrices() -> ClaimResult:
    """Compare C with torch's attention of S and H."""
    model = Ladder(replace(SMALL, score="scaled_dot")).eval()
    source, target = torch.randint(3, 20, (2, 5)), torch.randint(3, 20, (2, 4))
    c, h, s = (vectors.detach() for vectors in model.vectors(source, target))
    return close(expected=F.scaled_dot_product_attention(s, h, h), got=c, within=1e-6)


@claim("A14", TransformerStack, Recurrence.encode)
def order() -> ClaimResult:
    """Shuffle five words before and after a stack, and before and after a recurrence."""
    x, shuffled, lengths = torch.randn(1, 5, 8), [3, 0, 4, 1, 2], torch.tensor([5])
    stack = TransformerStack(StackConfig(2, 8, 2, 16, dropout=0.0))
    rnn = Recurrence("rnn", 8, 1, 0.0)
    result = close(expected=stack(x)[:, shuffled], got=stack(x[:, shuffled]), within=1e-5)
    before, after = rnn.encode(x[:, shuffled], lengths)[0], rnn.encode(x, lengths)[0][:, shuffled]
    return result.if_also(not torch.allclose(before, after, atol=0.01))


@claim("A15", MultiHeadAttention, Recurrence.encode)
def pairs_with_gradient() -> ClaimResult:
    """Count the pairs with a gradient in three layers of the same width."""
    attention, rnn = MultiHeadAttention(4, 2, FullAttention()), Recurrence("rnn", 4, 1, 0.0)
    convolution, n = nn.Conv1d(4, 4, 3, padding=1), torch.tensor([10])
    layers: list[Callable[[Tensor], Tensor]] = [
        lambda x: attention(x, attention.project(x)),
        lambda x: convolution(x.mT).mT,
        lambda x: rnn.encode(x, n)[0],
    ]
    x = torch.randn(1, 10, 4)
    slopes = [jacobian(layer, x)[0, :, :, 0].abs().sum((1, 3)) for layer in layers]
    return same(expected=[100, 28, 55], got=[int((slope > 0).sum()) for slope in slopes])


@claim("A16", Ladder.context, ScoredAttention.weights)
def selective_context() -> ClaimResult:
    """Count the contexts of three steps, without and with attention, and self-attention layers."""
    source, target = torch.arange(3, 9)[None], torch.tensor([[1, 5, 6]])  # six words, three steps
    plain, selective = Ladder(replace(SMALL, context="none")).eval(), Ladder(SMALL).eval()
    counts = [
        len(model.vectors(source, target)[0][0].unique(dim=0)) for model in (plain, selective)
    ]
    layers = sum(isinstance(part, MultiHeadAttention) for part in selective.modules())
    whole = bool((weights_of(selective, source, target).sum(-1) - 1).abs().max() < 1e-6)
    result = same(expected=[1, 3, 0], got=[*counts, layers]).if_also(whole)
    return result.with_note("[1, 1, 0]", differs=counts[1] > 1 and layers == 0)


@claim("A17", Transformer, TransformerConfig)
def parts_of_the_transformer() -> ClaimResult:
    """Compare the base model's parameters, counted part by part, with the paper's sizes."""
    d, d_ff, n_layers, words = 512, 2048, 6, 37_000
    attention, feed = 4 * (d * d + d), 2 * d * d_ff + d_ff + d
    expected = [2 * n_layers * attention, n_layers * attention, 2 * n_layers * feed, words * d]
    with torch.device("meta"):  # nothing is stored
        named = dict(Transformer(TransformerConfig()).named_parameters())
    kinds = ("self_attention", "cross_attention", "feed_forward", "embed")
    counts = [sum(p.numel() for name, p in named.items() if kind in name) for kind in kinds]
    shares = [[f"{n / sum(side):.0%}" for n in side] for side in (expected, counts)]
    result = same(*shares).if_also(counts == expected)
    return result.with_note(["100%", "0%", "0%", "0%"], differs=max(counts) > counts[0])


@claim("A18", Seq2Seq, lstm_step, gru_step)
def sequence_to_sequence() -> ClaimResult:
    """Compare Sutskever's LSTM and Cho's GRU with NumPy twins."""
    config = Seq2SeqConfig(WORDS, WORDS, d_model=6)
    lstm = Seq2Seq(replace(config, reverse_source=True))
    cho_s = replace(config, cell="gru", n_layers=1, context="everywhere", bridge=True)
    return same_logits(max(twin_gap(lstm, sutskever), twin_gap(Seq2Seq(cho_s), cho)))


@claim("A19", Bahdanau, Luong)
def recurrent_attention() -> ClaimResult:
    """Compare Bahdanau's and Luong's translators with NumPy twins."""
    before = Bahdanau(BahdanauConfig(WORDS, WORDS, d_model=6, d_encoder=8))
    after = Luong(LuongConfig(WORDS, WORDS, d_model=6))
    return same_logits(max(twin_gap(before, bahdanau), twin_gap(after, luong)))
