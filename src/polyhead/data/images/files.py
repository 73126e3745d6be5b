"""Image files, which are not trusted, as arrays of bytes.

Pillow runs in a child process with limits (`decoder.py`); a file that exceeds them is unreadable.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from polyhead.errors import MissingError, install_command
from polyhead.sandbox import Limits, Sandbox

MAX_PIXELS = 100_000_000  # of one image; what fits into the memory of LIMITS is about 30 million
MAX_BYTES = 2**26  # of one file
LIMITS = Limits(megabytes=240, seconds=3)

Pixels = UInt8[np.ndarray, "channel height width"]


class PixelShape(NamedTuple):
    """The size of all images after reading."""

    height: int
    width: int
    channels: int

    @property
    def n_bytes(self) -> int:
        return self.height * self.width * self.channels


class Unreadable(Exception):
    """Reason why a file cannot be used as an image; the caller skips it or fails."""


class _Decoder(threading.local):
    """A child process for each thread that decodes."""

    def __init__(self) -> None:
        self.sandbox = Sandbox("polyhead.data.images.decoder", Unreadable, LIMITS)


_DECODER = _Decoder()


def require_pillow() -> None:
    """Raise MissingError without Pillow, an optional package; idx files and digits need none."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        message = f"reading images requires Pillow: {install_command('vision')}"
        raise MissingError(message, "missing_package") from None


def read_bytes(path: Path) -> bytes:
    """Read the contents of a file that is not too large."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be read") from None


def decode(content: bytes, shape: PixelShape, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Decode the contents of a file to an array of this shape."""
    (pixels,) = decode_all([content], shape, max_pixels)
    if isinstance(pixels, Unreadable):
        raise pixels
    return pixels


def decode_all(
    contents: Sequence[bytes], shape: PixelShape, max_pixels: int = MAX_PIXELS
) -> list[Pixels | Unreadable]:
    """Decode files; one that cannot be used becomes the reason for it."""
    require_pillow()
    try:
        reasons, arrays = _DECODER.sandbox.call("decode", *shape, max_pixels, contents=contents)
    except Unreadable as reason:
        if len(contents) == 1:
            return [reason]
        return [decode_all([content], shape, max_pixels)[0] for content in contents]
    return [
        Unreadable(reason) if reason else _as_array(array, shape)
        for reason, array in zip(reasons, arrays, strict=True)
    ]


def _as_array(rows: bytes, shape: PixelShape) -> Pixels:
    pixels = np.frombuffer(rows, np.uint8).reshape(shape)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
