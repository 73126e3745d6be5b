"""Beam search as a tree: all beginnings that were ever kept, and who grew out of whom.

The search itself is the one of `beam.py`, untouched: it asks a model for every step and tells the
model's state which beams go on. `BeamRecorder` is between the two and writes down what it hears.
Finished outputs leave the beams unheard; they are hung into the tree where their tokens lead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.decoding.batch import rectangle
from polyhead.decoding.beam import beam_search
from polyhead.decoding.config import NEVER, DecodeConfig
from polyhead.decoding.protocol import Decodable
from polyhead.special_tokens import BOS, EOS, PAD


@dataclass(frozen=True)
class Node:
    """One token of a hypothesis. `log_p` is the sum from the root, `step` the place (root: 0)."""

    parent: int | None
    step: int
    id: int
    log_p: float


@dataclass(frozen=True)
class Leaf:
    """One of the outputs: its last node, its score, and its tokens without EOS."""

    node: int
    score: float
    log_p: float
    ids: tuple[int, ...]


@dataclass
class Tree:
    """The nodes in the order in which they were found, and the outputs, best first."""

    nodes: list[Node] = field(default_factory=lambda: [Node(None, 0, BOS, 0.0)])
    leaves: list[Leaf] = field(default_factory=list)


@dataclass
class BeamRecorder:
    """A model, and its state, that notes how the hypotheses of one sentence grow."""

    model: Decodable[Any]
    forced: Sequence[int]
    tree: Tree = field(default_factory=Tree)
    _inner: Any = None
    _places: list[int | None] = field(default_factory=list)  # the node of each beam, if it lives
    _log_p: Tensor = field(default_factory=lambda: torch.empty(0))  # of each next token, by beam
    _parents: list[int] | None = None

    def begin(
        self, source: Int[Tensor, "1 source"], *, width: int, max_length: int
    ) -> "BeamRecorder":
        """Let the model read the source; only the first beam speaks at first."""
        self._inner = self.model.begin(source, width=width, max_length=max_length)
        self._places = [0, *([None] * (width - 1))]
        return self

    def step(self, last: Int[Tensor, "1 beam"], state: Any) -> Float[Tensor, "1 beam vocab"]:
        """Note what was chosen after the step before, then take the next."""
        assert state is self
        if self._parents is not None:
            self._grow(self._parents, last[0].tolist())
        logits = self.model.step(last, self._inner)
        self._log_p = logits[0].float().log_softmax(-1).cpu()  # the search writes into the logits
        return logits

    def select(self, parents: Int[Tensor, "1 beam"]) -> None:
        """Beam i goes on from what was its beam parents[i]."""
        self._parents = parents[0].tolist()
        self._inner.select(parents)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        """There is one sentence; it is kept until the search ends."""
        self._inner.keep(sentences)

    @property
    def looked(self) -> Float[Tensor, "1 beam source"]:
        """What the last step looked at, if the model tells; the coverage penalty asks."""
        return self._inner.looked

    def _grow(self, parents: list[int], tokens: list[int]) -> None:
        places: list[int | None] = []
        for beam, id in zip(parents, tokens, strict=True):
            place = self._places[beam]
            places.append(None if place is None else self._child(place, id, beam))
        self._places = places

    def _child(self, place: int, id: int, beam: int) -> int | None:
        """The new node, unless the token is one that cannot be said here: a beam without life."""
        above = self.tree.nodes[place]
        if id in (PAD, BOS, EOS):
            return None
        if above.step < len(self.forced) and id != self.forced[above.step]:
            return None
        log_p = above.log_p + float(self._log_p[beam, id])
        if log_p == NEVER:
            return None
        self.tree.nodes.append(Node(place, above.step + 1, id, log_p))
        return len(self.tree.nodes) - 1


def grow_tree(
    model: Decodable[Any],
    source: Sequence[int],
    config: DecodeConfig,
    *,
    forced: Sequence[int] = (),
    device: torch.device | None = None,
) -> Tree:
    """Search for one sentence and return all that was on the way."""
    watched = BeamRecorder(model, forced)
    prefix = torch.tensor([list(forced)], device=device) if forced else None
    found = beam_search(watched, rectangle([list(source)]).to(device), config, prefix)
    children = {(node.parent, node.id): place for place, node in enumerate(watched.tree.nodes)}
    for tokens, score, log_p in zip(
        found.tokens[0].tolist(), found.scores[0].tolist(), found.log_p[0].tolist(), strict=True
    ):
        if score == NEVER:
            continue  # fewer hypotheses exist than beams
        end = tokens.index(EOS) + 1 if EOS in tokens else len(tokens) - tokens.count(PAD)
        node = _follow(watched.tree, children, tokens[:end], log_p)
        ids = tuple(id for id in tokens[:end] if id != EOS)
        watched.tree.leaves.append(Leaf(node, score, log_p, ids))
    return watched.tree


def _follow(
    tree: Tree, children: dict[tuple[int | None, int], int], tokens: Sequence[int], log_p: float
) -> int:
    """The node that a path leads to; its last token is added if the search did not say it."""
    place = 0
    for step, id in enumerate(tokens, 1):
        if (place, id) not in children:
            tree.nodes.append(Node(place, step, id, log_p))
            children[place, id] = len(tree.nodes) - 1
        place = children[place, id]
    return place
