"""Translation of texts in segments that may share a batch with those of other requests.

    segments = split_text(translator, text, options)   # sentences, and parts of those too long
    outputs = decode_segments(translator, segments)    # of any number of texts
    translations = join_segments(translator, text, segments, outputs)

White space between sentences, with its line breaks, is kept.

The maximal length of an output depends on the length of its source (`DecodeConfig.limit`), but a
running batch has one limit. So here it depends on the *bucket*: the power of two at or above the
source's length, at least 32. Only segments of one bucket with the same options are decoded
together, so that a translation never depends on the other requests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from polyhead.decoding.options import DecodeConfig, Output, Scores
from polyhead.errors import ConfigError
from polyhead.pipelines.backends import Backend
from polyhead.pipelines.translator import SourcePart, Translation, Translator

if TYPE_CHECKING:
    from polyhead.pipelines.torch_backend import RunningSearch

SMALLEST_BUCKET = 32  # tokens; most sentences are shorter, and so share one bucket
UNLIMITED_RATIO = 1e6  # times the source's length


@dataclass(frozen=True)
class Segment:
    """A part of a text, how its output must begin, and the options of its bucket."""

    part: SourcePart
    prefix: tuple[int, ...]
    options: DecodeConfig


def split_text(
    translator: Translator, text: str, options: DecodeConfig, prefix: str = ""
) -> list[Segment]:
    """Return the segments of a text; none if it is empty.

    prefix: how the output of the first segment must begin.
    """
    begin = tuple(translator.tokenizers.target.encode(prefix)[:-1]) if prefix else ()
    longest = translator.max_output_length
    if len(begin) >= longest:
        raise ConfigError(
            f"a prefix of {len(begin)} tokens; an output has at most {longest}", "prefix_too_long"
        )
    options = replace(options, max_length=min(options.max_length, longest))
    (parts,) = translator.split_lines([text], split_sentences=options.split_sentences)
    segments = []
    for part in parts:
        bucket = with_bucket_limit(options, len(part.ids), len(begin))
        segments.append(Segment(part, begin, bucket))
        begin = ()
    return segments


def with_bucket_limit(options: DecodeConfig, length: int, n_forced: int = 0) -> DecodeConfig:
    """Return the options with the length limit that all sources of a bucket share."""
    bucket = SMALLEST_BUCKET
    while bucket < length:
        bucket *= 2
    limit = max(options.limit(bucket), n_forced + 1)
    return replace(options, max_length=limit, max_ratio=UNLIMITED_RATIO)


def decode_segments(
    translator: Translator,
    segments: Sequence[Segment],
    is_cancelled: Callable[[], bool] | None = None,
    *,
    backend: Backend | None = None,
    scores: Scores = "tokens",
) -> list[list[Output]]:
    """Return the best outputs of every segment; all must have the same options."""
    (options,) = {segment.options for segment in segments}
    return translator.decode_parts(
        [segment.part for segment in segments], options, scores=scores, backend=backend,
        prefixes=[list(segment.prefix) for segment in segments], is_cancelled=is_cancelled,
    )  # fmt: skip


class SegmentBatch:
    """A running batch of segments with the same options."""

    def __init__(self, start: "Callable[[], RunningSearch]") -> None:
        self.search = start()
        self.step, self.cancel = self.search.step, self.search.cancel

    def __len__(self) -> int:
        return len(self.search)

    @property
    def open(self) -> bool:
        """True while segments may still be added."""
        return self.search.open

    def add(self, request_ids: Sequence[Any], segments: Sequence[Segment]) -> None:
        """Add segments; they start at the next step."""
        prefixes = [list(segment.prefix) for segment in segments]
        self.search.add_ids(request_ids, [segment.part.ids for segment in segments], prefixes)


def join_segments(
    translator: Translator,
    text: str,
    segments: Sequence[Segment],
    outputs: Sequence[list[Output]],
) -> list[Translation]:
    """Return the translations of a text from the outputs of its segments, best first."""
    start, end = (
        "\n" * edge.count("\n")
        for edge in (text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :])
    )
    return [
        replace(translation, text=f"{start}{translation.text}{end if segments else ''}")
        for translation in translator.join([segment.part for segment in segments], outputs)
    ]
