"""`polyhead.train`: training in one call, from Python."""

import json
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from polyhead.training.config import language_overrides, read_run
from polyhead.training.run_log import ProgressReporter
from polyhead.training.trainer import TrainResult
from polyhead.training.trainer import train as train_run

Paths = str | Path | Sequence[str | Path]
LABELLED_RECIPE = "classify-small"  # for labelled data without a recipe


def train(  # noqa: PLR0913 (one keyword per kind of file, as on the command line)
    recipe: str | None = None,
    *,
    run: str | Path,
    source: Paths = (),
    target: Paths = (),
    pairs: Paths = (),
    valid_source: Paths = (),
    valid_target: Paths = (),
    valid_pairs: Paths = (),
    text: Paths = (),
    valid_text: Paths = (),
    data: Paths = (),
    valid_data: Paths = (),
    images: Paths = (),
    valid_images: Paths = (),
    languages: str | None = None,
    init: str | Path | None = None,
    overrides: Iterable[str] = (),
    fresh: bool = False,
    accept_changes: bool = False,
    reporter: ProgressReporter | None = None,
    tensorboard: bool = False,
) -> TrainResult:
    """Train a model on a recipe's data or on your own files, or resume an interrupted run.

        polyhead.train(source="train.ko", target="train.en", run="runs/ko-en")
        polyhead.train("gpt-tiny", text="my.txt", run="runs/gpt", overrides=["train.steps=500"])
        polyhead.train("vit-cifar10", images="photos", init="runs/vit", run="runs/photos")

    recipe: name of a recipe (see `polyhead recipes`) or path of a TOML file. The default is
        "small", a Transformer, or "classify-small" for labelled data.
    run: directory of the run; training resumes if it holds an interrupted one.
    source, target: files of source and target sentences, line by line.
    pairs: files of tab-separated sentence pairs.
    text: files of plain text, for GPT, BERT and ELECTRA recipes.
    data: files of labelled texts, for text classification.
    images: directories of images with one subdirectory per class, for image classification.
    valid_source, …, valid_images: held-out data; without it part of the data is held out.
    languages: codes of source and target, such as "ko-en"; found by the data if it names them.
    init: directory of a model to initialize from.
    overrides: options as on the command line, such as "model.stack.n_layers=2".
    fresh: delete an earlier run in the directory.
    accept_changes: resume even if the configuration changed.
    reporter: receiver of progress reports.
    tensorboard: also write metrics for TensorBoard.

    Returns the path of the best model, the last step and the last validation metrics. Raises a
    subclass of PolyheadError if configuration, data or model cannot be used. Ctrl-C saves a
    checkpoint, then raises KeyboardInterrupt.
    """
    given = {
        "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
        "valid_target": valid_target, "valid_pairs": valid_pairs, "text": text,
        "valid_text": valid_text, "labelled": data, "valid_labelled": valid_data, "images": images,
        "valid_images": valid_images,
    }  # fmt: skip
    files = {
        name: [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
        for name, paths in given.items()
    }
    options = list(overrides)
    if languages is not None:
        options += language_overrides(languages)
    if init is not None:
        options.append(f"train.init={json.dumps(str(init), ensure_ascii=False)}")
    if recipe is None and files["labelled"]:
        recipe = LABELLED_RECIPE
    config = read_run(recipe, options, files if any(files.values()) else None)
    result = train_run(
        config,
        Path(run),
        fresh=fresh,
        accept_changes=accept_changes,
        reporter=reporter,
        tensorboard=tensorboard,
    )
    if result.signal is not None and signal.Signals(result.signal).name != "SIGUSR1":
        signal.raise_signal(result.signal)  # as if it had not been handled: Ctrl-C ends a loop
    return result
