"""What an image classifier's heads looked at: the picture is read once more, with hooks."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from polyhead.data.images.folders import visible
from polyhead.errors import ConfigError, PolyheadError
from polyhead.layers.attention_hooks import record_attention
from polyhead.models.vit import cut
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.render.svg import rasterize
from polyhead.viz import image_page
from polyhead.viz.draw_image import ImageViewOptions, drawn
from polyhead.viz.image_page import ImageView
from polyhead.viz.rollout import by_patch, rollout

SHOWN = 5  # classes


def look_at_image(
    labeller: ImageClassifier, path: str | Path, size: tuple[int, int] | None = None
) -> ImageView:
    """All heads of all layers for one image, and their roll-out."""
    pixels = labeller.read(Path(path), labeller.shape(size))
    return look_at_pixels(labeller, pixels, visible(Path(path).name))


def look_at_pixels(
    labeller: ImageClassifier, pixels: UInt8[Tensor, "channel height width"], name: str = ""
) -> ImageView:
    """The same for an image that was read before; `name` is for the title."""
    _, height, width = pixels.shape
    with record_attention(labeller.saved.model) as found:
        (labels,) = labeller.label(pixels[None], SHOWN)
    weights = [maps[0].float().cpu() for maps in found.values()]  # in the order of the layers
    config = labeller.saved.config
    grid = cut(height, width, config.patch)
    return ImageView(
        title=f"{name} → {labels[0].name}" if name else labels[0].name,
        model=labeller.name,
        picture=pixels.permute(1, 2, 0).contiguous().numpy(),
        labels=tuple((one.name, one.probability) for one in labels),
        pooled=config.pooling,
        layers=torch.stack([by_patch(one, grid) for one in weights]).numpy(),
        rollout=by_patch(rollout(weights), grid).numpy(),
    )


def write_view(
    view: ImageView,
    path: Path,
    *,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
) -> None:
    """Write a page (.html), a picture (.svg, .png) or the numbers (.json), by the file's ending.

    `layer` and `heads` (counted from 1) are for pictures; what is not chosen is drawn.
    """
    ending = path.suffix.lower()
    if ending not in (".html", ".htm", ".svg", ".png", ".json"):
        raise ConfigError(f"{path}: the ending must be .html, .svg, .png or .json")
    if ending in (".html", ".htm"):
        image_page.write(view, path)
        return
    if ending == ".json":
        content = f"{view.to_json()}\n".encode()
    else:
        picture = drawn(view, ImageViewOptions(layer, heads))
        content = picture.encode() if ending == ".svg" else rasterize(picture)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise PolyheadError(f"cannot write {path}: {error.strerror}") from None
