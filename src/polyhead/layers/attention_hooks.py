"""Record the attention weights of a model with forward hooks; the model itself is not changed.

    with record_attention(model) as maps:
        model(source, target)
    maps["decoder.blocks.0.cross_attention"]        # (batch, head, query, key)
    maps.seen["encoder.blocks.1.self_attention"]    # the allowed pairs, where not all are
    maps.buckets["encoder.blocks.1.self_attention"] # (round, batch, head, length), LSH only

The fused kernels do not return their weights, so the hooks compute them once more from the same
queries and keys; LSH attention is given the random numbers that the kernel is about to draw.

`AttentionRecordingModel` wraps a model for decoding and keeps in its state what the last step
attended to: the coverage penalty needs it, and `decoding` knows models only by `begin` and `step`.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.layers.attention import Mask, MultiHeadAttention
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.lsh.hashing import Tape, recording
from polyhead.layers.recurrent import LookBack

CROSS_ATTENTION = "cross_attention"  # name of the module in every decoder


class AttentionWeights(dict[str, Tensor]):
    """The weights of every attention module by its name, and the restrictions on them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Tensor] = {}  # local and LSH attention: True for an allowed pair
        self.buckets: dict[str, Tensor] = {}  # LSH attention only


@contextmanager
def record_attention(model: nn.Module, suffix: str = "") -> Iterator[AttentionWeights]:
    """Collect the weights of attention modules with this name's end while the `with` block runs."""
    maps = AttentionWeights()
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention | LookBack) and name.endswith(suffix):
                record = _append_rows if isinstance(module, LookBack) else _record
                hook = module.kernel.register_forward_pre_hook(partial(record, maps, name))
                hooks.enter_context(hook)
        yield maps


def _append_rows(
    maps: AttentionWeights, name: str, kernel: Any, inputs: tuple[Tensor, Tensor, Tensor, Mask]
) -> None:
    """Append the rows of this call: a recurrent decoder calls its attention once for each word."""
    q, k, _v, mask = inputs
    rows = kernel.weights(q, k, mask).detach()
    maps[name] = torch.cat([maps[name], rows], dim=-2) if name in maps else rows


def _record(
    maps: AttentionWeights, name: str, kernel: Any, inputs: tuple[Tensor, Tensor, Tensor, Mask]
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
    if not tape.buckets:  # a step of generation attends to everything
        return
    (maps.buckets[name],) = tape.buckets
    # A query of zeros divides its attention evenly among all keys that it can see.
    uniform = kernel.weights(torch.zeros_like(q), k, mask, maps.buckets[name])
    maps.seen[name] = uniform > 0


def has_cross_attention(model: nn.Module) -> bool:
    """Tell whether a model attends to its source while it decodes."""
    return any(
        name.endswith(CROSS_ATTENTION) and isinstance(module, MultiHeadAttention | LookBack)
        for name, module in model.named_modules()
    )


@dataclass
class AttentionRecordingState:
    """The state of the wrapped model, and the attention of its last step."""

    inner: Any
    looked: Float[Tensor, "batch beam source"]  # mean over all heads of all layers

    def select(self, parents: Int[Tensor, "batch beam"]) -> None:
        self.inner.select(parents)
        self.looked = self.looked.take_along_dim(parents[..., None], dim=1)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        self.inner.keep(sentences)
        self.looked = self.looked[sentences]


@dataclass(frozen=True)
class AttentionRecordingModel:
    """A model for decoding that records its cross-attention, which it must have."""

    model: Any

    def begin(
        self, source: Int[Tensor, "batch source"], *, width: int, max_length: int
    ) -> AttentionRecordingState:
        """Encode the source; the recorded attention is zero before the first step."""
        inner = self.model.begin(source, width=width, max_length=max_length)
        zeros = torch.zeros(len(source), width, source.size(1), device=source.device)
        return AttentionRecordingState(inner, zeros)

    def step(
        self, last: Int[Tensor, "batch beam"], state: AttentionRecordingState
    ) -> Float[Tensor, "batch beam vocab"]:
        with record_attention(self.model, CROSS_ATTENTION) as maps:
            logits: Tensor = self.model.step(last, state.inner)
        state.looked = torch.stack([weights.float().mean(1) for weights in maps.values()]).mean(0)
        return logits
