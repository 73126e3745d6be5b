r"""Binary form of an attention view, for a client that wants one layer of many.

    bytes 0 to 7     "PHATTN1\n"
    bytes 8 to 11    the header's length H, little-endian
    H bytes          the header, JSON: polyhead-attention-1 with the place of each map's weights
    the rest         the weights of the requested maps, (head, query, key)

Weights start at multiples of eight bytes, so that a script can use them in place.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from polyhead.errors import ConfigError
from polyhead.viz.views import AttentionView

MAGIC = b"PHATTN1\n"
FORMAT = "polyhead-attention-binary-1"
PRECISIONS = {"float32": "<f4", "float16": "<f2", "uint8": "u1"}
MAX_BYTES = 2**24  # of weights


def to_binary(
    view: AttentionView,
    *,
    precision: str = "float16",
    requested: Sequence[tuple[str, int]] | None = None,
    size: int | None = None,
) -> bytes:
    """Return a view in the binary form, with the weights of as many maps as `MAX_BYTES` allows.

    requested: kind and layer of the maps whose weights are included; all if omitted.
    size: the largest number of rows and columns of a map; see `max_pool`.
    """
    maps: list[dict[str, Any]] = []
    parts: list[bytes] = []
    offset = 0
    for attention in view.maps:
        entropy = [round(float(bits), 4) for bits in attention.entropy()]
        fields = attention.describe() | {"entropy": entropy}
        fields |= {"stored": None, "offset": None, "bytes": 0}
        if requested is None or (attention.kind, attention.layer) in requested:
            weights = max_pool(attention.weights, size)
            content = quantize(weights, precision)
            if not parts or offset + len(content) <= MAX_BYTES:
                fields |= {"stored": weights.shape, "offset": offset, "bytes": len(content)}
                parts.append(content + bytes(-len(content) % 8))
                offset += len(parts[-1])
        if fields["offset"] is None:
            fields.pop("seen", None)
        maps.append(fields)
    described = view.describe() | {"format": FORMAT, "precision": precision, "maps": maps}
    header = json.dumps(described, separators=(",", ":")).encode("ascii")
    header += b" " * (-(len(MAGIC) + 4 + len(header)) % 8)
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *parts])


def quantize(weights: Float32[np.ndarray, "head row column"], precision: str) -> bytes:
    """Return weights as bytes; with uint8, 255 stands for 1."""
    if precision not in PRECISIONS:
        expected = ", ".join(PRECISIONS)
        raise ConfigError(f"precision {precision!r}: expected {expected}", "unknown_precision")
    if precision == "uint8":
        weights = np.round(weights.clip(0, 1) * 255)
    return weights.astype(PRECISIONS[precision]).tobytes()


def max_pool(
    weights: Float32[np.ndarray, "head row column"], size: int | None
) -> Float32[np.ndarray, "head rows columns"]:
    """Reduce to at most `size` rows and columns: the largest weight of each block."""
    for axis in (1, 2):
        length = weights.shape[axis]
        if size is not None and length > size:
            starts = np.arange(size) * length // size
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return np.ascontiguousarray(weights)
