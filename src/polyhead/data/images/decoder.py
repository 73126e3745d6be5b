"""Decoding of untrusted image files with Pillow; runs in a sandbox (`polyhead.sandbox`).

    1-bit, grey, palette, RGB, CMYK      converted to the model's channels
    transparent                          composed with white
    16 bits                              divided by 257, so that 65,535 becomes 255

The largest centred part of the right aspect ratio, rotated as EXIF says, is cut out and resized.
Pillow holds an image in colour as 4 bytes per pixel; at most two copies of it exist at a time.
"""

import io
from collections.abc import Sequence

from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
MODES = {1: "L", 3: "RGB"}
BAND = 64  # rows that are converted at once
DECODER_ERRORS = (
    OSError, SyntaxError, KeyError, EOFError, ArithmeticError, TypeError, IndexError,
    AttributeError, RuntimeError,
)  # fmt: skip  # raised on damaged files


def decode(
    contents: Sequence[bytes], height: int, width: int, channels: int, max_pixels: int
) -> tuple[list[str], list[bytes]]:
    """Return for every file a reason, or "" and its pixels as rows of `channels` bytes."""
    reasons, pixels = [], []
    for content in contents:
        reason, array = "", b""
        try:
            array = _decode(content, (width, height), MODES[channels], max_pixels).tobytes()
        except UnidentifiedImageError:
            reason = f"not an image ({', '.join(FORMATS)} are read)"
        except Image.DecompressionBombError:
            reason = f"more than {max_pixels:,} pixels"
        except Refusal as refusal:
            reason = str(refusal)
        except (*DECODER_ERRORS, ValueError) as error:
            message = " ".join(str(error).split())[:120] or type(error).__name__
            reason = f"damaged or unusual: {message}"
        reasons.append(reason)
        pixels.append(array)
    return reasons, pixels


class Refusal(ValueError):
    """Reason why an image that Pillow can read is not used."""


def _decode(content: bytes, size: tuple[int, int], mode: str, max_pixels: int) -> Image.Image:
    if not content:
        raise Refusal("the file is empty")
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > max_pixels:  # by its header
            raise Refusal(f"{image.width:,} x {image.height:,} pixels, more than {max_pixels:,}")
        if image.width < 1 or image.height < 1:
            raise Refusal(f"empty image of {image.width} x {image.height} pixels")
        enough = 2 * max(size)
        image.draft(mode, (enough, enough))  # JPEG: decode no more than needed
        ImageOps.exif_transpose(image, in_place=True)
        return ImageOps.fit(_converted(image, mode), size, Image.Resampling.BICUBIC)


def _converted(image: Image.Image, mode: str) -> Image.Image:
    """Convert an image of any kind to eight bits of grey or colour, band by band."""
    if image.mode == mode and not image.has_transparency_data:
        return image
    converted = Image.new(mode, image.size)
    for top in range(0, image.height, BAND):
        box = (0, top, image.width, min(top + BAND, image.height))
        converted.paste(_band(image.crop(box)).convert(mode), box)
    return converted


def _band(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        deep = image.convert("I")
        least, most = deep.getextrema()
        if not 0 <= least <= most <= 65_535:  # type: ignore[operator]
            raise Refusal("its pixels have more than 16 bits; save it with 8")
        return deep.point(lambda value: value * (1 / 257) + 128.25 / 257).convert("L")
    if image.mode == "F":
        raise Refusal("its pixels are floating-point numbers; save it with 8 bits")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA"))
    return image
