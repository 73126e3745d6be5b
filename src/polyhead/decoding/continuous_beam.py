"""A beam search that sentences enter and leave while it runs.

    flow = Flow(model, options)
    flow.enter(["a", "b"], source)       # two sentences, each with a ticket of its own
    flow.step()                          # one token more for everybody
    flow.enter(["c"], another)           # joins the others, whatever they have done so far
    flow.step()                          # [("a", outputs)]: who is done leaves at once

In a batch that begins and ends together, whoever comes late waits for the whole batch, and the
shortest sentence for the longest. Here nobody waits for anybody but for the step under way. What a
sentence gets is what it would get alone: the search is that of `beam.py`, in which every sentence
counts its own steps, and the model's state hides from each what was there before it (`Joinable`).
"""

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from polyhead.decoding.batch import Output, read_outputs
from polyhead.decoding.beam import Beams, close, done, extend, start
from polyhead.decoding.config import DecodeConfig, Hypotheses
from polyhead.decoding.protocol import Decodable, Joinable
from polyhead.special_tokens import PAD

Ticket = TypeVar("Ticket")
MAX_STEPS = 1000  # then nobody may enter: rotations by ever larger angles would lose their digits


class ContinuousBeamSearch(Generic[Ticket]):
    """The sentences in work and where they stand. All have the same options, and so one limit."""

    def __init__(self, model: Decodable[Any], config: DecodeConfig) -> None:
        if config.beam < 2 or config.sample or config.coverage:
            raise ValueError(
                f"a flow is a beam search without coverage, got beam = {config.beam}, "
                f"sample = {config.sample}, coverage = {config.coverage}"
            )
        self.model, self.config = model, config
        self.rows: list[Ticket | None] = []  # None: has left, but was not cleared away yet
        self.n_steps = 0
        self._state: Any = None
        self._beams: Beams | None = None

    def __len__(self) -> int:
        """How many sentences are in work."""
        return sum(ticket is not None for ticket in self.rows)

    @property
    def open(self) -> bool:
        """Whether others may still enter."""
        return self.n_steps < MAX_STEPS

    @torch.inference_mode()
    def enter(
        self,
        tickets: Sequence[Ticket],
        source: Int[Tensor, "batch source"],
        prefix: Int[Tensor, "batch prefix"] | None = None,
    ) -> None:
        """Begin with these sentences at the next step."""
        limit = self.config.max_length
        state = self.model.begin(source, width=self.config.beam, max_length=limit)
        assert isinstance(state, Joinable), "this model's sentences must begin together"
        beams = start(source, self.config, limit, prefix)
        if not len(self):
            self.rows, self._state, self._beams = list(tickets), state, beams
            return
        assert self._beams is not None
        free = [i for i, ticket in enumerate(self.rows) if ticket is None]
        rows = [*free, *range(len(self.rows), len(self.rows) + len(tickets))][: len(tickets)]
        seats = torch.tensor(rows, device=source.device)
        self._state.join(state, seats)
        self._beams = _seated(self._beams, beams, seats)
        self.rows += [None] * (len(self._beams.steps) - len(self.rows))
        for i, ticket in zip(rows, tickets, strict=True):
            self.rows[i] = ticket

    @torch.inference_mode()
    def step(self) -> list[tuple[Ticket, list[Output]]]:
        """One token more for everybody; those who are done leave, with their outputs."""
        if not len(self):
            return []
        self._tidy()
        assert self._beams is not None
        beams = self._beams
        self.n_steps += 1
        logits = self.model.step(beams.last, self._state)
        self._state.select(extend(logits, beams, self.config))
        full = (beams.steps >= self.config.max_length).tolist()
        over = done(beams, self.config).tolist()
        living = [i for i, ticket in enumerate(self.rows) if ticket is not None]
        return [self._leave(i, full[i]) for i in living if over[i] or full[i]]

    def leave(self, tickets: Collection[Ticket]) -> None:
        """Nobody waits for these any more."""
        self.rows = [None if ticket in tickets else ticket for ticket in self.rows]

    def _leave(self, row: int, full: bool) -> tuple[Ticket, list[Output]]:
        assert self._beams is not None
        one = self._beams.keep(torch.tensor([row], device=self._beams.log_p.device))
        if full:  # what lives is as long as an output may be, and counts as it is
            close(one, self.config)
        found = Hypotheses(one.ended, one.ended_score, one.ended_log_p)
        ticket, self.rows[row] = self.rows[row], None
        assert ticket is not None
        return ticket, read_outputs(found, 0, self.config.n_best)

    def _tidy(self) -> None:
        """Rows that are empty wait for others who may come; if too many do, they are removed."""
        empty = [i for i, ticket in enumerate(self.rows) if ticket is None]
        if not empty:
            return
        assert self._beams is not None
        device = self._beams.log_p.device
        if 4 * len(empty) >= len(self.rows):  # copying the rest must be worth it
            stay = [i for i, ticket in enumerate(self.rows) if ticket is not None]
            self.rows = [self.rows[i] for i in stay]
            kept = torch.tensor(stay, device=device)
            self._state.keep(kept)
            self._beams = self._beams.keep(kept)
        else:
            rows = torch.tensor(empty, device=device)
            self._state.vacate(rows)
            self._beams.steps[rows] = 0


def _seated(old: Beams, new: Beams, rows: Int[Tensor, "new"]) -> Beams:
    """New sentences in these rows, those beyond the last added; prefixes padded to the longest."""
    longest = max(old.prefix.size(1), new.prefix.size(1))
    for beams in (old, new):
        beams.prefix = F.pad(beams.prefix, (0, longest - beams.prefix.size(1)), value=PAD)
    n_free = int((rows < len(old.steps)).sum())  # the first of them
    together = []
    for one in fields(Beams):
        value, fresh = getattr(old, one.name), getattr(new, one.name)
        value[rows[:n_free]] = fresh[:n_free]
        together.append(torch.cat([value, fresh[n_free:]]))
    return Beams(*together)
