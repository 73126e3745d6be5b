"""Base class of all pipelines: a trained model with its tokenizers, ready to use."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn

import polyhead
from polyhead.checkpoint.model_dir import SavedModel, load_model
from polyhead.devices import choose
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.lsh.attention import set_eval_rounds
from polyhead.models.registry import FAMILIES, TaskName, command_of, find_task, max_positions
from polyhead.pipelines.run_settings import TextModel
from polyhead.plugin_registry import resolve
from polyhead.tokenizers.storage import TokenizerPair

P = TypeVar("P", bound="Pipeline")


@dataclass(frozen=True, repr=False)
class Pipeline(TextModel):
    """A trained model, ready to use.

    `polyhead.load(path)` returns the pipeline of the model's task: `Translator`, `TextGenerator`,
    `MaskFiller`, `ReplacedTokenDetector`, `TextClassifier`, `Tagger`, `QuestionAnswerer`,
    `SentenceEmbedder` or `ImageClassifier`.

    saved: the model with its configuration and tokenizers.
    name: the path that it was loaded from.
    device: where it computes.
    loaded: the state of the model when it was loaded.
    """

    saved: SavedModel
    name: str
    device: torch.device
    loaded: object = field(default=None, compare=False, kw_only=True)
    tasks: ClassVar[tuple[TaskName, ...]] = ()

    @classmethod
    def from_dir(cls: type[P], path: str | Path, *, device: str = "auto") -> P:
        """Load a model for this pipeline.

        path: a model directory, or a run directory, whose best model is taken.
        device: "auto", "cpu", "cuda" or "mps".

        Example: `polyhead.Translator.from_dir("runs/mine")`
        """
        chosen = choose(device)
        return cls.from_saved(load_model(Path(path), str(chosen)), str(path), chosen)

    @classmethod
    def from_saved(cls: type[P], saved: SavedModel, name: str, device: torch.device) -> P:
        """Return the pipeline of a loaded model, after checking its task and its tokenizers."""
        task = FAMILIES[saved.family].task
        if task not in cls.tasks and resolve(find_task(task).pipeline) is not cls:
            raise CheckpointError(
                f"{name} is a model for {task} ({saved.family}), not for "
                f"{' or '.join(cls.tasks)}; use it with: "
                f"{command_of(saved.family)} {shlex.quote(name)}",
                "wrong_task",
            )
        if saved.tokenizers is None and task != "image_classification":
            raise CheckpointError(
                f"{name} has no tokenizer, so it cannot read text", "no_tokenizer"
            )
        pipeline = cls(saved, name, device)
        return replace(pipeline, loaded=pipeline._state())

    def __repr__(self) -> str:
        n_parameters = sum(weight.numel() for weight in self.model.parameters())
        kind = f"{type(self).__name__}({self.name!r}"
        return f"{kind}, family={self.saved.family!r}, {n_parameters:,} parameters, {self.device})"

    @property
    def model(self) -> nn.Module:
        """The model itself, in evaluation mode."""
        return self.saved.model

    def _state(self) -> object:
        """Return an object that equals an earlier one if no weights changed and there are no hooks.

        An engine that computes with converted weights cannot be used otherwise.
        """
        parts = [part for saved in self.models for part in saved.model.modules()]
        if any(part._forward_hooks or part._forward_pre_hooks for part in parts):
            return object()
        return [  # a change of .data has no version
            (id(w), w._version, float(w.detach().reshape(-1)[:: 1 + w.numel() // 1024].sum()))
            for part in parts
            for w in part.parameters(recurse=False)
        ]

    @property
    def models(self) -> tuple[SavedModel, ...]:
        """All models in use: one, or the members of an ensemble."""
        return (self.saved,)

    @property
    def tokenizers(self) -> TokenizerPair:
        """The tokenizers of the source and of the target."""
        assert self.saved.tokenizers is not None
        return self.saved.tokenizers

    @property
    def _about(self) -> dict[str, Any]:
        """Origin of the model: the table `about` of its config.json."""
        return self.saved.about

    @property
    def max_length(self) -> int:
        """The number of tokens that the model reads at once: as in training, if it is known."""
        return self.reading_limit(max_positions(self.saved.config))

    def export(
        self,
        to: str,
        output: str | Path,
        *,
        compute_type: str | None = None,
        sentences: str | Path | None = None,
        report_sentences: int = 1000,
    ) -> Path:
        """Write the model for another library, with its tokenizer, a card and a parity report.

        to: "hf", "timm", "ctranslate2", "argos", "onnx" or "gguf".
        output: the directory to write, which must not exist.
        compute_type: of the weights, such as "int8"; "float32" unless given.
        sentences: a file of texts to compare outputs on, instead of the run's held-out ones.
        report_sentences: the largest number of them; 0 for no comparison.

        Returns the directory.

        Example: `polyhead.load("runs/mine").export("hf", "models/mine-hf")`
        """
        from polyhead.convert.model_export import ReportConfig, export_model

        if len(self.models) != 1:
            raise ConfigError("an ensemble cannot be exported; export each model", "one_model")
        report = ReportConfig(report_sentences, None if sentences is None else Path(sentences))
        export_model(
            Path(self.name), Path(output), to=to, compute_type=compute_type, report=report,
            saved=self.saved,
        )  # fmt: skip
        return Path(output)

    # `viz` reads pipelines and `training` does without them, so neither is imported here: the lazy
    # names of the package connect them.

    def attention(
        self, content: str | Path | np.ndarray, *, target: str | None = None, sentence: int = 1
    ) -> "polyhead.AttentionView | polyhead.ImageView":
        """Return the attention of all heads of all layers, which a notebook shows interactively.

        content: a text; for an image classifier an image as in `classify`.
        target: the translation to show instead of the model's own.
        sentence: of a text in several sentences, the one that a translator shows, from 1.

        Example: `polyhead.load("runs/mine").attention("내일 회의가 있어요.")`
        """
        return polyhead.attention_view(self, content, target=target, sentence=sentence)

    @property
    def fine_tune(self) -> "Callable[..., polyhead.TrainResult]":
        """`polyhead.train`, initialized from this model; it takes all other arguments of it.

        Without a recipe, the configuration is that of this model; for labelled texts, that of a
        classifier.

        Example: `polyhead.load("runs/bert").fine_tune(data="reviews.tsv", run="runs/reviews")`
        """
        if len(self.models) != 1:
            raise ConfigError("an ensemble cannot be trained; train each model", "one_model")
        return partial(polyhead.train, init=self.name)

    def set_eval_rounds(self, n_rounds: int) -> None:
        """Set the number of hashing rounds of LSH attention; `ConfigError` if there is none."""
        for saved in self.models:
            set_eval_rounds(saved.model, n_rounds)


@dataclass(frozen=True, repr=False)
class ClassifierPipeline(Pipeline):
    """A model that assigns texts or images to classes."""

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; their numbers if they have none."""
        n_classes = self.saved.config.classes
        names = self.saved.about.get("classes")
        names = [str(n) for n in range(n_classes)] if names is None else names
        if not isinstance(names, list) or len(set(map(str, names))) != n_classes:
            raise CheckpointError(
                f"{self.name}: config.json does not name {n_classes} different classes",
                "bad_class_names",
            )
        return tuple(map(str, names))
