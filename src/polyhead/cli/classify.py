"""`polyhead classify`: the classes of lines of text, or of image files."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Exit, Option

from polyhead.cli.options import (
    Device,
    Encoding,
    ImageSize,
    JsonLines,
    Model,
    check_text,
    read_inputs,
    split_inputs,
)
from polyhead.cli.streams import counting, say, utf8_stdout
from polyhead.cli.use import write_results
from polyhead.errors import ConfigError, DataError
from polyhead.tasks.verbs import ClassifyOptions

if TYPE_CHECKING:
    from polyhead.pipelines.image_classifier import ImageClassifier

SIZE = re.compile(r"(\d{1,5})(?:x(\d{1,5}))?")


def classify(
    model: Model,
    files: list[str] | None = Argument(
        None,
        help="Image files; or a text in quotes, or text files, one text per line (default: stdin).",
        metavar="[FILE|TEXT]...",
    ),
    pair: str | None = Option(None, help="Second text of every pair (default: after a tab)."),
    scores: bool = Option(
        False, "--scores", help="Append the probability of every class (text only)."
    ),
    top: int = Option(1, help="Number of classes to show (images only)."),
    size: ImageSize = None,
    jsonl: JsonLines = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Classify lines of text, or image files.

    Of several labels, those above 0.5 are printed, divided by |; of numbers, the number. A model of
    pairs reads two texts per line, divided by a tab.

    polyhead classify runs/reviews "정말 재미있어요."
    polyhead classify runs/reviews < reviews.txt
    polyhead classify runs/reviews --jsonl < reviews.txt
    polyhead classify runs/nli "It is raining." --pair "The sun is out."
    polyhead classify runs/digits picture.png other.png --top 3
    """
    from polyhead.pipelines.image_classifier import ImageClassifier
    from polyhead.pipelines.load import load
    from polyhead.pipelines.task_pipeline import TextClassifier
    from polyhead.tasks.text_classification import with_pairs

    classifier = load(model, device=device)
    if isinstance(classifier, ImageClassifier):
        if scores or pair is not None:
            message = "--scores and --pair are for text; for images write --top"
            raise ConfigError(message, "conflicting_options")
        images = [Path(file) for file in files or ()]
        raise Exit(classify_images(classifier, images, top=top, size=size, jsonl=jsonl))
    if not isinstance(classifier, TextClassifier):
        classifier = TextClassifier.from_saved(  # raises, and names the right command
            classifier.saved, classifier.name, classifier.device
        )
    if scores and jsonl:
        raise ConfigError("--scores has no effect: --jsonl has the scores", "no_effect")
    if size is not None or top != 1:
        raise ConfigError("--top and --size are for images only", "conflicting_options")
    _, inputs = split_inputs([str(model), *(files or ())])
    second = None if pair is None else check_text(pair, "--pair")
    with utf8_stdout() as out:
        for lines in read_inputs(inputs, encoding):
            rows = with_pairs(lines, None if second is None else [second] * len(lines))
            write_results(out, classifier, rows, ClassifyOptions(scores), jsonl=jsonl)


def classify_images(
    classifier: "ImageClassifier", files: Sequence[Path], *, top: int, size: str | None, jsonl: bool
) -> int:
    """Print path, classes and probabilities of every image; return 4 if one cannot be read."""
    from polyhead.tasks.image_classification import batch_size, shape_of

    if not files:
        raise ConfigError("no image given, e.g. polyhead classify MODEL image.png", "no_input")
    if top < 1:
        raise ConfigError(f"--top {top}: expected at least 1", "out_of_range")
    used, n_failed = classifier.used_for(read_size(size)), 0
    task, n_together = classifier.task, batch_size(used, shape_of(used.sizes))
    with counting("classifying", len(files)) as progress:
        for start in range(0, len(files), n_together):
            images = []
            for path in files[start : start + n_together]:
                try:
                    images += task.read(used, [(path,)])
                except DataError as error:
                    n_failed += 1
                    say(f"polyhead: {error}")
            labels = classifier.results(images, top) if images else []
            for given, label in zip(images, labels, strict=True):
                shares = label.probabilities.items()
                classes = [{"name": name, "probability": p} for name, p in shares]
                content = {"image": given.text, "labels": classes}
                columns = f"{given.text}\t{task.row(label, top)}"
                print(json.dumps(content, ensure_ascii=False) if jsonl else columns.rstrip("\n"))
            progress(n_together)
    return DataError.exit_code if n_failed else 0


def read_size(size: str | None) -> tuple[int, int] | None:
    """Return height and width in pixels from `56` or `56x48`."""
    if size is None:
        return None
    match = SIZE.fullmatch(size.strip().lower())
    if match is None:
        message = f"--size {size}: expected pixels, e.g. 56 or 56x48 (height x width)"
        raise ConfigError(message, "bad_size")
    return int(match[1]), int(match[2] or match[1])
