"""The interface of tasks: training, pipelines, commands and routes are written once, for all.

A task's file imports no torch at its top, because processes that encode text import it. Methods
that compute import torch when they run. Words of the command line are in `tasks.verbs`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    runtime_checkable,
)

from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus
from polyhead.data.labelled_text import ExampleForm
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import Examples
from polyhead.data.token_store import TokenSequences
from polyhead.tasks.verbs import VERBS, Verb
from polyhead.tokenizers.storage import TokenizerPair

if TYPE_CHECKING:
    from polyhead.metrics.perplexity import MapBatches


Input = TypeVar("Input", bound="Readable")
Output = TypeVar("Output")
Result = TypeVar("Result")
R = TypeVar("R")
Stage = Literal["validate", "evaluate"]


@runtime_checkable
class Part(Protocol):
    """Ids that a model reads at once."""

    @property
    def ids(self) -> list[int]: ...


@runtime_checkable
class Readable(Protocol):
    """An input of a task: its text, and the parts that a model reads one by one."""

    @property
    def text(self) -> str: ...
    @property
    def parts(self) -> Sequence[Part]: ...


@dataclass(frozen=True)
class Used:
    """A model with what a task needs to use it, alike in training and as a saved model."""

    model: Any
    tokenizers: Any  # a `TokenizerPair`; None of images
    max_length: int  # tokens that it reads at once
    name: str  # for messages
    sizes: Any  # the configuration of the model
    about: Mapping[str, Any]  # saved with the model: classes, rule of words
    data: DataConfig
    kept: dict[str, Any] = field(default_factory=dict)  # what a task keeps between calls


@dataclass(frozen=True)
class TrainingCorpus:
    """A corpus of a run, whose `RunConfig` is `config`, and its ids by the names of stores."""

    config: Any
    corpus: Corpus[Any, Any]
    tokenizers: Any  # a `TokenizerPair`; None of images
    stores: Mapping[str, TokenSequences]


@dataclass(frozen=True)
class Facts:
    """The configuration of a run with the sizes that a corpus gives, and `about` of its models."""

    config: Any
    about: dict[str, Any]
    notices: tuple[str, ...] = ()
    of_what: str = ""  # after the number of examples, in the log: " of 3 classes"


@dataclass(frozen=True)
class Outputs:
    """Outputs for all validation examples as lines, and the expected ones.

    metric: the share of equal lines, by its name in the validation metrics; "" if the lines are
        texts, which are scored by similarity.
    """

    lines: list[str]
    references: list[str]
    metric: str = ""


@dataclass(frozen=True)
class Measured:
    """Scores of a model on examples.

    validation: by name, with "loss".
    report: for people, a `MetricTable`, or a dataclass with `notices` whose fields are its JSON;
        None in validation.
    outputs: for paired tests, if the task has them.
    """

    validation: dict[str, float]
    report: Any = None
    outputs: Outputs | None = None


class Task(ABC, Generic[Input, Output, Result]):
    """A task. Its methods have no state; the class is made anew wherever it is named.

    tag: the task's name on the Hugging Face Hub, for model cards.
    metrics: names that validation reports.
    result_class: the dataclass of a result, whose fields are its JSON.
    pipeline: "module:Class" of a typed pipeline.
    option: of `polyhead train` and `evaluate` that names files: "data", "text" or "images".
    form: how examples are read from files of "data".
    store: the kind of stored examples, if it is not the task's name.
    fields: names of the texts of an input, as in JSON.
    examples, when_long: words of the notice about examples longer than a model reads.
    encoder, logits: names of the module that reads texts, and of the method that uses it.
    """

    name: ClassVar[str]
    verb: ClassVar[str]
    tag: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    outputs: ClassVar[bool] = False
    result_class: ClassVar[type]
    pipeline: ClassVar[str] = "polyhead.pipelines.task_pipeline:TaskPipeline"
    option: ClassVar[Literal["data", "text", "images"]] = "data"
    form: ClassVar[ExampleForm]
    store: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ("text",)
    examples: ClassVar[str] = "texts"
    when_long: ClassVar[str] = "cut into parts"
    encoder: ClassVar[str] = "encoder"
    logits: ClassVar[str] = "__call__"

    @property
    def words(self) -> Verb:
        """The words and options of its command."""
        return VERBS[self.verb]

    @property
    def command(self) -> str:
        """The command that uses a trained model."""
        return f"polyhead {self.verb}"

    @abstractmethod
    def facts(self, data: TrainingCorpus) -> Facts:
        """Return what follows from the training data."""

    def encode(
        self, tokenizers: TokenizerPair, columns: Sequence[Sequence[str]], form: StoreForm
    ) -> tuple[list[TokenSequences], int]:
        """Return the ids of texts and of labels, and how many texts are too long. No torch."""
        raise NotImplementedError

    @abstractmethod
    def batches(self, data: TrainingCorpus) -> Any:
        """Return the training batches."""

    @abstractmethod
    def loss(self, config: Any, about: Mapping[str, Any]) -> Any:
        """Return the objective."""

    @abstractmethod
    def read(self, used: Used, rows: Sequence[tuple[str, ...]]) -> list[Input]:
        """Return the inputs of texts as users give them, by `fields`."""

    def example(self, used: Used, examples: Examples) -> list[Input]:
        """Return the inputs of examples as files give them; by default as users do."""
        return self.read(used, [(text,) for text in examples.texts])

    @abstractmethod
    def run(
        self, used: Used, inputs: Sequence[Input], options: Any, map_batches: "MapBatches",
        progress: Callable[[int], None],
    ) -> list[Output]:  # fmt: skip
        """Return what the model computes of every input."""

    @abstractmethod
    def result(self, used: Used, given: Input, output: Output, options: Any) -> Result:
        """Return an output as users see it."""

    @abstractmethod
    def measure(
        self, used: Used, inputs: Sequence[Input], labels: Sequence[str], stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return the scores on examples with these labels."""

    @abstractmethod
    def row(self, result: Result, options: Any) -> str:
        """Return a result as lines of text."""


def with_mask_token(config: Any, tokenizers: TokenizerPair) -> Any:
    """Return the sizes of a model, whose encoder has [MASK] after the tokenizer's ids, as in BERT.

    Those of a pre-trained encoder stay as they are.
    """
    if config.train.init is not None:
        return config.model
    encoder = replace(config.model.encoder, vocab=len(tokenizers.source) + 1)
    return replace(config.model, encoder=encoder)


def map_parts(
    compute: Callable[[Any, list[Any]], list[R]],
    used: Used,
    inputs: Sequence[Readable],
    map_batches: "MapBatches",
    progress: Callable[[int], None],
) -> list[list[R]]:
    """Return what a function computes of every part of every input; batches have similar lengths.

    compute: takes the ids of a batch on the model's device, and its parts.
    progress: called with the number of parts of each batch.
    """
    import torch

    from polyhead.data.batches.base import pad
    from polyhead.metrics.perplexity import map_by_length

    device = next(used.model.parameters()).device
    parts = [part for given in inputs for part in given.parts]

    def read(numbers: list[int]) -> list[R]:
        ids = pad([parts[number].ids for number in numbers]).to(device)
        rows = compute(ids, [parts[number] for number in numbers])
        progress(len(numbers))
        return rows

    with torch.inference_mode():
        rows = iter(map_by_length(read, [len(part.ids) for part in parts], map_batches))
    return [[next(rows) for _ in given.parts] for given in inputs]
