"""ByteNet (Kalchbrenner et al. 2016): translation in linear time by dilated convolutions.

    block      x ← x + W_2 relu(norm(conv(relu(norm(W_1 relu(norm(x)))))))
               the stream x is d_model wide (2d in the paper), the inside half of that; dilations
               1, 2, 4, 8, 16, 1, 2, … from block to block
    encoder    z = norm(blocks(E[source]))                     conv sees both sides
    unfolding  |t̂| = a |s| + b                                 columns of z for each sentence
    decoder    x_t = E[y_(t-1)] + z_t                          z_t = 0 beyond |t̂|
               p(y_t) = softmax(W relu(norm(W_o blocks(x)))_t)      conv sees the past only

There is no attention and no single vector for the sentence: the decoder is stacked on the encoder,
column by column. Reordering is left to convolutions with large receptive fields: five blocks with
kernel 3 see 31 positions to each side. The source is padded to |t̂| columns; beyond them the
decoder gets zeros (section 3.2).

The paper gives the block (section 3.6, with ReLUs), the layers after the last one, and unfolding;
that z is normalised and added, the norm after W_o, and dropout, are our choices. The paper used
characters; any ids work.

Axes: batch, source, column, target, beam (hypotheses of one sentence), d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.bounds import Factor, Few, Length
from polyhead.layers.attention import Mask
from polyhead.layers.convolution import Convolution, check_kernel
from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.embeddings import NoPositions, TokenEmbedding
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Encoding
from polyhead.models.baselines.convs2s import Convolutional, Convolve
from polyhead.models.baselines.seq2seq import Source, TranslatorConfig, Words, tie


@dataclass(frozen=True)
class ByteNetConfig(TranslatorConfig):
    """Sizes: `n_layers` encoder blocks; `decoder_layers` defaults to the same.

    Dilations double from block to block up to `max_dilation`, then restart at 1. A source of |s|
    tokens is unfolded to a |s| + b columns, at least |s|.
    """

    d_model: int = 512
    n_layers: Few = 5
    decoder_layers: Few | None = None
    kernel: Few = 3
    decoder_kernel: Few = 3
    max_dilation: Length = 16
    a: Factor = 1.2
    b: Few = 0
    dropout: Share = 0.1
    tie: bool = False  # share the target's embedding with the output layer

    def __post_init__(self) -> None:
        check_kernel("kernel", self.kernel, causal=False)
        check_kernel("decoder_kernel", self.decoder_kernel, causal=True)
        if self.d_model < 2 or self.d_model % 2:
            raise ValueError(
                f"d_model = {self.d_model}: expected an even number, because blocks work with half"
            )
        if self.n_layers < 1 or (self.decoder_layers is not None and self.decoder_layers < 1):
            raise ValueError(
                f"n_layers = {self.n_layers}, decoder_layers = {self.decoder_layers}: "
                "expected at least 1 of each"
            )
        if self.max_dilation < 1 or self.max_dilation.bit_count() != 1:
            raise ValueError(
                f"max_dilation = {self.max_dilation}: expected a power of 2, such as 16"
            )
        if self.a < 0 or self.b < 0:
            raise ValueError(f"a = {self.a}, b = {self.b}: expected no number below 0")


# Section 6: characters of both sides, 30 blocks each way, kernel 3, d = 800 (d_model is 2d); a and
# b: 3.2. Source: a summary of the paper (buriburisuri/ByteNet has d = 892). That there is no
# dropout is unconfirmed.
PUBLISHED = {
    "bytenet-wmt-en-de": ByteNetConfig(296, 323, d_model=1600, n_layers=30, a=1.2, b=0, dropout=0.0)
}


class ByteNetBlock(nn.Module):
    """Residual block with ReLUs (figure 3 of the paper, left)."""

    def __init__(
        self, d_model: int, kernel: int, dilation: int, dropout: float, *, causal: bool
    ) -> None:
        super().__init__()
        d = d_model // 2
        self.norm_1 = nn.LayerNorm(d_model)
        self.w_1 = Convolution(d_model, d, gain=2.0)  # a ReLU halves the variance
        self.norm_2 = nn.LayerNorm(d)
        self.convolution = Convolution(d, d, kernel, dilation=dilation, causal=causal, gain=2.0)
        self.norm_3 = nn.LayerNorm(d)
        self.w_2 = Convolution(d, d_model)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], convolve: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch length d_model"]:
        h = F.relu(self.norm_2(self.w_1(F.relu(self.norm_1(x)))))
        h = F.relu(self.norm_3(convolve(h)))
        return self.dropout.onto(x, self.w_2(h))


class ByteNet(Convolutional):
    """Translator of stacked dilated convolutions."""

    def __init__(self, config: ByteNetConfig) -> None:
        super().__init__()
        self.pad, self.a, self.b = config.pad, config.a, config.b
        d_model, depth = config.d_model, config.decoder_layers or config.n_layers
        self.embed_source = _embedding(config.source_vocab, config)
        self.embed_target = _embedding(config.target_vocab, config)
        self.encoder = _blocks(config, config.n_layers, config.kernel, causal=False)
        self.norm_z = nn.LayerNorm(d_model)
        self.decoder: Any = _blocks(config, depth, config.decoder_kernel, causal=True)
        self.w_o = Convolution(d_model, d_model, gain=2.0)
        self.norm_o = nn.LayerNorm(d_model)
        self.dropout = Dropout(config.dropout)
        self.to_logits = nn.Linear(d_model, config.target_vocab)
        nn.init.normal_(self.to_logits.weight, std=d_model**-0.5)
        nn.init.zeros_(self.to_logits.bias)
        if config.tie:
            tie(self.to_logits, self.embed_target.tokens)

    def encode(self, source: Source) -> Encoding:
        """Encode the unfolded source: one column per target position."""
        source, real = self.unfold(source)
        inside = None if bool(real.all()) else real[..., None]
        x = self.embed_source(source)
        for block in self.encoder:

            def convolve(h: Tensor, block: Any = block) -> Tensor:
                return block.convolution(h if inside is None else h * inside)

            x = block(x, convolve)
        z = self.norm_z(x)
        return Encoding(Memory(z if inside is None else z * inside, Mask(keys=real)), ())

    def unfold(
        self, source: Source
    ) -> tuple[Int[Tensor, "batch column"], Bool[Tensor, "batch column"]]:
        """Return the source padded to |t̂| columns, and a mask of these columns."""
        lengths = (source != self.pad).sum(1)
        columns = torch.ceil(self.a * lengths.double() + self.b).long().maximum(lengths)
        widest = max(1, int(columns.max()))
        unfolded = F.pad(source, (0, widest - source.size(1)), value=self.pad)
        return unfolded, torch.arange(widest, device=source.device) < columns[:, None]

    def decode_all(
        self, y: Words, encoding: Encoding, convolve: Convolve, place: int | None = None
    ) -> Words:
        """Run the decoder, each word on its column, each hypothesis on that of `place`."""
        z = encoding.memory.states
        z = z[:, : y.size(1)] if place is None else z[:, place : place + 1]
        if place is None:
            z = F.pad(z, (0, 0, 0, y.size(1) - z.size(1)))
        x = y + z if z.size(1) else y
        for number, block in enumerate(self.decoder):
            x = block(x, lambda h, number=number: convolve(number, h))
        return self.dropout(F.relu(self.norm_o(self.w_o(x))))


def _embedding(vocab: int, config: ByteNetConfig) -> TokenEmbedding:
    """Return an embedding of unit variance, as large as z."""
    nowhere = NoPositions(config.d_model)
    embedding = TokenEmbedding(vocab, config.d_model, nowhere, config.dropout, scale=True)
    nn.init.normal_(embedding.tokens.weight, std=config.d_model**-0.5)
    return embedding


def _blocks(config: ByteNetConfig, n_layers: int, kernel: int, *, causal: bool) -> nn.ModuleList:
    n_dilations = config.max_dilation.bit_length()  # 1, 2, 4, 8, 16 are five
    dilations = [2 ** (number % n_dilations) for number in range(n_layers)]
    return nn.ModuleList(
        ByteNetBlock(config.d_model, kernel, dilation, config.dropout, causal=causal)
        for dilation in dilations
    )
