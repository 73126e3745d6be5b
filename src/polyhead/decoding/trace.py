"""Decoding with the door open: every step with its likeliest tokens, some of them forced.

    for step in open_walk(model, state, last=BOS, forced=[17, 4], limit=50, top=5): …

First the forced tokens, then the likeliest each time, until EOS or the limit: with nothing forced
this writes what greedy search writes (`walk.greedy`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from polyhead.decoding.config import NEVER
from polyhead.decoding.protocol import Decodable
from polyhead.special_tokens import BOS, EOS


@dataclass(frozen=True)
class TraceStep:
    """The token that was taken, its log P given those before, and the likeliest with theirs."""

    id: int
    log_p: float
    forced: bool
    likeliest: tuple[tuple[int, float], ...]


def open_walk(
    model: Decodable[Any],
    state: Any,
    *,
    last: int,
    forced: Sequence[int],
    limit: int,
    top: int,
    device: torch.device | None = None,
    end: int | None = EOS,
) -> Iterator[TraceStep]:
    """One step after the other, from a state that has read everything but `last`.

    It ends after `limit` steps, or after the token `end`, if there is one.
    """
    for number in range(limit):
        with torch.inference_mode():  # not around the yield: it would leak to whoever listens
            logits = model.step(torch.tensor([[last]], device=device), state)[0, 0].float()
            log_p = logits.log_softmax(-1)
            log_p[: BOS + 1] = NEVER  # PAD and BOS are never said
        best = log_p.topk(min(top, log_p.size(0) - BOS - 1))
        likeliest = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        is_forced = number < len(forced)
        last = forced[number] if is_forced else int(log_p.argmax())
        yield TraceStep(last, float(log_p[last]), is_forced, likeliest)
        if last == end:
            return
