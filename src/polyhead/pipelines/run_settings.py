"""Settings of the training run that a model came from; without torch, for every engine."""

from abc import ABC, abstractmethod
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar, TypedDict, TypeVar

from polyhead.config import from_dict, suggest
from polyhead.data.config import DataConfig
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError, ConfigError
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.storage import TokenizerPair

C = TypeVar("C")


class GenerationOptions(TypedDict, total=False):
    """Keywords of a continuation: all `options`, single ones as in `DecodeConfig`, and a seed."""

    options: DecodeConfig | None  # those of the training run unless given
    seed: int  # of the random numbers; 0 unless given
    max_length: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float


class TranslationOptions(GenerationOptions, total=False):
    """Keywords of a translation: all `options`, single ones as in `DecodeConfig`, and a seed."""

    beam: int
    length_penalty: float
    coverage: float
    replace_unknown: bool
    max_ratio: float
    max_extra: int
    n_best: int
    split_sentences: bool


class RunSettings(ABC):
    """Tables of a run's configuration, as saved with a model; defaults for an imported model.

    name: the path that the model was loaded from.
    """

    name: str
    use: ClassVar[str] = ""  # the name of the task in the HTTP API

    @property
    @abstractmethod
    def _about(self) -> dict[str, Any]:
        """Origin of the model: the table `about` of its config.json."""

    def _run_table(self, kind: type[C], name: str) -> C:
        run: dict[str, Any] = self._about.get("run") or {}
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

    def decoding(
        self, given: GenerationOptions | TranslationOptions, allowed: type = TranslationOptions
    ) -> tuple[DecodeConfig, int]:
        """Return the options and the seed of a call; ConfigError if one of them is of no use."""
        changes: dict[str, Any] = dict(given)
        options, seed = changes.pop("options", None), changes.pop("seed", 0)
        options = self.defaults if options is None else options
        if not isinstance(options, DecodeConfig):
            message = "options: expected a DecodeConfig. Give single options by name, as in beam=5."
            raise ConfigError(message, "bad_options")
        names = allowed.__annotations__
        if unknown := next((name for name in changes if name not in names), None):
            raise ConfigError(f"{unknown}: no such option{suggest(unknown, names)}", "unknown_key")
        if not changes:
            return options, seed
        wider = {"beam": max(options.beam, n)} if type(n := changes.get("n_best")) is int else {}
        chosen = from_dict(DecodeConfig, {**asdict(options), **wider, **changes})
        sampling = [name for name in ("temperature", "top_k", "top_p") if name in changes]
        if sampling and not chosen.sample:
            raise ConfigError(f"{sampling[0]} has no effect without sample=True", "no_effect")
        return chosen, seed

    def reading_limit(self, n_positions: int | None) -> int:
        """Return the number of tokens that a model reads at once: as in training, if it is known.

        n_positions: the number of its learned positions; None if there is no limit.
        """
        if n_positions is not None and not self._about.get("run"):
            return n_positions
        return min(self.data.max_length, n_positions or self.data.max_length)


class TextModel(RunSettings):
    """A model that reads text, with the settings of its run, whatever computes it."""

    @property
    @abstractmethod
    def tokenizers(self) -> TokenizerPair:
        """The tokenizers of the source and of the target."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The number of tokens that the model reads at once."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the text that the model reads."""
        return self.tokenizers.source
