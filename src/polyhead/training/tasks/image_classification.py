"""Image classification: images in folders, cross-entropy of their classes, accuracy."""

from dataclasses import replace
from typing import Any

from torch.nn import functional as F

from polyhead.data.batches.images import ImageBatches, image_logits
from polyhead.data.images.dataset import ImageCorpus, ImageSet, load_images
from polyhead.data.images.files import PixelShape
from polyhead.models.vit import ViTConfig
from polyhead.training.config import RunConfig
from polyhead.training.losses import SoftLabelLoss
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup


class ImageClassificationTask:
    """Assign one of several classes, which follow from the data, to each image.

    A batch has train.max_tokens // n_tokens(image) images: patches and the class token are counted.
    """

    def read_data(self, config: RunConfig) -> tuple[ImageCorpus, dict[str, str]]:
        model = config.model
        shape = PixelShape(model.height, model.width, model.channels)
        images = load_images(config.data, shape, config.train.seed)
        parts = {"training": images.train, "validation": images.valid}
        return images, {name: part.fingerprint(images.classes) for name, part in parts.items()}

    def setup(
        self, config: RunConfig, _run_dir: RunDir, corpus: ImageCorpus, _log: RunLog
    ) -> TaskSetup:
        n_classes = len(corpus.classes)
        config = replace(config, model=replace(config.model, classes=n_classes))
        batches = ImageBatches(
            corpus.train,
            n_classes,
            config.data.augment,
            tokens=tokens_per_image(config.model),
            max_tokens=config.train.max_tokens,
            seed=config.train.seed,
        )
        size = f"{config.model.height} x {config.model.width} pixels"
        return TaskSetup(
            config,
            None,
            batches,
            SoftLabelLoss(config.train.smoothing),
            lambda model, _step: validate(corpus.valid, 4 * batches.batch_size, model),
            f"{len(corpus.train):,} training images of {size} in {n_classes:,} classes, "
            f"{len(corpus.valid):,} for validation",
            {"classes": list(corpus.classes)},
        )


def tokens_per_image(config: ViTConfig) -> int:
    """Return the number of tokens of one image: patches and class tokens."""
    return config.n_tokens


def validate(images: ImageSet, batch_size: int, model: Any) -> dict[str, float]:
    """Return loss and accuracy on images without augmentation."""
    logits = image_logits(model, images.pixels, batch_size)
    loss = F.cross_entropy(logits, images.labels).item()
    accuracy = (logits.argmax(-1) == images.labels).float().mean().item()
    return {"loss": loss, "accuracy": accuracy}
