"""LSH attention of others, as one layer of the same size as ours and with our weights.

transformers       LSHSelfAttention and ReformerSelfOutput, of which ReformerModel is made
reformer-pytorch   LSHSelfAttention of lucidrains' package

Both have queries that are keys, chunks that see themselves and the one before, and several rounds.
Neither counts a pair once that two rounds have found, which would cost them more. reformer-pytorch
divides its scores by √d_head, where the authors and we do not: its queries get weights that are
√d_head times ours, so that everyone computes the same. Neither has biases in front of the kernel;
ours are zero.
"""

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.errors import MissingError
from polyhead.layers.attention import CAUSAL, Mask, MultiHeadAttention
from polyhead.layers.lsh.attention import LSHAttention

Layer = Callable[[Tensor], Tensor]
INSTALL = {
    "transformers": ("transformers", "pip install 'polyhead[hf]'"),
    "reformer-pytorch": ("reformer_pytorch", "pip install reformer-pytorch"),
}


class Ours(nn.Module):
    """Any kernel between its projections, as a layer that looks at itself."""

    def __init__(
        self, d_model: int, n_heads: int, kernel: nn.Module, *, mask: Mask = CAUSAL
    ) -> None:
        super().__init__()
        shared = isinstance(kernel, LSHAttention)
        self.attention = MultiHeadAttention(d_model, n_heads, kernel, shared=shared)
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        """Everyone looks at the past."""
        return self.attention(x, self.attention.project(x), self.mask)


class Transformers(nn.Module):
    """The attention of ReformerModel, without the norm before it and the sum after it."""

    def __init__(self, attention: nn.Module, output: nn.Module, rounds: int) -> None:
        super().__init__()
        self.attention = attention
        self.output = output
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        """Everyone looks at the past."""
        return self.output(self.attention(x, num_hashes=self.rounds).hidden_states)


def without_biases(ours: Ours) -> Ours:
    """Return the layer with biases of zero, since the peers have none."""
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return ours


def to_transformers(ours: Ours, max_length: int) -> Layer:
    """Return the layer of transformers with our weights and `max_length`."""
    require("transformers")
    from transformers import ReformerConfig
    from transformers.models.reformer import modeling_reformer as theirs

    attention, kernel = ours.attention, _kernel(ours)
    d_model = attention.w_o.out_features
    config = ReformerConfig(
        hidden_size=d_model,
        num_attention_heads=attention.n_heads,
        attention_head_size=d_model // attention.n_heads,
        attn_layers=["lsh"],
        lsh_attn_chunk_length=kernel.chunk,
        lsh_num_chunks_before=1,
        num_hashes=kernel.n_rounds,
        num_buckets=None,
        is_decoder=True,
        max_position_embeddings=max_length,
        axial_pos_embds=False,
        lsh_attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    layer = Transformers(
        theirs.LSHSelfAttention(config), theirs.ReformerSelfOutput(config), kernel.n_rounds
    )
    inner: Any = layer
    with torch.no_grad():
        inner.attention.query_key.weight.copy_(attention.w_k.weight)
        inner.attention.value.weight.copy_(attention.w_v.weight)
        inner.output.dense.weight.copy_(attention.w_o.weight)
    return layer.train()


def to_reformer_pytorch(ours: Ours, max_length: int) -> Layer:  # noqa: ARG001
    """Return the layer of reformer-pytorch with our weights; it takes lengths as they come."""
    require("reformer-pytorch")
    from reformer_pytorch import LSHSelfAttention

    attention, kernel = ours.attention, _kernel(ours)
    d_model = attention.w_o.out_features
    layer = LSHSelfAttention(
        dim=d_model,
        heads=attention.n_heads,
        bucket_size=kernel.chunk,
        n_hashes=kernel.n_rounds,
        causal=True,
    )
    with torch.no_grad():
        layer.toqk.weight.copy_(attention.w_k.weight * math.sqrt(d_model / attention.n_heads))
        layer.tov.weight.copy_(attention.w_v.weight)
        layer.to_out.load_state_dict(attention.w_o.state_dict())
    return layer.train()


PEERS: dict[str, Callable[[Ours, int], Layer]] = {
    "transformers": to_transformers,
    "reformer-pytorch": to_reformer_pytorch,
}


def require(name: str) -> None:
    """Name the package to install if a peer is missing."""
    module, command = INSTALL[name]
    if importlib.util.find_spec(module) is None:
        others = " ".join(other for other in INSTALL if other != name)
        raise MissingError(f"{name} is not installed: {command}, or compare with --peers {others}")


def _kernel(ours: Ours) -> LSHAttention:
    kernel = ours.attention.kernel
    assert isinstance(kernel, LSHAttention), "the peers are LSH attention"
    return kernel
