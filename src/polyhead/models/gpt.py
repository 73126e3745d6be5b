"""GPT-2 (Radford et al. 2019): a causal stack that predicts the next token.

    p(x) = Π_t p(x_t | x_1 … x_{t-1})
    h    = LayerNorm(Stack(E[x] + P)),    p(x_{t+1} | …) = softmax(E h_t)

E is the embedding matrix, used for input and output. Norms precede each sub-layer and the output.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.bounds import Length
from polyhead.layers.attention import CAUSAL, MultiHeadAttention, causal_mask
from polyhead.layers.axial_positions import AxialConfig, grid_of
from polyhead.layers.embeddings import POSITIONS, PositionKind, TokenEmbedding, make_positions
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import DecoderState
from polyhead.layers.transformer_stack import StackConfig, TransformerStack


def _stack(n_layers: int, d_model: int, n_heads: int) -> StackConfig:
    """Return the stack of GPT-2; the feed-forward network is four times as wide as the stream."""
    return StackConfig(
        n_layers, d_model, n_heads, 4 * d_model,
        attention_dropout=0.1, norm="pre", activation="gelu_tanh",
    )  # fmt: skip


@dataclass(frozen=True)
class GPTConfig:
    """The defaults are the smallest GPT-2. `tie` shares embedding and output layer."""

    vocab: int = 50_257
    max_length: Length = 1024  # number of learned positions; sinusoids are unbounded
    positions: PositionKind = "learned"
    tie: bool = True
    stack: StackConfig = _stack(12, 768, 12)
    axial: AxialConfig = field(default_factory=AxialConfig)  # for axial positions
    pad: int = 0

    def __post_init__(self) -> None:
        if self.positions == "axial":
            grid_of(self.axial, self.stack.d_model, self.max_length)


PUBLISHED = {
    "gpt2": GPTConfig(),
    "gpt2-medium": GPTConfig(stack=_stack(24, 1024, 16)),
    "gpt2-large": GPTConfig(stack=_stack(36, 1280, 20)),
    "gpt2-xl": GPTConfig(stack=_stack(48, 1600, 25)),
}


class GPT(nn.Module):
    """Language model; padding, if any, is on the right."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        d_model = config.stack.d_model
        self.pad, self.marks_padding = config.pad, config.stack.marks_padding
        positions = make_positions(config.positions, d_model, config.max_length, config.axial)
        # sinusoids of size 1 would dominate embeddings of size 0.02: scale these as in 2017
        self.embed = TokenEmbedding(
            config.vocab,
            d_model,
            positions,
            config.stack.dropout,
            scale=config.positions == "sinusoidal",
        )
        self.stack = TransformerStack(config.stack, rotation=POSITIONS[config.positions].rotation)
        self.to_logits = nn.Linear(d_model, config.vocab, bias=False)
        if config.tie:
            self.to_logits.weight = self.embed.tokens.weight
        small_normal(self)
        quiet_residuals(self.stack, config.stack.n_layers)

    def hidden(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        mask = causal_mask(ids, self.pad, mark_padding=self.marks_padding)
        return self.stack(self.embed(ids), mask)

    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        return self.to_logits(self.hidden(ids))

    def begin(
        self, prompt: Int[Tensor, "batch prompt"], *, width: int = 1, max_length: int = 256
    ) -> DecoderState:
        """Read a prompt, possibly empty, and allocate `width` continuations of `max_length`."""
        batch, n_read = prompt.shape
        slots = n_read + width * max_length
        seen = torch.zeros(batch, width, slots, dtype=torch.bool, device=prompt.device)
        seen[:, :, :n_read] = True
        state = DecoderState(self.stack.empty_cache(slots), None, seen, length=n_read)
        if n_read:
            self.stack(self.embed(prompt), CAUSAL, cache=state.cache)
        return state

    def step(
        self, last: Int[Tensor, "batch beam"], state: DecoderState
    ) -> Float[Tensor, "batch beam vocab"]:
        """Read a token of every text and score the next; beams use the axis of positions."""
        mask, places = state.advance(last.size(1))
        x = self.embed(last.view(-1, 1), state.length).view(*last.shape, -1)
        state.length += 1
        return self.to_logits(self.stack(x, mask, cache=state.cache, places=places))


def small_normal(model: nn.Module, std: float = 0.02) -> None:
    """Initialize weights by N(0, std²), biases with zero: GPT-2."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def quiet_residuals(model: nn.Module, n_layers: int) -> None:
    """Divide the output projections of the 2N sub-layers by √(2N): GPT-2, section 2.3.

    A sum of 2N independent terms is √(2N) times as large as one; the division makes the residual
    stream equally large for any depth.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                module.w_o.weight /= (2 * n_layers) ** 0.5
            elif isinstance(module, FeedForward):
                module.w_2.weight /= (2 * n_layers) ** 0.5
