"""Translation: `Translator.from_dir("runs/mine").translate(["안녕하세요."])`.

    text → sentences → parts that fit the model → ids → backend → texts → joined again

This module imports neither torch nor NumPy: CTranslate2 translates without them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Unpack, overload

from polyhead.checkpoint.model_files import saved_languages
from polyhead.data.languages import configured_languages
from polyhead.decoding.options import DecodeConfig, Output, Scores
from polyhead.errors import CheckpointError, ConfigError
from polyhead.pipelines.backends import Backend, DecodingPipeline, TranslationOptions
from polyhead.pipelines.result_list import Lines, ResultList, as_lines, as_texts
from polyhead.pipelines.sentences import split_sentences as split_into_sentences
from polyhead.render import notebook
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.normalize import words_of

if TYPE_CHECKING:
    from polyhead.checkpoint.model_dir import SavedModel
    from polyhead.data.parallel import Pairs
    from polyhead.pipelines.evaluation import MetricConfig, TranslationEvaluation


UNLIMITED = 10**9  # tokens


class TranslatedSentence(NamedTuple):
    """A sentence as the model read it, and its translation.

    `log_p`, `ended` and `token_log_p` are those of `polyhead.decoding.options.Output`.
    """

    source: str
    text: str
    ids: tuple[int, ...]
    log_p: float
    ended: bool
    token_log_p: tuple[float, ...]

    @property
    def n_tokens(self) -> int:
        """The number of tokens that the model wrote, EOS included."""
        return len(self.ids) + self.ended

    @property
    def confidence(self) -> float:
        """The geometric mean of the token probabilities; 1 if there are none."""
        return math.exp(self.log_p / max(1, self.n_tokens))


@dataclass(frozen=True)
class Translation:
    """One hypothesis for one text.

    `score` ranks it; `log_p` is the sum over its tokens, `confidence` their geometric mean. A
    notebook shows it with the confidence, and underlines words that the model is not sure of.
    """

    text: str
    score: float
    log_p: float
    ids: tuple[int, ...]
    sentences: tuple[TranslatedSentence, ...] = ()
    tokenizer: Tokenizer | None = field(default=None, compare=False)  # of the target

    def __repr__(self) -> str:
        return f"Translation({self.text!r}, confidence={self.confidence:.3f})"

    def _repr_html_(self) -> str:
        return f"<p>{notebook.words(self.words)} &emsp;{notebook.bar(self.confidence)}</p>"

    @property
    def words(self) -> list[tuple[str, float]]:
        """All words with the smallest probability of their tokens; together they are the text."""
        words: list[tuple[str, float]] = []
        start = 0
        for sentence in self.sentences:
            scored = word_probabilities(self.tokenizer, sentence) if self.tokenizer else []
            place = self.text.index(sentence.text, start)
            words.append((self.text[start:place], 1.0))  # white space
            words += [(text, min(p)) for text, p in scored] or [(sentence.text, 1.0)]
            start = place + len(sentence.text)
        return [word for word in words if word[0]]

    @property
    def confidence(self) -> float:
        """The geometric mean of the probabilities of all tokens."""
        n_tokens = sum(sentence.n_tokens for sentence in self.sentences)
        return math.exp(self.log_p / max(1, n_tokens))


class SourcePart(NamedTuple):
    """A sentence, or a part of one, that fits the model; `ids` end with EOS.

    space: the white space after it.
    is_cut: it is a part of a sentence that is longer than the model reads.
    """

    text: str
    ids: list[int]
    space: str = ""
    is_cut: bool = False


@dataclass(frozen=True, repr=False)
class Translator(DecodingPipeline):
    """A translation model, or an ensemble of several with the same vocabulary.

    others: the further members of an ensemble.
    dictionary: translations of unknown words; that of the training run unless given.
    """

    others: "tuple[SavedModel, ...]" = ()
    dictionary: Mapping[str, str] | None = None
    tasks: ClassVar[tuple[str, ...]] = ("translation",)
    use: ClassVar[str] = "translate"

    @classmethod
    def from_dir(cls, path: str | Path, *others: str | Path, device: str = "auto") -> "Translator":
        """Load a translator, or an ensemble of several; see `Pipeline.from_dir`."""
        first = super().from_dir(path, device=device)
        members = []
        for other in others:
            member = super().from_dir(other, device=str(first.device))
            pairs = zip(
                (first.tokenizers.source, first.tokenizers.target),
                (member.tokenizers.source, member.tokenizers.target),
                strict=True,
            )
            for ours, theirs in pairs:
                names = [[t.symbol(id) for id in range(len(t))] for t in (ours, theirs)]
                if names[0] != names[1]:
                    raise CheckpointError(
                        f"{other} and {path} have different vocabularies; the members of an "
                        "ensemble need the same",
                        "different_vocabularies",
                    )
            members.append(member.saved)
        return replace(first, others=tuple(members))

    @property
    def models(self) -> "tuple[SavedModel, ...]":
        """The model, or the members of the ensemble."""
        return (self.files.saved, *self.others)

    @property
    def max_output_length(self) -> int:
        """The number of tokens that the model can write."""
        if "torch" not in self.engines:
            return self.ctranslate2.n_positions
        limit = self.files.n_positions if not self.others else self.torch.n_positions
        return UNLIMITED if limit is None else limit

    def option_obstacle(self, options: DecodeConfig, *, forces: bool = False) -> str | None:  # noqa: ARG002
        """Return what CTranslate2 lacks of the options, or None if it has all."""
        if self.others:
            return "an ensemble needs torch"
        if options.coverage > 0:
            return "it has no coverage penalty"
        if options.replace_unknown:
            return "it does not replace unknown words"
        return "its random numbers are not those of --seed" if options.sample else None

    def with_dictionary(self, path: Path) -> "Translator":
        """Return a translator with another dictionary for unknown words."""
        from polyhead.data.bilingual_dictionary import read_dictionary

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
        backend: Backend | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[list[Output]]:
        """Return the best outputs of every part; see `Backend.decode`.

        backend: instead of the one for these options.
        """
        if backend is None:
            can_choose = "ctranslate2" in self.engines and not self.files.is_changed
            backend = self.backend(options) if can_choose else self.torch
        outputs = backend.decode(
            [part.ids for part in parts], options, prefixes=prefixes, seed=seed, scores=scores,
            progress=progress, is_cancelled=is_cancelled,
        )  # fmt: skip
        return self.replace_unknown(parts, outputs) if options.replace_unknown else outputs

    def replace_unknown(
        self, parts: Sequence[SourcePart], outputs: list[list[Output]]
    ) -> list[list[Output]]:
        """Return the outputs with a `text` in which unknown words are replaced."""
        from polyhead.pipelines.torch_backend import find_dictionary, replace_unknown

        words = find_dictionary(Path(self.name)) if self.dictionary is None else self.dictionary
        texts, models = [part.text for part in parts], [saved.model for saved in self.models]
        return replace_unknown(models, self.tokenizers, texts, outputs, words)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes of the source and target languages, such as "ko"; None if unknown."""
        saved = saved_languages(self.files.about)
        source, target = saved if any(saved) else configured_languages(self.data)
        return source or None, target or None

    @overload
    def translate(self, lines: str, **how: Unpack[TranslationOptions]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, lines: Iterable[str], **how: Unpack[TranslationOptions]) -> list[str]: ...
    def translate(
        self, lines: str | Iterable[str], **how: Unpack[TranslationOptions]
    ) -> str | list[str]:
        """Return the best translation of a text, or of every text of a list.

        lines: texts in the source language; an empty one gives an empty translation. A text is
            split into sentences, which are translated one by one and joined with its own white
            space, unless `split_sentences` is false.
        how: options of `DecodeConfig` by name, or all as `options`; those of the training run
            unless given. `seed`: of the random numbers if `sample` is set.

        Example: `translator.translate("안녕하세요.", beam=5)`
        """
        texts = as_texts(lines, "translate")
        options, seed = self.decoding(how)
        parts = self.split_lines(texts, split_sentences=options.split_sentences)
        best = self.translate_parts(parts, options=options, seed=seed, scores="none")
        translated = [translations[0].text for translations in best]
        return translated[0] if isinstance(lines, str) else translated

    @overload
    def n_best(self, lines: str, **how: Unpack[TranslationOptions]) -> ResultList[Translation]: ...  # type: ignore[overload-overlap]
    @overload
    def n_best(
        self, lines: Iterable[str], *, prefixes: Sequence[str] | None = None,
        progress: Callable[[int], None] = ..., **how: Unpack[TranslationOptions],
    ) -> ResultList[ResultList[Translation]]: ...  # fmt: skip
    def n_best(
        self, lines: str | Iterable[str], *, prefixes: Sequence[str] | None = None,
        progress: Callable[[int], None] = lambda _: None, **how: Unpack[TranslationOptions],
    ) -> ResultList[Translation] | ResultList[ResultList[Translation]]:  # fmt: skip
        """Return the best translations of a text, or of every line, best first.

        Sentences are translated one by one, those too long for the model in parts, and joined.

        prefixes: how the translation of each line must begin.
        progress: called with the number of parts of each finished batch.
        how: as in `translate`; `n_best` is the number of translations.

        Example: `translator.n_best("안녕하세요.", n_best=3)[0].confidence`
        """
        options, seed = self.decoding(how)
        texts = as_texts(lines, "n_best")
        best = self.translate_parts(
            self.split_lines(texts, split_sentences=options.split_sentences), options=options,
            seed=seed, prefixes=prefixes, progress=progress,
        )  # fmt: skip
        return best[0] if isinstance(lines, str) else ResultList(best)

    def translate_parts(
        self,
        lines: Sequence[Sequence[SourcePart]],
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        prefixes: Sequence[str] | None = None,
        scores: Scores = "tokens",
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[ResultList[Translation]]:
        """Return the best translations of lines that `split_lines` has tokenized; see `n_best`.

        scores: those that are read; the others may be missing in a `Translation`.
        """
        options = self.defaults if options is None else options
        parts = [part for line in lines for part in line]
        starts: list[list[int]] = [[] for _ in parts]
        at = 0
        for line, prefix in zip(lines, prefixes or (), strict=bool(prefixes)):
            if line and prefix:
                starts[at] = self.tokenizers.target.encode(prefix)[:-1]
            at += len(line)
        outputs = self.decode_parts(
            parts, options, prefixes=starts, seed=seed, scores=scores, progress=progress
        )
        waiting = iter(outputs)
        return [self.join(line, [next(waiting) for _ in line]) for line in lines]

    def split_lines(
        self, lines: Sequence[str], *, split_sentences: bool = True
    ) -> list[list[SourcePart]]:
        """Tokenize texts sentence by sentence, in parts that fit the model; none if empty."""
        split = self._sentences if split_sentences else partial(str.splitlines, keepends=True)
        sentences = [
            [(stripped, s[len(s.rstrip()) :]) for s in texts if (stripped := s.strip())]
            for texts in map(split, lines)
        ]
        flat = [text for texts in sentences for text, _ in texts]
        ids = iter(self.tokenizers.source.encode_batch(flat) if flat else [])
        lines_of_parts: list[list[SourcePart]] = []
        for texts in sentences:
            parts: list[SourcePart] = []
            for text, space in texts:
                read = next(ids)
                fits = len(read) <= self.max_length
                parts += [SourcePart(text, read, space)] if fits else self._cut(text, space)
            lines_of_parts.append(parts)
        return lines_of_parts

    def _sentences(self, text: str) -> list[str]:
        return split_into_sentences(text, self.languages[0])

    def sentence(self, text: str, number: int = 1) -> str:
        """Return one of the sentences that a text is translated in, counted from 1."""
        if not self.defaults.split_sentences:
            return text
        sentences = [s.strip() for s in self._sentences(text) if s.strip()] or [text]
        if not 1 <= number <= len(sentences):
            raise ConfigError(
                f"sentence {number}: the text has {len(sentences)}, counted from 1", "out_of_range"
            )
        return sentences[number - 1]

    def _cut(self, text: str, space: str) -> list[SourcePart]:
        """Return a sentence that is too long in several parts."""
        pieces = [piece for s in self._sentences(text) for piece in self._halve(s.strip())]
        packed = self._pack(pieces)
        spaces = [*(" " for _ in packed[1:]), space]
        return [
            SourcePart(piece, self.tokenizers.source.encode(piece), after, is_cut=True)
            for piece, after in zip(packed, spaces, strict=True)
        ]

    def _length(self, text: str) -> int:
        return len(self.tokenizers.source.encode(text))

    def _halve(self, text: str) -> list[str]:
        """Cut at the space nearest to the middle until it fits; without spaces, in the middle."""
        if not text.strip():
            return []
        if len(text) < 2 or self._length(text) <= self.max_length:
            return [text]
        middle = len(text) // 2
        spaces = [i for i, c in enumerate(text) if c.isspace()]
        cut = min(spaces, key=lambda i: abs(i - middle)) if spaces else middle
        if not 0 < cut < len(text):
            cut = middle
        return self._halve(text[:cut].strip()) + self._halve(text[cut:].strip())

    def _pack(self, pieces: Sequence[str]) -> list[str]:
        """Join neighbouring pieces as long as they fit together."""
        packed: list[str] = []
        for piece in pieces:
            if packed and self._length(f"{packed[-1]} {piece}") <= self.max_length:
                packed[-1] = f"{packed[-1]} {piece}"
            else:
                packed.append(piece)
        return packed

    def join(
        self, parts: Sequence[SourcePart], outputs: Sequence[list[Output]]
    ) -> ResultList[Translation]:
        """Join the outputs of a text's parts: its n-th best is the n-th best of each."""
        tokenizer = self.tokenizers.target
        joined = ResultList[Translation]()
        for n in range(max(1, min(map(len, outputs), default=1))):
            sentences = []
            text, space, score, log_p = "", "", 0.0, 0.0
            for part, best in zip(parts, outputs, strict=True):
                o = best[min(n, len(best) - 1)]
                written = tokenizer.decode(o.ids) if o.text is None else o.text
                sentences.append(
                    TranslatedSentence(
                        part.text, written, tuple(o.ids), o.log_p, o.ended, tuple(o.token_log_p)
                    )
                )
                text, space = text + space + written, part.space or " "
                score, log_p = score + o.score, log_p + o.log_p
            ids = tuple(chain.from_iterable(sentence.ids for sentence in sentences))
            joined.append(Translation(text, score, log_p, ids, tuple(sentences), tokenizer))
        return joined

    def evaluate(
        self,
        source: Lines,
        target: "Lines | None" = None,
        *,
        metric: "MetricConfig | None" = None,
        against: "Translator | Sequence[str] | None" = None,
        **how: Unpack[TranslationOptions],
    ) -> "TranslationEvaluation":
        """Return BLEU and chrF of the translations of a test set.

        source, target: texts and their translations, as lists or files. Without a target, `source`
            is a file that holds both, with the same columns as in training.
        metric: other metrics and options.
        against: another translator, which decodes alike, or its outputs, for a paired test.
        how: options of decoding by name, as for `translate`.

        Example: `translator.evaluate("test.ko", "test.en").scores[0].value`
        """
        from polyhead.pipelines.evaluation import evaluate_translation

        if "seed" in how:
            raise ConfigError("seed has no effect: samples are those of seed 0", "no_effect")
        options, _ = self.decoding(how)
        if target is None:
            pairs = self.read_pairs([str(source)])
            sources, references = pairs.sources, pairs.targets
        else:
            sources, references = as_lines(source, "evaluate"), as_lines(target, "evaluate")
        return evaluate_translation(
            self, sources, references, metric=metric, options=options, against=against
        )

    def read_pairs(self, files: Sequence[str | Path], encoding: str = "utf-8") -> "Pairs":
        """Read files of pairs, with the same columns as in training."""
        from polyhead.data.dataset_dir import evaluation_files
        from polyhead.data.parallel import read_pair_file

        keys = (self.data.source_key, self.data.target_key)
        return read_pair_file(evaluation_files(files, "pairs"), keys, encoding=encoding)


def word_probabilities(
    tokenizer: Tokenizer, sentence: TranslatedSentence
) -> list[tuple[str, list[float]]]:
    """Return the words of a translation with the probabilities of their tokens.

    The words together are the translation, with its spaces; none if unknown words were replaced.
    """
    pieces = tokenizer.pieces_of_ids(sentence.ids)
    if "".join(piece.text for piece in pieces) != sentence.text:
        return []
    words: dict[int, tuple[str, list[float]]] = {}
    for word, piece, log_p in zip(words_of(pieces), pieces, sentence.token_log_p, strict=False):
        text, probabilities = words.get(word, ("", []))
        words[word] = (text + piece.text, [*probabilities, math.exp(log_p)])
    return list(words.values())


def FastTranslator(
    path: str | Path, *, compute_type: str = "auto", n_workers: int | None = None
) -> Translator:
    """Load a translator for CTranslate2 alone; torch is not needed, but for its attention.

    It is converted on first use, and kept in the user's cache directory.

    path: a model directory, or a run directory, whose best model is taken.
    compute_type: "float32" (auto), or "int8", which is faster and rounds.
    n_workers: threads, each with sentences of its own; as many as processors unless given.

    Example: `polyhead.FastTranslator("runs/mine").translate(["안녕하세요."])`
    """
    translator = Translator.open(
        path, "cpu", "ctranslate2", compute_type, only=True, n_workers=n_workers
    )
    _ = translator.ctranslate2  # converts it
    return translator
