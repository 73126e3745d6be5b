"""Training (rows H3, H4, H8, H9): the decoder's input, its labels, and the learning rate."""

import torch
from torch.nn import functional as F

from polyhead.data.batches.translation import collate
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import greedy_search
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import ClaimResult, claim, close, same
from polyhead.tasks.losses import TranslationLoss
from polyhead.training.optim import ScheduleConfig, learning_rate, noam


@claim("H3", TranslationLoss, linear_cross_entropy)
def loss_and_gradient() -> ClaimResult:
    """Compare loss and gradient with torch's cross-entropy of all labels but padding."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    batch = collate([([3, 4, 2], [5, 6, 2]), ([7, 8, 3, 2], [8, 2])])
    logits = model(batch.source, batch.target)
    theirs = F.cross_entropy(logits.transpose(1, 2), batch.labels, ignore_index=0, reduction="sum")
    ours = TranslationLoss(pad=0)(model, batch)
    lengths = []
    for loss in (theirs, ours.total):
        model.zero_grad()
        loss.backward()
        gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        lengths.append(torch.stack(gradients).norm().item())
    expected, got = [theirs.item(), lengths[0], 5], [ours.total.item(), lengths[1], ours.count]
    return close(expected=expected, got=got, within=1e-5)


@claim("H4", collate)
def shifted_right() -> ClaimResult:
    """Collate a target of four tokens and one of two."""
    batch = collate([([5, 6, 2], [7, 8, 9, 2]), ([5, 2], [7, 2])])
    target = [[1, 7, 8, 9], [1, 7, 0, 0]]
    labels = [[7, 8, 9, 2], [7, 2, 0, 0]]
    return same(expected=[target, labels], got=[batch.target.tolist(), batch.labels.tolist()])


@claim("H8", noam, learning_rate)
def warm_up() -> ClaimResult:
    """Compute the rates at steps 0, 1, 4,000 and 100,000, and the step of the highest."""
    config = ScheduleConfig(kind="noam", warmup=4000)
    steps = [*range(8001), 100_000]
    rates = {step: learning_rate(config, step, steps=100_000, d_model=512) for step in steps}
    got = [float(f"{rates[step]:.5e}") for step in (0, 1, 4000, 100_000)]
    expected = [1.74693e-7, 1.74693e-7, 6.98771e-4, 1.39754e-4, "peak at 4000"]
    peak = max(rates, key=lambda step: rates[step])
    return same(expected=expected, got=[*got, f"peak at {peak}"])


@claim("H9", Transformer.forward, Transformer.step, greedy_search)
def passes_of_the_decoder() -> ClaimResult:
    """Count the words that each call of the decoder reads, in training and in decoding."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 2]]), torch.full((1, 12), 5)
    words: list[int] = []  # in each call
    model.decoder.register_forward_pre_hook(lambda _, inputs: words.append(inputs[0].size(1)))
    model(source, target)
    in_training = list(words)
    greedy_search(model, source, DecodeConfig(max_length=12), prefix=target)
    return same(expected=[[12], [1] * 12], got=[in_training, words[len(in_training) :]])
