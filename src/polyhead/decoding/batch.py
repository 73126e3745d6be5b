"""Many sentences: batched by length, decoded, and given back in their order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.decoding.beam import beam_search
from polyhead.decoding.config import DecodeConfig, Hypotheses
from polyhead.decoding.protocol import Decodable, S
from polyhead.decoding.sampling import greedy, sample
from polyhead.special_tokens import EOS, PAD

MAX_ROWS = 64  # sentences in one batch
MAX_TOKENS = 4096  # source tokens in one batch, times the beam


@dataclass(frozen=True)
class Output:
    """One hypothesis: ids without the closing EOS, its score, and log P of all its tokens.

    `text` is what it says, where that is not what its ids say: unknown words may be replaced.
    """

    ids: list[int]
    score: float
    log_p: float
    text: str | None = None


def decode_all(
    model: Decodable[S],
    sources: Sequence[list[int]],
    config: DecodeConfig,
    *,
    device: torch.device,
    prefixes: Sequence[list[int]] | None = None,
    generator: torch.Generator | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[list[Output]]:
    """The best `n_best` outputs for every source, in the order of the sources."""
    outputs: list[list[Output]] = [[] for _ in sources]
    for batch in batches(sources, config):
        source = rectangle([sources[i] for i in batch]).to(device)
        prefix = None
        if prefixes is not None and any(prefixes[i] for i in batch):
            prefix = rectangle([prefixes[i] for i in batch]).to(device)
        found = search(model, source, config, prefix, generator)
        for row, i in enumerate(batch):
            outputs[i] = read_outputs(found, row, config.n_best)
        progress(len(batch))
    return outputs


def search(
    model: Decodable[S],
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    prefix: Int[Tensor, "batch prefix"] | None = None,
    generator: torch.Generator | None = None,
) -> Hypotheses:
    """The strategy that the options ask for."""
    if config.sample:
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        return sample(model, source, config, generator, prefix)
    if config.beam == 1:
        return greedy(model, source, config, prefix)
    return beam_search(model, source, config, prefix)


def batches(sources: Sequence[list[int]], config: DecodeConfig) -> Iterator[list[int]]:
    """Numbers of sentences of similar length; the longest first, so that memory fails early."""
    width = config.n_best if config.sample else config.beam
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    batch: list[int] = []
    for i in order:
        longest = len(sources[batch[0]]) if batch else 0
        full = len(batch) == MAX_ROWS or longest * width * (len(batch) + 1) > width * MAX_TOKENS
        if batch and full:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def rectangle(sequences: Sequence[list[int]]) -> Int[Tensor, "batch length"]:
    """Padded on the right to the longest."""
    width = max(1, max(map(len, sequences)))
    return torch.tensor([s + [PAD] * (width - len(s)) for s in sequences])


def read_outputs(found: Hypotheses, row: int, n_best: int) -> list[Output]:
    """The best outputs of one sentence of a batch."""
    outputs = []
    for tokens, score, log_p in zip(
        found.tokens[row, :n_best].tolist(),
        found.scores[row, :n_best].tolist(),
        found.log_p[row, :n_best].tolist(),
        strict=True,
    ):
        if score == float("-inf"):
            continue  # fewer hypotheses exist than were asked for
        ids = tokens[: tokens.index(EOS)] if EOS in tokens else [t for t in tokens if t != PAD]
        outputs.append(Output(ids, score, log_p))
    return outputs
