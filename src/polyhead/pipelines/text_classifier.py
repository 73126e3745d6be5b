"""A text classifier, ready to use: `polyhead.load("runs/reviews").classify(["지루하지 않다"])`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from polyhead import devices
from polyhead.checkpoint import model_dir as model_folder
from polyhead.config import from_dict
from polyhead.data.batches.base import group_by_length, pad
from polyhead.data.batches.labelled import framed
from polyhead.data.config import DataConfig
from polyhead.data.labelled import LabelledExamples, class_numbers, read_labelled
from polyhead.data.locate import find_all
from polyhead.errors import CheckpointError, ConfigError
from polyhead.metrics.bootstrap import SAMPLES, Interval, interval
from polyhead.metrics.classification import ClassificationReport, as_text, report
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.family_checks import check_use

USE = "polyhead classify"
MAX_TOKENS = 8192  # of one batch


@dataclass(frozen=True)
class Label:
    """What a text is, and how likely every class is."""

    label: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """That of the label."""
        return self.probabilities[self.label]


@dataclass(frozen=True)
class ClassificationEvaluation:
    """How good a classifier is on some examples, with 95 % bootstrap intervals."""

    report: ClassificationReport
    accuracy: Interval
    macro_f1: Interval
    n_examples: int
    notices: tuple[str, ...]

    def __str__(self) -> str:
        intervals = "  ".join(
            f"{name} [{spread.low:.4f}, {spread.high:.4f}]"
            for name, spread in (("accuracy", self.accuracy), ("macro F1", self.macro_f1))
        )
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} examples"
        return f"{as_text(self.report)}\n\n{samples}: {intervals}"


@dataclass(frozen=True)
class TextClassifier(Pipeline):
    """One model that puts texts into classes."""

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; numbers if nobody named them."""
        n_classes = self.saved.config.classes
        names = self.saved.about.get("classes", [str(n) for n in range(n_classes)])
        if not isinstance(names, list) or len(set(map(str, names))) != n_classes:
            raise CheckpointError(
                f"{self.name}: config.json does not name {n_classes} different classes"
            )
        return tuple(map(str, names))

    @property
    def max_length(self) -> int:
        """The most tokens that it reads of a text: what it was trained on, if that is known."""
        run: dict[str, Any] = self.saved.about.get("run") or {}
        limit = self.saved.config.encoder.max_length
        given = run.get("data", {}).get("max_length", limit)
        if not isinstance(given, int) or given < 3:
            raise CheckpointError(f"{self.name}: config.json says max_length = {given!r}")
        return min(given, limit)

    @torch.inference_mode()
    def classify(
        self, lines: Sequence[str], *, progress: Callable[[int], None] = lambda _: None
    ) -> list[Label]:
        """One label for each line, in their order. What is too long is read as far as possible."""
        if isinstance(lines, str):
            raise ConfigError("classify takes a list of lines; write classify([text])")
        texts = framed(self.tokenizer.encode_batch(lines), self.max_length) if lines else []
        labels: list[Label | None] = [None] * len(texts)
        for numbers in group_by_length([len(text) for text in texts], MAX_TOKENS, seed=0):
            ids = pad([texts[number] for number in numbers]).to(self.device)
            shares = self.saved.model(ids).float().softmax(-1).tolist()
            for number, row in zip(numbers, shares, strict=True):
                probabilities = dict(zip(self.classes, row, strict=True))
                best = max(probabilities, key=lambda name: probabilities[name])
                labels[number] = Label(best, probabilities)
            progress(len(numbers))
        return [label for label in labels if label is not None]

    def evaluate(
        self, files: Sequence[str | Path], progress: Callable[[int], None] = lambda _: None
    ) -> ClassificationEvaluation:
        """Compare with the labels in some files, whose columns are called as in training."""
        examples, notices = self.read(files)
        return self.judge(examples, notices, progress)

    def judge(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
    ) -> ClassificationEvaluation:
        """Compare with the labels of some examples."""
        right = class_numbers(examples.labels, self.classes, self.name)
        places = {name: place for place, name in enumerate(self.classes)}
        said = [places[one.label] for one in self.classify(examples.texts, progress=progress)]
        n_classes = len(self.classes)
        return ClassificationEvaluation(
            report(right, said, self.classes),
            interval(right, said, n_classes, "accuracy"),
            interval(right, said, n_classes, "macro_f1"),
            len(right),
            tuple(notices),
        )

    def read(
        self, files: Sequence[str | Path], encoding: str = "utf-8"
    ) -> tuple[LabelledExamples, list[str]]:
        """Texts with labels, and what there is to say about them."""
        run: dict[str, Any] = self.saved.about.get("run") or {}
        given = run.get("data", {})
        names = {name: given[name] for name in ("text_key", "label_key") if name in given}
        notices: list[str] = []
        config = from_dict(DataConfig, names | {"encoding": encoding}, "data.")
        return read_labelled(find_all([str(file) for file in files]), config, notices), notices


def load(path: str | Path, *, device: str = "auto") -> TextClassifier:
    """Load a text classifier from its folder, or a run's."""
    check_use(Path(path), USE)
    chosen = devices.choose(device)
    saved = model_folder.load_model(Path(path), str(chosen))
    if saved.family != "classifier":
        raise CheckpointError(f"{path} classifies pictures; give it files instead of text")
    if saved.tokenizers is None:
        raise CheckpointError(f"{path} has no tokenizer; it cannot read text")
    return TextClassifier(saved, str(path), chosen)
