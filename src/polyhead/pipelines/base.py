"""Base class of all pipelines: a trained model with its tokenizers, ready to use.

Neither torch nor NumPy is imported before a torch model is needed: CTranslate2 does without.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import polyhead
from polyhead.checkpoint.atomic_dir import verify
from polyhead.checkpoint.model_files import (
    TRAINING_TENSORS,
    WEIGHTS,
    load_model_tokenizers,
    read_config,
    resolve,
)
from polyhead.config import from_dict
from polyhead.data.config import DataConfig
from polyhead.errors import CheckpointError, ConfigError
from polyhead.plugin_registry import resolve as find_object
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.storage import TokenizerPair

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from polyhead.checkpoint.model_dir import SavedModel

BOUNDED = ("learned", "axial")  # positions that end at max_length, of models without torch
C = TypeVar("C")
P = TypeVar("P", bound="Pipeline")


class ModelFiles:
    """A model directory: its configuration, and the torch model, loaded when first used.

    name: the path that was given: a model directory, or a run directory, whose best model is taken.
    config: the unchecked values of config.json.
    about: the origin of the model, a table of config.json.
    saved: the torch model, if it is loaded already; then the directory need not exist.
    """

    def __init__(self, name: str, device: str = "auto", saved: "SavedModel | None" = None) -> None:
        self.name, self.device_name, self.directory = name, device, Path(name)
        self.config: dict[str, Any] | None = None
        if saved is None:
            self.directory = resolve(self.directory)
            self.config = read_config(self.directory)
            self.family, self.about = str(self.config.get("family")), self.config["about"]
        else:
            self.family, self.about = saved.family, saved.about
        self._saved = saved
        self._state = None if saved is None else self._current_state()

    @property
    def saved(self) -> "SavedModel":
        """The torch model."""
        if self._saved is None:
            from polyhead.checkpoint.model_dir import load_model
            from polyhead.devices import choose

            self.device_name = str(choose(self.device_name))
            self._saved = load_model(Path(self.name), self.device_name)
            self._state = self._current_state()
        return self._saved

    @property
    def is_loaded(self) -> bool:
        """True if there is a torch model."""
        return self._saved is not None

    @property
    def is_changed(self) -> bool:
        """True if the torch model has hooks, or weights that were changed since it was loaded."""
        return self._saved is not None and self._current_state() != self._state

    def _current_state(self) -> object:
        """Return an object that equals an earlier one if nothing changed and there are no hooks."""
        parts = list(self.saved.model.modules())
        if any(part._forward_hooks or part._forward_pre_hooks for part in parts):
            return object()
        return [  # a change of .data has no version
            (id(w), w._version, float(w.detach().reshape(-1)[:: 1 + w.numel() // 1024].sum()))
            for part in parts
            for w in part.parameters(recurse=False)
        ]

    @property
    def n_positions(self) -> int | None:
        """The number of learned positions; None if there is no limit."""
        if self._saved is not None:
            from polyhead.models.registry import max_positions

            return max_positions(self._saved.config)
        assert self.config is not None
        model = self.config["model"]
        return model["max_length"] if model.get("positions") in BOUNDED else None


@dataclass(frozen=True, repr=False)
class Pipeline:
    """A trained model, ready to use.

    `polyhead.load(path)` returns the pipeline of the model's task: `Translator`, `TextGenerator`,
    `MaskFiller`, `ReplacedTokenDetector`, `TextClassifier`, `Tagger`, `QuestionAnswerer`,
    `SentenceEmbedder` or `ImageClassifier`.

    files: the model directory, with its configuration, tokenizers and torch model.
    """

    files: ModelFiles
    tasks: ClassVar[tuple[str, ...]] = ()
    use: ClassVar[str] = ""  # the name of the task in the HTTP API

    @classmethod
    def from_dir(cls: type[P], path: str | Path, *, device: str = "auto") -> P:
        """Load a model for this pipeline.

        path: a model directory, or a run directory, whose best model is taken.
        device: "auto", "cpu", "cuda" or "mps".

        Example: `polyhead.Translator.from_dir("runs/mine")`
        """
        files = ModelFiles(str(path), device)
        return cls.from_saved(files.saved, files.name, files.device_name)

    @classmethod
    def from_saved(cls: type[P], saved: "SavedModel", name: str, device: "torch.device | str") -> P:
        """Return the pipeline of a loaded model, after checking its task and its tokenizers."""
        from polyhead.models.registry import FAMILIES, command_of, find_task

        task = FAMILIES[saved.family].task
        if task not in cls.tasks and find_object(find_task(task).pipeline) is not cls:
            raise CheckpointError(
                f"{name} is a model for {task} ({saved.family}), not for "
                f"{' or '.join(cls.tasks)}; use it with: "
                f"{command_of(saved.family)} {shlex.quote(name)}",
                "wrong_task",
            )
        pipeline = cls(ModelFiles(name, str(device), saved))
        if task != "image_classification":
            _ = pipeline.tokenizers  # or an error
        return pipeline

    def __repr__(self) -> str:
        n_parameters = sum(weight.numel() for weight in self.model.parameters())
        kind = f"{type(self).__name__}({self.name!r}"
        return f"{kind}, family={self.saved.family!r}, {n_parameters:,} parameters, {self.device})"

    @property
    def name(self) -> str:
        """The path that the model was loaded from."""
        return self.files.name

    @property
    def saved(self) -> "SavedModel":
        """The torch model with its configuration and tokenizers."""
        return self.files.saved

    @property
    def device(self) -> "torch.device":
        """The device of the torch model."""
        from torch import device

        _ = self.files.saved  # which chooses it
        return device(self.files.device_name)

    @property
    def model(self) -> "nn.Module":
        """The torch model itself, in evaluation mode."""
        return self.files.saved.model

    @property
    def models(self) -> "tuple[SavedModel, ...]":
        """All models in use: one, or the members of an ensemble."""
        return (self.files.saved,)

    @cached_property
    def tokenizers(self) -> TokenizerPair:
        """The tokenizers of the source and of the target, from verified files."""
        files = self.files
        if files.config is None:
            tokenizers = files.saved.tokenizers
        else:
            sums = verify(files.directory, skip=[WEIGHTS, TRAINING_TENSORS])
            tokenizers = load_model_tokenizers(files.directory, sums, files.config)
        if tokenizers is None:
            raise CheckpointError(
                f"{self.name} has no tokenizer, so it cannot read text", "no_tokenizer"
            )
        return tokenizers

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the text that the model reads."""
        return self.tokenizers.source

    def run_table(self, kind: type[C], name: str) -> C:
        """Return a table of the run's configuration, as saved with the model, or its defaults."""
        run: dict[str, Any] = self.files.about.get("run") or {}
        try:
            return from_dict(kind, run.get(name, {}), f"{name}.")
        except ConfigError as error:
            raise CheckpointError(f"{self.name}: config.json: {error}", "bad_config") from None

    @cached_property
    def data(self) -> DataConfig:
        """The configuration of the training data; the defaults for an imported model."""
        return self.run_table(DataConfig, "data")

    @property
    def max_length(self) -> int:
        """The number of tokens that the model reads at once: as in training, if it is known."""
        limit = self.files.n_positions
        if limit is not None and not self.files.about.get("run"):
            return limit
        return min(self.data.max_length, limit or self.data.max_length)

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
        self, content: "str | Path | np.ndarray", *, target: str | None = None, sentence: int = 1
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
        from polyhead.layers.lsh.attention import set_eval_rounds

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
