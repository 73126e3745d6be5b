"""`polyhead.train`: training in one call, from Python and from the command line."""

import json
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch.utils.data import Dataset

from polyhead.errors import ConfigError, PolyheadError
from polyhead.training.callbacks import Callback
from polyhead.training.config import (
    DEFAULT_RECIPE,
    RunConfig,
    fitting_recipe,
    language_overrides,
    read_run,
)
from polyhead.training.display import ProgressKind, choose_display
from polyhead.training.launcher import is_started_by_torchrun, launch
from polyhead.training.loggers import create_loggers
from polyhead.training.memory_data import OPTIONS, MemoryData, split_data
from polyhead.training.result import TrainResult, read_result
from polyhead.training.trainer import train as train_run

Data = str | Path | Iterable[object] | Dataset[object]
Overrides = Iterable[str] | Mapping[str, object]
DEFAULT_RUN = "mine"
SETTINGS = {  # parameter of `train`, option of the command line: setting
    "init": "train.init", "device": "train.device", "encoding": "data.encoding",
    "on_bad_line": "data.on_bad_line", "source_column": "data.source_key",
    "target_column": "data.target_key", "text_column": "data.text_key",
    "text_pair_column": "data.text_pair_key", "label_column": "data.label_key",
}  # fmt: skip


@dataclass(frozen=True)
class Session:
    """Arguments that concern only one call, not the run."""

    fresh: bool = False
    accept_changes: bool = False
    log_to: str | Iterable[str] = ()
    progress: ProgressKind = "auto"
    callbacks: Sequence[object] = ()


@dataclass(frozen=True)
class TrainRequest:
    """A checked call: the configuration, the directory of the run, and data in memory."""

    config: RunConfig
    folder: Path
    memory: MemoryData | None
    words: list[str]  # of the command line

    def train(self, session: Session) -> TrainResult:
        """Train in this process."""
        loggers = create_loggers(session.log_to)
        return train_run(
            self.config,
            self.folder,
            fresh=session.fresh,
            accept_changes=session.accept_changes,
            callbacks=[choose_display(session.progress), *loggers, *session.callbacks],
            memory=self.memory,
        )

    def train_in_processes(self, session: Session, n_processes: int) -> TrainResult:
        """Train in several processes, which run the command line, and wait for them."""
        if self.memory is not None or session.callbacks:
            raise ConfigError(
                f"processes = {n_processes}: data in memory and callbacks stay in this process. "
                "Give files, or start the script itself with torchrun.",
                "not_in_processes",
            )
        words = [*self.words, "--progress", session.progress]
        words += ["--fresh"] * session.fresh + ["--accept-changes"] * session.accept_changes
        for name in [session.log_to] if isinstance(session.log_to, str) else session.log_to:
            words += ["--log-to", name]
        code = launch(words, n_processes)
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if code:
            raise PolyheadError(
                f"a process of {self.folder} ended with exit code {code}; its message is above",
                "process_failed",
            )
        return read_result(self.folder)


def read_request(
    recipe: str | None, overrides: Overrides, run: str | Path | None, options: Mapping[str, object]
) -> TrainRequest:
    """Check the arguments of `polyhead.train` or of `polyhead train`, which have equal names.

    options: data by the names of OPTIONS, settings by those of SETTINGS, and languages.
    """
    folder = Path(run or Path("runs") / (Path(recipe).stem if recipe else DEFAULT_RUN))
    files, memory = split_data({name: options[name] for name in OPTIONS}, folder)
    changes = list(as_overrides(overrides))
    if (languages := options["languages"]) is not None:
        changes += language_overrides(str(languages))
    given = {SETTINGS[name]: options[name] for name in SETTINGS if options[name] is not None}
    changes += as_overrides({name: str(value) for name, value in given.items()})
    if options["label_column"] is not None and "images" in files and memory is None:
        raise ConfigError("--label-column has no effect on files of images", "no_effect")
    init = options["init"]
    recipe = recipe or fitting_recipe(init if init is None else str(init), files)
    config = read_run(recipe or default_recipe(files), changes, files or None)
    names = {option: name for name, option in OPTIONS.items()}
    words = ["train", recipe or default_recipe(files), *changes, "--run", str(folder)]
    for option, paths in files.items():
        words += [word for path in paths for word in (f"--{names[option].replace('_', '-')}", path)]
    return TrainRequest(config, folder, memory, words)


def as_overrides(overrides: Overrides) -> Iterator[str]:
    """Yield overrides such as "train.steps=5" of strings, or of a dict with dots or dicts."""
    if isinstance(overrides, str):
        yield overrides
    elif not isinstance(overrides, Mapping):
        yield from overrides
    else:
        for name, value in overrides.items():
            if isinstance(value, Mapping):
                yield from as_overrides({f"{name}.{key}": v for key, v in value.items()})
            elif value is None:
                raise ConfigError(
                    f"overrides: {name} is None. Leave it out to keep its default.", "bad_override"
                )
            else:
                yield f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"


def default_recipe(files: Mapping[str, object]) -> str:
    """Return the recipe for these files, or raise if they may be for several kinds of models."""
    if not files:
        raise ConfigError(
            "nothing to train on. Name a recipe (see `polyhead recipes`), or give your own text "
            "with --source FILE --target FILE",
            "no_recipe",
        )
    for option, recipe in (("text", "gpt-tiny"), ("images", "vit-cifar10")):
        if option in files and "labelled" not in files:
            raise ConfigError(
                f"--{option} needs a recipe, e.g. polyhead train {recipe} --{option} PATH (see "
                "`polyhead recipes`)",
                "no_recipe",
            )
    return "classify-small" if "labelled" in files else DEFAULT_RECIPE


def train(  # noqa: PLR0913 (one keyword per option of the command line)
    recipe: str | None = None,
    *,
    run: str | Path | None = None,
    source: Data | None = None,
    target: Data | None = None,
    pairs: Data | None = None,
    valid_source: Data | None = None,
    valid_target: Data | None = None,
    valid_pairs: Data | None = None,
    text: Data | None = None,
    valid_text: Data | None = None,
    data: Data | None = None,
    valid_data: Data | None = None,
    images: Data | None = None,
    valid_images: Data | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    languages: str | None = None,
    init: str | Path | None = None,
    encoding: str | None = None,
    on_bad_line: Literal["skip", "fail"] | None = None,
    device: str | None = None,
    overrides: Overrides = (),
    fresh: bool = False,
    accept_changes: bool = False,
    processes: int = 1,
    log_to: str | Iterable[str] = (),
    progress: ProgressKind = "auto",
    callbacks: Iterable[Callback] = (),
) -> TrainResult:
    """Train a model on a recipe's data or on your own, or resume an interrupted run.

        polyhead.train(source=["안녕하세요."], target=["Hello."], run="runs/ko-en")
        polyhead.train("gpt-tiny", text="my.txt", overrides={"train.steps": 500})

    recipe: name of a recipe, path of a TOML file, or directory of a model whose configuration to
        use; default that of `init`, "small", or "classify-small" for `data`
    run: directory of the run, which is resumed if it exists; default runs/RECIPE or runs/mine
    source, target: source and target sentences
    pairs: sentence pairs, or rows of which two columns are used
    text: plain text, for GPT, BERT and ELECTRA recipes
    data: labelled texts: (text, label), or rows with such columns
    images: (array, labels), items of (image, label), or directories with a subdirectory per class
    valid_source, …, valid_images: held-out data; without it part of the data is held out
    source_column, target_column, text_column, text_pair_column, label_column: name of a column,
        or its number from 1
    languages: of source and target, such as "ko-en"; found by the data if it names them
    init: directory of a model to initialize from
    encoding: of all files, such as "cp949"
    on_bad_line: "skip" (the default) or "fail"
    device: "auto" (the default), "cpu", "cuda" or "mps"
    overrides: settings, {"train.epochs": 1, "model": {"stack": {"n_layers": 2}}} or strings
    fresh: delete an earlier run in the directory
    accept_changes: resume even if the configuration changed
    processes: on this machine, which share the batches of every update; needs data in files
    log_to: "tensorboard", "wandb" and "mlflow", separated by commas or in a list
    progress: "auto", "bar", "notebook", "lines" or "none"
    callbacks: objects with any of the methods of `polyhead.Callback`

    Data is a file, a list of files, or examples in memory: a list, a pandas or polars frame, a
    Hugging Face or torch dataset, or any iterable, which is read once. A str or Path is a file. A
    list or tuple of str is texts only for source, target and text, and only if not each of its
    first 100 items is an existing file or looks like a path: no white space, and a slash or an
    ending such as .txt. iter(texts) is never files. Examples are written to RUN/inputs.

    Returns a `TrainResult`. Raises a subclass of PolyheadError if configuration, data or model
    cannot be used. Ctrl-C saves a checkpoint, then raises KeyboardInterrupt.
    """
    request = read_request(recipe, overrides, run, {
        "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
        "valid_target": valid_target, "valid_pairs": valid_pairs, "text": text,
        "valid_text": valid_text, "data": data, "valid_data": valid_data, "images": images,
        "valid_images": valid_images, "source_column": source_column,
        "target_column": target_column, "text_column": text_column,
        "text_pair_column": text_pair_column, "label_column": label_column,
        "languages": languages, "init": init, "encoding": encoding, "on_bad_line": on_bad_line,
        "device": device,
    })  # fmt: skip
    session = Session(fresh, accept_changes, log_to, progress, list(callbacks))
    if processes > 1 and not is_started_by_torchrun():
        return request.train_in_processes(session, processes)
    result = request.train(session)
    if result.signal is not None and signal.Signals(result.signal).name != "SIGUSR1":
        signal.raise_signal(result.signal)  # as if it had not been handled: Ctrl-C ends a loop
    return result
