"""Batch key of translation with torch."""

from dataclasses import replace
from functools import partial
from typing import Any

from polyhead.decoding.options import DecodeConfig
from polyhead.pipelines.segment_batch import SegmentBatch, can_join_running_batch, decode_segments
from polyhead.pipelines.segments import Segment
from polyhead.pipelines.translator import Translator
from polyhead.server.queued_work import BatchKey, IsCancelled


def translation_key(
    name: str, translator: Translator, options: DecodeConfig, max_slots: int, max_tokens: int
) -> BatchKey:
    """Return the key of segments with these options; `max_slots` is that of a running batch."""

    def run(batch: list[Segment], is_cancelled: IsCancelled) -> list[Any]:
        return list(decode_segments(translator, batch, is_cancelled))

    key = BatchKey((name, "translate", options), run, max_tokens=max_tokens)
    if can_join_running_batch(translator, options):
        key = replace(key, max_slots=max_slots, start=partial(SegmentBatch, translator, options))
    return key
