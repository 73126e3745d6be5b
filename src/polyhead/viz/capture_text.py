r"""What the heads looked at, for every model that reads text, in the forms that a server sends.

    view = look_at_text(model, text)                       # also fill-in models and classifiers
    packed(view, precision="float16", wanted=[("cross", 6)])       # bytes; see below

The binary form is made for a page that wants one layer of many, now:

    bytes 0 to 7     "PHATTN1\n"
    bytes 8 to 11    the header's length H, little-endian
    H bytes          the header, JSON: polyhead-attention-1 without weights, and where they are
    the rest         the weights of the maps that were asked for, (head, query, key)

Weights start at multiples of eight bytes, so that a script can use them in place.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from polyhead.data.batches.labelled import framed
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import record_attention
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.pipelines.segments import longest_output
from polyhead.pipelines.step_through import check_forced, checked_source
from polyhead.pipelines.text_classifier import TextClassifier
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import MASK
from polyhead.tokenizers.mask_tokens import encode_blanks
from polyhead.tokenizers.storage import BOS, EOS, SPECIALS
from polyhead.viz.capture_translation import as_map, as_tokens, look, reading, record
from polyhead.viz.views import AttentionView, Token, TokenizedText, described

MAGIC = b"PHATTN1\n"
FORMAT = "polyhead-attention-binary-1"
PRECISIONS = {"float32": "<f4", "float16": "<f2", "uint8": "u1"}
MAX_BYTES = 2**24  # of weights in one answer
MAX_TOKENS = 1024  # of a text: all heads of all layers have its square as weights


def look_at_text(
    model: Translator | TextGenerator | MaskFiller | TextClassifier,
    text: str,
    target: str | None = None,
    target_ids: Sequence[int] | None = None,
) -> AttentionView:
    """All weights of all heads; of a translator with its own translation, or a given one."""
    _check_size(model, text, target, target_ids)
    if isinstance(model, MaskFiller):
        return _look_at_blanks(model, text)
    if isinstance(model, TextClassifier):
        return _look_at_class(model, text)
    if isinstance(model, TextGenerator) and target is None:
        return reading(model, text, MAX_TOKENS)
    if target_ids is None or not isinstance(model, Translator):
        return look(model, text, target)
    source = checked_source(model, text)
    check_forced(target_ids, model.tokenizers.target)
    ids = [*(id for id in target_ids if id != EOS), EOS]
    read = as_tokens(model.tokenizers.target.pieces_of_ids(ids[:-1]), before=BOS)
    written = model.tokenizers.target.decode(ids)
    text = model.tokenizers.source.normalise(text)
    return AttentionView(
        title=f"{text} → {written}",
        model=model.names[0],
        source=TokenizedText(text, as_tokens(model.tokenizers.source.pieces(text), after=EOS)),
        target=TokenizedText(written, read),
        predictions=(*(token.text for token in read[1:]), SPECIALS[EOS]),
        maps=tuple(record(model.models[0].model, source, ids)),
    )


def _check_size(
    model: Translator | TextGenerator | MaskFiller | TextClassifier,
    text: str,
    target: str | None,
    target_ids: Sequence[int] | None,
) -> None:
    """Refuse what has too many weights to be held, or no positions for its target."""
    if isinstance(model, Translator):
        written = model.tokenizers.target.encode(target or "")[:-1]
        n_written = len(written if target_ids is None else target_ids) + 1  # read after BOS
        longest = min(MAX_TOKENS, longest_output(model))
        if n_written > longest:
            raise ConfigError(f"a target of {n_written} tokens; at most {longest} can be looked at")
        return
    n_read = len(model.tokenizer.encode(text))
    if n_read > MAX_TOKENS and isinstance(model, MaskFiller):  # others read a part of it
        raise ConfigError(f"a text of {n_read} tokens; at most {MAX_TOKENS} can be looked at")


def _look_at_blanks(filler: MaskFiller, text: str) -> AttentionView:
    """A fill-in model reads a text with blanks, or without."""
    tokenizer = filler.tokenizer
    if MASK in text:
        ids = encode_blanks(tokenizer, text, filler.mask).ids
    else:
        (ids,) = framed([tokenizer.encode(text)], filler.saved.config.max_length + 2)
    if len(ids) > filler.saved.config.max_length:
        raise ConfigError(
            f"a text of {len(ids)} tokens; {filler.name} reads {filler.saved.config.max_length}"
        )
    model: Any = filler.saved.model
    model = model.generator.encoder if filler.saved.family == "electra" else model.encoder
    return _view(model, ids, _named(tokenizer, ids, filler.mask), text, filler.name)


def _look_at_class(labeller: TextClassifier, text: str) -> AttentionView:
    """A text classifier reads a text, and the title says what it takes it for."""
    (ids,) = framed([labeller.tokenizer.encode(text)], labeller.max_length)
    (label,) = labeller.classify([text])
    tokens = _named(labeller.tokenizer, ids, len(labeller.tokenizer))
    model: Any = labeller.saved.model
    return _view(model.encoder, ids, tokens, text, labeller.name, f"{text} → {label.label}")


def _named(tokenizer: Any, ids: Sequence[int], mask: int) -> tuple[Token, ...]:
    """The tokens of BOS text EOS, in which `mask` stands for a blank."""
    tokens = [Token(SPECIALS[BOS], 0, special=True)]
    for id in ids[1:-1]:
        name = MASK if id == mask else tokenizer.symbol(id)
        begins = name.startswith("▁") or id == mask or len(tokens) == 1
        word = tokens[-1].word + begins
        tokens.append(Token(name if name == "▁" else name.removeprefix("▁"), word))
    return (*tokens, Token(SPECIALS[EOS], tokens[-1].word + 1, special=True))


def _view(
    encoder: Any, ids: Sequence[int], tokens: tuple[Token, ...], text: str, model: str,
    title: str = "",
) -> AttentionView:  # fmt: skip
    device = next(encoder.parameters()).device
    with torch.inference_mode(), record_attention(encoder) as found:
        encoder(torch.tensor([list(ids)], device=device), None)
    maps = [as_map("encoder", int(name.split(".")[-2]) + 1, found, name) for name in found]
    return AttentionView(
        title=title or text,
        model=model,
        source=TokenizedText(text, tokens),
        target=None,
        predictions=(),
        maps=tuple(sorted(maps, key=lambda one: one.layer)),
    )


def packed(
    view: AttentionView,
    *,
    precision: str = "float16",
    wanted: Sequence[tuple[str, int]] | None = None,
    size: int | None = None,
) -> bytes:
    """A view in the binary form. Without `wanted` all maps, as long as they are not too many.

    `size` is the most rows and columns of a map: larger ones keep the greatest of each block.
    """
    maps: list[dict[str, Any]] = []
    parts: list[bytes] = []
    at = 0
    for one in view.maps:
        about = described(one) | {"entropy": [round(float(bits), 4) for bits in one.entropy()]}
        about |= {"stored": None, "offset": None, "bytes": 0}
        if wanted is None or (one.kind, one.layer) in wanted:
            weights = reduced(one.weights, size)
            content = stored(weights, precision)
            if not parts or at + len(content) <= MAX_BYTES:
                about |= {"stored": weights.shape, "offset": at, "bytes": len(content)}
                parts.append(content + bytes(-len(content) % 8))
                at += len(parts[-1])
        if about["offset"] is None:
            about = {name: value for name, value in about.items() if name != "seen"}
        maps.append(about)
    header = json.dumps(
        {
            "format": FORMAT,
            "title": view.title,
            "model": view.model,
            "source": asdict(view.source),
            "target": view.target and asdict(view.target),
            "predictions": view.predictions,
            "written": [asdict(token) for token in view.written],
            "precision": precision,
            "maps": maps,
        },
        separators=(",", ":"),
    ).encode("ascii")
    header += b" " * (-(len(MAGIC) + 4 + len(header)) % 8)
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *parts])


def stored(weights: Float32[np.ndarray, "head row column"], precision: str) -> bytes:
    """Weights as bytes; in one byte, 255 stands for 1."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r}: expected {', '.join(PRECISIONS)}")
    if precision == "uint8":
        weights = np.round(weights.clip(0, 1) * 255)
    return weights.astype(PRECISIONS[precision]).tobytes()


def reduced(
    weights: Float32[np.ndarray, "head row column"], size: int | None
) -> Float32[np.ndarray, "head rows columns"]:
    """At most `size` rows and columns: the greatest weight of each block."""
    for axis in (1, 2):
        length = weights.shape[axis]
        if size is not None and length > size:
            starts = np.arange(size) * length // size
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return np.ascontiguousarray(weights)
