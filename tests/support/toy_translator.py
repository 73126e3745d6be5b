"""Shared checks of translators: memorise twenty pairs, reorder beams."""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.data.batches.translation import collate
from polyhead.special_tokens import EOS

PAD, VOCAB = 0, 11


def pairs(n=20):
    """Sentences whose translation is the same backwards, with other words."""
    dice = torch.Generator().manual_seed(1)
    for _ in range(n):
        length = int(torch.randint(2, 5, (1,), generator=dice))
        words = torch.randint(3, 11, (length,), generator=dice).tolist()
        yield [*words, EOS], [*(13 - word for word in reversed(words)), EOS]


def memorise(model, objective, *, rate, steps):
    """Train on one batch of pairs, and return it; the model then stands ready to translate."""
    model.train()
    batch = collate(list(pairs()))
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        loss = objective(model, batch)
        (loss.total / loss.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
    model.eval()
    return batch


def share_right(found, batch):
    """Return the share of sentences that are exactly right."""
    length = batch.labels.size(1)
    said = F.pad(found.tokens[:, 0], (0, length))[:, :length]
    return (said == batch.labels).all(1).float().mean()
