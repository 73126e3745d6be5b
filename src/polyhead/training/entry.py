"""`polyhead.train`: training in one call, from Python and from the command line."""

import json
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import Dataset

from polyhead.data.languages import parse_languages
from polyhead.data.memory import OPTIONS, MemoryData, split_data
from polyhead.errors import ConfigError, PolyheadError
from polyhead.training.callbacks import Callback
from polyhead.training.config import COLUMNS, RunConfig, fitting_recipe, read_run
from polyhead.training.display import ProgressKind, choose_display
from polyhead.training.loggers import create_loggers
from polyhead.training.processes import is_started_by_torchrun, launch
from polyhead.training.result import TrainResult, read_result
from polyhead.training.run_dir import INPUTS
from polyhead.training.trainer import train as train_run

Data = str | Path | Iterable[object] | Dataset[object]
Overrides = Iterable[str] | Mapping[str, object]
DEFAULT_RUN = "mine"
EXAMPLES = {"text": "gpt-tiny", "images": "vit-cifar10"}  # recipes for files of several tasks
SETTINGS = {  # parameter of `train`, option of the command line: setting
    "init": "train.init", "device": "train.device", "encoding": "data.encoding",
    "on_bad_line": "data.on_bad_line",
    **{name.replace("_key", "_column"): f"data.{name}" for name in COLUMNS},
}  # fmt: skip


@dataclass(frozen=True)
class TrainRequest:
    """A checked call of `polyhead.train` or `polyhead train`: configuration, data, arguments."""

    config: RunConfig
    folder: Path  # of the run
    memory: MemoryData | None
    given: Mapping[str, Any]  # all arguments by name

    def train(self) -> TrainResult:
        """Train in this process."""
        given = self.given
        loggers = create_loggers(given["log_to"] or ())
        return train_run(
            self.config,
            self.folder,
            fresh=given["fresh"],
            accept_changes=given["accept_changes"],
            callbacks=[choose_display(given["progress"]), *loggers, *given["callbacks"]],
            memory=self.memory,
        )

    def train_in_processes(self) -> TrainResult:
        """Train in several processes, which run the command line, and wait for them."""
        given = self.given
        if self.memory is not None or given["callbacks"]:
            raise ConfigError(
                f"processes = {given['processes']}: data in memory and callbacks stay in this "
                "process. Give files, or start the script itself with torchrun.",
                "not_in_processes",
            )
        words = ["train", *([str(given["recipe"])] if given["recipe"] else []), *given["overrides"]]
        options = {**given, "run": self.folder}
        for name in ("recipe", "overrides", "callbacks", "processes"):
            del options[name]
        for name, value in options.items():
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [option] * value
            elif value is not None:
                items = [value] if isinstance(value, str | Path) else value
                words += [word for item in items for word in (option, str(item))]
        code = launch(words, given["processes"])
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if code:
            raise PolyheadError(
                f"a process of {self.folder} ended with exit code {code}; its message is above",
                "process_failed",
            )
        return read_result(self.folder)


def read_request(given: Mapping[str, Any]) -> TrainRequest:
    """Check the arguments of `polyhead.train` or `polyhead train`, which have equal names."""
    recipe, run, init = given["recipe"], given["run"], given["init"]
    folder = Path(run or Path("runs") / (Path(recipe).stem if recipe else DEFAULT_RUN))
    files, memory = split_data({name: given[name] for name in OPTIONS}, folder / INPUTS)
    settings = {key: given[name] for name, key in SETTINGS.items() if given[name] is not None}
    if given["languages"] is not None:
        sides = parse_languages(given["languages"])
        settings["data.source_language"], settings["data.target_language"] = sides
    if given["label_column"] is not None and "images" in files and memory is None:
        raise ConfigError("--label-column has no effect on files of images", "no_effect")
    texts = as_overrides({name: str(value) for name, value in settings.items()})
    recipe = recipe or fitting_recipe(init, files)
    if recipe is None and not files:
        raise ConfigError(
            "nothing to train on. Name a recipe (see `polyhead recipes`), or give your own text "
            "with --source FILE --target FILE",
            "no_recipe",
        )
    if recipe is None and (option := next((n for n in ("text", "images") if n in files), None)):
        example = f"polyhead train {EXAMPLES[option]} --{option} PATH"
        raise ConfigError(
            f"--{option} needs a recipe, e.g. {example} (see `polyhead recipes`)", "no_recipe"
        )
    config = read_run(recipe, [*given["overrides"], *texts], files)
    return TrainRequest(config, folder, memory, given)


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
    given = dict(locals())  # every argument by its name, before there are other variables
    given |= {"overrides": list(as_overrides(overrides)), "callbacks": list(callbacks)}
    request = read_request(given)
    if processes > 1 and not is_started_by_torchrun():
        return request.train_in_processes()
    result = request.train()
    if result.signal is not None and signal.Signals(result.signal).name != "SIGUSR1":
        signal.raise_signal(result.signal)  # as if it had not been handled: Ctrl-C ends a loop
    return result
