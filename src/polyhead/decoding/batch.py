"""Decoding of many sentences in batches of similar length."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.decoding.beam import beam_search
from polyhead.decoding.hypotheses import NEVER, Hypotheses
from polyhead.decoding.options import DecodeConfig, Output
from polyhead.decoding.protocol import Decodable, S
from polyhead.decoding.sampling import greedy_search, sample
from polyhead.special_tokens import EOS, PAD

MAX_ROWS = 64  # sentences in one batch
MAX_TOKENS = 4096  # source tokens in one batch, times the beam


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
    """Return the `n_best` best outputs for every source, in the order of the sources."""
    outputs: list[list[Output]] = [[] for _ in sources]
    for batch in batches(sources, config):
        source = pad_right([sources[i] for i in batch]).to(device)
        prefix = None
        if prefixes is not None and any(prefixes[i] for i in batch):
            prefix = pad_right([prefixes[i] for i in batch]).to(device)
        hypotheses = search(model, source, config, prefix, generator)
        for row, i in enumerate(batch):
            outputs[i] = read_outputs(hypotheses, row, config.n_best)
        progress(len(batch))
    return outputs


def search(
    model: Decodable[S],
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    prefix: Int[Tensor, "batch prefix"] | None = None,
    generator: torch.Generator | None = None,
) -> Hypotheses:
    """Decode one batch by sampling, greedy search or beam search, as the options say."""
    if config.sample:
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        return sample(model, source, config, generator, prefix)
    if config.beam == 1:
        return greedy_search(model, source, config, prefix)
    return beam_search(model, source, config, prefix)


def batches(sources: Sequence[list[int]], config: DecodeConfig) -> Iterator[list[int]]:
    """Yield indices of sources of similar length; the longest first, to run out of memory early."""
    width = config.n_best if config.sample else config.beam
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    batch: list[int] = []
    for i in order:
        longest = len(sources[batch[0]]) if batch else 0
        full = len(batch) == MAX_ROWS or longest * width * (len(batch) + 1) > MAX_TOKENS
        if batch and full:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def pad_right(sequences: Sequence[list[int]]) -> Int[Tensor, "batch length"]:
    """Pad all sequences on the right to the longest."""
    width = max(1, max(map(len, sequences)))
    return torch.tensor([s + [PAD] * (width - len(s)) for s in sequences])


def read_outputs(hypotheses: Hypotheses, row: int, n_best: int) -> list[Output]:
    """Return the best outputs of one sentence of a batch."""
    outputs = []
    columns = [
        vars(hypotheses)[column.name][row, :n_best].tolist() for column in fields(Hypotheses)
    ]
    for tokens, score, log_p, token_log_p in zip(*columns, strict=True):
        if score == NEVER:
            continue  # there are fewer hypotheses than n_best
        ended = EOS in tokens
        ids = tokens[: tokens.index(EOS)] if ended else [t for t in tokens if t != PAD]
        outputs.append(Output(ids, score, log_p, ended, token_log_p[: len(ids) + ended]))
    return outputs
