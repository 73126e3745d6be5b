"""Plans of an epoch: which examples form a batch, as two arrays per block of examples.

A block is a part of a corpus that is planned at once, such as a document of a token store: memory
grows with the largest block, not with the corpus.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]  # whole numbers, one axis


@dataclass(frozen=True)
class BlockPlan:
    """The batches of a block: batch n has the examples `order[starts[n] : ends[n]]`.

    first: the number of the block's first example; `order` counts from it.
    """

    order: npt.NDArray[np.int32]
    starts: Numbers
    ends: Numbers
    first: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, batch: int) -> npt.NDArray[np.int64]:
        """Return the numbers of a batch's examples."""
        return self.order[self.starts[batch] : self.ends[batch]].astype(np.int64) + self.first

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return (self[batch] for batch in range(len(self)))


def plan_by_length(
    lengths: Sequence[Numbers], max_tokens: int, seed: int, *, blur: float = 0.0, first: int = 0
) -> BlockPlan:
    """Sort examples by length, ties in random order, and cut batches, which are shuffled.

    lengths: for each side of the examples, such as source and target, the lengths of all.
    blur: lengths that differ by up to this share may share a batch: more padding, more mixing.
    """
    rng = np.random.default_rng(seed)
    draws = rng.random(len(lengths[0]))
    keys = sort_keys(lengths)
    order = np.lexsort((draws, keys * (1 + blur * draws) if blur else keys)).astype(np.int32)
    widths, sizes = _runs(np.stack([side[order] for side in lengths], axis=1))
    cuts = cut_batches(widths, sizes, max_tokens)
    shuffled = rng.permutation(len(cuts) - 1)
    return BlockPlan(order, cuts[:-1][shuffled], cuts[1:][shuffled], first)


def count_batches(lengths: Sequence[Numbers], max_tokens: int) -> int:
    """Return the number of batches of every plan without blur: ties have equal lengths."""
    keys, sizes = np.unique(sort_keys(lengths), return_counts=True)
    if len(lengths) == 1:
        widths = keys[:, None]
    else:
        longest = int(lengths[1].max(initial=0))
        source, target = np.divmod(keys, 2 * longest + 1)
        widths = np.stack([source, np.abs(target - longest)], axis=1)
    return len(cut_batches(widths, sizes, max_tokens)) - 1


def sort_keys(lengths: Sequence[Numbers]) -> Numbers:
    """Return one number per example, by which examples are sorted.

    Target lengths ascend for even and descend for odd source lengths: where a batch spans two
    source lengths, its target lengths are similar.
    """
    if len(lengths) == 1:
        return lengths[0]
    source, target = (side.astype(np.int64) for side in lengths)
    longest = target.max(initial=0)
    return source * (2 * longest + 1) + np.where(source % 2 == 0, target, -target) + longest


def cut_batches(widths: Numbers, sizes: Numbers, max_tokens: int) -> npt.NDArray[np.int64]:
    """Cut ordered examples into batches of at most `max_tokens` padded tokens.

    The examples are given as runs of equal lengths: `sizes[n]` examples of which each has
    `widths[n]` tokens, at least one, on its sides. The sides are padded separately, and an example
    longer than the budget has its own batch. Returns where batches start, and the end of the last.
    """
    cuts: list[int] = []
    start = at = 0  # of the current batch, and of the run
    widest: list[int] = []
    for width, size in zip(widths.tolist(), sizes.tolist(), strict=True):
        wider = list(map(max, widest, width)) if cuts else width
        fits = start + max_tokens // sum(wider) if cuts else 0  # the batch can end here
        if at + size <= fits:
            widest = wider
        else:
            alone = max(1, max_tokens // sum(width))
            cuts += range(max(at, fits), at + size, alone)
            start, widest = cuts[-1], width
        at += size
    return np.array([*cuts, at], dtype=np.int64)


def _runs(lengths: Numbers) -> tuple[Numbers, Numbers]:
    """Return the different neighbouring rows, and how often each is repeated."""
    changes = np.flatnonzero((lengths[1:] != lengths[:-1]).any(1)) + 1
    starts = np.concatenate([np.zeros(min(1, len(lengths)), dtype=np.int64), changes])
    return lengths[starts], np.diff(starts, append=len(lengths))
