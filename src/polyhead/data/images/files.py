"""Decoding of one image file, which is not trusted, to an array of bytes.

    1-bit, grey, palette, RGB, CMYK      converted to the model's channels
    transparent                          composed with white
    16 bits                              divided by 257, so that 65,535 becomes 255

The largest centred part of the right aspect ratio, rotated as EXIF says, is cut out and resized.
"""

import io
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from polyhead.errors import MissingError

MAX_PIXELS = 100_000_000  # of one image, 300 MB as RGB
MAX_BYTES = 2**28  # of one file
TOO_MANY = f"more than {MAX_PIXELS:,}"
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
MODES = {1: "L", 3: "RGB"}

Pixels = UInt8[np.ndarray, "channel height width"]


class PixelShape(NamedTuple):
    """The size of all images after reading."""

    height: int
    width: int
    channels: int


class Unreadable(Exception):
    """Reason why a file cannot be used as an image; the caller skips it or fails."""


def pillow() -> Any:
    """Import Pillow, an optional package; idx files and digits do not need it."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        message = "reading images requires Pillow: pip install 'polyhead[vision]'"
        raise MissingError(message, "missing_package") from None
    return Image, ImageOps


def read_bytes(path: Path) -> bytes:
    """Read the contents of a file that is not too large."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be read") from None


def decode(content: bytes, shape: PixelShape) -> Pixels:
    """Decode the contents of a file to an array of this shape."""
    image_module, ops = pillow()
    height, width, channels = shape
    if not content:
        raise Unreadable("the file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # handled below
            with image_module.open(io.BytesIO(content), formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:  # by its header
                    raise Unreadable(f"{image.width:,} x {image.height:,} pixels are {TOO_MANY}")
                if image.width < 1 or image.height < 1:
                    raise Unreadable(f"empty image of {image.width} x {image.height} pixels")
                enough = 2 * max(height, width)
                image.draft(MODES[channels], (enough, enough))  # JPEG: decode no more than needed
                plain = convert(ops.exif_transpose(image), MODES[channels])
                fitted = ops.fit(plain, (width, height), image_module.Resampling.BICUBIC)
    except image_module.UnidentifiedImageError:
        raise Unreadable(f"not an image ({', '.join(FORMATS)} are read)") from None
    except image_module.DecompressionBombError:
        raise Unreadable(f"{TOO_MANY} pixels") from None
    except (OSError, SyntaxError, ValueError, KeyError, EOFError, ArithmeticError, TypeError,
            IndexError, MemoryError) as error:  # fmt: skip  # raised by decoders on damaged files
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise Unreadable(f"damaged or unusual: {reason}") from None
    array = np.array(fitted, dtype=np.uint8)
    return np.ascontiguousarray(np.atleast_3d(array).transpose(2, 0, 1))


def convert(image: Any, mode: str) -> Any:
    """Convert an image of any kind to eight bits of grey or colour."""
    image_module, _ = pillow()
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64)
        if deep.size and (deep.min() < 0 or deep.max() > 65_535):
            raise Unreadable("its pixels have more than 16 bits; save it with 8")
        image = image_module.fromarray(((deep + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        raise Unreadable("its pixels are floating-point numbers; save it with 8 bits")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        background = image_module.new("RGBA", colours.size, "white")
        image = image_module.alpha_composite(background, colours)
    return image.convert(mode)
