"""Claims about recurrent networks fail when a part is broken, and hold for other seeds."""

import pytest
import torch
from claims import ClaimBreaks, failing
from torch import nn

from polyhead.layers import attention_scores
from polyhead.layers.attention import FullAttention
from polyhead.layers.attention_scores import ScoredAttention
from polyhead.layers.recurrent import LookBack, Recurrence, RNNCell
from polyhead.models.baselines import seq2seq
from polyhead.models.baselines.attention_ladder import ByContent, ByPosition, Ladder

breaks = ClaimBreaks("recurrent")
ATTENDING = "A6 A7 A8 A9 A10 A13 A16"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_claims_hold_for_other_seeds(seed, monkeypatch):
    start = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda _: start(seed))
    assert failing("recurrent") == set()


@breaks(RNNCell, "forward", at_least="A1 A2 A3")
def cell_without_matrix(self, x, h):
    return torch.tanh(self.w_x(x) + h)


@breaks(RNNCell, "forward", at_least="A1 A2")
def cell_without_tanh(self, x, h):
    return self.w_x(x) + self.w_h(h)


@breaks(Ladder, "_choose_input", exactly="A5")
def always_the_correct_words(_self, right, _h):
    return right


@breaks(LookBack, "forward", at_least="A9 A10 A13")
def keys_and_queries_swapped(self, states, memory):
    s, h = states[:, None], memory.states[:, None]
    return self.kernel(h, s, s)[:, 0, : states.size(1)]


@breaks(ByContent, "forward", exactly="A8")
def scores_that_ignore_the_words(self, q, k):
    return self.v.weight.new_zeros(*q.shape[:-1], k.size(-2))


@breaks(ByPosition, "forward", exactly="A7")
def positions_counted_from_the_end(self, q, k):
    return self.b[: k.size(-2)].flip(0).expand(*q.shape[:-1], k.size(-2))


@breaks(seq2seq, "turned", exactly="A4")
def source_not_reversed(x, _lengths):
    return x


@breaks(Recurrence, "encode", at_least="A4 A14 A15")
def encoder_without_memory(self, x, _lengths):
    batch, length, width = x.shape
    states, last = self.cells(x.reshape(batch * length, 1, width))
    return states.view(batch, length, -1), (last.view(1, batch, length, -1)[:, :, 0],)


@breaks(FullAttention, "forward", at_least="A12 A15")
def attention_to_neighbours_only(_self, q, k, v, *_):
    n = q.size(-2)
    allowed = torch.ones(n, n).tril(1).triu(-1).bool()
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def explicit(self, q, k, v, mask):
    """Attend without the fused kernel, which cannot be patched."""
    return self.weights(q, k, mask) @ v


def hard_attention(self, q, k, *_):
    best = self.score(q, k).argmax(-1)
    return nn.functional.one_hot(best, k.size(-2)).to(q.dtype)


FORWARD = (ScoredAttention, "forward", explicit)
SOFTMAX = (attention_scores, "softmax_of_visible")
breaks.add(
    "softmax_over_steps", FORWARD, (*SOFTMAX, lambda s, _: s.softmax(-2)), at_least=ATTENDING
)
breaks.add("padding_is_visible", FORWARD, (*SOFTMAX, lambda s, _: s.softmax(-1)), exactly="A6")
breaks.add("hard_attention", FORWARD, (ScoredAttention, "weights", hard_attention),
           at_least=ATTENDING)  # fmt: skip
test_breaks_are_detected = breaks.test()
