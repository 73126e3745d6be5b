"""Translation: `Translator.from_dir("runs/mine").translate(["안녕하세요."])`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from polyhead.checkpoint.model_dir import SavedModel, load_model
from polyhead.data.bilingual_dictionary import read_dictionary
from polyhead.decoding.batch import Output, decode_all
from polyhead.decoding.config import DecodeConfig, make_generator
from polyhead.decoding.ensemble import Ensemble
from polyhead.decoding.protocol import Decodable, State
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.attention_hooks import AttentionRecordingModel, has_cross_attention
from polyhead.models.registry import Task, max_positions
from polyhead.pipelines.base import Pipeline, check_list
from polyhead.pipelines.sentences import split_sentences as split_into_sentences
from polyhead.pipelines.unknown_words import find_dictionary, replace_unknown
from polyhead.tokenizers.storage import TokenizerPair

UNLIMITED = 10**9  # tokens


class TranslatedSentence(NamedTuple):
    """A sentence as the model read it, and its translation."""

    source: str
    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Translation:
    """One hypothesis for one text. `score` ranks it; `log_p` is the sum over its tokens."""

    text: str
    score: float
    log_p: float
    ids: tuple[int, ...]
    sentences: tuple[TranslatedSentence, ...] = ()


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
class Translator(Pipeline):
    """A translation model, or an ensemble of several with the same vocabulary.

    others: the further members of an ensemble.
    dictionary: translations of unknown words; that of the training run unless given.
    """

    others: tuple[SavedModel, ...] = ()
    dictionary: Mapping[str, str] | None = None
    tasks: ClassVar[tuple[Task, ...]] = ("translation",)
    use: ClassVar[str] = "translate"

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

    def with_dictionary(self, path: Path) -> "Translator":
        """Return a translator with another dictionary for unknown words."""
        return replace(self, dictionary=read_dictionary(path))

    def translate(
        self, lines: Sequence[str], *, options: DecodeConfig | None = None, seed: int = 0
    ) -> list[str]:
        """Return the best translation of every text.

        lines: texts in the source language; an empty one gives an empty translation. A text is
            split into sentences, which are translated one by one and joined with its own white
            space, unless `options.split_sentences` is false.
        options: how to decode; `defaults` unless given.
        seed: of the random numbers if `options.sample` is set.

        Example: `translator.translate(["안녕하세요."])`
        """
        check_list(lines, "translate", "lines")
        return [best[0].text for best in self.n_best(lines, options=options, seed=seed)]

    def n_best(
        self,
        lines: Sequence[str],
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        prefixes: Sequence[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[list[Translation]]:
        """Return the `options.n_best` best translations of every line, best first.

        Sentences are translated one by one, those too long for the model in parts, and joined.

        prefixes: how the translation of each line must begin.
        progress: called with the number of parts of each finished batch.
        """
        options = self.defaults if options is None else options
        return self.translate_parts(
            self.split_lines(lines, split_sentences=options.split_sentences),
            options=options,
            seed=seed,
            prefixes=prefixes,
            progress=progress,
        )

    def translate_parts(
        self,
        lines: Sequence[Sequence[SourcePart]],
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        prefixes: Sequence[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[list[Translation]]:
        """Return the best translations of lines that `split_lines` has tokenized; see `n_best`."""
        options = self.defaults if options is None else options
        parts = [part for line in lines for part in line]
        starts: list[list[int]] = [[] for _ in parts]
        at = 0
        for line, prefix in zip(lines, prefixes or (), strict=bool(prefixes)):
            if line and prefix:
                starts[at] = self.tokenizers.target.encode(prefix)[:-1]
            at += len(line)
        outputs = decode_all(
            self.decodable(record_attention=options.coverage > 0),
            [part.ids for part in parts],
            options,
            device=self.device,
            prefixes=starts,
            generator=make_generator(seed),
            progress=progress,
        )
        if options.replace_unknown:
            outputs = self.replace_unknown([part.text for part in parts], outputs)
        waiting = iter(outputs)
        return [self.join(line, [next(waiting) for _ in line]) for line in lines]

    def replace_unknown(
        self, texts: Sequence[str], outputs: list[list[Output]]
    ) -> list[list[Output]]:
        """Return the outputs with a `text` in which unknown words are replaced."""
        words = self.dictionary
        return replace_unknown(
            [saved.model for saved in self.models],
            self.tokenizers,
            texts,
            outputs,
            find_dictionary(Path(self.name)) if words is None else words,
        )

    def split_lines(
        self, lines: Sequence[str], *, split_sentences: bool = True
    ) -> list[list[SourcePart]]:
        """Tokenize texts sentence by sentence, in parts that fit the model; none if empty."""
        split = split_into_sentences if split_sentences else partial(str.splitlines, keepends=True)
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

    def sentence(self, text: str, number: int = 1) -> str:
        """Return one of the sentences that a text is translated in, counted from 1."""
        if not self.defaults.split_sentences:
            return text
        sentences = [s.strip() for s in split_into_sentences(text) if s.strip()] or [text]
        if not 1 <= number <= len(sentences):
            raise ConfigError(
                f"sentence {number}: the text has {len(sentences)}, counted from 1", "out_of_range"
            )
        return sentences[number - 1]

    def _fit(self, text: str, ids: list[int], space: str) -> list[SourcePart]:
        """Return a sentence as one part, or in several if it is too long."""
        if len(ids) <= self.max_length:
            return [SourcePart(text, ids, space)]
        pieces = [piece for s in split_into_sentences(text) for piece in self._halve(s.strip())]
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
    ) -> list[Translation]:
        """Join the outputs of a text's parts: its n-th best is the n-th best of each."""
        decode = self.tokenizers.target.decode
        joined = []
        for n in range(max(1, min(map(len, outputs), default=1))):
            chosen = [best[min(n, len(best) - 1)] for best in outputs]
            texts = [decode(o.ids) if o.text is None else o.text for o in chosen]
            spaces = [part.space or " " for part in parts[:-1]]
            joined.append(
                Translation(
                    "".join(
                        text + space for text, space in zip_longest(texts, spaces, fillvalue="")
                    ),
                    sum((output.score for output in chosen), start=0.0),
                    sum((output.log_p for output in chosen), start=0.0),
                    tuple(i for output in chosen for i in output.ids),
                    tuple(
                        TranslatedSentence(part.text, text, tuple(output.ids))
                        for part, text, output in zip(parts, texts, chosen, strict=True)
                    ),
                )
            )
        return joined


def _same(a: TokenizerPair, b: TokenizerPair) -> bool:
    """Return True if two tokenizers give every id the same meaning."""
    return all(
        len(x) == len(y) and all(x.symbol(i) == y.symbol(i) for i in range(len(x)))
        for x, y in ((a.source, b.source), (a.target, b.target))
    )
