"""LSH attention with another number of rounds than in training: more find more, and take longer."""

from torch import nn

from polyhead.errors import ConfigError
from polyhead.layers.lsh.attention import LSHAttention


def use_rounds(model: nn.Module, rounds: int) -> None:
    """Let a model that is used, not trained, hash so many times in all its LSH layers."""
    if rounds < 1:
        raise ConfigError(f"rounds = {rounds}: expected at least 1 round of hashing")
    hashing = [part for part in model.modules() if isinstance(part, LSHAttention)]
    if not hashing:
        raise ConfigError(
            f"rounds = {rounds}: this model has no LSH attention, so that it hashes nothing; leave "
            "the rounds out"
        )
    for kernel in hashing:
        kernel.eval_rounds = rounds
