"""Image classification: `ImageClassifier.from_dir("runs/pets").classify(["cat.jpg"])`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, overload

import torch

from polyhead.data.config import DataConfig
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.images.dataset import ImageSet, load_set
from polyhead.data.labels import class_numbers
from polyhead.errors import ConfigError
from polyhead.metrics.bleu import check_lengths
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.models.vit import cut
from polyhead.pipelines.result_list import ResultList
from polyhead.pipelines.task_pipeline import TaskPipeline
from polyhead.tasks.base import Used
from polyhead.tasks.image_classification import (
    ImageClassification,
    Picture,
    as_pictures,
    batch_size,
    is_picture,
    shape_of,
)
from polyhead.tasks.text_classification import Classification, ClassificationEvaluation


@dataclass(frozen=True, repr=False)
class ImageClassifier(TaskPipeline[Classification, ClassificationEvaluation]):
    """A model that assigns images to classes; images are resized to the size of its training."""

    tasks = (ImageClassification.name,)
    use: ClassVar[str] = "classify-image"
    task: ClassVar[ImageClassification] = ImageClassification()

    def used_for(self, size: tuple[int, int] | None) -> Used:
        """Return the model for images of its own size, or of `size`, in whole patches."""
        sizes = self.saved.config
        height, width = (sizes.height, sizes.width) if size is None else size
        try:
            cut(height, width, sizes.patch)
        except ValueError as error:
            raise ConfigError(str(error), "bad_image_size") from None
        return replace(self.used, sizes=replace(sizes, height=height, width=width))

    @overload
    def classify(  # type: ignore[overload-overlap]  # the name of a file is a sequence of texts
        self, pictures: Picture, *, top: int = 1, size: tuple[int, int] | None = None
    ) -> Classification: ...
    @overload
    def classify(
        self,
        pictures: Sequence[Picture],
        *,
        top: int = 1,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = ...,
    ) -> ResultList[Classification]: ...
    def classify(
        self,
        pictures: Picture | Sequence[Picture],
        *,
        top: int = 1,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Classification | ResultList[Classification]:
        """Return the classification of an image, or of every image of a list.

        pictures: files, or uint8 arrays (height, width) or (height, width, channel).
        top: the number of classes in `probabilities`, likeliest first.
        size: resize to this (height, width) instead of the size of the training.
        progress: called with the number of images of each batch.

        Example: `classifier.classify("cat.jpg", top=3).label`
        """
        images = as_pictures(pictures, "classify")
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1", "out_of_range")
        used, labels = self.used_for(size), ResultList[Classification]()
        n_together = batch_size(used, shape_of(used.sizes))
        for start in range(0, len(images), n_together):
            inputs = self.task.read(used, [(p,) for p in images[start : start + n_together]])
            labels += self.results(inputs, top, progress)
        return labels[0] if is_picture(pictures) else labels

    __call__ = classify  # type: ignore[assignment]  # not of texts

    def evaluate(
        self,
        images: Picture | Sequence[Picture] = (),
        labels: Sequence[str | int] | None = None,
        *,
        corpus: str | None = None,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ClassificationEvaluation:
        """Return accuracy, F1 and confusion on labelled images.

        images: folders with one folder for each class, or other labelled image files; with
            `labels`, images as in `classify`.
        labels: the class of each image.
        corpus: the name of a built-in set, such as "digits", instead of `images`.
        size: resize to this (height, width) instead of the size of the training.
        progress: called with the number of images of each batch.
        map_batches: applies the model to all batches; several processes may share them.
        """
        used, pictures = self.used_for(size), as_pictures(images, "evaluate")
        notices: list[str] = []
        if labels is None:
            paths = [str(path) for path in pictures]
            config = DataConfig(images=tuple(evaluation_files(paths, "images")), corpus=corpus)
            dataset, notices = load_set(config, shape_of(used.sizes), self.classes)
        else:
            check_lengths(pictures, labels)
            numbers = class_numbers([str(label) for label in labels], self.classes, "labels")
            read = self.task.read(used, [(picture,) for picture in pictures])
            pixels = torch.stack([given.pixels for given in read])
            dataset = ImageSet.of(pixels, torch.tensor(numbers))
        return self.evaluate_examples(dataset, notices, progress, map_batches)
