"""Going on from a whole model of the same family: `train.init` for fine-tuning.

The new run takes the old one's sizes, weights and tokenizers; data, optimiser and objective are its
own. A translator that was trained on likelihood can so be trained on reward (`train.reward`), or on
other text.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from polyhead.api import runs
from polyhead.api.reports import Journal
from polyhead.api.run import Run
from polyhead.checkpoint import folder as model_folder
from polyhead.checkpoint import store
from polyhead.checkpoint.folder import SavedModel
from polyhead.errors import CheckpointError
from polyhead.text import tokenizer


def read_whole(run: Run) -> SavedModel | None:
    """The model that `train.init` names, if it is of the run's own family."""
    if run.train.init is None:
        return None
    place = model_folder.resolve(Path(run.train.init))
    if model_folder.read_config(place)["family"] != run.family:
        return None
    saved = model_folder.load(place)
    if saved.tokenizers is None:
        raise CheckpointError(
            f"{run.train.init} has no tokenizer, so that its ids mean nothing here; train.init "
            "needs a model with one"
        )
    return saved


def take_over(run: Run, saved: SavedModel, folder: Path) -> Run:
    """The run with the model's own sizes; its tokenizers are put where a run looks for them."""
    assert saved.tokenizers is not None
    place = folder / runs.TOKENIZER
    if not place.exists():
        with store.writing(place) as draft:
            tokenizer.save(saved.tokenizers, draft)
    return replace(run, model=saved.config, text=saved.tokenizers.config)


def set_all(saved: SavedModel, path: str, journal: Journal, model: Any) -> None:
    """Begin with all of its weights."""
    model_folder.set_weights(model, model_folder.weights(saved.model))
    journal.notice(f"all weights are those of {path}")
