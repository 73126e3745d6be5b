"""Beam search: keep the k likeliest beginnings, extend each by every word, keep the k likeliest.

    score(y | x) = log P(y | x) / lp(y) + cp(x, y)    (Wu et al. 2016, eq. 14)
    lp(y)        = ((5 + |y|) / 6)^α

cp is the coverage penalty (`coverage.py`), 0 unless asked for. Hypotheses that end go to a pool of
k and make room for others. A sentence is done when its pool is full and no living hypothesis, were
it to end now with its whole source covered, would enter it. Done sentences leave the batch.

Sentences need not stand at the same step: each has its own, so that others may join a search under
way (`flow.py`). Here all begin together.

Axes: batch (sentences), beam (hypotheses of one sentence), choice (candidates of one sentence).
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from polyhead.decoding.config import NEVER, DecodeConfig, Hypotheses, force, length_normalisers
from polyhead.decoding.coverage import coverage_penalty, looked_at
from polyhead.decoding.protocol import Decodable, S
from polyhead.special_tokens import BOS, EOS, PAD


@dataclass
class Beams:
    """The living hypotheses and the pool of finished ones, for the sentences still in work."""

    tokens: Int[Tensor, "batch beam length"]
    log_p: Float[Tensor, "batch beam"]
    ended: Int[Tensor, "batch beam length"]
    ended_score: Float[Tensor, "batch beam"]
    ended_log_p: Float[Tensor, "batch beam"]
    steps: Int[Tensor, "batch"]  # tokens of every living hypothesis
    prefix: Int[Tensor, "batch prefix"]  # how outputs must begin; 0 wide if nobody minds
    covered: Float[Tensor, "batch beam source"]  # what was looked at so far; 0 wide if nobody asks
    real: Bool[Tensor, "batch source"]

    @property
    def last(self) -> Int[Tensor, "batch beam"]:
        """The newest token of every hypothesis."""
        place = (self.steps - 1).clamp(min=0)[:, None, None].expand(*self.log_p.shape, 1)
        newest = self.tokens.take_along_dim(place, dim=2)[..., 0]
        return newest.masked_fill(self.steps[:, None] == 0, BOS)

    @property
    def wanted(self) -> Int[Tensor, "batch"] | None:
        """The token that each sentence's prefix has next; PAD where there is none (any more)."""
        length = self.prefix.size(1)
        if not length:
            return None
        place = self.steps.clamp(max=length)[:, None]
        return F.pad(self.prefix, (0, 1), value=PAD).take_along_dim(place, dim=1)[:, 0]

    def keep(self, sentences: Int[Tensor, "kept"]) -> "Beams":
        """Only these sentences, in this order."""
        return Beams(*(getattr(self, one.name)[sentences] for one in fields(self)))

    def absorb(self, tokens: Tensor, score: Tensor, log_p: Tensor) -> None:
        """Let new finished hypotheses compete for a place in the pool."""
        width = self.log_p.size(1)
        scores = torch.cat([self.ended_score, score], dim=1)
        self.ended_score, best = scores.topk(width, dim=1)
        everyone = torch.cat([self.ended, tokens], dim=1)
        self.ended = everyone.take_along_dim(best[..., None], dim=1)
        self.ended_log_p = torch.cat([self.ended_log_p, log_p], dim=1).take_along_dim(best, dim=1)


@torch.inference_mode()
def beam_search(
    model: Decodable[S],
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    prefix: Int[Tensor, "batch prefix"] | None = None,
) -> Hypotheses:
    """Translate a batch: for every sentence the `beam` best outputs found."""
    limit, width = config.limit(source.size(1)), config.beam
    state = model.begin(source, width=width, max_length=limit)
    beams = start(source, config, limit, prefix)
    found = start(source, config, limit, prefix)
    active = torch.arange(len(source), device=source.device)

    for _ in range(limit):
        logits = model.step(beams.last, state)
        if config.coverage:
            beams.covered = beams.covered + looked_at(state, config.coverage)
        state.select(extend(logits, beams, config))
        over = done(beams, config)
        n_over = int(over.sum())
        if n_over == len(active):
            break
        if 4 * n_over >= len(active):  # copying the rest must be worth it
            gone, stay = over.nonzero()[:, 0], (~over).nonzero()[:, 0]
            _store(found, active[gone], beams.keep(gone))
            state.keep(stay)
            beams, active = beams.keep(stay), active[stay]
    else:  # nobody was done before the limit: what lives is as long as that
        close(beams, config)

    _store(found, active, beams)
    return Hypotheses(found.ended, found.ended_score, found.ended_log_p)


def start(
    source: Int[Tensor, "batch source"],
    config: DecodeConfig,
    limit: int,
    prefix: Int[Tensor, "batch prefix"] | None = None,
) -> Beams:
    """Before the first step."""
    batch, width, device = len(source), config.beam, source.device
    real = source != PAD if config.coverage else source[:, :0] != PAD
    tokens = torch.full((batch, width, limit), PAD, device=device)
    log_p = torch.full((batch, width), NEVER, device=device)
    log_p[:, 0] = 0.0  # all beams are equal at first: let only one of them speak
    nobody = torch.full((batch, width), NEVER, device=device)
    return Beams(
        tokens,
        log_p,
        ended=tokens.clone(),
        ended_score=nobody,
        ended_log_p=nobody.clone(),
        steps=torch.zeros(batch, dtype=torch.int64, device=device),
        prefix=source[:, :0] if prefix is None else prefix,
        covered=torch.zeros(batch, width, real.size(1), device=device),
        real=real,
    )


def extend(
    logits: Float[Tensor, "batch beam vocab"], beams: Beams, config: DecodeConfig
) -> Int[Tensor, "batch beam"]:
    """Grow every hypothesis by one token; return whom each continues."""
    width = beams.log_p.size(1)
    n_choices = min(width + 1, logits.size(-1))  # one beam gives at most k that go on, and EOS
    normaliser = logits.logsumexp(-1, keepdim=True)
    logits[..., : BOS + 1] = NEVER  # PAD and BOS are never said
    force(logits, beams.wanted)

    # The best of all beams are among the best of each beam.
    of_each, token = logits.topk(n_choices, dim=-1)
    total = (of_each - normaliser + beams.log_p[..., None]).flatten(1)  # (batch, beam · choice)
    log_p, place = total.topk(min(2 * width, total.size(1)), dim=1)
    parent, chosen = place // n_choices, token.flatten(1).take_along_dim(place, dim=1)
    histories = beams.tokens.take_along_dim(parent[..., None], dim=1)
    here = beams.steps[:, None, None].expand(*chosen.shape, 1)
    histories.scatter_(2, here, chosen[..., None])
    beams.steps = beams.steps + 1

    ends = chosen == EOS
    first = slice(0, width)  # an ending that is not among the k best does not count
    if bool(ends[:, first].any()):
        lengths = length_normalisers(beams.steps, config.length_penalty, log_p)
        covered = beams.covered.take_along_dim(parent[:, first, None], dim=1)
        score = log_p[:, first] / lengths[:, None]
        score = score + coverage_penalty(covered, beams.real, config.coverage)
        counted = score.masked_fill(~ends[:, first], NEVER)
        beams.absorb(histories[:, first], counted, log_p[:, first])
    beams.log_p, going_on = log_p.masked_fill(ends, NEVER).topk(width, dim=1)
    beams.tokens = histories.take_along_dim(going_on[..., None], dim=1)
    parent = parent.take_along_dim(going_on, dim=1)
    beams.covered = beams.covered.take_along_dim(parent[..., None], dim=1)
    return parent


def done(beams: Beams, config: DecodeConfig) -> Bool[Tensor, "batch"]:
    """The pool is full, and the best living hypothesis would not enter it."""
    best = beams.log_p[:, 0] / length_normalisers(beams.steps, config.length_penalty, beams.log_p)
    return beams.ended_score[:, -1] >= best


def close(beams: Beams, config: DecodeConfig) -> None:
    """At the last step, unfinished hypotheses count as they are, where nothing better is known."""
    lengths = length_normalisers(beams.steps, config.length_penalty, beams.log_p)
    score = beams.log_p / lengths[:, None]
    score = score + coverage_penalty(beams.covered, beams.real, config.coverage)
    beams.absorb(beams.tokens, score, beams.log_p)


def _store(found: Beams, sentences: Int[Tensor, "some"], beams: Beams) -> None:
    found.ended[sentences] = beams.ended
    found.ended_score[sentences] = beams.ended_score
    found.ended_log_p[sentences] = beams.ended_log_p
