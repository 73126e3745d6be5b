"""Claims about BERT, GPT and the figures fail when a part is broken."""

from claims import ClaimBreaks

from polyhead.data.batches.masked import MaskingConfig
from polyhead.layers.attention import NO_MASK, FullAttention, attention_weights
from polyhead.models import bert, gpt
from polyhead.notes.chapters import language_claims as language
from polyhead.viz import draw_text

breaks = ClaimBreaks("language")


@breaks(bert.BERT, "fill", exactly="K3")
def output_at_shifted_positions(self, ids, chosen, segments=None):
    return self.to_logits(self.transform(self.hidden(ids, segments)[chosen.roll(1, 1)]))


@breaks(FullAttention, "weights", exactly="K1")
@staticmethod
def weights_over_the_wrong_axis(q, k, mask=NO_MASK):
    return attention_weights(k, q, mask).mT


shares = MaskingConfig(masked=1.0, random=0.0)
breaks.add("other_shares_of_masks", (language, "BERTS_SHARES", shares), exactly="K3")
breaks.add("gpt_sees_the_future", (gpt, "CAUSAL", NO_MASK), exactly="K4")
breaks.add("one_colour", (draw_text, "PALETTE", ("#0060c4",)), at_least="K1")
test_breaks_are_detected = breaks.test()
