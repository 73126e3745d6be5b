"""Scale of pixels, theirs and ours, and how a model learns to read ours instead.

    theirs    (rescale_factor · p - image_mean) / image_std        p from 0 to 255
    ours      p / 127.5 - 1
    so        theirs = factor · ours + shift                       for every channel

The patches are a product with a matrix, so that `folded` loses nothing: W' = factor · W and
b' = b + W shift. DeiT and many of timm's models have the mean and deviation of ImageNet's colours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.config import MAX_FLOAT
from polyhead.convert.reader import ForeignCheckpoint, read_json
from polyhead.convert.weight_names import Weights, shown
from polyhead.errors import CheckpointError

PIXELS = "preprocessor_config.json"
MEAN = STD = 0.5  # that of both libraries' plain ViT, and ours: from -1 to 1
TO_ONE = 1 / 255
HALF = 127.5
PATCHES = "embed.project"


@dataclass(frozen=True)
class Scale:
    """Their numbers are factor · ours + shift, for each channel."""

    factor: tuple[float, ...]
    shift: tuple[float, ...]

    @property
    def ours(self) -> bool:
        """True if it changes nothing."""
        return all(f == 1 for f in self.factor) and all(s == 0 for s in self.shift)

    def theirs(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch channel height width"]:
        """Images in our numbers as theirs."""
        factor, shift = (torch.tensor(x)[:, None, None] for x in (self.factor, self.shift))
        return images * factor + shift


def settings_of(theirs: ForeignCheckpoint) -> dict[str, Any]:
    """Return the settings of pixels in a directory; empty if there are none."""
    if theirs.path.is_file():
        return {}
    timms = theirs.values.get("pretrained_cfg")
    if not isinstance(timms, dict):
        return read_json(theirs.path / PIXELS, missing_ok=True)
    settings_found = {"image_mean": timms.get("mean"), "image_std": timms.get("std")}
    return {name: value for name, value in settings_found.items() if value is not None}


def scale(settings: Mapping[str, Any], channels: int) -> Scale:
    """Return the scale of these settings; raises CheckpointError if they are not usable."""
    rescaled, normalised = (
        settings.get(name) is not False for name in ("do_rescale", "do_normalize")
    )
    (by,) = _numbers(settings, "rescale_factor", TO_ONE, 1) if rescaled else (1.0,)
    mean = _numbers(settings, "image_mean", MEAN, channels) if normalised else [0.0] * channels
    std = _numbers(settings, "image_std", STD, channels) if normalised else [1.0] * channels
    if min(by, *std) <= 0:
        raise CheckpointError(
            f"{PIXELS}: rescale_factor = {by} and image_std = {std}: expected more than 0",
            "invalid_pixels",
        )
    middle = round(HALF * by, 12)  # 127.5 · (1 / 255) is not 0.5 to the last bit
    shift = tuple((middle - m) / s for m, s in zip(mean, std, strict=True))
    return Scale(tuple(middle / s for s in std), shift)


def folded(weights: Weights, scale: Scale) -> Weights:
    """Return the weights of an equivalent ViT that reads our pixels."""
    if scale.ours:
        return weights
    w, b = (weights[f"{PATCHES}.{name}"].double() for name in ("weight", "bias"))
    factor, shift = (torch.tensor(x, dtype=w.dtype) for x in (scale.factor, scale.shift))
    return weights | {
        f"{PATCHES}.weight": (w * factor[:, None, None]).float(),
        f"{PATCHES}.bias": (b + torch.einsum("dchw,c->d", w, shift)).float(),
    }


def _numbers(settings: Mapping[str, Any], name: str, default: float, n: int) -> list[float]:
    """One number for every channel: as many as that, or one for all of them."""
    given = settings.get(name, default)
    settings_found = given if isinstance(given, list) else [given] * n
    sane = all(type(x) in (int, float) and abs(x) <= MAX_FLOAT for x in settings_found)
    if sane and len(settings_found) != n and len(set(settings_found)) == 1:
        settings_found = settings_found[:1] * n
    if not sane or len(settings_found) != n:
        wanted = "a number" if n == 1 else f"{n} numbers"
        raise CheckpointError(
            f"{PIXELS}: {name} = {shown(given)}: expected {wanted}", "invalid_pixels"
        )
    return [float(x) for x in settings_found]
