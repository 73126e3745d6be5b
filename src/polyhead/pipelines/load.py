"""`polyhead.load`: whatever lies in a folder, as the object that can use it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyhead.errors import CheckpointError, ConfigError
from polyhead.pipelines import image_classifier as image_labeller
from polyhead.pipelines import mask_filler as filler
from polyhead.pipelines import text_classifier as labeller
from polyhead.pipelines import text_generator as writer
from polyhead.pipelines import translator
from polyhead.pipelines.family_checks import family_of

LOADERS: dict[str, Callable[..., Any]] = {
    "transformer": translator.load,
    "ladder": translator.load,
    "seq2seq": translator.load,
    "bahdanau": translator.load,
    "luong": translator.load,
    "deep_att": translator.load,
    "gnmt": translator.load,
    "convs2s": translator.load,
    "bytenet": translator.load,
    "moe": translator.load,
    "gpt": writer.load,
    "reformer": writer.load,
    "bert": filler.load,
    "electra": filler.load,
    "classifier": labeller.load,
    "vit": image_labeller.load,
}


def load(*paths: str | Path, device: str = "auto") -> Any:
    """Load a model as the pipeline of its task.

    Several folders of translators make an ensemble.
    """
    if not paths:
        raise ConfigError("name at least one model")
    family = family_of(Path(paths[0]))
    if family not in LOADERS:
        raise CheckpointError(
            f"{paths[0]} holds a model of family {family}, which cannot be loaded for use; "
            f"these can: {', '.join(LOADERS)}"
        )
    return LOADERS[family](*paths, device=device)
