"""Beam search: extend the k best hypotheses by every token, keep the k best, repeat.

    score(y | x) = log P(y | x) / lp(y) + cp(x, y)    (Wu et al. 2016, eq. 14)
    lp(y)        = ((5 + |y|) / 6)^α
    cp(x, y)     = β Σ_i log(min(Σ_j α_ij, 1))        (the coverage penalty)

α_ij is the attention of token j of the output to token i of the source. A source token that got 1
in all costs nothing, one without attention costs much.

Finished hypotheses go to a pool of k and make room for others. A sentence is done when its pool is
full and no unfinished hypothesis would enter it if it ended now with its whole source covered, or
when it reaches its own length limit. Done sentences are removed from the batch.

Each sentence counts its own steps, so that others may join a running search
(`continuous_beam.py`). Here all start together.

Axes: batch (sentences), beam (hypotheses of one sentence), choice (candidates of one sentence).
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from polyhead.decoding.hypotheses import (
    NEVER,
    Hypotheses,
    force_tokens,
    length_limits,
    log_normaliser,
)
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.protocol import Attentive, Decodable, S
from polyhead.errors import ConfigError
from polyhead.special_tokens import BOS, EOS, PAD


@dataclass
class Beams:
    """The unfinished hypotheses and the pool of finished ones, for all sentences of a batch."""

    tokens: Int[Tensor, "batch beam length"]
    log_p: Float[Tensor, "batch beam"]
    token_log_p: Float[Tensor, "batch beam length"]
    ended: Int[Tensor, "batch beam length"]
    ended_score: Float[Tensor, "batch beam"]
    ended_log_p: Float[Tensor, "batch beam"]
    ended_token_log_p: Float[Tensor, "batch beam length"]
    steps: Int[Tensor, "batch"]  # tokens of every unfinished hypothesis
    prefix: Int[Tensor, "batch prefix"]  # how outputs must begin; width 0 if they need not
    covered: Float[Tensor, "batch beam source"]  # summed attention; width 0 without coverage
    real: Bool[Tensor, "batch source"]

    @property
    def last(self) -> Int[Tensor, "batch beam"]:
        place = (self.steps - 1).clamp(min=0)[:, None, None].expand(*self.log_p.shape, 1)
        newest = self.tokens.take_along_dim(place, dim=2)[..., 0]
        return newest.masked_fill(self.steps[:, None] == 0, BOS)

    @property
    def pool(self) -> Hypotheses:
        return Hypotheses(self.ended, self.ended_score, self.ended_log_p, self.ended_token_log_p)

    def keep(self, sentences: Int[Tensor, "kept"]) -> "Beams":
        return Beams(*(getattr(self, field.name)[sentences] for field in fields(self)))

    def absorb(
        self,
        tokens: Int[Tensor, "batch new length"],
        log_p: Float[Tensor, "batch new"],
        token_log_p: Float[Tensor, "batch new length"],
        score: Float[Tensor, "batch new"],
    ) -> None:
        """Add finished hypotheses to the pool, which keeps the best."""
        width = self.log_p.size(1)
        self.ended_score, best = torch.cat([self.ended_score, score], dim=1).topk(width, dim=1)
        ended = torch.cat([self.ended, tokens], dim=1)
        self.ended = ended.take_along_dim(best[..., None], dim=1)
        self.ended_log_p = torch.cat([self.ended_log_p, log_p], dim=1).take_along_dim(best, dim=1)
        each = torch.cat([self.ended_token_log_p, token_log_p], dim=1)
        self.ended_token_log_p = each.take_along_dim(best[..., None], dim=1)


@torch.inference_mode()
def beam_search(
    model: Decodable[S],
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    prefix: Int[Tensor, "batch prefix"] | None = None,
) -> Hypotheses:
    """Return the `beam` best outputs of every sentence of a batch."""
    limits = length_limits(config, source)
    limit = int(limits.max())
    state = model.begin(source, width=config.beam, max_length=limit)
    beams = start_beams(source, config, limit, prefix)
    active = torch.arange(len(source), device=source.device)
    over = torch.zeros_like(active, dtype=torch.bool)
    results: list[tuple[Tensor, Beams]] = []  # finished sentences: their rows and pools

    while len(active):
        logits = model.step(beams.last, state)
        if config.coverage:
            if not isinstance(state, Attentive):
                raise ConfigError(
                    f"decode.coverage = {config.coverage} requires a model with cross-attention; "
                    "set it to 0",
                    "no_cross_attention",
                )
            beams.covered = beams.covered + state.looked
        state.select(extend_beams(logits, beams, config))
        full = (beams.steps >= limits[active]) & ~over
        done = is_done(beams, config) & ~over & ~full
        for rows in (done.nonzero()[:, 0], full.nonzero()[:, 0]):
            if len(rows):  # stored now: the pool of a sentence that stays in the batch may change
                results.append((active[rows], beams.keep(rows)))
        if bool(full.any()):  # their unfinished hypotheses are as long as allowed
            close_beams(results[-1][1], config)
        over = over | done | full
        n_over = int(over.sum())
        if n_over == len(active):
            break
        if 4 * n_over >= len(active):  # else copying the rest costs more than it saves
            stay = (~over).nonzero()[:, 0]
            state.keep(stay)
            beams, active, over = beams.keep(stay), active[stay], over[stay]

    order = torch.cat([rows for rows, _ in results]).argsort()
    pools = [vars(part.pool).values() for _, part in results]
    return Hypotheses(*(torch.cat(parts)[order] for parts in zip(*pools, strict=True)))


def start_beams(
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    limit: int,
    prefix: Int[Tensor, "batch prefix"] | None = None,
) -> Beams:
    """Return the beams before the first step."""
    batch, width, device = len(source), config.beam, source.device
    real = source != PAD if config.coverage else source[:, :0] != PAD
    tokens = torch.full((batch, width, limit), PAD, device=device)
    log_p = torch.full((batch, width), NEVER, device=device)
    log_p[:, 0] = 0.0  # start with one hypothesis; otherwise all beams would be identical
    never = torch.full((batch, width), NEVER, device=device)
    token_log_p = torch.zeros(tokens.shape, device=device)
    return Beams(
        tokens,
        log_p,
        token_log_p,
        ended=tokens.clone(),
        ended_score=never,
        ended_log_p=never.clone(),
        ended_token_log_p=token_log_p.clone(),
        steps=torch.zeros(batch, dtype=torch.int64, device=device),
        prefix=source[:, :0] if prefix is None else prefix,
        covered=torch.zeros(batch, width, real.size(1), device=device),
        real=real,
    )


def extend_beams(
    logits: Float[Tensor, "batch beam vocab"], beams: Beams, config: DecodeConfig
) -> Int[Tensor, "batch beam"]:
    """Extend every hypothesis by one token; return the beam that each continues."""
    width = beams.log_p.size(1)
    n_choices = min(width + 1, logits.size(-1))  # one beam has at most k continuations, and EOS
    logits = logits.float()
    normaliser = log_normaliser(logits)[..., None]
    logits[..., : BOS + 1] = NEVER  # PAD and BOS are never written
    if n_forced := beams.prefix.size(1):
        place = beams.steps.clamp(max=n_forced)[:, None]
        forced = F.pad(beams.prefix, (0, 1), value=PAD).take_along_dim(place, dim=1)[:, 0]
        force_tokens(logits, forced)

    # The best of all beams are among the best of each beam.
    of_each, token = logits.topk(n_choices, dim=-1)
    gained = of_each - normaliser
    total = (gained + beams.log_p[..., None]).flatten(1)  # (batch, beam · choice)
    log_p, place = total.topk(min(2 * width, total.size(1)), dim=1)
    parent, chosen = place // n_choices, token.flatten(1).take_along_dim(place, dim=1)
    histories = beams.tokens.take_along_dim(parent[..., None], dim=1)
    here = beams.steps[:, None, None].expand(*chosen.shape, 1)
    histories.scatter_(2, here, chosen[..., None])
    token_log_p = beams.token_log_p.take_along_dim(parent[..., None], dim=1)
    newest = gained.flatten(1).take_along_dim(place, dim=1)
    token_log_p.scatter_(2, here, newest[..., None])
    beams.steps = beams.steps + 1

    ends = chosen == EOS
    first = slice(0, width)  # a finished hypothesis counts only among the k best
    if bool(ends[:, first].any()):
        covered = beams.covered.take_along_dim(parent[:, first, None], dim=1)
        score = log_p[:, first] / length_penalties(beams, config)
        score = score + coverage_penalty(covered, beams.real, config.coverage)
        counted = score.masked_fill(~ends[:, first], NEVER)
        beams.absorb(histories[:, first], log_p[:, first], token_log_p[:, first], counted)
    beams.log_p, best = log_p.masked_fill(ends, NEVER).topk(width, dim=1)
    beams.tokens = histories.take_along_dim(best[..., None], dim=1)
    beams.token_log_p = token_log_p.take_along_dim(best[..., None], dim=1)
    parent = parent.take_along_dim(best, dim=1)
    beams.covered = beams.covered.take_along_dim(parent[..., None], dim=1)
    return parent


def is_done(beams: Beams, config: DecodeConfig) -> Bool[Tensor, "batch"]:
    """Return True where the pool is full and the best unfinished hypothesis would not enter it."""
    best = beams.log_p[:, :1] / length_penalties(beams, config)
    return beams.ended_score[:, -1] >= best[:, 0]


def close_beams(beams: Beams, config: DecodeConfig) -> None:
    """Add unfinished hypotheses to the pool as they are, at the last step."""
    score = beams.log_p / length_penalties(beams, config)
    score = score + coverage_penalty(beams.covered, beams.real, config.coverage)
    beams.absorb(beams.tokens, beams.log_p, beams.token_log_p, score)


def length_penalties(beams: Beams, config: DecodeConfig) -> Float[Tensor, "batch 1"]:
    """Return lp(y) of the unfinished hypotheses of each sentence, which are equally long."""
    penalties = ((5.0 + beams.steps.double()) / 6.0) ** config.length_penalty
    return penalties.to(beams.log_p.dtype)[:, None]


def coverage_penalty(
    covered: Float[Tensor, "batch beam source"], real: Bool[Tensor, "batch source"], beta: float
) -> Float[Tensor, "batch beam"]:
    """Return cp(x, y) of each hypothesis; `covered` is its attention, summed over its tokens."""
    least = torch.finfo(covered.dtype).tiny  # a weight that underflowed is not quite 0
    each = covered.clamp(min=least, max=1.0).log()
    return beta * each.masked_fill(~real[:, None], 0.0).sum(-1)
