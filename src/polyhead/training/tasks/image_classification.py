"""Image classification: images in folders, cross-entropy of their classes, accuracy.

Fine-tuning (`train.init`, section 3.1 of the paper) adopts patches, class token and stack. The head
is kept if the classes are the same, else it starts at zero; learned positions are interpolated if
the image size changes.
"""

from dataclasses import dataclass, replace
from typing import Any

from torch.nn import functional as F

from polyhead.data.batches.images import ImageBatches, TokenBudget, image_logits
from polyhead.data.images.dataset import ImageCorpus, ImageSet, load_images
from polyhead.data.images.files import PixelShape
from polyhead.errors import ConfigError
from polyhead.models.vit import ViTConfig
from polyhead.training.config import RunConfig
from polyhead.training.finetune import (
    PretrainedModel,
    adopt_config,
    pretrained_fingerprint,
    read_pretrained,
    with_pretrained_sizes,
)
from polyhead.training.losses import SoftLabelLoss
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskData, TaskSetup


@dataclass(frozen=True)
class ImageClassificationTask:
    """Assign one of several classes to each image.

    Images are resized to the size and channels of the model; the classes follow from the data.
    `train.max_tokens` counts patches and the class token: a batch has max_tokens // n_tokens(image)
    images.
    """

    def read_data(self, config: RunConfig) -> TaskData[ImageCorpus]:
        """Read all images in the size that the model takes."""
        pretrained = read_pretrained(config)
        model = with_pretrained_sizes(config, pretrained).model
        if pretrained is not None:
            _check_interpolation(pretrained, model)
        shape = PixelShape(model.height, model.width, model.channels)
        images = load_images(config.data, shape, config.train.seed)
        fingerprints = {
            "training": images.train.fingerprint(images.classes),
            "validation": images.valid.fingerprint(images.classes),
            **pretrained_fingerprint(pretrained),
        }
        return TaskData(images, fingerprints, images.notices, pretrained)

    def setup(
        self, config: RunConfig, run_dir: RunDir, data: TaskData[ImageCorpus], _log: RunLog
    ) -> TaskSetup:
        """Cut the images into batches."""
        images, n_classes = data.corpus, len(data.corpus.classes)
        config = adopt_config(config, data.pretrained, run_dir)
        config = replace(config, model=replace(config.model, classes=n_classes))
        budget = TokenBudget(config.train.max_tokens, tokens_per_image(config.model))
        size = f"{config.model.height} x {config.model.width} pixels"
        return TaskSetup(
            config,
            None,
            ImageBatches(images.train, n_classes, budget, config.data.augment, config.train.seed),
            SoftLabelLoss(config.train.smoothing),
            LabelledImages(images.valid, 4 * budget.images),
            f"{len(images.train):,} training images of {size} in {n_classes:,} classes, "
            f"{len(images.valid):,} for validation",
            {"classes": list(images.classes)},
        )


def _check_interpolation(pretrained: PretrainedModel, config: ViTConfig) -> None:
    """Refuse another image size for axial positions, which cannot be interpolated."""
    given = pretrained.saved.config
    if config.positions == "axial" and config.grid != given.grid:
        raise ConfigError(
            f"train.init: {pretrained.path} has axial positions for {given.height} x {given.width} "
            f"pixels, which cannot be interpolated to {config.height} x {config.width}",
            "init_conflict",
        )


def tokens_per_image(config: ViTConfig) -> int:
    """Return the number of tokens of one image: patches and the class token."""
    rows, columns = config.grid
    return rows * columns + int(config.pooling == "class")


@dataclass(frozen=True)
class LabelledImages:
    """Validation images, evaluated without augmentation."""

    images: ImageSet
    batch_size: int

    def validate(self, model: Any, _step: int) -> dict[str, float]:
        """Return loss and accuracy."""
        logits = image_logits(model, self.images.pixels, self.batch_size)
        loss = F.cross_entropy(logits, self.images.labels).item()
        accuracy = (logits.argmax(-1) == self.images.labels).float().mean().item()
        return {"loss": loss, "accuracy": accuracy}
