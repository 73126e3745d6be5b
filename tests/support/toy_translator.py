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


def check_histories(model, source, *, steps, leave, rtol=0.0):
    """Beams change places after every step, sentences leave after one, and each still continues
    its own history: its logits are those of the whole history, read at once.
    """
    state = model.begin(source, width=3, max_length=steps)
    histories = torch.zeros(len(source), 3, 0, dtype=torch.long)
    for step in range(steps):
        last = torch.randint(1, VOCAB, (len(source), 3))
        histories = torch.cat([histories, last[..., None]], dim=-1)
        logits = model.step(last, state)
        for beam in range(3):
            expected = model(source, histories[:, beam])[:, -1]
            torch.testing.assert_close(logits[:, beam], expected, rtol=rtol, atol=1e-5)
        parents = torch.randint(0, 3, (len(source), 3))
        state.select(parents)
        histories = histories.take_along_dim(parents[..., None], dim=1)
        if step == leave:
            stay = torch.tensor([2, 0])
            state.keep(stay)
            source, histories = source[stay], histories[stay]
