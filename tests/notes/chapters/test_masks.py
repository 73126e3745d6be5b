"""Claims about masks fail when hidden positions are visible."""

import math

import torch
from claims import ClaimBreaks

from polyhead.layers.attention import NO_MASK, FullAttention, Mask, attention
from polyhead.layers.kv_cache import BlockCache
from polyhead.models import gpt, transformer
from polyhead.notes.chapters import masks_claims as masks

breaks = ClaimBreaks("masks")


def scores_times_mask(q, k, mask=NO_MASK):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    allowed = mask.dense(q.size(-2), k.size(-2), q.device)
    return (scores if allowed is None else scores * allowed).softmax(-1)


breaks.add("mask_of_zeros", (masks, "attention_weights", scores_times_mask),
           (FullAttention, "weights", staticmethod(scores_times_mask)),
           at_least="D2 D4 D6 D10")  # fmt: skip


@breaks(masks, "attention_weights", exactly="D5")
def fill_value_beyond_16_bits(q, k, mask):
    allowed = mask.dense(q.size(-2), k.size(-2), q.device)
    return (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~allowed, -1e10).softmax(-1)


@breaks(FullAttention, "forward", at_least="D1 D7 D9 D11")
def no_mask(_, q, k, v, *__):
    return attention(q, k, v)


def triangle(diagonal):
    """Return a dense causal mask that is shifted by one."""

    def dense(self, n_queries, n_keys, _):
        shifted = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(diagonal)[None, None]
        return shifted if self.causal else None

    return dense


def explicit(_, q, k, v, mask):
    return attention(q, k, v, mask)


# A token that does not see itself still has its residual connection.
for shift, others in ((-1, ""), (1, " D1 D9 D10")):
    patches = (Mask, "dense", triangle(shift)), (FullAttention, "forward", explicit)
    breaks.add(f"triangle_shifted_by_{shift}", *patches, at_least="D2 D3 D6 D8 D11" + others)
breaks.add("gpt_sees_the_future", (gpt, "CAUSAL", NO_MASK), exactly="D10")
breaks.add("padding_is_visible", (transformer, "not_padding", lambda *_: NO_MASK), exactly="D7")
breaks.add("cache_without_memory", (BlockCache, "extend", lambda _, new: new), exactly="D11")
test_breaks_are_detected = breaks.test()
