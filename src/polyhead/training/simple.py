"""Training in one call, from Python."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from polyhead.training.config import read_run
from polyhead.training.run_log import ProgressReporter
from polyhead.training.trainer import TrainResult
from polyhead.training.trainer import train as train_run


def train(
    recipe: str | None = None,
    *,
    run: str | Path,
    source: str | Path | Sequence[str | Path] = (),
    target: str | Path | Sequence[str | Path] = (),
    text: str | Path | Sequence[str | Path] = (),
    overrides: Iterable[str] = (),
    fresh: bool = False,
    reporter: ProgressReporter | None = None,
) -> TrainResult:
    """Train a recipe, or the default one on your own files, in the folder `run`; or go on with it.

    `text` is plain text, for recipes of models of one language; the last tenth is held out.
    `overrides` are written as on the command line: ["train.steps=500", "model.stack.n_layers=2"].
    """
    files = {"source": _names(source), "target": _names(target), "text": _names(text)}
    given = files if any(files.values()) else None
    config = read_run(recipe, overrides, given)
    return train_run(config, Path(run), fresh=fresh, reporter=reporter)


def _names(paths: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
