"""Images: pictures of users, and the task `image_classification`.

A batch of training has train.max_tokens // n_tokens(image) images, with the class token as a patch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhead.data.images.files import PixelShape, Unreadable, decode, read_bytes
from polyhead.errors import ConfigError, DataError
from polyhead.tasks.base import Facts, Measured, Outputs, Part, Stage, Task, TrainingCorpus, Used
from polyhead.tasks.text_classification import Classification, ClassificationEvaluation

if TYPE_CHECKING:
    from polyhead.metrics.perplexity import MapBatches

MAX_TOKENS = 2**14  # of one batch, about
Picture = str | Path | np.ndarray  # a file, or bytes: (height, width) or (height, width, channel)


def is_picture(given: object) -> bool:
    """Return True for one image; an array of several has four axes."""
    return isinstance(given, str | Path) or (isinstance(given, np.ndarray) and given.ndim < 4)


def as_pictures(given: object, method: str) -> list[Picture]:
    """Return an image, or many, as a list; ConfigError for anything else."""
    if isinstance(given, str | Path | np.ndarray) and is_picture(given):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping):
        pictures: list[Picture] = list(given)
        if all(map(is_picture, pictures)):
            return pictures
    raise ConfigError(
        f"{method} takes an image or a list of images, not {type(given).__name__}; an image is a "
        "file or an array",
        "not_an_image",
    )


def shape_of(sizes: Any) -> PixelShape:
    """Return the shape of the images that a model of these sizes reads."""
    return PixelShape(sizes.height, sizes.width, sizes.channels)


def pixels_of_array(picture: np.ndarray, shape: PixelShape) -> Any:
    """Return bytes in memory, resized to a shape."""
    import torch

    from polyhead.data.images.dataset import fitted, with_channels

    array = np.atleast_3d(picture)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (1, 3) or not array.size:
        raise DataError(
            f"an image of {picture.dtype} with shape {picture.shape}: expected bytes (uint8) of "
            "height, width and channel, of which there are 1 or 3",
            "bad_image_array",
        )
    pixels = torch.from_numpy(array.copy()).permute(2, 0, 1)[None]
    return fitted(with_channels(pixels, shape.channels), shape)[0]


def batch_size(used: Used, shape: PixelShape) -> int:
    """Return how many images of a shape are read together."""
    from polyhead.models.vit import cut

    rows, columns = cut(shape.height, shape.width, used.sizes.patch)
    return max(1, MAX_TOKENS // (rows * columns))


def image_logits(model: Any, pixels: Any) -> Any:
    """Return the logits of a model for each image."""
    import torch

    from polyhead.data.batches.images import scaled

    with torch.inference_mode():
        return model(scaled(pixels.to(next(model.parameters()).device))).float().cpu()


@dataclass(frozen=True)
class PictureInput:
    """An image of a user as `pixels` in bytes, or a labelled set, as `data.images` reads it."""

    text: str
    pixels: Any = None
    images: Any = None
    parts: Sequence[Part] = ()


class ImageClassification(Task[PictureInput, list[float], Classification]):
    """Assign one of several classes, which follow from the data, to each image."""

    name, verb, tag = "image_classification", "classify", "image-classification"
    metrics, outputs, option = ("loss", "accuracy"), True, "images"
    result_class = Classification
    pipeline = "polyhead.pipelines.image_classifier:ImageClassifier"

    def facts(self, data: TrainingCorpus) -> Facts:
        classes, model = list(data.corpus.classes), data.config.model
        size = f" of {model.height} x {model.width} pixels in {len(classes):,} classes"
        config = replace(data.config, model=replace(model, classes=len(classes)))
        return Facts(config, {"classes": classes}, of_what=size)

    def batches(self, data: TrainingCorpus) -> Any:
        from polyhead.data.batches.images import ImageBatches

        corpus, config = data.corpus, data.config
        return ImageBatches(
            corpus.train, len(corpus.classes), config.data.augment, tokens=config.model.n_tokens,
            max_tokens=config.train.max_tokens, seed=config.train.seed,
        )  # fmt: skip

    def loss(self, config: Any, _about: Mapping[str, Any]) -> Any:
        from polyhead.tasks.losses import SoftLabelLoss

        return SoftLabelLoss(config.train.smoothing)

    def read(self, used: Used, rows: Sequence[tuple[Any, ...]]) -> list[PictureInput]:
        import torch

        shape, inputs = shape_of(used.sizes), []
        for (picture,) in rows:
            if isinstance(picture, np.ndarray):
                inputs.append(PictureInput("", pixels_of_array(picture, shape)))
                continue
            try:
                pixels = decode(read_bytes(Path(picture)), shape)
            except Unreadable as error:
                raise DataError(f"{picture}: {error}", "unreadable_image") from None
            inputs.append(PictureInput(str(picture), torch.tensor(pixels)))  # read-only bytes
        return inputs

    def example(self, _used: Used, examples: Any) -> list[PictureInput]:
        """Return a set of labelled images as one input."""
        return [PictureInput("", images=examples)]

    def run(
        self, used: Used, inputs: Sequence[PictureInput], _top: int,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> list[list[float]]:  # fmt: skip
        """Return the probabilities of all classes."""
        import torch

        from polyhead.decoding.hypotheses import log_normaliser

        def compute(pixels: Any) -> Any:
            logits = image_logits(used.model, pixels)
            log_normaliser(logits)  # raises if they are not finite
            progress(len(pixels))
            return logits.softmax(-1).tolist()

        pixels = torch.stack([given.pixels for given in inputs])
        channels, height, width = pixels[0].shape
        size = batch_size(used, PixelShape(height, width, channels))
        return [row for batch in map_batches(compute, pixels.split(size)) for row in batch]

    def result(
        self, used: Used, _given: PictureInput, output: list[float], top: int
    ) -> Classification:
        pairs = zip(used.about["classes"], output, strict=True)
        shares = dict(sorted(pairs, key=lambda pair: -pair[1])[:top])
        return Classification(next(iter(shares)), shares)

    def measure(
        self, used: Used, inputs: Sequence[PictureInput], _labels: Any, stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return loss and accuracy on images without augmentation."""
        import torch
        from torch.nn import functional as F

        from polyhead.decoding.hypotheses import log_normaliser

        (given,), classes = inputs, used.about["classes"]
        images = given.images

        def score(chosen: Any) -> tuple[float, list[int]]:
            logits = image_logits(used.model, images.pixels_of(chosen))
            if stage == "evaluate":
                log_normaliser(logits)  # raises if they are not finite
            total = F.cross_entropy(logits, images.labels[chosen], reduction="sum").item()
            progress(len(chosen))
            return total, logits.argmax(-1).tolist()

        numbers = torch.arange(len(images)).split(batch_size(used, images.shape))
        totals, best = zip(*map_batches(score, numbers), strict=True)
        predicted, expected = [number for part in best for number in part], images.labels.tolist()
        n_correct = sum(map(int.__eq__, predicted, expected))
        figures = {"loss": sum(totals) / len(expected), "accuracy": n_correct / len(expected)}
        if stage == "evaluate":
            return Measured(figures, ClassificationEvaluation.of(expected, predicted, classes))
        lines, references = ([classes[n] for n in column] for column in (predicted, expected))
        return Measured(figures, outputs=Outputs(lines, references, "accuracy"))

    def row(self, result: Classification, _top: int) -> str:
        shares = result.probabilities.items()
        return "\t".join(f"{name}\t{share:.4f}" for name, share in shares) + "\n"
