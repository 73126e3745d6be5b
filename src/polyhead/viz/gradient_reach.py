"""Gradients of a vector with respect to the embedding of each source word.

    ‖∂ vector / ∂ x_i‖_F      x_i the embedding of source word i

In a recurrent network it decreases with the distance between the word and the vector, because there
is one factor for every step between them; in self-attention all words are one step away.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


def gradient_by_word(
    embedding: nn.Module, vector: Callable[[], Float[Tensor, "batch d_model"]]
) -> Float[Tensor, "batch source"]:
    """Return the norm of d vector / d embedding of each word.

    vector: runs the model.
    embedding: the module of the model that embeds the words; it must run once in `vector`.
    """
    outputs: list[Tensor] = []

    def detach(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        outputs.append(output.detach().requires_grad_())
        return outputs[-1]

    handle = embedding.register_forward_hook(detach)
    try:
        result = vector()
    finally:
        handle.remove()
    (words,) = outputs
    squares = words.new_zeros(words.shape[:2])
    for number in result.sum(0):  # sentences are independent: one row of all Jacobians at a time
        (gradient,) = torch.autograd.grad(number, words, retain_graph=True)
        squares += gradient.square().sum(-1)
    return squares.sqrt()
