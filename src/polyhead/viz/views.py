"""What the heads of a model looked at while it read and wrote one sentence, ready to be shown.

    view = AttentionView(title, model, source, target, predictions, maps)
    view.merged()                     # the same with whole words instead of subwords
    view.to_json()                    # for a file, the page or a server; from_json reads it back

A map has the axes (head, query, key). Each row is a distribution over what the query may look at:
Σ_key weights[head, query, key] = 1.

A decoder reads the target shifted by one: its row i reads token i and writes prediction i. A row is
therefore *named by what was written there*, since this is what its attention was for; a column is
named by what was read. Nothing here knows torch or a model: translation, text alone (only
`decoder` or only `encoder` maps) and whatever comes later fill in the same four classes.

The JSON form, `polyhead-attention-1`, is one object:

    format       "polyhead-attention-1"
    title, model strings
    source       {"text": …, "tokens": [{"text": …, "word": 0, "special": false}, …]}
    target       the same, or null
    predictions  strings, one for each row of the decoder; may be empty
    written      the predictions as tokens; derived, for readers that cannot derive it
    maps         [{"kind": …, "layer": 1, "queries": "target", "keys": "source",
                   "shape": [head, query, key], "weights": base64 of little-endian float32}, …]

Weights are stored bit by bit, so a round trip changes nothing. A map whose queries cannot see
every key (local attention, the Reformer's) says so in two more fields, which others leave out:

    seen         base64 of one bit for each weight, first bit lowest: 1 where the key could be seen
    buckets      {"shape": [round, head, position], "numbers": base64 of little-endian int16}
"""

import base64
import binascii
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int16

from polyhead.errors import ConfigError, DataError
from polyhead.viz.page import frame

FORMAT = "polyhead-attention-1"

Kind = Literal["encoder", "decoder", "cross"]
Side = Literal["source", "target"]
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")
SIDES: tuple[Side, ...] = ("source", "target")


@dataclass(frozen=True)
class Token:
    """One piece of text as the model sees it, as it is to be shown."""

    text: str  # may be empty: some pieces are only half a letter
    word: int  # number of the word it is a part of; a special token is a word of its own
    special: bool = False  # <s>, </s> and the like: written by the model's machinery, not by people


@dataclass(frozen=True)
class TokenizedText:
    """A text and the tokens it was cut into."""

    text: str
    tokens: tuple[Token, ...]

    def merged(self) -> "TokenizedText":
        """The same sentence with one token for each word."""
        return TokenizedText(self.text, _join(self.tokens))


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of all heads of one attention layer."""

    kind: Kind
    layer: int  # counted from 1, as in the paper
    weights: Float32[np.ndarray, "head query key"]
    queries: Side
    keys: Side
    seen: Bool[np.ndarray, "head query key"] | None = None  # None: whatever the kind may see
    buckets: Int16[np.ndarray, "round head position"] | None = None  # where hashing put them

    def __post_init__(self) -> None:
        if self.layer < 1:
            raise ValueError(f"layers are counted from 1, not {self.layer}")
        if self.weights.dtype != np.float32 or self.weights.ndim != 3:
            got = f"{self.weights.dtype} of shape {self.weights.shape}"
            raise ValueError(f"weights are float32 with axes (head, query, key), not {got}")
        if 0 in self.weights.shape:
            raise ValueError(f"a map needs a head, a query and a key, not {self.weights.shape}")
        if not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise ValueError(f"{self.kind} layer {self.layer}: weights must be finite and ≥ 0")
        if self.seen is not None and self.seen.shape != self.weights.shape:
            raise ValueError(f"{self.seen.shape} pairs seen of {self.weights.shape} weights")
        hashed = () if self.buckets is None else self.buckets.shape[1:]
        if hashed and hashed != self.weights.shape[:2]:
            raise ValueError(f"{hashed} buckets of {self.weights.shape[:2]} heads and queries")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionMap):
            return NotImplemented
        named = (self.kind, self.layer, self.queries, self.keys)
        same = named == (other.kind, other.layer, other.queries, other.keys)
        return (
            same
            and np.array_equal(self.weights, other.weights)
            and _alike(self.seen, other.seen)
            and _alike(self.buckets, other.buckets)
        )

    def entropy(self) -> Float64[np.ndarray, " head"]:
        """How spread out each head's attention is, in bits, as the mean over its rows.

        0 bits is one key, log₂ n bits is n keys alike:  H = −Σ_key p log₂ p
        The mean counts every row once, also that of a special token.
        """
        p = self.weights.astype(np.float64)
        logarithm = np.log2(p, out=np.zeros_like(p), where=p > 0)
        return np.abs(p * logarithm).sum(axis=2).mean(axis=1)

    def merged(self, rows: Sequence[Token], columns: Sequence[Token]) -> "AttentionMap":
        """Sum the columns of a word and take the mean of its rows: rows still sum to one.

        A word could see another if any of its pieces could see any of the other's. The pieces of
        a word may lie in several buckets, so that a word has none.
        """
        starts, counts = _runs(rows)
        across = _runs(columns)[0]
        weights = np.add.reduceat(self.weights.astype(np.float64), across, axis=2)
        weights = np.add.reduceat(weights, starts, axis=1) / np.array(counts)[:, None]
        seen = self.seen
        if seen is not None:
            seen = np.logical_or.reduceat(seen, across, axis=2)
            seen = np.logical_or.reduceat(seen, starts, axis=1)
        return replace(self, weights=weights.astype(np.float32), seen=seen, buckets=None)


@dataclass(frozen=True)
class AttentionView:
    """One sentence (or pair of sentences) and all that the model's heads did with it."""

    title: str
    model: str
    source: TokenizedText
    target: TokenizedText | None
    predictions: tuple[str, ...]  # what the decoder wrote in each of its rows
    maps: tuple[AttentionMap, ...]

    def __post_init__(self) -> None:
        named = [(one.kind, one.layer) for one in self.maps]
        if len(set(named)) < len(named):
            raise ValueError(f"two maps of the same kind and layer: {sorted(named)}")
        for one in self.maps:
            expected = (len(self.rows(one)), len(self.columns(one)))
            if one.weights.shape[1:] != expected:
                got = f"{one.weights.shape[1:]} weights for {expected} tokens"
                raise ValueError(f"{one.kind} layer {one.layer}: {got} (queries, keys)")

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that this model has."""
        return tuple(kind for kind in KINDS if any(one.kind == kind for one in self.maps))

    @property
    def written(self) -> tuple[Token, ...]:
        """The predictions as tokens: prediction i continues the word of the token after i."""
        read = (self.target or self.source).tokens
        special = {token.text for token in self._all_tokens() if token.special}
        beyond = read[-1].word + 1 if read else 0
        last = len(self.predictions) - 1
        return tuple(
            Token(
                text,
                read[row + 1].word if row + 1 < len(read) else beyond + row,
                text in special or (row == last and text[:1] + text[-1:] == "<>"),
            )
            for row, text in enumerate(self.predictions)
        )

    def rows(self, one: AttentionMap) -> tuple[Token, ...]:
        """The tokens by which the queries of a map are named."""
        if one.kind != "encoder" and self.predictions:
            return self.written
        return self._side(one.queries).tokens

    def columns(self, one: AttentionMap) -> tuple[Token, ...]:
        """The tokens by which the keys of a map are named."""
        return self._side(one.keys).tokens

    def find(self, kind: str, layer: int) -> AttentionMap:
        """The map of one layer, or an error that lists the layers there are."""
        if kind not in self.kinds:
            exist = ", ".join(self.kinds) or "nothing"
            raise ConfigError(f"kind {kind!r}: this model has no such attention; it has {exist}")
        layers = {one.layer: one for one in self.maps if one.kind == kind}
        if layer not in layers:
            exist = ", ".join(str(number) for number in sorted(layers))
            raise ConfigError(f"layer {layer}: no such {kind} layer; there are {exist}")
        return layers[layer]

    def entropy(self, kind: str, layer: int) -> tuple[float, ...]:
        """The entropy of each head of one layer, in bits (mean over rows)."""
        return tuple(float(bits) for bits in self.find(kind, layer).entropy())

    def merged(self) -> "AttentionView":
        """The same view with subwords merged into words.

        Columns are merged by the word that was read and a decoder's rows by the word that was
        written, since the row that writes the second half of a word belongs to that word.
        """
        return AttentionView(
            title=self.title,
            model=self.model,
            source=self.source.merged(),
            target=self.target and self.target.merged(),
            predictions=tuple(word.text for word in _join(self.written)),
            maps=tuple(one.merged(self.rows(one), self.columns(one)) for one in self.maps),
        )

    def to_json(self) -> str:
        """One line of ASCII in the form that the module's docstring describes."""
        return json.dumps(
            {
                "format": FORMAT,
                "title": self.title,
                "model": self.model,
                "source": asdict(self.source),
                "target": self.target and asdict(self.target),
                "predictions": self.predictions,
                "written": [asdict(token) for token in self.written],
                "maps": [_packed(one) for one in self.maps],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "AttentionView":
        """Read what `to_json` wrote; a file of another kind is a DataError."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise DataError(f"expected {FORMAT}, but this is not JSON: {problem}") from None
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise DataError(f"expected {FORMAT}, but the file says format {found!r}")
        try:
            return cls(
                title=_string(content["title"]),
                model=_string(content["model"]),
                source=_sentence(content["source"]),
                target=None if content["target"] is None else _sentence(content["target"]),
                predictions=tuple(_string(word) for word in content["predictions"]),
                maps=tuple(_unpacked(one) for one in content["maps"]),
            )
        except (KeyError, TypeError, ValueError) as problem:
            what = f"lacks {problem}" if isinstance(problem, KeyError) else str(problem)
            raise DataError(f"the {FORMAT} file is damaged: {what}; write it again") from problem

    def _repr_html_(self) -> str:
        """Shown by a notebook: the whole page in a frame of its own."""
        return frame(self)

    def _side(self, side: Side) -> TokenizedText:
        if side == "source":
            return self.source
        if self.target is None:
            raise ValueError("a map looks at the target, but there is none")
        return self.target

    def _all_tokens(self) -> tuple[Token, ...]:
        return self.source.tokens + (self.target.tokens if self.target else ())


def _runs(tokens: Sequence[Token]) -> tuple[list[int], list[int]]:
    """Where each word starts and how many tokens it has."""
    counts = [len(list(group)) for _, group in groupby(tokens, key=lambda token: token.word)]
    return [sum(counts[:word]) for word in range(len(counts))], counts


def _join(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """One token for each word, numbered anew from 0."""
    words = [list(group) for _, group in groupby(tokens, key=lambda token: token.word)]
    return tuple(
        Token(
            text="".join(piece.text for piece in pieces).strip(),
            word=number,
            special=all(piece.special for piece in pieces),
        )
        for number, pieces in enumerate(words)
    )


def _packed(one: AttentionMap) -> dict[str, Any]:
    packed = described(one)
    packed["weights"] = _encoded(one.weights.astype("<f4"))
    return packed


def described(one: AttentionMap) -> dict[str, Any]:
    """A map in the JSON form without its weights, which a server may send apart."""
    packed: dict[str, Any] = {
        "kind": one.kind,
        "layer": one.layer,
        "queries": one.queries,
        "keys": one.keys,
        "shape": one.weights.shape,
    }
    if one.seen is not None:
        packed["seen"] = _encoded(np.packbits(one.seen, bitorder="little"))
    if one.buckets is not None:
        numbers = _encoded(one.buckets.astype("<i2"))
        packed["buckets"] = {"shape": one.buckets.shape, "numbers": numbers}
    return packed


def _unpacked(content: Any) -> AttentionMap:
    named = (content["kind"], content["queries"], content["keys"])
    if named[0] not in KINDS or named[1] not in SIDES or named[2] not in SIDES:
        raise ValueError(f"no map is {named[0]!r} from {named[1]!r} to {named[2]!r}")
    shape = content["shape"]
    seen, buckets = content.get("seen"), content.get("buckets")
    if seen is not None:
        bits = np.unpackbits(_decoded(seen, "|u1", "seen pairs"), bitorder="little")
        seen = _shaped(bits[: math.prod(shape)].astype(bool), shape)
    if buckets is not None:
        numbers = _decoded(buckets["numbers"], "<i2", "buckets").astype(np.int16)
        buckets = _shaped(numbers, buckets["shape"])
    return AttentionMap(
        kind=content["kind"],
        layer=int(content["layer"]),
        weights=_shaped(_decoded(content["weights"], "<f4", "weights").astype(np.float32), shape),
        queries=content["queries"],
        keys=content["keys"],
        seen=seen,
        buckets=buckets,
    )


def _alike(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _encoded(numbers: np.ndarray) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def _decoded(text: Any, dtype: str, what: str) -> np.ndarray:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype)
    except binascii.Error as problem:
        raise ValueError(f"{what} are not base64 ({problem})") from problem


def _shaped(numbers: np.ndarray, shape: Any) -> Any:
    first, second, third = (int(size) for size in shape)
    if first * second * third != numbers.size or min(first, second, third) < 0:
        raise ValueError(f"{numbers.size} numbers do not have the shape {shape}")
    return numbers.reshape(first, second, third)


def _sentence(content: Any) -> TokenizedText:
    return TokenizedText(
        _string(content["text"]),
        tuple(
            Token(_string(token["text"]), int(token["word"]), bool(token["special"]))
            for token in content["tokens"]
        ),
    )


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} stands where a text should")
    return value
