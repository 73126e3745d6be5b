"""Attention of a model on one text or image, independent of the model and of torch.

    view = AttentionView(title, model, source, target, predictions, maps)
    view.merged()                     # subwords merged into words
    view.to_json()                    # for a file, the page or a server; from_json reads it

A map has the axes (head, query, key), and each row is a distribution: Σ_key weights = 1.

A decoder reads the target shifted by one: its row i reads token i and writes prediction i. A row is
therefore named by the token that was written, and a column by the token that was read.

The JSON form, `polyhead-attention-1`, is one object:

    format       "polyhead-attention-1"
    title, model strings
    source       {"text": …, "tokens": [{"text": …, "word": 0, "special": false}, …]}
    target       the same, or null
    predictions  strings, one for each row of the decoder; may be empty
    written      the predictions as tokens; derived from the rest
    maps         [{"kind": …, "layer": 1, "queries": "target", "keys": "source",
                   "shape": [head, query, key], "weights": base64 of little-endian float32}, …]

Weights are stored bit by bit, so a round trip changes nothing. Two more fields of a map are only
written for attention whose queries cannot see every key (local and LSH attention):

    seen         base64 of one bit for each weight, lowest bit first: 1 where the key can be seen
    buckets      {"shape": [round, head, position], "numbers": base64 of little-endian int16}
"""

import base64
import binascii
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int16, UInt8

from polyhead.errors import ConfigError, DataError
from polyhead.viz.page import View
from polyhead.viz.tokens import Token

FORMAT, IMAGE_FORMAT = "polyhead-attention-1", "polyhead-image-attention-1"

Kind = Literal["encoder", "decoder", "cross"]
Side = Literal["source", "target"]
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")
SIDES: tuple[Side, ...] = ("source", "target")


@dataclass(frozen=True)
class TokenizedText:
    """A text and its tokens."""

    text: str
    tokens: tuple[Token, ...]

    def merged(self) -> "TokenizedText":
        """Return the text with one token for each word."""
        return TokenizedText(self.text, _join(self.tokens))

    def describe(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"text": self.text, "tokens": _describe(self.tokens)}


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of all heads of one attention layer."""

    kind: Kind
    layer: int  # counted from 1, as in the paper
    weights: Float32[np.ndarray, "head query key"]
    queries: Side
    keys: Side
    seen: Bool[np.ndarray, "head query key"] | None = None  # None: all that the kind can see
    buckets: Int16[np.ndarray, "round head position"] | None = None  # LSH attention only

    def __post_init__(self) -> None:
        if self.layer < 1:
            raise ValueError(f"layer {self.layer}: expected 1 or more")
        if self.weights.dtype != np.float32 or self.weights.ndim != 3:
            got = f"{self.weights.dtype} of shape {self.weights.shape}"
            raise ValueError(f"weights: expected float32 with axes (head, query, key), got {got}")
        if 0 in self.weights.shape:
            raise ValueError(f"weights: expected no empty axis, got {self.weights.shape}")
        if not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise ValueError(f"{self.kind} layer {self.layer}: weights must be finite and ≥ 0")
        if self.seen is not None and self.seen.shape != self.weights.shape:
            raise ValueError(f"seen: expected {self.weights.shape}, got {self.seen.shape}")
        hashed = () if self.buckets is None else self.buckets.shape[1:]
        if hashed and hashed != self.weights.shape[:2]:
            raise ValueError(f"buckets: expected {self.weights.shape[:2]}, got {hashed}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionMap):
            return NotImplemented
        return self.describe() == other.describe() and np.array_equal(self.weights, other.weights)

    def describe(self) -> dict[str, Any]:
        """Return the JSON form without the weights."""
        fields: dict[str, Any] = {"kind": self.kind, "layer": self.layer}
        fields |= {"queries": self.queries, "keys": self.keys, "shape": self.weights.shape}
        if self.seen is not None:
            fields["seen"] = _encode(np.packbits(self.seen, bitorder="little"))
        if self.buckets is not None:
            numbers = _encode(self.buckets.astype("<i2"))
            fields["buckets"] = {"shape": self.buckets.shape, "numbers": numbers}
        return fields

    def entropy(self) -> Float64[np.ndarray, " head"]:
        """Return the entropy of each head in bits, mean over all rows:  H = −Σ_key p log₂ p.

        0 bits is one key, log₂ n bits is n keys alike.
        """
        p = self.weights.astype(np.float64)
        logarithm = np.log2(p, out=np.zeros_like(p), where=p > 0)
        return np.abs(p * logarithm).sum(axis=2).mean(axis=1)

    def merged(self, rows: Sequence[Token], columns: Sequence[Token]) -> "AttentionMap":
        """Sum the columns of each word and average its rows: rows still sum to one.

        A word can see another if any of its pieces can see any of the other's. It has no buckets,
        since its pieces may lie in several.
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


@dataclass(frozen=True, repr=False)
class AttentionView(View):
    """A text, or a text and its translation, with the attention of all heads of a model."""

    page_kind: ClassVar[str] = "text"
    title: str
    model: str
    source: TokenizedText
    target: TokenizedText | None
    predictions: tuple[str, ...]  # what the decoder wrote in each of its rows
    maps: tuple[AttentionMap, ...]

    def __post_init__(self) -> None:
        names = [(attention.kind, attention.layer) for attention in self.maps]
        if len(set(names)) < len(names):
            raise ValueError(f"two maps of the same kind and layer: {sorted(names)}")
        for attention in self.maps:
            expected = (len(self.rows(attention)), len(self.columns(attention)))
            if attention.weights.shape[1:] != expected:
                got = f"{attention.weights.shape[1:]} weights for {expected} tokens"
                raise ValueError(f"{attention.kind} layer {attention.layer}: {got} (queries, keys)")

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that the model has."""
        present = {attention.kind for attention in self.maps}
        return tuple(kind for kind in KINDS if kind in present)

    @property
    def written(self) -> tuple[Token, ...]:
        """The predictions as tokens: prediction i is a part of the word of token i + 1."""
        read = (self.target or self.source).tokens
        tokens = self.source.tokens + (self.target.tokens if self.target else ())
        special = {token.text for token in tokens if token.special}
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

    def rows(self, attention: AttentionMap) -> tuple[Token, ...]:
        """Return the tokens that name the queries of a map."""
        if attention.kind != "encoder" and self.predictions:
            return self.written
        return self._side(attention.queries).tokens

    def columns(self, attention: AttentionMap) -> tuple[Token, ...]:
        """Return the tokens that name the keys of a map."""
        return self._side(attention.keys).tokens

    def find(self, kind: str, layer: int) -> AttentionMap:
        """Return the map of one layer; raise `ConfigError` if there is none."""
        if kind not in self.kinds:
            expected = ", ".join(self.kinds) or "no kind"
            raise ConfigError(f"kind {kind!r}: the model has {expected}", "unknown_kind")
        layers = {attention.layer: attention for attention in self.maps if attention.kind == kind}
        if layer not in layers:
            expected = ", ".join(str(number) for number in sorted(layers))
            raise ConfigError(f"layer {layer}: {kind} has the layers {expected}", "unknown_layer")
        return layers[layer]

    def merged(self) -> "AttentionView":
        """Return the view with subwords merged into words.

        Columns are merged by the word that was read, and the rows of a decoder by the word that was
        written.
        """
        maps = [each.merged(self.rows(each), self.columns(each)) for each in self.maps]
        return replace(
            self,
            source=self.source.merged(),
            target=self.target and self.target.merged(),
            predictions=tuple(word.text for word in _join(self.written)),
            maps=tuple(maps),
        )

    def describe(self) -> dict[str, object]:
        """Return the JSON form without the maps."""
        return {
            "format": FORMAT,
            "title": self.title,
            "model": _portable(self.model),
            "source": self.source.describe(),
            "target": self.target and self.target.describe(),
            "predictions": self.predictions,
            "written": _describe(self.written),
        }

    def to_json(self) -> str:
        """Return the JSON form as one line of ASCII."""
        maps = [
            each.describe() | {"weights": _encode(each.weights.astype("<f4"))} for each in self.maps
        ]
        return json.dumps(self.describe() | {"maps": maps}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "AttentionView":
        """Read the JSON form; raise `DataError` for anything else."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as problem:
            message = f"expected {FORMAT}, but this is not JSON: {problem}"
            raise DataError(message, "not_json") from None
        name = content.get("format") if isinstance(content, dict) else None
        if name != FORMAT:
            raise DataError(f"expected format {FORMAT}, got {name!r}", "unknown_format")
        try:
            return cls(
                title=_string(content["title"]),
                model=_string(content["model"]),
                source=_parse_text(content["source"]),
                target=None if content["target"] is None else _parse_text(content["target"]),
                predictions=tuple(_string(word) for word in content["predictions"]),
                maps=tuple(map(_parse_map, content["maps"])),
            )
        except (KeyError, TypeError, ValueError) as problem:
            reason = f"lacks {problem}" if isinstance(problem, KeyError) else str(problem)
            raise DataError(f"the {FORMAT} file is damaged: {reason}", "damaged") from problem

    def _side(self, side: Side) -> TokenizedText:
        if side == "source":
            return self.source
        if self.target is None:
            raise ValueError("a map attends to the target, but there is none")
        return self.target


@dataclass(frozen=True, repr=False)
class ImageView(View):
    """An image as the model reads it, its classes, and the attention of all heads.

    labels: the likeliest classes with their probabilities, likeliest first.
    pooled: "class" if the rows are those of the class token, "mean" if the mean over all patches.
    """

    page_kind: ClassVar[str] = "image"
    title: str
    model: str
    picture: UInt8[np.ndarray, "height width channel"]
    labels: tuple[tuple[str, float], ...]
    pooled: str
    layers: Float[np.ndarray, "layer head row column"]
    rollout: Float[np.ndarray, "row column"]

    def to_json(self) -> str:
        """Return everything as JSON, weights with five digits."""
        height, width, channels = self.picture.shape
        n_layers, n_heads, rows, columns = self.layers.shape
        weights = np.round(self.layers.astype(float), 5).reshape(n_layers, n_heads, -1)
        pixels = _encode(self.picture)
        content = {
            "format": IMAGE_FORMAT,
            "title": self.title,
            "model": _portable(self.model),
            "labels": [[name, round(float(share), 5)] for name, share in self.labels],
            "pooled": self.pooled,
            "picture": {"height": height, "width": width, "channels": channels, "bytes": pixels},
            "rows": rows,
            "columns": columns,
            "n_layers": n_layers,
            "n_heads": n_heads,
            "layers": weights.tolist(),
            "rollout": np.round(self.rollout.astype(float), 5).ravel().tolist(),
        }
        return json.dumps(content, ensure_ascii=False)


def _runs(tokens: Sequence[Token]) -> tuple[list[int], list[int]]:
    """Return where each word starts, and how many tokens it has."""
    counts = [len(list(group)) for _, group in groupby(tokens, key=lambda token: token.word)]
    return [sum(counts[:word]) for word in range(len(counts))], counts


def _join(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Return one token for each word, numbered from 0."""
    words = [list(group) for _, group in groupby(tokens, key=lambda token: token.word)]
    return tuple(
        Token("".join(piece.text for piece in word).strip(), n, all(p.special for p in word))
        for n, word in enumerate(words)
    )


def _portable(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name


def _describe(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    return [{"text": t.text, "word": t.word, "special": t.special} for t in tokens]


def _parse_text(content: Any) -> TokenizedText:
    tokens = (
        Token(_string(token["text"]), int(token["word"]), bool(token["special"]))
        for token in content["tokens"]
    )
    return TokenizedText(_string(content["text"]), tuple(tokens))


def _parse_map(content: Any) -> AttentionMap:
    kind, queries, keys = content["kind"], content["queries"], content["keys"]
    if kind not in KINDS or queries not in SIDES or keys not in SIDES:
        raise ValueError(f"unknown map: {kind!r} from {queries!r} to {keys!r}")
    shape = content["shape"]
    seen, buckets = content.get("seen"), content.get("buckets")
    if seen is not None:
        bits = np.unpackbits(_decode(seen, "|u1"), bitorder="little")
        seen = _reshape(bits[: math.prod(shape)].astype(bool), shape)
    if buckets is not None:
        buckets = _reshape(_decode(buckets["numbers"], "<i2").astype(np.int16), buckets["shape"])
    weights = _reshape(_decode(content["weights"], "<f4").astype(np.float32), shape)
    return AttentionMap(kind, int(content["layer"]), weights, queries, keys, seen, buckets)


def _encode(numbers: np.ndarray) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def _decode(text: Any, dtype: str) -> np.ndarray:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype)
    except binascii.Error as problem:
        raise ValueError(f"not base64 ({problem})") from problem


def _reshape(numbers: np.ndarray, shape: Any) -> Any:
    first, second, third = (int(size) for size in shape)
    if first * second * third != numbers.size or min(first, second, third) < 0:
        raise ValueError(f"{numbers.size} numbers do not have the shape {shape}")
    return numbers.reshape(first, second, third)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r}: expected a string")
    return value
