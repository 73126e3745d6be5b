"""How much of every source word arrives somewhere: gradients, word by word.

    ‖∂ vector / ∂ x_i‖_F      x_i the embedding of source word i

In a recurrent network it falls with the distance between the word and the vector, because there is
one factor for every step between them; in self-attention all words are one step away.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


def gradient_by_word(
    embedding: nn.Module, vector: Callable[[], Float[Tensor, "batch d_model"]]
) -> Float[Tensor, "batch source"]:
    """The norm of d vector / d embedding of each word.

    `vector` runs the model; `embedding` is the module in it that makes vectors of the words, each
    sentence's by itself. It is listened to while `vector` runs, and must run once.
    """
    made: list[Tensor] = []

    def take(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        made.append(output.detach().requires_grad_())
        return made[-1]

    handle = embedding.register_forward_hook(take)
    try:
        found = vector()
    finally:
        handle.remove()
    (words,) = made
    squares = words.new_zeros(words.shape[:2])
    for number in found.sum(0):  # sentences do not mix: one row of every Jacobian at a time
        (slope,) = torch.autograd.grad(number, words, retain_graph=True)
        squares += slope.square().sum(-1)
    return squares.sqrt()
