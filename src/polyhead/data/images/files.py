"""One image file becomes a small array of bytes, or an `Unreadable` that says why not.

A file is a stranger's: its format must be one of the usual ones (others call outside programs), its
size in pixels is read from the header and refused before anything is decoded, and whatever is wrong
inside is one line. Photographs are turned as their EXIF says. The largest piece of the right shape
is cut from the middle and resized: nothing is squeezed, the margins are lost.

    1-bit, grey, palette, RGB, CMYK      converted to the model's channels
    transparent                          laid on white
    16 bits                              divided by 257, so that 65,535 becomes 255
"""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from polyhead.errors import MissingError

MAX_PIXELS = 100_000_000  # of one image: more than any camera of a telephone makes, 300 MB as RGB
MAX_BYTES = 2**28  # of one file
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
MODES = {1: "L", 3: "RGB"}

Pixels = UInt8[np.ndarray, "channel height width"]


class Unreadable(Exception):
    """Why a file cannot be used as an image. Whoever reads many decides what becomes of them."""


def pillow() -> Any:
    """The package Pillow, which is an extra: idx files and digits do without."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingError("reading images needs Pillow: pip install 'polyhead[vision]'") from None
    return Image, ImageOps


def read_image(path: Path, *, height: int, width: int, channels: int) -> Pixels:
    """A file as so many pixels."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES >> 20} MB")
        content = path.read_bytes()
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be read") from None
    return decode(content, height=height, width=width, channels=channels)


def decode(content: bytes, *, height: int, width: int, channels: int) -> Pixels:
    """The contents of a file as so many pixels."""
    image_module, ops = pillow()
    if not content:
        raise Unreadable("the file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what is refused or repaired here anyway
            with image_module.open(io.BytesIO(content), formats=FORMATS) as image:
                check_size(image.width, image.height)
                enough = 2 * max(height, width)
                image.draft(MODES[channels], (enough, enough))  # JPEG: decode no more than needed
                upright = ops.exif_transpose(image)
                plain = convert(upright, MODES[channels])
                fitted = ops.fit(plain, (width, height), image_module.Resampling.BICUBIC)
    except image_module.UnidentifiedImageError:
        raise Unreadable(f"not an image ({', '.join(FORMATS)} are read)") from None
    except image_module.DecompressionBombError:
        raise Unreadable(f"claims more than {MAX_PIXELS:,} pixels") from None
    except (OSError, SyntaxError, ValueError, KeyError, EOFError, ArithmeticError, TypeError,
            IndexError, MemoryError) as error:  # fmt: skip  # what decoders raise on broken files
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise Unreadable(f"damaged or unusual: {why}") from None
    array = np.array(fitted, dtype=np.uint8)
    return np.ascontiguousarray(np.atleast_3d(array).transpose(2, 0, 1))


def check_size(width: int, height: int) -> None:
    """Refuse what would fill the memory, by what the header says."""
    if width * height > MAX_PIXELS:
        raise Unreadable(f"{width:,} x {height:,} pixels are more than {MAX_PIXELS:,}")
    if width < 1 or height < 1:
        raise Unreadable(f"{width} x {height} pixels are no image")


def convert(image: Any, mode: str) -> Any:
    """An image of any kind in eight bits of grey or colour."""
    image_module, _ = pillow()
    if image.mode.startswith("I"):
        image = image_module.fromarray(_eight_bits(np.asarray(image)))
    if image.mode == "F":
        raise Unreadable("its pixels are floating-point numbers; save it with 8 bits")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        paper = image_module.new("RGBA", colours.size, "white")
        image = image_module.alpha_composite(paper, colours)
    return image.convert(mode)


def _eight_bits(deep: np.ndarray) -> np.ndarray:
    """Sixteen bits as eight; more than sixteen have no scale that one could know."""
    if deep.size and (deep.min() < 0 or deep.max() > 65_535):
        raise Unreadable("its pixels have more than 16 bits; save it with 8")
    return np.asarray((deep.astype(np.int64) + 128) // 257, dtype=np.uint8)
