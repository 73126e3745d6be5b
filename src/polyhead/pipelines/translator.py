"""A trained translator, ready to use: `polyhead.load("runs/mine").translate(["..."])`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from polyhead import devices
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.config import from_dict
from polyhead.data.bilingual_dictionary import read_dictionary
from polyhead.decoding.batch import Output, decode_all
from polyhead.decoding.config import DecodeConfig, dice
from polyhead.decoding.ensemble import Ensemble
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.attention_hooks import AttentionRecordingModel, has_cross_attention
from polyhead.pipelines.family_checks import check_use
from polyhead.pipelines.unknown_words import find_dictionary, replace_unknown
from polyhead.tokenizers.storage import TokenizerPair

USE = "polyhead translate"
SENTENCE_END = re.compile(r"(?<=[.!?。！？…])\s+")


@dataclass(frozen=True)
class Translation:
    """One hypothesis for one line. `score` ranks it; `log_p` is the sum over its tokens."""

    text: str
    score: float
    log_p: float
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Translator:
    """One model, or an ensemble of several that share a vocabulary."""

    models: tuple[SavedModel, ...]
    names: tuple[str, ...]
    device: torch.device
    dictionary: Mapping[str, str] | None = None  # for unknown words: that of training unless given

    @property
    def tokenizers(self) -> TokenizerPair:
        """How text becomes ids; the same for all members."""
        assert self.models[0].tokenizers is not None
        return self.models[0].tokenizers

    @property
    def decodable(self) -> Any:
        """What a search asks: the model itself, or the mean of several."""
        if len(self.models) == 1:
            return self.models[0].model
        return Ensemble([saved.model for saved in self.models])  # type: ignore[misc]

    def searched(self, options: DecodeConfig) -> Any:
        """`decodable`, such that it tells what it looks at if the options need to know."""
        if not options.coverage:
            return self.decodable
        members: list[Any] = [
            AttentionRecordingModel(saved.model)
            if has_cross_attention(saved.model)
            else saved.model
            for saved in self.models
        ]
        return members[0] if len(members) == 1 else Ensemble(members)

    @property
    def defaults(self) -> DecodeConfig:
        """How its maker thought it should decode."""
        run: dict[str, Any] = self.models[0].about.get("run") or {}
        return from_dict(DecodeConfig, run.get("decode", {}), "decode.")

    @property
    def max_length(self) -> int:
        """The longest source, in tokens, that it is asked to read at once."""
        run: dict[str, Any] = self.models[0].about.get("run") or {}
        given = run.get("data", {}).get("max_length", 256)
        if not isinstance(given, int) or given < 1:
            raise CheckpointError(f"{self.names[0]}: config.json says max_length = {given!r}")
        return given

    def translate(
        self, lines: Sequence[str], *, options: DecodeConfig | None = None, seed: int = 0
    ) -> list[str]:
        """The best translation of every line."""
        if isinstance(lines, str):
            raise ConfigError("translate takes a list of lines; write translate([text])")
        found = self.n_best(lines, options=options, seed=seed)
        return [best[0].text for best in found]

    def n_best(
        self,
        lines: Sequence[str],
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        prefixes: Sequence[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[list[Translation]]:
        """The best `n_best` translations of every line, best first; at least one for each line.

        An empty line gives an empty one. A line too long for the model is cut into sentences (or
        pieces) that are translated one by one and joined; nothing is dropped.
        """
        options = self.defaults if options is None else options
        parts = [self.split(line) for line in lines]
        flat = [part for line in parts for part in line]
        starts = [prefixes[i] if prefixes and not k else "" for i, line in enumerate(parts)
                  for k in range(len(line))]  # fmt: skip
        generator = dice(seed)
        outputs = decode_all(
            self.searched(options),
            self.tokenizers.source.encode_batch(flat),
            options,
            device=self.device,
            prefixes=[self.tokenizers.target.encode(s)[:-1] for s in starts],
            generator=generator,
            progress=progress,
        )
        if options.replace_unknown:
            outputs = self.replaced(flat, outputs)
        results, at = [], 0
        for line in parts:
            results.append(self.join(outputs[at : at + len(line)]))
            at += len(line)
        return results

    def replaced(self, lines: Sequence[str], outputs: list[list[Output]]) -> list[list[Output]]:
        """The outputs without unknown words."""
        models, words = [saved.model for saved in self.models], self.dictionary
        words = find_dictionary(Path(self.names[0])) if words is None else words
        return replace_unknown(models, self.tokenizers, lines, outputs, words)

    def split(self, line: str) -> list[str]:
        """A line as pieces that fit the model; none for an empty one."""
        if not line.strip():
            return []
        if self._length(line) <= self.max_length:
            return [line]
        pieces: list[str] = []
        for sentence in SENTENCE_END.split(line):
            pieces += self._halve(sentence)
        return _packed(pieces, self._length, self.max_length)

    def is_long(self, line: str) -> bool:
        """Whether a line has to be cut to be translated."""
        return len(self.split(line)) > 1

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

    def join(self, parts: Sequence[list[Output]]) -> list[Translation]:
        """What was found for the pieces of a line: its n-th best is the n-th best of each."""
        if not parts:
            return [Translation("", 0.0, 0.0, ())]
        decode = self.tokenizers.target.decode
        joined = []
        for n in range(max(1, min(len(part) for part in parts))):
            chosen = [part[min(n, len(part) - 1)] for part in parts]
            text = " ".join(decode(o.ids) if o.text is None else o.text for o in chosen)
            ids = tuple(i for output in chosen for i in output.ids)
            log_p = sum(output.log_p for output in chosen)
            joined.append(Translation(text, sum(o.score for o in chosen), log_p, ids))
        return joined


def load(*paths: str | Path, device: str = "auto") -> Translator:
    """Load a translator from its folder (or a run's); several folders make an ensemble."""
    if not paths:
        raise ConfigError("name at least one model")
    for path in paths:
        check_use(Path(path), USE)
    chosen = devices.choose(device)
    models = [model_folder.load_model(Path(path), str(chosen)) for path in paths]
    for path, saved in zip(paths, models, strict=True):
        if saved.tokenizers is None:
            raise CheckpointError(f"{path} has no tokenizer; it cannot translate text")
    first = models[0].tokenizers
    for path, saved in zip(paths[1:], models[1:], strict=True):
        if not _same(first, saved.tokenizers):
            raise CheckpointError(
                f"{path} and {paths[0]} have different vocabularies; an ensemble needs one"
            )
    return Translator(tuple(models), tuple(str(path) for path in paths), chosen)


def with_dictionary(translator: Translator, path: Path) -> Translator:
    """The same translator with another dictionary for unknown words."""
    return replace(translator, dictionary=read_dictionary(path))


def with_options(options: DecodeConfig, changes: dict[str, Any]) -> DecodeConfig:
    """The same options with some changed; what is None stays. A beam grows to hold `n_best`."""
    changes = {name: value for name, value in changes.items() if value is not None}
    if "n_best" in changes and "beam" not in changes:
        changes["beam"] = max(options.beam, changes["n_best"])
    try:
        return replace(options, **changes)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _same(a: TokenizerPair | None, b: TokenizerPair | None) -> bool:
    """Whether two tokenizers give every id the same meaning."""
    assert a is not None and b is not None
    if len(a.target) != len(b.target) or len(a.source) != len(b.source):
        return False
    return all(
        x.symbol(i) == y.symbol(i)
        for x, y in ((a.source, b.source), (a.target, b.target))
        for i in range(len(x))
    )


def _packed(pieces: Sequence[str], length: Callable[[str], int], limit: int) -> list[str]:
    """Join neighbouring pieces as long as they fit together."""
    packed: list[str] = []
    for piece in pieces:
        if packed and length(f"{packed[-1]} {piece}") <= limit:
            packed[-1] = f"{packed[-1]} {piece}"
        else:
            packed.append(piece)
    return packed
