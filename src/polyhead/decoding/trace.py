"""Trace of a beam search: the tree of all hypotheses that it kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.decoding.batch import pad_right
from polyhead.decoding.beam import beam_search
from polyhead.decoding.hypotheses import NEVER
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.protocol import Decodable
from polyhead.special_tokens import BOS, EOS, PAD


@dataclass(frozen=True)
class BeamNode:
    """One token of a hypothesis; `log_p` sums from the root, `step` is its position (root: 0)."""

    parent: int | None
    step: int
    id: int
    log_p: float


@dataclass(frozen=True)
class BeamLeaf:
    """An output: its last node, its score, and its tokens without EOS."""

    node: int
    score: float
    log_p: float
    ids: tuple[int, ...]


@dataclass
class BeamTree:
    """All hypotheses of a beam search: nodes in the order of the search, outputs best first."""

    nodes: list[BeamNode] = field(default_factory=lambda: [BeamNode(None, 0, BOS, 0.0)])
    leaves: list[BeamLeaf] = field(default_factory=list)


@dataclass
class BeamRecorder:
    """A decodable model, and its state, that records the hypotheses of one sentence."""

    model: Decodable[Any]
    forced: Sequence[int]
    tree: BeamTree = field(default_factory=BeamTree)
    _inner: Any = None
    _places: list[int | None] = field(default_factory=list)  # the node of each beam, if it has one
    _log_p: Tensor = field(default_factory=lambda: torch.empty(0))  # of each next token, by beam
    _parents: list[int] | None = None

    def begin(
        self, source: Int[Tensor, "1 source"], *, width: int, max_length: int
    ) -> "BeamRecorder":
        """Let the model read the source; the search starts with one hypothesis."""
        self._inner = self.model.begin(source, width=width, max_length=max_length)
        self._places = [0, *([None] * (width - 1))]
        return self

    def step(self, last: Int[Tensor, "1 beam"], state: Any) -> Float[Tensor, "1 beam vocab"]:
        """Record the choices of the previous step, then take the next."""
        assert state is self
        if self._parents is not None:
            chosen = zip(self._parents, last[0].tolist(), strict=True)
            self._places = [self._child(self._places[beam], id, beam) for beam, id in chosen]
        logits = self.model.step(last, self._inner)
        self._log_p = logits[0].float().log_softmax(-1).cpu()  # the search writes into the logits
        return logits

    def select(self, parents: Int[Tensor, "1 beam"]) -> None:
        self._parents = parents[0].tolist()
        self._inner.select(parents)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        """Keep the only sentence until the search ends."""
        self._inner.keep(sentences)

    @property
    def looked(self) -> Float[Tensor, "1 beam source"]:
        """The cross-attention of the last step, for the coverage penalty."""
        return self._inner.looked

    def _child(self, place: int | None, id: int, beam: int) -> int | None:
        """Return the new node; None if the token is impossible here, as in an unused beam."""
        if place is None or id in (PAD, BOS, EOS):
            return None
        above = self.tree.nodes[place]
        if above.step < len(self.forced) and id != self.forced[above.step]:
            return None
        log_p = above.log_p + float(self._log_p[beam, id])
        if log_p == NEVER:
            return None
        self.tree.nodes.append(BeamNode(place, above.step + 1, id, log_p))
        return len(self.tree.nodes) - 1


def trace_beam_search(
    model: Decodable[Any],
    source: Sequence[int],
    config: DecodeConfig,
    *,
    forced: Sequence[int] = (),
    device: torch.device | None = None,
) -> BeamTree:
    """Run a beam search for one sentence and return all hypotheses on the way."""
    recorder = BeamRecorder(model, forced)
    prefix = torch.tensor([list(forced)], device=device) if forced else None
    hypotheses = beam_search(recorder, pad_right([list(source)]).to(device), config, prefix)
    children = {(node.parent, node.id): place for place, node in enumerate(recorder.tree.nodes)}
    for tokens, score, log_p in zip(
        *(c[0].tolist() for c in (hypotheses.tokens, hypotheses.scores, hypotheses.log_p)),
        strict=True,
    ):
        if score == NEVER:
            continue  # there are fewer hypotheses than beams
        end = tokens.index(EOS) + 1 if EOS in tokens else len(tokens) - tokens.count(PAD)
        node = 0
        for step, id in enumerate(tokens[:end], 1):  # missing nodes of the path are added
            if (node, id) not in children:
                recorder.tree.nodes.append(BeamNode(node, step, id, log_p))
                children[node, id] = len(recorder.tree.nodes) - 1
            node = children[node, id]
        ids = tuple(id for id in tokens[:end] if id != EOS)
        recorder.tree.leaves.append(BeamLeaf(node, score, log_p, ids))
    return recorder.tree
