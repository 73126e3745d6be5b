"""Claims about the Reformer fail when a part of it is broken."""

import torch
from claims import ClaimBreaks

from polyhead.layers import reversible
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.lsh import attention, hashing
from polyhead.layers.lsh.chunked import LSHPlan

breaks = ClaimBreaks("reformer")


def random_bucket(y):
    return torch.randint(2 * y.size(-1), y.shape[:-1]).to(y.dtype)


def one_end_of_the_axes(y):
    return y.argmax(-1).to(y.dtype)


breaks.add("keys_not_normalised", (attention.F, "normalize", lambda x, **_: x), at_least="N6")
breaks.add("one_end_of_the_axes", (hashing, "farthest", one_end_of_the_axes), at_least="N4")
breaks.add("random_buckets", (hashing, "farthest", random_bucket), at_least="N3 N4")
breaks.add("pairs_counted_in_every_round", (LSHPlan, "_in_round", lambda *given: given[-1].zero_()),
           at_least="N5")  # fmt: skip
breaks.add("other_dropout_in_backward", (reversible.torch, "set_rng_state", lambda _: None),
           at_least="N9")  # fmt: skip


@breaks(FeedForward, "forward", at_least="N10")
def no_chunks(self, x):
    return self.w_2(self.dropout(self.activation(self.w_1(x))))


test_breaks_are_detected = breaks.test()
