"""Claims about training fail when loss, labels or learning rates are wrong."""

import torch
from claims import ClaimBreaks

from polyhead.data.batches.translation import TranslationBatch
from polyhead.models.transformer import Transformer
from polyhead.notes.chapters import training_claims as training
from polyhead.training import losses, optim

breaks = ClaimBreaks("training")
cross_entropy, collate = losses.linear_cross_entropy, training.collate


@breaks(losses, "linear_cross_entropy", exactly="H3")
def mean_instead_of_sum(h, *rest):
    return cross_entropy(h, *rest) / len(h)


@breaks(training, "collate", exactly="H4")
def decoder_reads_its_labels(pairs):
    batch = collate(pairs)
    return TranslationBatch(batch.source, batch.labels, batch.labels)


@breaks(optim, "noam", exactly="H8")
def larger_of_both_rates(step, d, warmup, *_):
    return d**-0.5 * max(step**-0.5, step * warmup**-1.5)


@breaks(optim, "noam", exactly="H8")
def rate_without_width(step, _, warmup, *__):
    return min(step**-0.5, step * warmup**-1.5)


@breaks(optim, "noam", exactly="H8")
def steps_counted_from_zero(step, d, warmup, *_):
    return d**-0.5 * min((step + 1) ** -0.5, step * warmup**-1.5)


@breaks(Transformer, "forward", at_least="H9")
def training_word_by_word(self, source, target):
    state = self.begin(source, max_length=target.size(1))
    return torch.cat([self.step(word, state) for word in target.split(1, dim=1)], dim=1)


test_breaks_are_detected = breaks.test()
