"""Classes of texts: scores, and the task `text_classification`.

A model assigns one class to a text, several, or a number, as the labels say (`data.labels`); it
may read pairs of texts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from polyhead.data.labelled_text import TEXTS
from polyhead.data.labels import PAIR, SEPARATOR, Problem, encode_labels, join_pair, label_values
from polyhead.data.line_spool import Examples
from polyhead.errors import ConfigError, DataError
from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import (
    ClassificationReport,
    Interval,
    class_scores,
    interval,
    report,
)
from polyhead.metrics.predictions import THRESHOLD, label_scores, number_scores, score_report
from polyhead.render import notebook
from polyhead.tasks.base import (
    Facts,
    Measured,
    Outputs,
    Stage,
    TrainingCorpus,
    Used,
    map_parts,
    with_mask_token,
)
from polyhead.tasks.labelled import (
    KINDS,
    TextInput,
    WholeTextTask,
    are_pairs,
    encode_whole,
    without_accuracy,
)
from polyhead.tasks.verbs import ClassifyOptions

if TYPE_CHECKING:
    from polyhead.metrics.perplexity import MapBatches

NUMBER = "number"  # the only class of a model of numbers
Logits = list[float]  # of all classes


@dataclass(frozen=True)
class ClassificationEvaluation:
    """Scores of a classifier on labelled examples, with 95 % bootstrap intervals."""

    report: ClassificationReport
    accuracy: Interval
    macro_f1: Interval
    n_examples: int
    notices: tuple[str, ...]

    @classmethod
    def of(
        cls,
        expected: Sequence[int],
        predicted: Sequence[int],
        classes: Sequence[str],
        notices: Sequence[str] = (),
    ) -> "ClassificationEvaluation":
        """Compare the predicted classes with the expected ones, both by number."""
        return cls(
            report(expected, predicted, classes),
            interval(expected, predicted, len(classes), "accuracy"),
            interval(expected, predicted, len(classes), "macro_f1"),
            len(expected),
            tuple(notices),
        )

    def __repr__(self) -> str:
        scores = f"accuracy={self.report.accuracy:.4f}, macro_f1={self.report.macro_f1:.4f}"
        return f"ClassificationEvaluation({scores}, n_examples={self.n_examples})"

    def _repr_html_(self) -> str:
        report, low, high = self.report, self.accuracy.low, self.accuracy.high
        score = f"accuracy {report.accuracy:.4f} [{low:.4f}, {high:.4f}]"
        rows = [
            [notebook.escape(c.name), *(f"{x:.4f}" for x in (c.precision, c.recall, c.f1)),
             f"{c.count:,}"]
            for c in report.classes
        ]  # fmt: skip
        header = ["class", "precision", "recall", "F1", "count"]
        return f"<p>{score}, macro F1 {report.macro_f1:.4f}</p>" + notebook.table(header, rows)

    def __str__(self) -> str:
        intervals = "  ".join(
            f"{name} [{spread.low:.4f}, {spread.high:.4f}]"
            for name, spread in (("accuracy", self.accuracy), ("macro F1", self.macro_f1))
        )
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} examples"
        return f"{self.report}\n\n{samples}: {intervals}"


@dataclass(frozen=True)
class Classification:
    """The likeliest class of a text or an image, and the probabilities of all classes."""

    label: str
    probabilities: dict[str, float]

    def __repr__(self) -> str:
        return f"Classification({self.label!r}, {self.probability:.3f})"

    def _repr_html_(self) -> str:
        if not self.probabilities:  # a number
            return notebook.plain(self.label)
        likeliest = sorted(self.probabilities.items(), key=lambda item: -item[1])
        rows = [[notebook.escape(name), notebook.bar(share)] for name, share in likeliest]
        return notebook.table(["class", "probability"], rows)

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class LabelSet(Classification):
    """The labels of a text that are more probable than not; `label` is the likeliest of all."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        return SEPARATOR.join(self.labels)


@dataclass(frozen=True)
class PredictedNumber(Classification):
    """A number for a text; `label` is its text, and there are no probabilities."""

    number: float


class TextClassification(WholeTextTask[Logits, Classification]):
    """Assign one of several classes to each text, several of them, or a number."""

    name, verb, tag = "text_classification", "classify", "text-classification"
    metrics = (
        "loss", "accuracy", "macro_f1", "micro_f1", "exact_match", "pearson", "spearman", "mae",
        "rmse",
    )  # fmt: skip
    outputs = True
    result_class = Classification
    pipeline = "polyhead.pipelines.task_pipeline:TextClassifier"
    form = TEXTS

    def facts(self, data: TrainingCorpus) -> Facts:
        classes, of_pairs = data.corpus.classes, are_pairs(data)
        problem: Any = data.corpus.problem
        about: dict[str, Any] = {"classes": list(classes), "pairs": of_pairs}
        sizes: dict[str, Any] = {"problem": problem, "classes": len(classes)}
        if problem == "regression":
            numbers: Any = label_values(data.stores["label"], problem)
            about["range"] = [float(numbers.min()), float(numbers.max())]
            scale = float(numbers.std(dtype=np.float64)) or 1.0
            sizes |= {"classes": 1, "mean": float(numbers.mean(dtype=np.float64)), "scale": scale}
            about["classes"] = [NUMBER]
        model = replace(with_mask_token(data.config, data.tokenizers), **sizes)
        if of_pairs:
            from polyhead.models.bert import with_two_segments

            model = replace(model, encoder=with_two_segments(model.encoder))
        kind = KINDS[problem].format(len(classes))
        facts = Facts(replace(data.config, model=model), about, of_what=kind)
        return facts if problem == "single_label" else without_accuracy(facts)

    def loss(self, config: Any, _about: Mapping[str, Any]) -> Any:
        from polyhead.tasks.losses import ClassificationLoss

        return ClassificationLoss(config.train.smoothing)

    def read(self, used: Used, rows: Sequence[tuple[str, ...]]) -> list[TextInput]:
        """Texts alone, with a tab before their second text, or with it beside them."""
        pairs, texts = reads_pairs(used), []
        for row in rows:
            text = join_pair(*row) if len(row) == 2 else row[0]
            if pairs == "no":
                if len(row) == 2:
                    raise ConfigError("the model reads single texts, not pairs", "no_pairs")
                text = text.replace(PAIR, " ")
            elif PAIR in text:
                text = join_pair(*text.split(PAIR, 1))
            elif pairs == "required":
                raise DataError(
                    "the model reads pairs of texts; give two texts divided by a tab, or with "
                    "--pair (pair= in Python, text_pair over HTTP)",
                    "no_pair",
                )
            texts.append(text)
        return self._inputs(used, texts)

    def example(self, used: Used, examples: Examples) -> list[TextInput]:
        if PAIR in examples.texts[0] and reads_pairs(used) == "no":
            raise DataError(
                f"the data has pairs of texts, and {used.name} reads single texts. Name their "
                "column as in training.",
                "no_pairs",
            )
        return self._inputs(used, examples.texts)

    def _inputs(self, used: Used, texts: Sequence[str]) -> list[TextInput]:
        encoded = encode_whole(used, texts)
        return [TextInput(text, (ids,)) for text, ids in zip(texts, encoded, strict=True)]

    def run(
        self, used: Used, inputs: Sequence[TextInput], _options: Any,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> list[Logits]:  # fmt: skip
        """Return the logits of all classes, or a number."""
        from polyhead.data.batches.labelled import segments_of

        def compute(ids: Any, _parts: list[Any]) -> list[Logits]:
            rows: list[Logits] = used.model(ids, segments_of(ids)).float().tolist()
            return rows

        return [row for (row,) in map_parts(compute, used, inputs, map_batches, progress)]

    def result(
        self, used: Used, _given: TextInput, output: Logits, _options: Any
    ) -> Classification:
        problem = used.model.problem
        (row,) = probabilities([output], problem)
        if problem == "regression":
            return PredictedNumber(f"{row[0]:.4g}", {}, row[0])
        shares = dict(zip(used.about["classes"], row, strict=True))
        best = max(shares, key=lambda name: shares[name])
        if problem == "single_label":
            return Classification(best, shares)
        labels = tuple(name for name, share in shares.items() if share > THRESHOLD)
        return LabelSet(best, shares, labels)

    def measure(
        self, used: Used, inputs: Sequence[TextInput], labels: Sequence[str], stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return the loss and scores of classes, of several labels, or of numbers."""
        import torch

        from polyhead.tasks.losses import label_loss

        classes, problem = used.about["classes"], used.model.problem
        rights = encode_labels(labels, problem, classes, used.name)
        logits = self.run(used, inputs, None, map_batches, progress)
        if stage == "evaluate":
            probabilities(logits, problem)  # raises if a model is broken
        values: Any = label_values(rights, problem)
        if problem == "multi_label":
            values = np.zeros((len(labels), len(classes)), np.float32)
            for row, numbers in zip(values, rights, strict=True):
                row[numbers] = 1
        elif problem == "single_label":
            values = values.astype(np.int64)
        outputs = torch.tensor(logits)
        total = label_loss(outputs, torch.from_numpy(values), used.model)
        loss = {"loss": float(total) / len(labels)}
        if problem == "regression":
            columns = values.astype(np.float64), outputs[:, 0].double().numpy()
            scores = number_scores(*columns)
            of_numbers = score_report(number_scores, *columns) if stage == "evaluate" else None
            return Measured(loss | scores, of_numbers)
        if problem == "multi_label":
            wanted, given = values > 0, outputs.sigmoid().numpy() > THRESHOLD
            if stage == "validate":
                return Measured(loss | label_scores(wanted, given))
            counts = (wanted & given).sum(0), wanted.sum(0), given.sum(0)
            by_class = class_scores(*counts, classes)
            of_labels = score_report(label_scores, wanted, given, classes=by_class)
            return Measured(loss | of_labels.scores, of_labels)
        expected, predicted = values.tolist(), outputs.argmax(-1).tolist()
        scored = report(expected, predicted, classes)
        figures = {"accuracy": scored.accuracy, "macro_f1": scored.macro_f1}
        evaluation = None
        if stage == "evaluate":
            evaluation = ClassificationEvaluation.of(expected, predicted, classes)
        lines = [classes[number] for number in predicted]
        return Measured(loss | figures, evaluation, Outputs(lines, [*labels], "accuracy"))

    def row(self, result: Classification, options: ClassifyOptions) -> str:
        shares = [f"{name}={share:.4f}" for name, share in result.probabilities.items()]
        return "\t".join([str(result), *(shares if options.scores else ())]) + "\n"


def reads_pairs(used: Used) -> Literal["no", "optional", "required"]:
    """Return whether a classifier reads pairs of texts: required if it was trained on them.

    They are optional for an imported model with two segments, which may be of either kind.
    """
    if used.about.get("pairs"):
        return "required"
    return "optional" if "imported" in used.about and used.sizes.encoder.segments > 1 else "no"


def with_pairs(texts: Sequence[str], pair: Sequence[str] | None) -> list[tuple[str, ...]]:
    """Return rows of texts, with the second text of each if there are any."""
    if pair is None:
        return [(text,) for text in texts]
    if len(pair) != len(texts):
        message = f"pair: {len(pair)} texts, expected {len(texts)}, one for each text"
        raise ConfigError(message, "unequal_lengths")
    return list(zip(texts, pair, strict=True))


def probabilities(logits: Iterable[Logits], problem: Problem) -> list[list[float]]:
    """Return probabilities of classes, or the numbers; CheckpointError if they are not finite."""
    import torch

    from polyhead.decoding.hypotheses import log_normaliser

    rows = torch.tensor([*logits])
    log_normaliser(rows)
    if problem == "single_label":
        rows = rows.softmax(-1)
    elif problem == "multi_label":
        rows = rows.sigmoid()
    shares: list[list[float]] = rows.tolist()
    return shares
