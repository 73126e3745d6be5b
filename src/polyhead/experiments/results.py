"""Results of a comparison: their classes, and their files in the comparison's directory.

results/NAME-SEED.json    a `SystemResult`
outputs/NAME-SEED.*.txt   translations of the test set
table.json                a `ComparisonTable`
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from polyhead.atomic_file import os_errors_as_polyhead_errors, write_text
from polyhead.cost.published import PublishedSystem
from polyhead.errors import ConfigError
from polyhead.experiments.configuration import Deviation, ModelSizes
from polyhead.metrics.bleu import Score

T = TypeVar("T")
DECODINGS, SIGNIFICANCE = ("greedy", "beam"), "significance.json"
OF_ENSEMBLES = ("members", "names")  # keys that the rows of single systems do not have


@dataclass(frozen=True)
class TrainingCost:
    """Cost of a training: CPU seconds, and FLOPs without padding and on real batches."""

    steps: int | float
    tokens: int | float
    seconds: float
    flops: float
    flops_measured: float


@dataclass(frozen=True)
class DecodingCost:
    """Memory and speed of decoding, and its options."""

    remembered_bytes: int  # the state of one sentence
    source_tokens: int  # of that sentence
    beam: int
    length_penalty: float
    sentences_per_second: dict[str, float]  # greedy, beam


@dataclass(frozen=True)
class CurvePoint:
    """One validation, after this share of the budget."""

    share: float
    step: int
    loss: float | None
    metrics: dict[str, float | None] = field(default_factory=dict)  # all others


@dataclass(frozen=True)
class ExpertBalance:
    """Share of the experts that were used, and the largest share of tokens that one got."""

    used: float
    most: float


@dataclass(frozen=True)
class SystemResult:
    """Everything measured on one trained system, or on an ensemble of `members`."""

    system: str
    seed: int | str
    parameters: int
    training: TrainingCost
    decoding: DecodingCost | None  # of translators
    scores: dict[str, dict[str, Score]]  # greedy, beam; or test, validation; then by its name
    curve: list[CurvePoint]
    experts: ExpertBalance | None = None
    members: list[str] | None = None
    examples: int = 0  # outputs that were scored
    exact: str = ""  # the score that is the share of outputs equal to the expected ones

    @property
    def key(self) -> str:
        """Name of the run."""
        return f"{self.system}-{self.seed}"


@dataclass(frozen=True)
class ScoreRange:
    """A score over all seeds: of translators the lowest and highest, else the 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class RowDecoding:
    """Memory and speed of decoding, as the table shows them."""

    remembered_bytes: int
    parameter_bytes: int
    sentences_per_second: dict[str, float]


@dataclass(frozen=True)
class TableRow:
    """One system: means over its seeds. `members` and `names` are those of an ensemble."""

    system: str
    title: str
    paper: str
    published: str | None
    bar: float | None
    seeds: list[int | str]
    scores: dict[str, dict[str, ScoreRange]]
    interval: tuple[float, float] | None
    p_value: float | None
    parameters: int
    training: TrainingCost
    decoding: RowDecoding | None
    curves: list[list[CurvePoint]]
    experts: ExpertBalance | None = None
    members: list[str] | None = None
    names: list[str] | None = None
    sizes: ModelSizes | None = None
    preset: str | None = None  # the paper's configuration
    deviations: list[Deviation] = field(default_factory=list)  # options that differ from it
    p_seeds: float | None = None  # of the paired t-test over seeds
    changes: list[str] = field(default_factory=list)  # varied settings


@dataclass(frozen=True)
class EvaluationSet:
    """Origin and size of the test set."""

    where: str
    sentences: int


@dataclass(frozen=True)
class ComparisonTable:
    """The whole table, and the conditions of the comparison."""

    contest: str
    data: str
    test: EvaluationSet
    budget: str
    seeds: int
    baseline: str
    metric: str  # bleu, wer, or the score that orders the rows
    at_home: bool
    beam: int
    length_penalty: float
    coverage: float
    replace_unknown: bool
    signatures: list[str]
    rows: list[TableRow]
    paper: dict[str, PublishedSystem]
    diverged: list[str] = field(default_factory=list)  # runs without scores
    paired: str = "bleu"  # the paired test of outputs: of BLEU, or of exact lines (wer)


def read_json(path: Path, kind: type[T]) -> T:
    """Read a value of this type from a JSON file; raises ConfigError if the file is damaged."""
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except (OSError, ValueError):
        raise ConfigError(
            f"{path} is damaged. Delete it and run the same command again.", "damaged_file"
        ) from None


def write_json(path: Path, value: Any) -> None:
    """Write a dictionary or a result as JSON; keys of ensembles are left out where None."""

    def plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: item for name, item in pairs if item is not None or name not in OF_ENSEMBLES}

    values = value if isinstance(value, dict) else asdict(value, dict_factory=plain)
    if isinstance(value, ComparisonTable):
        values["paper"] = {key: row._asdict() for key, row in value.paper.items()}
    write_file(path, json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def write_file(path: Path, text: str) -> None:
    """Write a text file atomically, creating its directory."""
    with os_errors_as_polyhead_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
