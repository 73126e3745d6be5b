"""Backends, which compute what translators and text generators write, and the files they read.

    torch           every model and every option; also used for all that looks inside a model
    ctranslate2     Transformers and GPTs: faster, and without importing torch

Its obstacles are checked before a backend is built: CTranslate2 converts a model on first use, and
torch takes seconds to import. So nothing here imports torch before a torch model is needed.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, runtime_checkable

from polyhead.checkpoint.model_files import read_config, resolve
from polyhead.config import from_dict, suggest
from polyhead.decoding.options import DecodeConfig, DecodingStep, Output, Scores
from polyhead.engines import obstacles
from polyhead.errors import ConfigError
from polyhead.pipelines.base import ModelFiles, Pipeline

if TYPE_CHECKING:
    from polyhead.engines.ctranslate2_engine import CTranslate2Backend
    from polyhead.pipelines.torch_backend import RunningSearch, TorchBackend

USES = {"transformer": "translate", "gpt": "generate"}  # of the families that CTranslate2 can run
D = TypeVar("D", bound="DecodingPipeline")


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


@runtime_checkable
class Backend(Protocol):
    """A way to compute outputs, built when it is first used.

    name: with the type of its numbers, such as "ctranslate2 int8".
    n_positions: the largest number of tokens that it can write.
    n_parallel: calls that may run at once, in threads without the interpreter; 0 for none.
    """

    @property
    def name(self) -> str: ...
    @property
    def n_positions(self) -> int: ...
    @property
    def n_parallel(self) -> int: ...

    def decode(
        self,
        sources: Sequence[list[int]],
        options: DecodeConfig,
        *,
        prefixes: Sequence[list[int]],
        seed: int = 0,
        scores: Scores = "tokens",
        progress: Callable[[int], None] = lambda _: None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[list[Output]]:
        """Return the `options.n_best` best outputs for every source; each starts with its prefix.

        is_cancelled: `Cancelled` is raised soon after it returns True, if the backend can.
        scores: those that are read; the others may be missing in an `Output`.
        """

    def running_search(self, options: DecodeConfig) -> "Callable[[], RunningSearch] | None":
        """Return what opens a search that sources join while it runs; None if there is none."""

    def generate(
        self,
        prompt: Sequence[int],
        options: DecodeConfig,
        seed: int,
        context: int,
        *,
        forced: Sequence[int] = (),
        top: int = 0,
    ) -> Iterator[DecodingStep]:
        """Yield `options.max_length` tokens that follow a prompt, of which `context` are read.

        forced: the first of them. top: the number of likeliest tokens to report with each.
        """


def check_engine(engine: str) -> None:
    """Raise ConfigError if there is no such engine."""
    if engine not in ("auto", "torch", "ctranslate2"):
        raise ConfigError(
            f"engine {engine!r}: expected auto, torch or ctranslate2", "unknown_engine"
        )


@dataclass(frozen=True, repr=False)
class DecodingPipeline(Pipeline):
    """A model that writes texts, token by token, with the first backend that has the options.

    engines: names of backends, in the order in which they are tried.
    compute_type: of CTranslate2: "float32" (auto), or "int8", which is faster and rounds.
    n_workers: threads of CTranslate2; as many as processors unless given.
    """

    engines: tuple[str, ...] = ("torch",)
    compute_type: str = "auto"
    n_workers: int | None = None

    @classmethod
    def open(
        cls: type[D], path: str | Path, device: str, engine: str, compute_type: str = "auto", *,
        only: bool = False, n_workers: int | None = None,
    ) -> D:  # fmt: skip
        """Load a model for an engine; torch is imported if no other can be used.

        only: with the engine "ctranslate2", nothing is left to torch.
        """
        pipeline = cls(ModelFiles(str(path), device)).with_engine(engine, compute_type)
        if pipeline.engines == ("torch",):
            return cls.from_dir(path, device=device)
        if only and engine == "ctranslate2":
            pipeline = replace(pipeline, engines=("ctranslate2",), n_workers=n_workers)
        _ = pipeline.tokenizers  # or an error
        return pipeline

    def with_engine(self: D, engine: str, compute_type: str = "auto") -> D:
        """Return the pipeline with other backends.

        engine: "torch", "ctranslate2", or "auto" for CTranslate2 where it can be used. Options
            that CTranslate2 lacks are left to torch.
        compute_type: of CTranslate2: "float32" (auto), or "int8", which is faster and rounds.
        """
        check_engine(engine)
        reason = None if engine == "torch" else self.obstacle()
        if engine == "ctranslate2" and reason is not None:
            raise ConfigError(f"engine ctranslate2: {reason}", "unsupported_engine")
        engines = ("torch",) if engine == "torch" or reason else ("ctranslate2", "torch")
        return replace(self, engines=engines, compute_type=compute_type)

    def obstacle(self) -> str | None:
        """Return why CTranslate2 cannot be used for the model, or None if it can."""
        files = self.files
        if USES.get(files.family) != self.use:
            return f"it does not run {files.family} models"
        config = files.config or read_config(resolve(files.directory))
        return (
            obstacles.missing()
            or obstacles.obstacle(files.family, config["model"])
            or obstacles.device_obstacle(files.device_name)
        )

    @abstractmethod
    def option_obstacle(self, options: DecodeConfig, *, forces: bool = False) -> str | None:
        """Return what CTranslate2 lacks of the options, or None if it has all.

        forces: tokens are forced, or the likeliest ones are wanted.
        """

    def backend(self, options: DecodeConfig, *, forces: bool = False) -> Backend:
        """Return the backend for options; ConfigError if CTranslate2 alone may be used."""
        if "ctranslate2" not in self.engines:
            return self.torch
        reason = self.option_obstacle(options, forces=forces)
        if reason is None:
            return self.ctranslate2
        if "torch" not in self.engines:
            raise ConfigError(f"engine ctranslate2: {reason}; use torch", "unsupported_engine")
        return self.torch

    @cached_property
    def torch(self) -> "TorchBackend":
        """The backend that computes with the torch model itself."""
        from polyhead.pipelines.torch_backend import TorchBackend

        return TorchBackend(self.models)

    @cached_property
    def ctranslate2(self) -> "CTranslate2Backend":
        """The backend that computes with a converted copy of the model."""
        from polyhead.engines.ctranslate2_engine import CTranslate2Backend

        kind, directory = self.use, resolve(self.files.directory)
        return CTranslate2Backend(kind, directory, self.compute_type, self.n_workers)

    @property
    def engine(self) -> str:
        """The backend of most options, with the type of its numbers."""
        return "torch" if self.engines == ("torch",) else self.ctranslate2.name

    @cached_property
    def defaults(self) -> DecodeConfig:
        """The decoding options of the training run; the defaults for an imported model."""
        return self.run_table(DecodeConfig, "decode")

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
