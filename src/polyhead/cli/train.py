"""`polyhead train`."""

import json
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

from polyhead.cli.console import TrainingScreen, say
from polyhead.errors import ConfigError
from polyhead.models.registry import command_of
from polyhead.training.config import DEFAULT_RECIPE, RunConfig, read_run
from polyhead.training.trainer import TrainResult, train

LABELLED_RECIPE = "classify-small"  # for --data without a recipe


@dataclass(frozen=True)
class TrainWords:
    """What was said on the command line."""

    recipe: str | None
    overrides: tuple[str, ...]
    run: Path | None
    files: dict[str, list[str]]
    encoding: str | None
    on_bad_line: str | None
    fresh: bool
    accept_changes: bool
    print_config: bool
    tensorboard: bool


def run_training(words: TrainWords) -> int:
    """Train, and say where the model is. 130 after Ctrl-C, 0 after SIGTERM: both have saved."""
    run, recipe = configuration(words)
    if words.print_config:
        print(run.toml(), end="")
        return 0
    folder = words.run or Path("runs") / (Path(recipe).stem if recipe else "mine")
    result = train(
        run,
        folder,
        fresh=words.fresh,
        accept_changes=words.accept_changes,
        reporter=TrainingScreen(),
        tensorboard=words.tensorboard,
    )
    tell(result, command_of(run.family))
    return 130 if result.signal == signal.SIGINT else 0


def configuration(words: TrainWords) -> tuple[RunConfig, str | None]:
    """The run that is meant. A first word with `=` is an override, not a recipe."""
    recipe, overrides = words.recipe, list(words.overrides)
    if recipe is not None and "=" in recipe:
        overrides.insert(0, recipe)
        recipe = None
    files = words.files if any(words.files.values()) else None
    if recipe is None and files is None:
        raise ConfigError(
            "say what to train: a recipe (see `polyhead recipes`), or your own text with "
            "--source FILE --target FILE"
        )
    if recipe is None and words.files.get("labelled"):
        return read_run(LABELLED_RECIPE, overrides + _reading(words), files), recipe
    if recipe is None and words.files.get("text"):
        raise ConfigError(
            "--text: say which kind of model is to read it, as in: polyhead train gpt-tiny --text "
            "FILE (see `polyhead recipes`)"
        )
    if recipe is None and words.files.get("images"):
        raise ConfigError(
            "--images: say how large a model is to be, as in: polyhead train vit-cifar10 --images "
            "FOLDER (see `polyhead recipes`)"
        )
    return read_run(recipe or DEFAULT_RECIPE, overrides + _reading(words), files), recipe


def _reading(words: TrainWords) -> list[str]:
    """How files are to be read, as overrides."""
    asked = {"encoding": words.encoding, "on_bad_line": words.on_bad_line}
    return [f"data.{name}={value}" for name, value in asked.items() if value]


def as_toml(text: str) -> str:
    """A text as the right side of an override: a path may look like a number."""
    return json.dumps(text, ensure_ascii=False)


def tell(result: TrainResult, use: str) -> None:
    """The end of a run, in words."""
    if result.signal is not None:
        say(f"saved at step {result.step:,}; the same command goes on from there")
        return
    scores = "  ".join(f"{name} {value:.3f}" for name, value in result.metrics.items())
    say(f"finished at step {result.step:,}; validation: {scores}")
    say(f"the model is {result.best}; use it with: {use} {shlex.quote(str(result.folder))}")
