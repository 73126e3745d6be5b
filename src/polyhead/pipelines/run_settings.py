"""Settings of the training run that a model came from; without torch, for every engine."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from polyhead.config import from_dict
from polyhead.data.config import DataConfig
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError, ConfigError

C = TypeVar("C")


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

    def reading_limit(self, n_positions: int | None) -> int:
        """Return the number of tokens that a model reads at once: as in training, if it is known.

        n_positions: the number of its learned positions; None if there is no limit.
        """
        if n_positions is not None and not self._about.get("run"):
            return n_positions
        return min(self.data.max_length, n_positions or self.data.max_length)
