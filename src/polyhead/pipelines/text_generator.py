"""A trained language model, ready to use: `polyhead.load("runs/mine").generate("오늘은")`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead import devices
from polyhead.checkpoint import model_dir as model_folder
from polyhead.config import from_dict
from polyhead.decoding.config import DecodeConfig, dice
from polyhead.decoding.generate import write
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.layers.positions import BOUNDED_POSITIONS
from polyhead.metrics.perplexity import TextWindows, text_windows
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.family_checks import check_use
from polyhead.special_tokens import EOS
from polyhead.tokenizers.base import Tokenizer

USE = "polyhead generate"
UNFINISHED = "\ufffd"  # how a tokenizer shows a character of which some bytes are missing
LONG, KEPT = 64, 16  # ids of a line that are spelled again with each new one; what is kept of them
SCORED_AT_ONCE = 4096  # tokens


@dataclass(frozen=True)
class LanguageScore:
    """How well a model knows a text: nats per token, their exponential, bits per character."""

    loss: float
    perplexity: float
    bits_per_character: float
    n_tokens: int
    n_characters: int
    n_unknown: int


@dataclass(frozen=True)
class TextGenerator(Pipeline):
    """One model that goes on with a text."""

    @property
    def defaults(self) -> DecodeConfig:
        """How its maker thought it should write; `max_length` is the number of tokens."""
        run: dict[str, Any] = self.saved.about.get("run") or {}
        return from_dict(DecodeConfig, run.get("decode", {}), "decode.")

    @property
    def context(self) -> int:
        """The most tokens that it reads at once: what it was trained on, and has positions for."""
        run: dict[str, Any] = self.saved.about.get("run") or {}
        given = run.get("data", {}).get("max_length", self.saved.config.max_length)
        if not isinstance(given, int) or given < 1:
            raise CheckpointError(f"{self.name}: config.json says max_length = {given!r}")
        ends = self.saved.config.positions in BOUNDED_POSITIONS
        return min(given, self.saved.config.max_length) if ends else given

    def generate(
        self,
        prompt: str = "",
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> str:
        """What the model writes after a prompt; see `stream`."""
        return "".join(self.stream(prompt, options=options, seed=seed, stop=stop))

    def stream(
        self,
        prompt: str = "",
        *,
        options: DecodeConfig | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """The same as it is written, in pieces of whole characters.

        It writes `options.max_length` tokens, or until one of the texts in `stop`, which it leaves
        out. After an empty prompt it begins a new line. An end of line is written as one. Where
        line ends are tokens of their own, as in an imported GPT-2, EOS ends the text instead.
        """
        if isinstance(stop, str) or not all(stop):
            raise ConfigError("stop takes a list of texts, none of them empty; write stop=[text]")
        options = self.defaults if options is None else options
        generator = dice(seed)
        ids = self.encode(prompt)
        model: Any = self.saved.model
        written = write(model, ids, options, generator, self.context, self.device)
        pieces = spelled(self.tokenizer, ids, written)
        if not self.tokenizer.reads_line_ends():
            pieces = _without_second_space(prompt, pieces)
        return until(stop, pieces)

    def encode(self, prompt: str) -> list[int]:
        """A prompt's ids: its last line is not closed; an empty one stands after an EOS.

        A tokenizer that reads line ends reads it as it is. Else a text loses the spaces at its ends
        when it is encoded. Where characters have ids, the space at the end of a prompt counts
        nevertheless: what follows is then a new word.
        """
        if self.tokenizer.reads_line_ends():
            return self.tokenizer.encode(prompt)[:-1] or [EOS]
        *lines, last = prompt.split("\n")
        encoded = [id for line in self.tokenizer.encode_batch(lines) for id in line]
        ids = [*encoded, *self.tokenizer.encode(last)[:-1]]
        assert self.saved.tokenizers is not None
        spaced = last.strip() and last[-1].isspace()
        if spaced and self.saved.tokenizers.config.kind == "characters":
            ids += self.tokenizer.encode("a a")[1:2]
        return ids or [EOS]

    def score(self, lines: Sequence[str]) -> LanguageScore:
        """Predict every token of a text once, window by window: the same result every time."""
        return self.score_of(self.examination(lines))

    def examination(self, lines: Sequence[str]) -> TextWindows:
        """A text in windows as long as the model's context."""
        if isinstance(lines, str):
            raise ConfigError("score takes a list of lines; write score([text])")
        if not any(line.strip() for line in lines):
            raise DataError("there is no text to score")
        return text_windows(self.tokenizer, lines, self.context, SCORED_AT_ONCE)

    def score_of(
        self, asked: TextWindows, progress: Callable[[int], None] = lambda _: None
    ) -> LanguageScore:
        """The score of a text in windows; `progress` hears of tokens as they are read."""
        found = asked.validate(self.saved.model, progress=progress)
        return LanguageScore(
            found["loss"],
            found["perplexity"],
            found["bits_per_character"],
            asked.n_tokens,
            asked.n_characters,
            asked.n_unknown,
        )


def spelled(tokenizer: Tokenizer, before: Sequence[int], ids: Iterable[int]) -> Iterator[str]:
    """What each id adds to the text after `before`; nothing until a character is whole.

    A character may be several ids (its bytes), and a space shows only when something follows it.
    One that is still in pieces when its line or the text ends is left out. EOS is a line end, or,
    if the tokenizer has ids for those, the end.
    """
    ends = tokenizer.reads_line_ends()
    line = _last_line(before)
    shown = len(tokenizer.decode(line))
    for id in ids:
        if id == EOS and ends:
            return
        if id == EOS:
            line, shown = [], 0
            yield "\n"
            continue
        line.append(id)
        text = tokenizer.decode(line)
        whole = text.rstrip(UNFINISHED)
        if len(whole) > shown:
            yield whole[shown:]
            shown = len(whole)
            if len(line) > LONG and whole == text:  # spelling must not take longer and longer
                line = line[-KEPT:]
                shown = len(tokenizer.decode(line))


def _last_line(ids: Sequence[int]) -> list[int]:
    line = list(ids)
    if EOS in line:
        line = line[len(line) - line[::-1].index(EOS) :]
    return line[-KEPT:]


def _without_second_space(prompt: str, pieces: Iterator[str]) -> Iterator[str]:
    """A prompt that ends with a space has the space that the first word would bring."""
    for piece in pieces:
        yield piece.removeprefix(" ") if prompt[-1:].isspace() else piece
        yield from pieces


def until(stop: Sequence[str], pieces: Iterable[str]) -> Iterator[str]:
    """The text before the first of the stops; what may be the beginning of one is held back."""
    held = ""
    for piece in pieces:
        held += piece
        found = [place for text in stop if (place := held.find(text)) >= 0]
        if found:
            if min(found):
                yield held[: min(found)]
            return
        n_kept = max((_overlap(held, text) for text in stop), default=0)
        if sure := held[: len(held) - n_kept]:
            yield sure
            held = held[len(sure) :]
    if held:
        yield held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


def load(*paths: str | Path, device: str = "auto") -> TextGenerator:
    """Load a language model from its folder (or a run's)."""
    if len(paths) != 1:
        raise ConfigError(f"{len(paths)} models: name one language model; it cannot be mixed")
    name, chosen = str(paths[0]), devices.choose(device)
    check_use(Path(name), USE)
    saved = model_folder.load_model(Path(name), str(chosen))
    if saved.tokenizers is None:
        raise CheckpointError(f"{name} has no tokenizer; it cannot write text")
    n_ids = len(saved.tokenizers.source)
    if n_ids != saved.config.vocab:
        raise CheckpointError(
            f"{name}: {n_ids} ids in its tokenizer, but config.json says {saved.config.vocab}"
        )
    return TextGenerator(saved, name, chosen)
