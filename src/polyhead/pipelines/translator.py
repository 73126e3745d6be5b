"""Translation: `Translator.from_dir("runs/mine").translate(["안녕하세요."])`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

from polyhead.checkpoint.model_dir import SavedModel, load_model
from polyhead.checkpoint.model_files import resolve
from polyhead.data.bilingual_dictionary import read_dictionary
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.parallel import Pairs, read_pair_file
from polyhead.decoding.batch import decode_all
from polyhead.decoding.ensemble import Ensemble
from polyhead.decoding.hypotheses import make_generator
from polyhead.decoding.options import DecodeConfig, Output, Scores
from polyhead.decoding.protocol import Decodable, State
from polyhead.engines.ctranslate2_engine import CTranslate2Engine, unsupported
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.attention_hooks import AttentionRecordingModel, has_cross_attention
from polyhead.metrics.bleu import check_lengths
from polyhead.models.registry import TaskName, max_positions
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.evaluation import (
    BLEU_AND_CHRF,
    MetricConfig,
    TranslationEvaluation,
    evaluate_translation,
)
from polyhead.pipelines.fast_pipelines import fast_obstacle, use_fast
from polyhead.pipelines.line_input import Lines, as_lines
from polyhead.pipelines.run_settings import TranslationOptions
from polyhead.pipelines.translation import SourcePart, TextTranslator
from polyhead.pipelines.unknown_words import find_dictionary, replace_unknown
from polyhead.tokenizers.storage import TokenizerPair

UNLIMITED = 10**9  # tokens


@dataclass(frozen=True, repr=False)
class Translator(Pipeline, TextTranslator):
    """A translation model, or an ensemble of several with the same vocabulary.

    others: the further members of an ensemble.
    dictionary: translations of unknown words; that of the training run unless given.
    engine: decodes instead of torch, except with options that it lacks, and if the model has hooks
        or its weights were changed.
    """

    others: tuple[SavedModel, ...] = ()
    dictionary: Mapping[str, str] | None = None
    engine: CTranslate2Engine | None = None
    tasks: ClassVar[tuple[TaskName, ...]] = ("translation",)

    @classmethod
    def from_dir(cls, path: str | Path, *others: str | Path, device: str = "auto") -> "Translator":
        """Load a translator, or an ensemble of several; see `Pipeline.from_dir`."""
        first = super().from_dir(path, device=device)
        members = []
        for other in others:
            saved = load_model(Path(other), str(first.device))
            if not _same(
                first.tokenizers, cls.from_saved(saved, str(other), first.device).tokenizers
            ):
                raise CheckpointError(
                    f"{other} and {path} have different vocabularies; the members of an ensemble "
                    "need the same",
                    "different_vocabularies",
                )
            members.append(saved)
        return replace(first, others=tuple(members))

    @property
    def models(self) -> tuple[SavedModel, ...]:
        """The model, or the members of the ensemble."""
        return (self.saved, *self.others)

    @property
    def max_output_length(self) -> int:
        """The number of tokens that the model can write, limited by its learned positions."""
        limits = [max_positions(saved.config) for saved in self.models]
        return min((limit for limit in limits if limit is not None), default=UNLIMITED)

    def decodable(self, *, record_attention: bool = False) -> Decodable[State]:
        """Return the model, or the ensemble, as the searches see it.

        record_attention: keep the cross-attention of each step, for the coverage penalty.
        """
        members: list[Any] = [saved.model for saved in self.models]
        if record_attention:
            members = [AttentionRecordingModel(m) if has_cross_attention(m) else m for m in members]
        if len(members) > 1:
            members = [Ensemble(members)]
        model: Decodable[State] = members[0]
        return model

    def with_engine(self, engine: str, compute_type: str = "auto") -> "Translator":
        """Return a translator that decodes with another engine.

        engine: "torch", "ctranslate2", or "auto" for CTranslate2 where it can be used.
        compute_type: of CTranslate2: "float32" (auto), or "int8", which is faster and rounds.
        """
        reason = "an ensemble needs torch" if self.others else fast_obstacle(Path(self.name))
        if not use_fast(engine, reason):
            return replace(self, engine=None)
        fast = CTranslate2Engine(resolve(Path(self.name)), compute_type)
        return replace(self, engine=fast)

    def with_dictionary(self, path: Path) -> "Translator":
        """Return a translator with another dictionary for unknown words."""
        return replace(self, dictionary=read_dictionary(path))

    def decode_parts(
        self,
        parts: Sequence[SourcePart],
        options: DecodeConfig,
        *,
        prefixes: Sequence[list[int]],
        seed: int = 0,
        scores: Scores = "tokens",
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[list[Output]]:
        """Return the best outputs of every part; see `TextTranslator.decode_parts`."""
        sources = [part.ids for part in parts]
        engine = self.engine if unsupported(options) is None else None
        if engine is not None and self._state() == self.loaded:
            return engine.decode_all(
                sources, options,
                prefixes=prefixes, scores=scores, progress=progress,
            )  # fmt: skip
        outputs = decode_all(
            self.decodable(record_attention=options.coverage > 0), sources, options,
            device=self.device, prefixes=prefixes, generator=make_generator(seed),
            progress=progress,
        )  # fmt: skip
        if not options.replace_unknown:
            return outputs
        return self.replace_unknown([part.text for part in parts], outputs)

    def evaluate(
        self,
        source: Lines,
        target: Lines | None = None,
        *,
        metric: MetricConfig = BLEU_AND_CHRF,
        against: TextTranslator | Sequence[str] | None = None,
        **how: Unpack[TranslationOptions],
    ) -> TranslationEvaluation:
        """Return BLEU and chrF of the translations of a test set.

        source, target: texts and their translations, as lists or files. Without a target, `source`
            is a file that holds both, with the same columns as in training.
        metric: other metrics and options.
        against: another translator, which decodes alike, or its outputs, for a paired test.
        how: options of decoding by name, as for `translate`.

        Example: `translator.evaluate("test.ko", "test.en").scores[0].value`
        """
        if "seed" in how:
            raise ConfigError("seed has no effect: samples are those of seed 0", "no_effect")
        options, _ = self.decoding(how)
        if target is None:
            pairs = self.read_pairs([str(source)])
            sources, references = pairs.sources, pairs.targets
        else:
            sources, references = as_lines(source, "evaluate"), as_lines(target, "evaluate")
        check_lengths(sources, references)
        return evaluate_translation(
            self, sources, references, metric=metric, options=options, against=against
        )

    def read_pairs(self, files: Sequence[str | Path], encoding: str = "utf-8") -> Pairs:
        """Read files of pairs, with the same columns as in training."""
        keys = (self.data.source_key, self.data.target_key)
        return read_pair_file(evaluation_files(files, "pairs"), keys, encoding=encoding)

    def replace_unknown(
        self, texts: Sequence[str], outputs: list[list[Output]]
    ) -> list[list[Output]]:
        """Return the outputs with a `text` in which unknown words are replaced."""
        words = self.dictionary
        return replace_unknown(
            [saved.model for saved in self.models], self.tokenizers, texts, outputs,
            find_dictionary(Path(self.name)) if words is None else words,
        )  # fmt: skip


def _same(a: TokenizerPair, b: TokenizerPair) -> bool:
    """Return True if two tokenizers give every id the same meaning."""
    return all(
        len(x) == len(y) and all(x.symbol(i) == y.symbol(i) for i in range(len(x)))
        for x, y in ((a.source, b.source), (a.target, b.target))
    )
