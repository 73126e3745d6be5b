"""Translation of texts, sentence by sentence; how the sentences are decoded is left to an engine.

    text → sentences → parts that fit the model → ids → decode_parts → texts → joined again

This module does not import torch, so that a process with another engine does without it.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import ClassVar, NamedTuple, Unpack, overload

from polyhead.checkpoint.model_files import saved_languages
from polyhead.data.languages import configured_languages
from polyhead.decoding.options import DecodeConfig, Output, Scores
from polyhead.engines.ctranslate2_engine import CTranslate2Engine
from polyhead.errors import ConfigError
from polyhead.pipelines.result_list import ResultList, as_texts
from polyhead.pipelines.run_settings import TextModel, TranslationOptions
from polyhead.pipelines.sentences import split_sentences as split_into_sentences
from polyhead.render import notebook
from polyhead.tokenizers.base import Tokenizer
from polyhead.tokenizers.normalize import words_of


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


class TextTranslator(TextModel):
    """Translation of texts with a model that translates sentences.

    engine: decodes instead of torch, except with options that it lacks.
    """

    engine: CTranslate2Engine | None
    use: ClassVar[str] = "translate"

    @property
    @abstractmethod
    def max_output_length(self) -> int:
        """The number of tokens that the model can write."""

    @abstractmethod
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
        """Return the `options.n_best` best outputs of every part, each starting with its prefix.

        scores: those that are read; the others may be missing in an `Output`.
        """

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes of the source and target languages, such as "ko"; None if unknown."""
        saved = saved_languages(self._about)
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
        ids = iter(self.tokenizer.encode_batch(flat) if flat else [])
        return [
            [part for text, space in texts for part in self._fit(text, next(ids), space)]
            for texts in sentences
        ]

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

    def _fit(self, text: str, ids: list[int], space: str) -> list[SourcePart]:
        """Return a sentence as one part, or in several if it is too long."""
        if len(ids) <= self.max_length:
            return [SourcePart(text, ids, space)]
        pieces = [piece for s in self._sentences(text) for piece in self._halve(s.strip())]
        packed = self._pack(pieces)
        spaces = [*(" " for _ in packed[1:]), space]
        return [
            SourcePart(piece, self.tokenizer.encode(piece), after, is_cut=True)
            for piece, after in zip(packed, spaces, strict=True)
        ]

    def _length(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

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
