"""Image classification: images in folders, cross-entropy of their classes, accuracy.

Fine-tuning (`train.init`, section 3.1 of the paper) takes over patches, class token and stack. The
head is kept if the classes are the same and else begins anew at zero; learned positions are
stretched if the images are larger or smaller.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.checkpoint import model_dir as model_folder
from polyhead.data.batches.images import ImageBatches, TokenBudget, scaled
from polyhead.data.images.dataset import Collection, ImageRequest, ImageSet, load_collection
from polyhead.data.images.folders import ImageShape
from polyhead.errors import ConfigError
from polyhead.models.vit import ViTConfig
from polyhead.training.config import RunConfig
from polyhead.training.finetune import Material, PretrainedModel, read_own, resized
from polyhead.training.losses import SoftLabelLoss
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup

HEAD, POSITIONS = ("to_logits.weight", "to_logits.bias"), "positions.table.weight"


@dataclass(frozen=True)
class ImageClassificationTask:
    """For models that say what an image shows.

    Images are brought to the size and the channels of the model; how many classes there are, and
    what they are called, follows from the data. `train.max_tokens` counts patches (and the class
    token): a batch has max_tokens // tokens-of-one-image images.
    """

    def read(self, run: RunConfig) -> Material[Collection]:
        """All images, in the size that the model reads; the model to go on from, if it can be."""
        whole = read_own(run)
        config, data = resized(run, whole).model, run.data
        if whole is not None:
            _check_stretching(whole, config)
        request = ImageRequest(
            ImageShape(config.height, config.width, config.channels),
            data.images,
            data.valid_images,
            data.corpus,
            data.on_bad_line,
            data.hold_out,
        )
        images = load_collection(request, run.train.seed)
        return Material(images, whole, images.notices)

    def fingerprints(self, material: Material[Collection]) -> dict[str, str]:
        """Both sets, with the names of the classes, and the model to go on from."""
        images = material.data
        return {
            "training": images.train.fingerprint(images.classes),
            "validation": images.valid.fingerprint(images.classes),
            **material.fingerprints,
        }

    def prepare(
        self, run: RunConfig, folder: Path, material: Material[Collection], journal: RunLog
    ) -> TaskSetup:
        """Batches of images; there is nothing to learn first."""
        del folder
        images, whole = material.data, material.whole
        n_classes = len(images.classes)
        run = resized(run, whole)
        run = replace(run, model=replace(run.model, classes=n_classes))
        rows = None if whole is None else rows_of(whole, images.classes)
        budget = TokenBudget(run.train.max_tokens, tokens_of(run.model))
        seed, change = run.train.seed, run.data.augment
        shape = f"{run.model.height} x {run.model.width} pixels"
        return TaskSetup(
            run,
            None,
            ImageBatches(images.train, n_classes, budget, change, seed),
            SoftLabelLoss(run.train.smoothing),
            partial(examine, images.valid, 4 * budget.images),
            f"{len(images.train):,} training images of {shape} in {n_classes:,} classes, "
            f"{len(images.valid):,} for validation",
            {"classes": list(images.classes)},
            begin=_beginning(whole, rows, journal),
            trained=rows is not None,
        )


def _check_stretching(whole: PretrainedModel, config: ViTConfig) -> None:
    """Free vectors can be stretched to another grid of patches; sums of two tables cannot."""
    given = whole.saved.config
    if config.positions == "axial" and config.grid != given.grid:
        raise ConfigError(
            f"train.init: {whole.path} has axial positions for {given.height} x {given.width} "
            f"pixels, which cannot be stretched to {config.height} x {config.width}"
        )


def rows_of(whole: PretrainedModel, classes: Sequence[str]) -> list[int] | None:
    """Which row of a model's head belongs to each class; None if its classes are others."""
    known = [str(name) for name in whole.saved.about.get("classes") or ()]
    if sorted(known) != sorted(classes) or len(known) != whole.saved.config.classes:
        return None
    return [known.index(name) for name in classes]


def _beginning(
    whole: PretrainedModel | None, rows: list[int] | None, journal: RunLog
) -> Callable[[nn.Module], None] | None:
    """How a new model begins, if not from nothing."""
    return None if whole is None else partial(_begin, whole, rows, journal)


def _begin(whole: PretrainedModel, rows: list[int] | None, journal: RunLog, model: Any) -> None:
    """Set the weights of a pre-trained model, as far as they fit the new images and classes."""
    old: Any = whole.saved.model
    found, new = model_folder.weights_of(old), model_folder.weights_of(model)
    if POSITIONS in found and old.grid != model.grid:
        found[POSITIONS] = old.places(model.grid).detach()
        before, after = (f"{high} x {wide}" for high, wide in (old.grid, model.grid))
        journal.notice(f"positions are stretched from {before} to {after} patches")
    for name in HEAD:
        found[name] = new[name] if rows is None else found[name][rows]
    model_folder.set_weights(model, found)
    head = "the output layer is new, for other classes" if rows is None else "its classes are kept"
    journal.notice(f"sizes and weights are those of {whole.path}; {head}")


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
