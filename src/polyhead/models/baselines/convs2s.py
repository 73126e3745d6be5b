"""ConvS2S (Gehring et al. 2017): gated convolutions with attention in every decoder layer.

    layer      h = glu(conv(dropout(x)))            glu([a; b]) = a · σ(b)
    encoder    x ← (h + x) √½                       conv sees k/2 words to each side
               z = W x,   e = E[word] + P[place]    top layer; input
    decoder    conv sees the last k words; each layer has its own attention:
               q = (W_in h + y) √½                  y = E[last word] + P[place]
               c = √s Σ_i α_i (z_i + e_i) √½,   α = softmax_i qᵀ z_i          s words in the source
               x ← ((W_out c + h) √½ + x) √½
               p(next word) = softmax(W W_o x)

Every sum of two is multiplied by √½, and the mean over s words by √s (= s √(1/s), as if all were
independent with equal weights): the variance is preserved, and only weight normalisation is needed
(section 3.5). For the same reason convolutions are initialized with variance 4 (1 - p) / (k d). The
gradient of the encoder, which comes from n layers twice each (z and z + e), is divided by 2n.

`Convolutional` is the base of both convolutional translators (this one and ByteNet): the decoding
protocol, in which every convolution keeps its last inputs.

Axes: batch, source, target, beam (hypotheses of one sentence), d_embed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.bounds import Length
from polyhead.layers.attention import not_padding
from polyhead.layers.attention_scores import Dot, ScoredAttention
from polyhead.layers.convolution import (
    Convolution,
    ConvolutionalState,
    ScaledGradient,
    check_kernel,
)
from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.embeddings import TokenEmbedding, make_positions
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Encoding, LookBack
from polyhead.models.baselines.seq2seq import Source, Target, TranslatorConfig, Words, tie

HALF = math.sqrt(0.5)
MOST_LAYERS = 1000
Layers = tuple[tuple[int, int], ...]  # width and kernel per layer
Convolve = Callable[[int, Tensor], Tensor]  # convolution of the n-th layer applied to x


class Convolutional(nn.Module):
    """Base of convolutional translators: `forward` to train, `begin` and `step` to decode."""

    embed_target: TokenEmbedding
    decoder: Any
    to_logits: Any

    def encode(self, source: Source) -> Encoding:
        """Encode the source."""
        raise NotImplementedError

    def decode_all(
        self, y: Words, encoding: Encoding, convolve: Convolve, place: int | None = None
    ) -> Words:
        """Return the input of the output layer for the target, or for new words at `place`."""
        raise NotImplementedError

    def hidden(self, source: Source, target: Target) -> Words:
        """Return the input of the output layer."""

        def convolve(number: int, x: Tensor) -> Tensor:
            return self.decoder[number].convolution(x)

        return self.decode_all(self.embed_target(target), self.encode(source), convolve)

    def forward(self, source: Source, target: Target) -> Float[Tensor, "batch target vocab"]:
        return self.to_logits(self.hidden(source, target))

    def begin(self, source: Source, *, width: int = 1, max_length: int = 256) -> ConvolutionalState:
        """Encode the source for `width` hypotheses; the state does not depend on `max_length`."""
        del max_length
        pasts = (layer.convolution.no_past(len(source), width) for layer in self.decoder)
        return ConvolutionalState(tuple(pasts), self.encode(source))

    def step(
        self, last: Int[Tensor, "batch beam"], state: ConvolutionalState
    ) -> Float[Tensor, "batch beam vocab"]:
        """Read a token of every hypothesis and score the next; beams use the axis of positions."""

        def convolve(number: int, x: Tensor) -> Tensor:
            return self.decoder[number].convolution.step(x, state.parts[number], state.place)

        y = self.embed_target(last.view(-1, 1), state.place).view(*last.shape, -1)
        h = self.decode_all(y, state.encoding, convolve, state.place)
        state.place += 1
        return self.to_logits(h)


@dataclass(frozen=True)
class ConvS2SConfig(TranslatorConfig):
    """Sizes: `encoder` and `decoder` list [width, kernel] of their layers from the bottom."""

    d_embed: int = 256
    encoder: Layers = ((256, 3),) * 4
    decoder: Layers = ((256, 3),) * 3
    d_output: int | None = None  # width before the output layer, d_embed by default
    dropout: Share = 0.1
    positions: Literal["learned", "sinusoidal", "none"] = "learned"
    max_length: Length = 1024  # number of learned positions
    tie: bool = False  # share the target's embedding with the output layer

    def __post_init__(self) -> None:
        for name, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
            if not 1 <= len(layers) <= MOST_LAYERS:
                raise ValueError(
                    f"{name} = {len(layers)} layers: expected 1 to {MOST_LAYERS}, "
                    f"as in {name} = [[256, 3], [256, 3]]"
                )
            for width, kernel in layers:
                if width < 1:
                    raise ValueError(f"{name} = [{width}, {kernel}]: expected a width of 1 or more")
                check_kernel(f"{name} kernel", kernel, causal=name == "decoder")

    @property
    def d_model(self) -> int:
        """Width used by learning rate schedules: that of a word."""
        return self.d_embed


# Vocabularies: section 4.1; words: 4.2; layers: 5.1, which names 15 for French but lists these
# 14, and they see the 25 words that it gives. Dropout is that of fairseq's examples; for Romanian
# it is unconfirmed. fairseq's own models differ: words of 768; for German 9 layers of 512 and 4 of
# 1024; for French 6 of 512.
_EN_DE = ((512, 3),) * 10 + ((768, 3),) * 3 + ((2048, 1),) * 2
_EN_FR = ((512, 3),) * 5 + ((768, 3),) * 4 + ((1024, 3),) * 3 + ((2048, 1), (4096, 1))
_EN_RO = ((512, 3),) * 20
PUBLISHED = {
    "convs2s-wmt-en-de": ConvS2SConfig(40_000, 40_000, 0, 512, _EN_DE, _EN_DE, dropout=0.2),
    "convs2s-wmt-en-fr": ConvS2SConfig(40_000, 40_000, 0, 512, _EN_FR, _EN_FR, dropout=0.1),
    "convs2s-wmt-en-ro": ConvS2SConfig(40_000, 40_000, 0, 512, _EN_RO, _EN_RO, dropout=0.2),
}


class Gated(nn.Module):
    """Encoder layer (glu(conv(x)) + x) √½; x is projected if widths differ."""

    def __init__(
        self, d_in: int, d_out: int, kernel: int, dropout: float, *, causal: bool = False
    ) -> None:
        super().__init__()
        self.convolution = Convolution(
            d_in, 2 * d_out, kernel, causal=causal, normed=True, gain=4 * (1 - dropout)
        )
        self.skip = nn.Identity() if d_in == d_out else Convolution(d_in, d_out, normed=True)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch length d_in"]) -> Float[Tensor, "batch length d_out"]:
        h = F.glu(self.convolution(self.dropout(x)), dim=-1)
        return (h + self.skip(x)) * HALF


class ConvAttention(Gated):
    """Decoder layer: causal convolution, then attention to the source."""

    def __init__(self, d_in: int, d_out: int, kernel: int, dropout: float, d_embed: int) -> None:
        super().__init__(d_in, d_out, kernel, dropout, causal=True)
        self.w_in = Convolution(d_out, d_embed, normed=True)
        self.w_out = Convolution(d_embed, d_out, normed=True)
        self.cross_attention = LookBack(ScoredAttention(Dot()))

    def attend(
        self, x: Words, y: Words, encoding: Encoding, convolve: Callable[[Tensor], Tensor]
    ) -> Words:
        """Apply the layer to positions or hypotheses; `convolve` supplies the past."""
        h = F.glu(convolve(self.dropout(x)), dim=-1)
        q = (self.w_in(h) + y) * HALF
        c = self.cross_attention(q, encoding.memory, encoding.keys) * _root_length(encoding.memory)
        h = (self.w_out(c) + h) * HALF
        return (h + self.skip(x)) * HALF


class ConvS2S(Convolutional):
    """Convolutional translator with attention in every decoder layer."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.pad = config.pad
        d_embed, p = config.d_embed, config.dropout
        d_output = d_embed if config.d_output is None else config.d_output
        self.embed_source = _embedding(config.source_vocab, config)
        self.embed_target = _embedding(config.target_vocab, config)
        into = [layers[0][0] for layers in (config.encoder, config.decoder)]
        self.enter_source = Convolution(d_embed, into[0], normed=True, gain=1 - p)
        self.enter_target = Convolution(d_embed, into[1], normed=True, gain=1 - p)
        self.encoder = nn.ModuleList(
            Gated(below, width, kernel, p)
            for below, (width, kernel) in zip(_below(config.encoder), config.encoder, strict=True)
        )
        self.decoder: Any = nn.ModuleList(
            ConvAttention(below, width, kernel, p, d_embed)
            for below, (width, kernel) in zip(_below(config.decoder), config.decoder, strict=True)
        )
        self.w_z = Convolution(config.encoder[-1][0], d_embed, normed=True)
        self.w_o = Convolution(config.decoder[-1][0], d_output, normed=True)
        self.dropout = Dropout(p)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.1)
        if config.tie:
            self.to_logits = nn.Linear(d_output, config.target_vocab)
            nn.init.zeros_(self.to_logits.bias)
            tie(self.to_logits, self.embed_target.tokens)
        else:
            self.to_logits = Convolution(d_output, config.target_vocab, normed=True, gain=1 - p)

    def encode(self, source: Source) -> Encoding:
        """Return keys z and values (z + e) √½; padding is set to zero before each convolution."""
        mask = not_padding(source, self.pad)
        e = self.embed_source(source)
        x = self.enter_source(e)
        for layer in self.encoder:
            x = layer(x if mask.keys is None else x * mask.keys[..., None])
        z = ScaledGradient.apply(self.w_z(x), 1 / (2 * len(self.decoder)))
        return Encoding(Memory((z + e) * HALF, mask), (), z)

    def decode_all(
        self, y: Words, encoding: Encoding, convolve: Convolve, place: int | None = None
    ) -> Words:
        del place
        x = self.enter_target(y)
        for number, layer in enumerate(self.decoder):
            x = layer.attend(x, y, encoding, lambda h, number=number: convolve(number, h))
        return self.dropout(self.w_o(x))


def _embedding(vocab: int, config: ConvS2SConfig) -> TokenEmbedding:
    positions = make_positions(config.positions, config.d_embed, config.max_length)
    return TokenEmbedding(vocab, config.d_embed, positions, config.dropout)


def _below(layers: Layers) -> list[int]:
    return [layers[0][0], *(width for width, _ in layers[:-1])]


def _root_length(memory: Memory) -> Float[Tensor, "batch 1 1"] | float:
    if memory.mask.keys is None:
        return math.sqrt(memory.states.size(1))
    return memory.mask.keys.sum(1).to(memory.states.dtype).sqrt()[:, None, None]
