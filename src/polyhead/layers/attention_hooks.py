"""Look at what a model looks at, without the model knowing.

    with recorded_attention(model) as maps:
        model(source, target)
    maps["decoder.blocks.0.cross_attention"]        # (batch, head, query, key)
    maps.seen["encoder.blocks.1.self_attention"]    # the pairs that could meet, where not all can
    maps.buckets["encoder.blocks.1.self_attention"] # (round, batch, head, length), where it hashes

Attention modules take no flag for this and return nothing extra: we listen at the door of their
kernels and ask them what they would show. A kernel that hashes is asked with the random numbers
that it is about to draw, so that what is shown is what it does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.lsh.hashing import Tape, recording
from polyhead.layers.masks import Mask
from polyhead.layers.recurrent import LookBack


class Maps(dict[str, Tensor]):
    """The weights of every attention by the name of its module, and what restricted them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Tensor] = {}  # local and LSH attention: True where a pair could meet
        self.buckets: dict[str, Tensor] = {}  # LSH attention only


@contextmanager
def recorded_attention(model: nn.Module, ending: str = "") -> Iterator[Maps]:
    """Collect the weights of every attention module that runs inside the `with` block.

    `ending` is that of the names of the modules to listen to: all, unless given.
    """
    maps = Maps()
    handles = [
        module.kernel.register_forward_pre_hook(
            partial(_follow if isinstance(module, LookBack) else _listen, maps, name)
        )
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention | LookBack) and name.endswith(ending)
    ]
    try:
        yield maps
    finally:
        for handle in handles:
            handle.remove()


def _follow(
    maps: Maps, name: str, kernel: Any, inputs: tuple[Tensor, Tensor, Tensor, Mask]
) -> None:
    """A recurrent writer may look back once for each word: its rows are joined."""
    q, k, _v, mask = inputs
    new = kernel.weights(q, k, mask).detach()
    maps[name] = torch.cat([maps[name], new], dim=-2) if name in maps else new


def _listen(
    maps: Maps, name: str, kernel: Any, inputs: tuple[Tensor, Tensor, Tensor, Mask]
) -> None:
    q, k, _v, mask = inputs
    if not isinstance(kernel, LSHAttention):
        maps[name] = kernel.weights(q, k, mask).detach()
        if isinstance(kernel, LocalAttention):
            maps.seen[name] = kernel.weights(torch.zeros_like(q), k, mask) > 0
        return
    tape = Tape()
    devices = [q.device] if q.device.type == "cuda" else []
    with torch.random.fork_rng(devices), recording(tape):
        maps[name] = kernel.weights(q, k, mask).detach()
    if not tape.buckets:  # a step of generation looks at everyone
        return
    (found,) = tape.buckets
    maps.buckets[name] = found
    # A query that prefers nobody divides its attention among all whom it can see.
    maps.seen[name] = kernel.weights(torch.zeros_like(q), k, mask, found) > 0
