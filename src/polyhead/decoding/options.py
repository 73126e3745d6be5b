"""Options of all decoding strategies, and their outputs; without torch, for every engine."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from polyhead.bounds import Factor, Few, Length
from polyhead.errors import ConfigError

Scores = Literal["none", "outputs", "tokens"]  # that the caller will read
N_SEEDS = 2**63
NOT_FINITE = (
    "the model's outputs are not finite numbers; its weights or its configuration are unusable. "
    "Train it again with a lower learning rate, or use another checkpoint."
)
MIN_TEMPERATURE = 1e-30  # logits divided by less are not finite


@dataclass(frozen=True)
class DecodeConfig:
    """The table [decode] of a configuration.

    beam: hypotheses of beam search; 1 is greedy search.
    length_penalty: α of Wu et al. 2016; 0 compares log-probabilities, 1 nearly those per word.
    coverage: β of Wu et al. 2016, a penalty for source words without attention; 0 disables it. Beam
        search of models with cross-attention only; 0.2 is usual.
    replace_unknown: replace unknown words with the dictionary's word for the most-attended source
        word, or a copy of it (PosUnk); for vocabularies of words.
    max_length, max_ratio, max_extra: an output has at most min(max_length, max_ratio · source
        length + max_extra) tokens.
    sample: draw tokens at random instead of searching.
    temperature, top_k, top_p: of sampling; top_k = 0 and top_p = 1 keep all tokens.
    n_best: the number of outputs for each source.
    split_sentences: translate a text sentence by sentence; False for models of whole paragraphs.
    """

    beam: Few = 4
    length_penalty: float = 0.6
    coverage: float = 0.0
    replace_unknown: bool = False
    max_length: Length = 256
    max_ratio: Factor = 2.0
    max_extra: Length = 10
    sample: bool = False
    temperature: float = 1.0
    top_k: Length = 0
    top_p: float = 1.0
    n_best: Few = 1
    split_sentences: bool = True

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam = {self.beam}: expected at least 1 (1 is greedy search)")
        if self.max_extra < 0:
            raise ValueError(f"max_extra = {self.max_extra}: expected 0 or more")
        if self.coverage < 0:
            raise ValueError(f"coverage = {self.coverage}: expected 0 (off) or more")
        if not MIN_TEMPERATURE <= self.temperature < math.inf:
            raise ValueError(f"temperature = {self.temperature}: expected more than 0, and finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}: expected more than 0 and at most 1")
        if self.n_best > self.beam and not self.sample:
            raise ValueError(
                f"n_best = {self.n_best}: a beam of {self.beam} finds at most {self.beam} outputs; "
                f"set beam = {self.n_best} or more"
            )

    def limit(self, source_length: int) -> int:
        """Return the maximal number of tokens of an output."""
        return max(1, min(self.max_length, int(self.max_ratio * source_length) + self.max_extra))

    def with_options(self, changes: Mapping[str, bool | int | float | None]) -> "DecodeConfig":
        """Return the options with some changed; None changes nothing. A beam grows to `n_best`."""
        changed: dict[str, Any] = {
            name: value for name, value in changes.items() if value is not None
        }
        if "n_best" in changed and "beam" not in changed:
            changed["beam"] = max(self.beam, changed["n_best"])
        try:
            return replace(self, **changed)
        except ValueError as error:
            raise ConfigError(str(error), "out_of_range") from None


class Output(NamedTuple):
    """One hypothesis: its ids without EOS, its score, and the log-probability of its tokens.

    `ended` is True if EOS followed, and False if it was cut off at the maximal length.
    `token_log_p` has one value per id, and that of EOS if there was one.

    Where `Scores` were not wanted, `token_log_p` may be empty, and `score` and `log_p` be NaN.
    """

    ids: list[int]
    score: float
    log_p: float
    ended: bool
    token_log_p: list[float]
    text: str | None = None  # where it differs from the decoded ids: unknown words replaced


@dataclass(frozen=True)
class Choice:
    """A token that can be generated next.

    log_p, probability: the model's own.
    sampling_probability: that of being drawn, after temperature, top-k and top-p; None for greedy
        search.
    """

    id: int
    log_p: float
    probability: float
    sampling_probability: float | None


@dataclass(frozen=True)
class DecodingStep:
    """The token that was chosen or forced, and the likeliest ones, likeliest first."""

    chosen: Choice
    forced: bool
    likeliest: tuple[Choice, ...]


def check_seed(seed: int) -> None:
    """Raise ConfigError if a seed is not one of torch's."""
    if not 0 <= seed < N_SEEDS:
        raise ConfigError(f"seed = {seed}: expected 0 or more, and less than 2^63", "out_of_range")
