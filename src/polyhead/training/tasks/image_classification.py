"""Image classification: images in folders, cross-entropy of their classes, accuracy."""

from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from polyhead.data.batches.images import ImageBatches, image_logits
from polyhead.data.images.dataset import ImageCorpus, ImageSet, read_image_corpus
from polyhead.data.images.files import PixelShape
from polyhead.tasks.base import Outputs
from polyhead.tasks.losses import SoftLabelLoss
from polyhead.training.config import RunConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import READING, RunLog
from polyhead.training.tasks.base import TaskSetup


class ImageClassificationTask:
    """Assign one of several classes, which follow from the data, to each image.

    A batch has train.max_tokens // n_tokens(image) images: patches and the class token are counted.
    """

    def read_data(self, config: RunConfig) -> tuple[ImageCorpus, dict[str, str]]:
        model = config.model
        shape = PixelShape(model.height, model.width, model.channels)
        return read_image_corpus(config.data, shape, config.train.seed, READING.get())

    def setup(
        self, config: RunConfig, _run_dir: RunDir, corpus: ImageCorpus, _log: RunLog
    ) -> TaskSetup:
        n_classes = len(corpus.classes)
        config = replace(config, model=replace(config.model, classes=n_classes))
        batches = ImageBatches(
            corpus.train,
            n_classes,
            config.data.augment,
            tokens=config.model.n_tokens,
            max_tokens=config.train.max_tokens,
            seed=config.train.seed,
        )
        size = f"{config.model.height} x {config.model.width} pixels"
        return TaskSetup(
            config,
            None,
            batches,
            SoftLabelLoss(config.train.smoothing),
            lambda model, _step, processes: validate(
                corpus.valid, 4 * batches.batch_size, model, processes
            ),
            f"{len(corpus.train):,} training images of {size} in {n_classes:,} classes, "
            f"{len(corpus.valid):,} for validation",
            {"classes": list(corpus.classes)},
            lambda model, processes: outputs(corpus, 4 * batches.batch_size, model, processes),
        )


def outputs(corpus: ImageCorpus, batch_size: int, model: Any, processes: Processes) -> Outputs:
    """Return the classes of all validation images."""
    images = corpus.valid

    def predict(chosen: torch.Tensor) -> list[str]:
        numbers = image_logits(model, images.pixels_of(chosen), batch_size).argmax(-1)
        return [corpus.classes[number] for number in numbers.tolist()]

    parts = processes.map(predict, torch.arange(len(images)).split(batch_size))
    references = [corpus.classes[number] for number in images.labels.tolist()]
    return Outputs([name for part in parts for name in part], references, "accuracy")


def validate(
    images: ImageSet, batch_size: int, model: Any, processes: Processes
) -> dict[str, float]:
    """Return loss and accuracy on images without augmentation."""

    def score(start: int) -> tuple[float, int]:
        chosen = torch.arange(start, min(start + batch_size, len(images)))
        labels = images.labels[chosen]
        logits = image_logits(model, images.pixels_of(chosen), batch_size)
        total = F.cross_entropy(logits, labels, reduction="sum").item()
        return total, int((logits.argmax(-1) == labels).sum())

    totals, n_correct = zip(*processes.map(score, range(0, len(images), batch_size)), strict=True)
    return {"loss": sum(totals) / len(images), "accuracy": sum(n_correct) / len(images)}
