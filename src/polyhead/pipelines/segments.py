"""Translation in portions that may share a batch with those of other people.

    portions = cut(translator, text, options)      # lines, and pieces of lines that are too long
    outputs = decode(translator, portions)         # of any number of texts, together …
    flow = Portions(translator, options)           # … or whenever they come
    translations = join(translator, portions, outputs)

A text loses nothing: its line breaks are kept, a line that is longer than the model reads is cut
into sentences (`Translator.split`), and all are joined again.

An output's greatest length depends on its source's (`DecodeConfig.limit`), in a batch on that of
the longest. Here it depends on the *bucket*: the power of two at or above the source's length, from
32 on. Only portions of one bucket and the same options may be decoded together, so that what
somebody gets never depends on who else is there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyhead.decoding.batch import Output, decode_all, rectangle
from polyhead.decoding.cancel import CancellableModel
from polyhead.decoding.cancel import Cancelled as Cancelled
from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.continuous_beam import ContinuousBeamSearch
from polyhead.errors import ConfigError
from polyhead.layers.positions import BOUNDED_POSITIONS
from polyhead.pipelines.translator import Translation, Translator

SMALLEST_BUCKET = 32  # most sentences: they should find company
UNLIMITED = 1e6  # times the source's length


@dataclass(frozen=True)
class Segment:
    """A piece of a text: its ids, how its output must begin, and the options of its bucket."""

    text: str
    ids: tuple[int, ...]
    prefix: tuple[int, ...]
    options: DecodeConfig


def cut(
    translator: Translator, text: str, options: DecodeConfig, prefix: str = ""
) -> list[list[Segment]]:
    """The portions of every line of a text; none for an empty line. A prefix begins the first."""
    begin = tuple(translator.tokenizers.target.encode(prefix)[:-1]) if prefix else ()
    longest = longest_output(translator)
    if len(begin) >= longest:
        raise ConfigError(f"a prefix of {len(begin)} tokens; an output has at most {longest}")
    options = replace(options, max_length=min(options.max_length, longest))
    lines = []
    for line in text.split("\n"):
        portions = []
        for piece in translator.split(line):
            ids = tuple(translator.tokenizers.source.encode(piece))
            portions.append(Segment(piece, ids, begin, bucketed(options, len(ids), len(begin))))
            begin = ()
        lines.append(portions)
    return lines


def longest_output(translator: Translator) -> int:
    """The most tokens that the model can write: some know no position beyond a certain one."""
    ends = [
        saved.config.max_length
        for saved in translator.models
        if saved.family == "transformer" and saved.config.positions in BOUNDED_POSITIONS
    ]
    return min(ends, default=10**9)


def bucketed(options: DecodeConfig, length: int, forced: int = 0) -> DecodeConfig:
    """The same options with a limit that all sources of a bucket share."""
    bucket = SMALLEST_BUCKET
    while bucket < length:
        bucket *= 2
    limit = max(options.limit(bucket), forced + 1)
    return replace(options, max_length=limit, max_ratio=UNLIMITED)


def decode(
    translator: Translator, portions: Sequence[Segment], wanted: Callable[[], bool] = lambda: True
) -> list[list[Output]]:
    """The best outputs of every portion; all must have the same options.

    `Cancelled` as soon as they are not `wanted` any more.
    """
    (options,) = {portion.options for portion in portions}
    outputs = decode_all(
        CancellableModel(translator.searched(options), wanted),
        [list(portion.ids) for portion in portions],
        options,
        device=translator.device,
        prefixes=[list(portion.prefix) for portion in portions],
    )
    if options.replace_unknown:
        return translator.replaced([portion.text for portion in portions], outputs)
    return outputs


def can_flow(translator: Translator, options: DecodeConfig) -> bool:
    """Whether portions with these options may join a running batch."""
    plain = options.beam > 1 and not (options.sample or options.coverage or options.replace_unknown)
    return plain and [saved.family for saved in translator.models] == ["transformer"]


class SegmentBatch:
    """A flow of portions, which must all have the same options."""

    def __init__(self, translator: Translator, options: DecodeConfig) -> None:
        self.device = translator.device
        self.flow: ContinuousBeamSearch[Any] = ContinuousBeamSearch(translator.decodable, options)
        self.step, self.cancel = self.flow.step, self.flow.leave

    def __len__(self) -> int:
        return len(self.flow)

    @property
    def open(self) -> bool:
        """Whether others may still enter."""
        return self.flow.open

    def add(self, tickets: Sequence[Any], portions: Sequence[Segment]) -> None:
        """Put segments into free slots, from the next step on."""
        prefix = None
        if any(portion.prefix for portion in portions):
            prefix = rectangle([list(portion.prefix) for portion in portions]).to(self.device)
        source = rectangle([list(portion.ids) for portion in portions]).to(self.device)
        self.flow.enter(tickets, source, prefix)


def join(
    translator: Translator, lines: Sequence[Sequence[Segment]], outputs: Sequence[list[Output]]
) -> list[Translation]:
    """A text's translations from the outputs of all its portions, best first."""
    waiting = iter(outputs)
    done = [translator.join([next(waiting) for _ in portions]) for portions in lines]
    if len(done) == 1:
        return done[0]
    n_best = min(
        (len(one) for one, portions in zip(done, lines, strict=True) if portions), default=1
    )
    joined = []
    for n in range(n_best):
        chosen = [one[min(n, len(one) - 1)] for one in done]
        joined.append(
            Translation(
                "\n".join(one.text for one in chosen),
                sum(one.score for one in chosen),
                sum(one.log_p for one in chosen),
                tuple(id for one in chosen for id in one.ids),
            )
        )
    return joined
