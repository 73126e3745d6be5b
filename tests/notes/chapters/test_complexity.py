"""Claims about complexity fail when the parts they measure are broken."""

import torch
from claims import ClaimBreaks
from torch.nn import functional as F

from polyhead.cost.complexity import ConvolutionLayer
from polyhead.layers.local_attention import LocalAttention
from polyhead.notes.chapters import complexity_claims as complexity

breaks = ClaimBreaks("complexity")
attention = complexity.attention


@breaks(complexity, "attention", at_least="I1 I6")
def attention_computed_twice(q, k, v):
    return attention(q, k, v) + attention(q, k, v)


@breaks(complexity, "attention", at_least="I5")
def attention_word_by_word(q, k, v):
    rows = [q[:, :, :1]]
    for n in range(q.size(2)):
        rows.append(F.softmax(rows[-1] @ k.mT, -1) @ v + q[:, :, n : n + 1])
    return torch.cat(rows[1:], 2)


@breaks(complexity, "self_attention_work", exactly="I1")
def work_without_the_weighted_sum(n, d):
    return 2 * n * n * d


@breaks(complexity, "Recurrence", exactly="I2")
class ParallelRecurrence(torch.nn.Linear):
    def __init__(self, *_):
        super().__init__(8, 8)

    def forward(self, x, _):
        return (super().forward(x),)


@breaks(complexity, "ConvolutionLayer", exactly="I3")
def convolution_without_dilation(d, k, *_):
    return ConvolutionLayer(d, k)


@breaks(LocalAttention, "_visible", exactly="I4")
def window_one_too_wide(self, distance, *, causal):  # noqa: ARG001
    return distance.abs() <= self.window + 1


@breaks(complexity.FullAttention, "forward", exactly="I6")
def kernel_that_saves_all_weights(_, q, k, v):
    return complexity.attention(q, k, v)


test_breaks_are_detected = breaks.test()
