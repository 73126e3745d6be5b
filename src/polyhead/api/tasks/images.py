"""Image classification: images in folders, cross-entropy of their classes, accuracy."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from polyhead.api.reports import Journal
from polyhead.api.run import Run
from polyhead.api.tasks.contract import Prepared
from polyhead.data.image_batches import Budget, ImageBatches, scaled
from polyhead.data.image_folders import Shape
from polyhead.data.images import Collection, ImageSet, Request, load_collection
from polyhead.models.vit import ViTConfig
from polyhead.train.soft_labels import SoftLabels


@dataclass(frozen=True)
class Images:
    """For models that say what an image shows.

    Images are brought to the size and the channels of the model; how many classes there are, and
    what they are called, follows from the data. `train.max_tokens` counts patches (and the class
    token): a batch has max_tokens // tokens-of-one-image images.
    """

    use: str = "polyhead classify"

    def read(self, run: Run) -> Collection:
        """All images, in the size that the model reads."""
        config, data = run.model, run.data
        request = Request(
            Shape(config.height, config.width, config.channels),
            data.images,
            data.valid_images,
            data.corpus,
            data.on_bad_line,
            data.hold_out,
        )
        return load_collection(request, run.train.seed)

    def fingerprints(self, material: Collection) -> dict[str, str]:
        """Both sets, with the names of the classes."""
        return {
            "training": material.train.fingerprint(material.classes),
            "validation": material.valid.fingerprint(material.classes),
        }

    def prepare(self, run: Run, folder: Path, material: Collection, journal: Journal) -> Prepared:
        """Batches of images; there is nothing to learn first."""
        del folder, journal
        n_classes = len(material.classes)
        run = replace(run, model=replace(run.model, classes=n_classes))
        budget = Budget(run.train.max_tokens, tokens_of(run.model))
        seed, change = run.train.seed, run.data.augment
        shape = f"{run.model.height} x {run.model.width} pixels"
        return Prepared(
            run,
            None,
            ImageBatches(material.train, n_classes, budget, change, seed),
            SoftLabels(run.train.smoothing),
            partial(examine, material.valid, 4 * budget.images),
            f"{len(material.train):,} training images of {shape} in {n_classes:,} classes, "
            f"{len(material.valid):,} for validation",
            {"classes": list(material.classes)},
        )


def tokens_of(config: ViTConfig) -> int:
    """How many tokens a model makes of one image."""
    rows, columns = config.grid
    return rows * columns + int(config.pooling == "class")


def examine(images: ImageSet, at_once: int, model: Any, _step: int) -> dict[str, float]:
    """Loss and accuracy over all validation images, as they are."""
    logits = logits_of(model, images.pixels, at_once)
    loss = F.cross_entropy(logits, images.labels).item()
    right = (logits.argmax(-1) == images.labels).float().mean().item()
    return {"loss": loss, "accuracy": right}


@torch.inference_mode()
def logits_of(model: Any, pixels: Tensor, at_once: int) -> Tensor:
    """What a model says of each image."""
    device = next(model.parameters()).device
    parts = [model(scaled(some.to(device))).float().cpu() for some in pixels.split(at_once)]
    return torch.cat(parts)
