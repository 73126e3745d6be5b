"""Translation and generation with the fast engine: a process that never imports torch."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from polyhead.checkpoint.atomic_dir import verify
from polyhead.checkpoint.model_files import (
    TRAINING_TENSORS,
    WEIGHTS,
    load_model_tokenizers,
    read_config,
    resolve,
)
from polyhead.decoding.options import DecodeConfig, DecodingStep, Output, Scores
from polyhead.engines.ctranslate2_engine import (
    CTranslate2Engine,
    CTranslate2Generator,
    cannot_sample,
    missing,
    unsupported,
)
from polyhead.engines.obstacles import obstacle
from polyhead.errors import CheckpointError, ConfigError
from polyhead.pipelines.generation import TextContinuation
from polyhead.pipelines.run_settings import RunSettings
from polyhead.pipelines.translation import SourcePart, TextTranslator
from polyhead.tokenizers.storage import TokenizerPair

TRANSLATORS, GENERATORS = ("transformer",), ("gpt",)  # families by the use of the engine
BOUNDED = ("learned", "axial")  # positions that end at max_length


def check_engine(engine: str) -> None:
    """Raise ConfigError if there is no such engine."""
    if engine not in ("auto", "torch", "ctranslate2"):
        raise ConfigError(
            f"engine {engine!r}: expected auto, torch or ctranslate2", "unknown_engine"
        )


def fast_obstacle(path: Path, families: Sequence[str] = TRANSLATORS) -> str | None:
    """Return why the model of a directory cannot be used with the fast engine, or None.

    families: that the caller can use.
    """
    values = read_config(resolve(path))
    if values.get("family") not in families:
        return f"it does not run {values.get('family')} models"
    return missing() or obstacle(values["family"], values["model"])


def use_fast(engine: str, reason: str | None) -> bool:
    """Return whether an engine's name chooses CTranslate2, which cannot be used for a reason."""
    check_engine(engine)
    if engine == "ctranslate2" and reason is not None:
        raise ConfigError(f"engine ctranslate2: {reason}", "unsupported_engine")
    return engine != "torch" and reason is None


class SavedSettings(RunSettings):
    """The settings of a model directory, or of a run directory, whose best model is taken."""

    def __init__(self, path: str | Path) -> None:
        self.name, self._directory = str(path), resolve(Path(path))
        self._values = read_config(self._directory)

    @property
    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = self._values["about"]
        return about


class FastPipeline(SavedSettings):
    """A model whose files are read without torch: its settings and tokenizers."""

    families: ClassVar[tuple[str, ...]] = ()  # that the engine can use so

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        reason = fast_obstacle(Path(path), self.families)
        if reason is not None:
            raise ConfigError(f"{path} cannot use ctranslate2: {reason}", "unsupported_engine")
        sums = verify(self._directory, skip=[WEIGHTS, TRAINING_TENSORS])
        tokenizers = load_model_tokenizers(self._directory, sums, self._values)
        if tokenizers is None:
            raise CheckpointError(
                f"{path} has no tokenizer, so it cannot read text", "no_tokenizer"
            )
        self._tokenizers = tokenizers

    @property
    def tokenizers(self) -> TokenizerPair:
        """The tokenizers of the source and of the target."""
        return self._tokenizers

    @property
    def max_length(self) -> int:
        """The number of tokens that the model reads at once: as in training, if it is known."""
        model = self._values["model"]
        bounded = model.get("positions") in BOUNDED
        return self.reading_limit(model["max_length"] if bounded else None)


class FastTranslator(FastPipeline, TextTranslator):
    """A Transformer that translates with CTranslate2; torch is not needed.

    It has the options and the outputs of `Translator`, but not its attention.
    """

    engine: CTranslate2Engine
    families: ClassVar[tuple[str, ...]] = TRANSLATORS

    def __init__(
        self, path: str | Path, *, compute_type: str = "auto", n_workers: int | None = None
    ) -> None:
        """Load a model; it is converted on first use, and kept in the user's cache directory.

        path: a model directory, or a run directory, whose best model is taken.
        compute_type: "float32" (auto), or "int8", which is faster and rounds.
        n_workers: threads, each with sentences of its own; as many as processors unless given.

        Example: `polyhead.FastTranslator("runs/mine").translate(["안녕하세요."])`
        """
        super().__init__(path)
        self.engine = CTranslate2Engine(self._directory, compute_type, n_workers)

    def __repr__(self) -> str:
        return f"FastTranslator({self.name!r}, compute_type={self.engine.compute_type!r})"

    @property
    def max_output_length(self) -> int:
        """The number of tokens that the model can write."""
        return self.engine.n_positions

    def decode_parts(
        self,
        parts: Sequence[SourcePart],
        options: DecodeConfig,
        *,
        prefixes: Sequence[list[int]],
        seed: int = 0,  # noqa: ARG002 (sampling is refused)
        scores: Scores = "tokens",
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[list[Output]]:
        """Return the best outputs of every part; see `TextTranslator.decode_parts`."""
        reason = unsupported(options)
        if reason is not None:
            raise ConfigError(f"engine ctranslate2: {reason}; use torch", "unsupported_engine")
        return self.engine.decode_all(
            [part.ids for part in parts], options,
            prefixes=prefixes, scores=scores, progress=progress,
        )  # fmt: skip


class FastGenerator(FastPipeline, TextContinuation):
    """A GPT that continues texts with CTranslate2; torch is not needed.

    It forces no tokens and shows no likeliest ones. Sampling draws other random numbers than
    `TextGenerator`.
    """

    families: ClassVar[tuple[str, ...]] = GENERATORS

    def __init__(self, path: str | Path, *, compute_type: str = "auto") -> None:
        """Load a model; see `FastTranslator`.

        Example: `polyhead.FastGenerator("runs/writer").generate("오늘은")`
        """
        super().__init__(path)
        self.engine = CTranslate2Generator(self._directory, compute_type)

    def __repr__(self) -> str:
        return f"FastGenerator({self.name!r}, compute_type={self.engine.compute_type!r})"

    def is_fast(self, options: DecodeConfig, forced: Sequence[int] = (), top: int = 0) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def steps(
        self,
        ids: Sequence[int],
        options: DecodeConfig,
        seed: int,
        forced: Sequence[int] = (),
        top: int = 0,
    ) -> Iterator[DecodingStep]:
        """Yield `options.max_length` tokens after the ids of a prompt; see `stream_tokens`."""
        reason = cannot_sample(options)
        if forced or top:
            reason = "it cannot force tokens, and does not tell the likeliest ones"
        if reason is not None:
            raise ConfigError(f"engine ctranslate2: {reason}; use torch", "unsupported_engine")
        return self.engine.generate(ids, options, seed, self.max_length)


def load_fast(path: Path, compute_type: str) -> FastTranslator | FastGenerator:
    """Load a model as the pipeline of its task; other tasks than two raise ConfigError."""
    is_generator = read_config(resolve(path)).get("family") in GENERATORS
    return (FastGenerator if is_generator else FastTranslator)(path, compute_type=compute_type)
