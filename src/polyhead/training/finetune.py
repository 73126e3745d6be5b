"""Going on from a whole model of the same family: `train.init` for fine-tuning.

    translators                   the model as it is
    gpt, reformer, bert, electra  the same, with the dropout of the new run
    vit                           the same, with the new run's classes and size of images

The new run takes the old one's sizes, weights and tokenizers; data, optimiser and objective are its
own. A translator that was trained on likelihood can so be trained on reward (`train.reward`), or on
other text. What an override asks for (`model.stack.n_layers=3`) is refused if the model has it
otherwise; what only the recipe says gives way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import MORE_IDS, SavedModel
from polyhead.config import plain
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.tokenizers import storage as tokenizer
from polyhead.training import run_dir as runs
from polyhead.training.config import RunConfig
from polyhead.training.run_log import RunLog

OF_THE_RUN = {"electra": ("spotting",), "vit": ("height", "width", "classes")}
OF_THE_DATA = ("family", "vocab")  # known or found out without asking

Data = TypeVar("Data")


@dataclass(frozen=True)
class PretrainedModel:
    """A model to go on from. `fingerprint` changes whenever the model does."""

    path: str
    saved: SavedModel
    fingerprint: str


@dataclass(frozen=True)
class Material(Generic[Data]):
    """What a task has read, and the model to go on from if there is one."""

    data: Data
    whole: PretrainedModel | None
    notices: tuple[str, ...]

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of the model: a run that goes on must find the same."""
        return {} if self.whole is None else {"pre-trained model or its": self.whole.fingerprint}


def read_whole(run: RunConfig) -> SavedModel | None:
    """The model that `train.init` names, if it is of the run's own family."""
    if run.train.init is None:
        return None
    place = model_folder.resolve(Path(run.train.init))
    if model_folder.read_config(place)["family"] != run.family:
        return None
    saved = model_folder.load_model(place)
    if saved.tokenizers is None and run.family != "vit":
        raise CheckpointError(
            f"{run.train.init} has no tokenizer, so that its ids mean nothing here; train.init "
            "needs a model with one"
        )
    return saved


def another_family(run: RunConfig) -> ConfigError:
    """The error for a model that a run cannot begin from."""
    return ConfigError(
        f"train.init: {run.train.init} is of another family than {run.family}, which can begin "
        "only from one of its own"
    )


def read_own(run: RunConfig) -> PretrainedModel | None:
    """The model that `train.init` names, which must be of the run's family and have what it needs.

    One that was made elsewhere may have no [MASK], or ids that its tokenizer does not know.
    """
    if run.train.init is None:
        return None
    saved = read_whole(run)
    if saved is None:
        raise another_family(run)
    if saved.tokenizers is not None:
        expected = len(saved.tokenizers.source) + MORE_IDS[run.family]
        if saved.config.vocab != expected:
            more = " and [MASK]" if MORE_IDS[run.family] else ""
            raise CheckpointError(
                f"train.init: {run.train.init} has {saved.config.vocab} ids, but its tokenizer"
                f"{more} {expected}; it can be used, but not trained further"
            )
    sums = store.verify(model_folder.resolve(Path(run.train.init)))
    return PretrainedModel(run.train.init, saved, sums[model_folder.WEIGHTS])


def resized(run: RunConfig, whole: PretrainedModel | None) -> RunConfig:
    """The run with the sizes of the model that it goes on from, if there is one.

    Dropout is the run's own: it belongs to training, as do the names in `OF_THE_RUN`.
    """
    if whole is None:
        return run
    given = whole.saved.config
    own = {name: getattr(run.model, name) for name in OF_THE_RUN.get(run.family, ())}
    try:
        config = replace(given, stack=with_dropout(given.stack, run.model.stack), **own)
    except ValueError as error:
        raise ConfigError(f"train.init: {whole.path} cannot go on so: {error}") from None
    for name, asked, found in _unlike(run.asked, plain(config)):
        raise ConfigError(
            f"{name} = {asked!r}: {whole.path}, from which train.init begins, has {found!r}; leave "
            "it out, or train from scratch"
        )
    return replace(run, model=config)


def with_dropout(stack: StackConfig, ours: StackConfig) -> StackConfig:
    """A stack with the dropout of another."""
    return replace(
        stack,
        dropout=ours.dropout,
        attention_dropout=ours.attention_dropout,
        activation_dropout=ours.activation_dropout,
    )


def _unlike(
    asked: Mapping[str, Any], found: Mapping[str, Any], where: str = "model."
) -> Iterator[tuple[str, Any, Any]]:
    """The name of each value that was asked for and is another, with both."""
    for name, value in asked.items():
        if isinstance(value, Mapping):
            yield from _unlike(value, found[name], f"{where}{name}.")
        elif name not in OF_THE_DATA and value != found[name]:
            yield f"{where}{name}", value, found[name]


def take_over(run: RunConfig, saved: SavedModel, folder: Path) -> RunConfig:
    """The run with the model's own sizes; its tokenizers are put where a run looks for them."""
    return replace(take_tokenizers(run, saved, folder), model=saved.config)


def take_tokenizers(run: RunConfig, saved: SavedModel, folder: Path) -> RunConfig:
    """Put a model's tokenizers where a run looks for them."""
    assert saved.tokenizers is not None
    place = folder / runs.TOKENIZER
    if not place.exists():
        with store.atomic_dir(place) as draft:
            tokenizer.save(saved.tokenizers, draft)
    return replace(run, text=saved.tokenizers.config)


def set_all(saved: SavedModel, path: str, journal: RunLog, model: Any) -> None:
    """Begin with all of its weights."""
    model_folder.set_weights(model, model_folder.weights_of(saved.model))
    journal.notice(f"sizes and all weights are those of {path}")
