"""Base class of all pipelines: a trained model with its tokenizers, ready to use."""

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from polyhead.checkpoint.model_dir import SavedModel, load_model
from polyhead.config import from_dict
from polyhead.data.config import DataConfig
from polyhead.decoding.config import DecodeConfig
from polyhead.devices import choose
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.lsh.attention import set_eval_rounds
from polyhead.models.registry import FAMILIES, Task, command_of, max_positions
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.storage import TokenizerPair

P = TypeVar("P", bound="Pipeline")
C = TypeVar("C")


@dataclass(frozen=True, repr=False)
class Pipeline:
    """A trained model, ready to use.

    `polyhead.load(path)` returns the pipeline of the model's task: `Translator`, `TextGenerator`,
    `MaskFiller`, `TextClassifier` or `ImageClassifier`.

    saved: the model with its configuration and tokenizers.
    name: the path that it was loaded from.
    device: where it computes.
    """

    saved: SavedModel
    name: str
    device: torch.device
    tasks: ClassVar[tuple[Task, ...]] = ()
    use: ClassVar[str] = ""  # the name of the task in the HTTP API

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
        if task not in cls.tasks:
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
        return cls(saved, name, device)

    def __repr__(self) -> str:
        n_parameters = sum(weight.numel() for weight in self.model.parameters())
        kind = f"{type(self).__name__}({self.name!r}"
        return f"{kind}, family={self.saved.family!r}, {n_parameters:,} parameters, {self.device})"

    @property
    def model(self) -> nn.Module:
        """The model itself, in evaluation mode."""
        return self.saved.model

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
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the text that the model reads."""
        return self.tokenizers.source

    def _run_table(self, kind: type[C], name: str) -> C:
        """Return a table of the run's configuration; its defaults for an imported model."""
        run: dict[str, Any] = self.saved.about.get("run") or {}
        try:
            return from_dict(kind, run.get(name, {}), f"{name}.")
        except ConfigError as error:
            raise CheckpointError(f"{self.name}: config.json: {error}", "bad_config") from None

    @cached_property
    def data(self) -> DataConfig:
        """The configuration of the training data; the defaults for an imported model."""
        return self._run_table(DataConfig, "data")

    @cached_property
    def defaults(self) -> DecodeConfig:
        """The decoding options of the training run; the defaults for an imported model."""
        return self._run_table(DecodeConfig, "decode")

    @property
    def max_length(self) -> int:
        """The number of tokens that the model reads at once: as in training, if it is known."""
        limit = max_positions(self.saved.config)
        if limit is not None and not self.saved.about.get("run"):
            return limit
        return min(self.data.max_length, limit or self.data.max_length)

    def set_eval_rounds(self, n_rounds: int) -> None:
        """Set the number of hashing rounds of LSH attention; `ConfigError` if there is none."""
        for saved in self.models:
            set_eval_rounds(saved.model, n_rounds)


@dataclass(frozen=True)
class Classification:
    """The likeliest class of a text or an image, and the probabilities of all classes."""

    label: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]


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


def check_list(value: object, method: str, content: str) -> None:
    """Raise if a single text or image was given where a list is expected."""
    if isinstance(value, str | Path):
        raise ConfigError(
            f"{method} takes a list of {content}; write {method}([{content[:-1]}])", "not_a_list"
        )
