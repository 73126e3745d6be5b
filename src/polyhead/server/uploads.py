"""Images that come as bytes from somebody unknown."""

import io

import torch
from jaxtyping import UInt8
from torch import Tensor

from polyhead.data.images.files import FORMATS, Unreadable, decode, pillow
from polyhead.errors import DataError
from polyhead.pipelines.image_classifier import ImageClassifier

MAX_PIXELS = 25_000_000  # 75 MB as RGB: what a stranger may make us unpack


def check_reader() -> None:
    """MissingError unless images can be read here."""
    pillow()


def pixels_of(labeller: ImageClassifier, content: bytes) -> UInt8[Tensor, "channel height width"]:
    """An upload in the shape that the model reads; DataError says why it cannot be."""
    shape = labeller.shape()
    try:
        _check_claims(content)
        pixels = decode(content, height=shape.height, width=shape.width, channels=shape.channels)
    except Unreadable as error:
        raise DataError(f"the image: {error}") from None
    return torch.from_numpy(pixels)


def _check_claims(content: bytes) -> None:
    """Read the head only, and refuse what would be too large."""
    image_module, _ = pillow()
    try:
        with image_module.open(io.BytesIO(content), formats=FORMATS) as image:
            n_pixels = image.width * image.height
    except Exception:  # whatever it is, `decode` finds words for it
        return
    if n_pixels > MAX_PIXELS:
        raise Unreadable(f"{n_pixels:,} pixels are more than {MAX_PIXELS:,}")
