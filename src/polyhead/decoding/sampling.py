"""Greedy search and sampling: one token after the other.

    greedy        argmax p
    temperature   p_i ∝ exp(z_i / T)
    top-k         only the k likeliest            (Fan et al. 2018)
    top-p         only the likeliest that together have probability p    (Holtzman et al. 2020)

Temperature, top-k and top-p may be combined; they are applied in this order.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.decoding.hypotheses import (
    NEVER,
    Hypotheses,
    force_tokens,
    length_limits,
    log_normaliser,
)
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.protocol import Decodable, S
from polyhead.special_tokens import BOS, EOS, PAD

Chooser = Callable[[Float[Tensor, "batch beam vocab"]], Int[Tensor, "batch beam"]]


def greedy_search(
    model: Decodable[S],
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    prefix: Int[Tensor, "batch prefix"] | None = None,
) -> Hypotheses:
    """Choose the likeliest token at every step."""
    return _decode_token_by_token(
        model, source, config, lambda logits: logits.argmax(-1), 1, prefix
    )


def sample(
    model: Decodable[S],
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    generator: torch.Generator,
    prefix: Int[Tensor, "batch prefix"] | None = None,
) -> Hypotheses:
    """Draw `n_best` independent outputs for every sentence."""

    def choose(logits: Float[Tensor, "batch beam vocab"]) -> Int[Tensor, "batch beam"]:
        return draw(sampling_probabilities(logits, config), generator)

    return _decode_token_by_token(model, source, config, choose, config.n_best, prefix)


@torch.inference_mode()
def _decode_token_by_token(
    model: Decodable[S],
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    choose: Chooser,
    width: int,
    prefix: Int[Tensor, "batch prefix"] | None = None,
) -> Hypotheses:
    """Decode until all sentences have ended; finished ones are removed from the batch."""
    limits, batch = length_limits(config, source), len(source)
    limit = int(limits.max())
    tokens = torch.full((batch, width, limit), PAD, device=source.device)
    log_p = torch.zeros(batch, width, device=source.device)
    token_log_p = torch.zeros(tokens.shape, device=source.device)
    state = model.begin(source, width=width, max_length=limit)
    active = torch.arange(batch, device=source.device)
    last = torch.full((batch, width), BOS, device=source.device)
    ended = torch.zeros(batch, width, dtype=torch.bool, device=source.device)

    for step in range(limit):
        logits = model.step(last, state).float()
        normaliser = log_normaliser(logits)
        logits[..., : BOS + 1] = NEVER  # PAD and BOS are never written
        if prefix is not None and step < prefix.size(1):
            force_tokens(logits, prefix[active, step])
        chosen = choose(logits)
        gained = logits.take_along_dim(chosen[..., None], dim=-1)[..., 0] - normaliser
        token_log_p[active, :, step] = gained.masked_fill(ended, 0.0)
        log_p[active] += token_log_p[active, :, step]
        tokens[active, :, step] = chosen.masked_fill(ended, PAD)
        ended = ended | (chosen == EOS) | (limits[active] == step + 1)[:, None]
        last = chosen

        finished = ended.all(1)
        n_finished = int(finished.sum())
        if n_finished == len(active):
            break
        if 4 * n_finished >= len(active):  # else copying the rest costs more than it saves
            stay = (~finished).nonzero()[:, 0]
            state.keep(stay)
            active, last, ended = active[stay], last[stay], ended[stay]

    log_p, best_first = log_p.sort(dim=1, descending=True, stable=True)
    tokens, token_log_p = (
        each.take_along_dim(best_first[..., None], dim=1) for each in (tokens, token_log_p)
    )
    return Hypotheses(tokens, log_p, log_p, token_log_p)


def sampling_probabilities(
    logits: Float[Tensor, "*batch vocab"], config: DecodeConfig
) -> Float[Tensor, "*batch vocab"]:
    """Return the distribution that is sampled from, after temperature, top-k and top-p."""
    return filter_logits(logits / config.temperature, config.top_k, config.top_p).softmax(-1)


def draw(p: Float[Tensor, "*batch vocab"], generator: torch.Generator) -> Int[Tensor, "*batch"]:
    """Draw one token from every distribution, on the CPU, where the generator is."""
    flat = torch.multinomial(p.reshape(-1, p.size(-1)).cpu(), 1, generator=generator)
    return flat.view(p.shape[:-1]).to(p.device)


def filter_logits(
    logits: Float[Tensor, "*batch vocab"], top_k: int, top_p: float
) -> Float[Tensor, "*batch vocab"]:
    """Make all but the likeliest tokens impossible; at least one stays possible."""
    if 0 < top_k < logits.size(-1):
        least = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < least, NEVER)
    if top_p < 1.0:
        ranked, order = logits.sort(dim=-1, descending=True)
        before = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1)
        ranked = ranked.masked_fill(before >= top_p, NEVER)
        logits = torch.empty_like(logits).scatter_(-1, order, ranked)
    return logits
