"""Decoding of segments with torch: as a whole batch, or one by one in a running batch."""

from collections.abc import Callable, Sequence
from typing import Any

from polyhead.decoding.batch import decode_all, pad_right
from polyhead.decoding.continuous_beam import ContinuousBeamSearch
from polyhead.decoding.options import DecodeConfig, Output
from polyhead.decoding.protocol import CancellableModel, is_joinable
from polyhead.pipelines.segments import Segment
from polyhead.pipelines.translator import Translator


def decode_segments(
    translator: Translator,
    segments: Sequence[Segment],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[list[Output]]:
    """Return the best outputs of every segment; all must have the same options.

    Raise `Cancelled` as soon as `is_cancelled` returns True.
    """
    (options,) = {segment.options for segment in segments}
    model = translator.decodable(record_attention=options.coverage > 0)
    outputs = decode_all(
        CancellableModel(model, is_cancelled),
        [segment.part.ids for segment in segments],
        options,
        device=translator.device,
        prefixes=[list(segment.prefix) for segment in segments],
    )
    if options.replace_unknown:
        outputs = translator.replace_unknown([segment.part.text for segment in segments], outputs)
    return outputs


def can_join_running_batch(translator: Translator, options: DecodeConfig) -> bool:
    """Return True if segments with these options may join a running batch."""
    plain = options.beam > 1 and not (options.sample or options.coverage or options.replace_unknown)
    return plain and is_joinable(translator.decodable())


class SegmentBatch:
    """A running batch of segments with the same options."""

    def __init__(self, translator: Translator, options: DecodeConfig) -> None:
        self.device = translator.device
        self.search: ContinuousBeamSearch[Any] = ContinuousBeamSearch(
            translator.decodable(), options
        )
        self.step, self.cancel = self.search.step, self.search.cancel

    def __len__(self) -> int:
        return len(self.search)

    @property
    def open(self) -> bool:
        """True while segments may still be added."""
        return self.search.open

    def add(self, request_ids: Sequence[Any], segments: Sequence[Segment]) -> None:
        """Add segments; they start at the next step."""
        prefix = None
        if any(segment.prefix for segment in segments):
            prefix = pad_right([list(segment.prefix) for segment in segments]).to(self.device)
        source = pad_right([segment.part.ids for segment in segments]).to(self.device)
        self.search.add(request_ids, source, prefix)
