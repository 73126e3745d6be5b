"""Beam search that sentences join and leave while it runs (continuous batching).

    search = ContinuousBeamSearch(model, options)
    search.add(["a", "b"], source)       # two sentences, each with an id
    search.step()                          # one token more for all
    search.add(["c"], another)           # joins the running search
    search.step()                          # [("a", outputs)]: finished sentences leave

The outputs are those of a sentence searched alone: the search is that of `beam.py`, in which every
sentence counts its own steps, and the model's state masks what was in its row before (`Joinable`).
"""

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from polyhead.decoding.batch import read_outputs
from polyhead.decoding.beam import Beams, close_beams, extend_beams, is_done, start_beams
from polyhead.decoding.options import DecodeConfig, Output
from polyhead.decoding.protocol import Decodable, Joinable
from polyhead.special_tokens import PAD

RequestId = TypeVar("RequestId")
MAX_STEPS = 1000  # then none may be added: rotations by large angles lose precision


class ContinuousBeamSearch(Generic[RequestId]):
    """A running beam search; all sentences have the same options, and so the same limit."""

    def __init__(self, model: Decodable[Any], config: DecodeConfig) -> None:
        if config.beam < 2 or config.sample or config.coverage:
            raise ValueError(
                f"expected a beam search without coverage, got beam = {config.beam}, "
                f"sample = {config.sample}, coverage = {config.coverage}"
            )
        self.model, self.config = model, config
        self.rows: list[RequestId | None] = []  # None: free, but not cleared yet
        self.n_steps = 0
        self._state: Any
        self._beams: Beams

    def __len__(self) -> int:
        return sum(request_id is not None for request_id in self.rows)

    @property
    def open(self) -> bool:
        """True while sentences may still be added."""
        return self.n_steps < MAX_STEPS

    @torch.inference_mode()
    def add(
        self,
        request_ids: Sequence[RequestId],
        source: Int[Tensor, "batch source"],
        prefix: Int[Tensor, "batch prefix"] | None = None,
    ) -> None:
        """Add sentences; they start at the next step."""
        limit = self.config.max_length
        state = self.model.begin(source, width=self.config.beam, max_length=limit)
        assert isinstance(state, Joinable), "the sentences of this model must start together"
        beams = start_beams(source, self.config, limit, prefix)
        if not len(self):
            self.rows, self._state, self._beams = list(request_ids), state, beams
            return
        free = [i for i, request_id in enumerate(self.rows) if request_id is None]
        added = range(len(self.rows), len(self.rows) + len(request_ids))
        rows = [*free, *added][: len(request_ids)]
        places = torch.tensor(rows, device=source.device)
        self._state.join(state, places)
        self._beams = _merge(self._beams, beams, places)
        self.rows += [None] * (len(self._beams.steps) - len(self.rows))
        for i, request_id in zip(rows, request_ids, strict=True):
            self.rows[i] = request_id

    @torch.inference_mode()
    def step(self) -> list[tuple[RequestId, list[Output]]]:
        """Extend all sentences by one token; remove and return the finished ones."""
        if not len(self):
            return []
        self._tidy()
        beams = self._beams
        self.n_steps += 1
        logits = self.model.step(beams.last, self._state)
        self._state.select(extend_beams(logits, beams, self.config))
        full = (beams.steps >= self.config.max_length).tolist()
        finished = is_done(beams, self.config).tolist()
        used = [i for i, request_id in enumerate(self.rows) if request_id is not None]
        return [self._finish(i, full[i]) for i in used if finished[i] or full[i]]

    def cancel(self, request_ids: Collection[RequestId]) -> None:
        """Remove sentences whose outputs are no longer needed."""
        self.rows = [None if request_id in request_ids else request_id for request_id in self.rows]

    def _finish(self, row: int, full: bool) -> tuple[RequestId, list[Output]]:
        beams = self._beams.keep(torch.tensor([row], device=self._beams.log_p.device))
        if full:  # unfinished hypotheses count as they are
            close_beams(beams, self.config)
        request_id, self.rows[row] = self.rows[row], None
        assert request_id is not None
        return request_id, read_outputs(beams.pool, 0, self.config.n_best)

    def _tidy(self) -> None:
        """Clear free rows for new sentences; remove them if there are many."""
        empty = [i for i, request_id in enumerate(self.rows) if request_id is None]
        if not empty:
            return
        device = self._beams.log_p.device
        if 4 * len(empty) >= len(self.rows):  # else copying the rest costs more than it saves
            stay = [i for i, request_id in enumerate(self.rows) if request_id is not None]
            self.rows = [self.rows[i] for i in stay]
            kept = torch.tensor(stay, device=device)
            self._state.keep(kept)
            self._beams = self._beams.keep(kept)
        else:
            rows = torch.tensor(empty, device=device)
            self._state.vacate(rows)
            self._beams.steps[rows] = 0


def _merge(old: Beams, new: Beams, rows: Int[Tensor, "new"]) -> Beams:
    """Put new sentences into these rows, adding rows; prefixes are padded to the longest."""
    longest = max(old.prefix.size(1), new.prefix.size(1))
    for beams in (old, new):
        beams.prefix = F.pad(beams.prefix, (0, longest - beams.prefix.size(1)), value=PAD)
    n_free = int((rows < len(old.steps)).sum())  # they come first
    merged = []
    for field in fields(Beams):
        value, fresh = getattr(old, field.name), getattr(new, field.name)
        value[rows[:n_free]] = fresh[:n_free]
        merged.append(torch.cat([value, fresh[n_free:]]))
    return Beams(*merged)
