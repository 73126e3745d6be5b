"""A GPT as one writes it in plain PyTorch, in the manner of nanoGPT, to compare with ours.

One linear layer for queries, keys and values, `scaled_dot_product_attention(is_causal=True)`,
`F.cross_entropy` over all logits, a tied output layer, positions learned; AdamW, fused, with weight
decay on matrices only. The architecture is GPT-2's and therefore ours: `to_plain` puts our weights
in, and the tests hold it to our logits.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.errors import ConfigError
from polyhead.models.gpt import GPT, GPTConfig


class PlainAttention(nn.Module):
    """Causal self-attention with one projection for all three."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, d_model = x.shape
        shape = (batch, length, self.n_heads, d_model // self.n_heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).split(d_model, dim=2))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, d_model))


class PlainBlock(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        stack = config.stack
        self.norm_1 = nn.LayerNorm(stack.d_model)
        self.attention = PlainAttention(stack.d_model, stack.n_heads, stack.attention_dropout)
        self.norm_2 = nn.LayerNorm(stack.d_model)
        self.up = nn.Linear(stack.d_model, stack.d_ff)
        self.down = nn.Linear(stack.d_ff, stack.d_model)
        self.dropout = nn.Dropout(stack.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_1(x)))
        hidden = F.gelu(self.up(self.norm_2(x)), approximate="tanh")
        return x + self.dropout(self.down(hidden))


class PlainGPT(nn.Module):
    """The whole model; called with targets, it gives the mean loss."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        d_model = config.stack.d_model
        self.tokens = nn.Embedding(config.vocab, d_model)
        self.positions = nn.Embedding(config.max_length, d_model)
        self.dropout = nn.Dropout(config.stack.dropout)
        self.blocks = nn.ModuleList(PlainBlock(config) for _ in range(config.stack.n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, config.vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Tensor:
        places = torch.arange(ids.size(1), device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))


def to_plain(ours: GPT, config: GPTConfig) -> PlainGPT:
    """Build the same function in plain PyTorch with a copy of our weights."""
    stack = config.stack
    if (config.positions, config.tie, stack.norm, stack.activation) != (
        "learned", True, "pre", "gelu_tanh",
    ):  # fmt: skip
        raise ConfigError("the plain GPT has learned positions, a tied output and GPT-2's blocks")
    plain = PlainGPT(config)
    with torch.no_grad():
        plain.tokens.weight.copy_(ours.embed.tokens.weight)
        plain.positions.weight.copy_(ours.embed.positions.table.weight)  # type: ignore[union-attr]
        plain.norm.load_state_dict(ours.stack.norm.state_dict())
    for theirs, block in zip(plain.blocks, ours.stack.blocks, strict=True):
        _copy(theirs, block)
    return plain


@torch.no_grad()
def _copy(theirs: nn.Module, ours: nn.Module) -> None:
    """One block: three projections of ours stand one below the other in theirs."""
    attention = ours.self_attention
    layers = (attention.w_q, attention.w_k, attention.w_v)
    theirs.attention.qkv.weight.copy_(torch.cat([layer.weight for layer in layers]))
    theirs.attention.qkv.bias.copy_(torch.cat([layer.bias for layer in layers]))
    theirs.attention.out.load_state_dict(attention.w_o.state_dict())
    theirs.norm_1.load_state_dict(ours.self_residual.norm.state_dict())
    theirs.norm_2.load_state_dict(ours.feed_residual.norm.state_dict())
    theirs.up.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.down.load_state_dict(ours.feed_forward.w_2.state_dict())


def random_windows(stream: Tensor, length: int, rows: int, seed: int) -> Iterator[tuple]:
    """Windows that begin anywhere, as nanoGPT draws them, and what follows each token."""
    dice = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(stream) - length, (rows,), generator=dice).tolist()
        ids = torch.stack([stream[i : i + length] for i in starts])
        yield ids, torch.stack([stream[i + 1 : i + 1 + length] for i in starts])


def optimiser(
    model: nn.Module, betas: tuple[float, float], decay: float, epsilon: float
) -> torch.optim.AdamW:
    """Fused AdamW with weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=betas, eps=epsilon, fused=True)
