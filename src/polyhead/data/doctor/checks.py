"""The data doctor: looks at a corpus before hours are spent on it.

It reports; it changes nothing. Single pairs are looked at by `symptoms`, the run of the lines by
`alignment`, and here training text is compared with the sets that are held out to measure it: what
is in both makes a model look better than it is.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from polyhead.data.doctor.alignment import AlignedSpan, judge
from polyhead.data.doctor.report import ORDER, CorpusFinding, CorpusReport, by_share, examples
from polyhead.data.doctor.symptoms import EVERY_SYMPTOM
from polyhead.data.parallel import Pairs, plain

NOTHING: Mapping[str, Pairs] = MappingProxyType({})


def check(train: Pairs, held_out: Mapping[str, Pairs] = NOTHING) -> CorpusReport:
    """Examine the training pairs, and what they share with each named held-out set."""
    found = [finding for symptom in EVERY_SYMPTOM for finding in symptom(train)]
    found += misalignment(train, "the training text")
    for name, pairs in held_out.items():
        found += misalignment(pairs, name)
    found += overlap(train, held_out)
    found.sort(key=lambda finding: (-ORDER.index(finding.severity), -finding.count))
    return CorpusReport(len(train), tuple(found))


def misalignment(pairs: Pairs, name: str) -> Iterator[CorpusFinding]:
    """Where the two sides fall out of step."""
    verdict = judge(pairs.sources, pairs.targets)
    if not verdict.related:
        yield CorpusFinding(
            name="unrelated",
            severity="error",
            title=f"no sign that the lines of {name} translate each other",
            count=len(pairs),
            examples=examples(pairs, range(len(pairs))),
            advice="check that the two files belong together and that neither was sorted",
        )
    for stretch in verdict.parted:
        yield CorpusFinding(
            name="misaligned",
            severity="error",
            title=f"the two sides of {name} are out of step {place(pairs, stretch)}",
            count=stretch.stop - stretch.start,
            examples=examples(pairs, range(stretch.start, stretch.stop)),
            advice=advice(stretch),
        )


def place(pairs: Pairs, stretch: AlignedSpan) -> str:
    """From where to where, in words."""
    start, stop = pairs.where(stretch.start), pairs.where(stretch.stop - 1)
    return f"from about {start} " + ("on" if stretch.stop == len(pairs) else f"to about {stop}")


def advice(stretch: AlignedSpan) -> str:
    """What is probably too much or missing before a stretch."""
    if stretch.offset is None:
        return "these lines do not fit, nor do their neighbours: compare the two files there"
    side, other = ("target", "source") if stretch.offset > 0 else ("source", "target")
    lines = f"{abs(stretch.offset)} line{'s' * (abs(stretch.offset) > 1)}"
    return f"before that place the {side} has {lines} too many, or the {other} lacks as many"


def overlap(train: Pairs, held_out: Mapping[str, Pairs]) -> Iterator[CorpusFinding]:
    """What of each held-out set is in the training text, but for case and blanks."""
    if not held_out:
        return
    sources = [plain(source) for source in train.sources]
    targets = [plain(target) for target in train.targets]
    known = {"source": set(sources), "target": set(targets)}
    known_pairs = set(zip(sources, targets, strict=True))
    for name, pairs in held_out.items():
        found: dict[str, list[int]] = {"pair": [], "source": [], "target": []}
        for index, (source, target) in enumerate(pairs):
            here = plain(source), plain(target)
            if here in known_pairs:
                found["pair"].append(index)
            elif here[0] in known["source"]:
                found["source"].append(index)
            elif here[1] in known["target"]:
                found["target"].append(index)
        for what, indices in found.items():
            if indices:
                yield shared(name, what, pairs, indices)


def shared(name: str, what: str, pairs: Pairs, indices: list[int]) -> CorpusFinding:
    """One finding of an overlap: the same pair is worse than the same target."""
    limits = {"pair": (0.002, 0.05), "source": (0.005, 0.1), "target": (0.05, 2.0)}
    warning, error = limits[what]
    also = {"pair": "pairs", "source": "sources (with another target)",
            "target": "targets (of another source)"}[what]  # fmt: skip
    return CorpusFinding(
        name=f"overlap-{what}",
        severity=by_share(len(indices), len(pairs), warning=warning, error=error),
        title=f"{also} of {name} that are in the training text too",
        count=len(indices),
        examples=examples(pairs, indices),
        advice=f"remove them from training, or scores on {name} are partly memory",
    )
