"""`polyhead.load`: whatever lies in a folder, as the object that can use it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES, Task
from polyhead.pipelines import (
    image_classifier,
    mask_filler,
    text_classifier,
    text_generator,
    translator,
)
from polyhead.pipelines.family_checks import family_of

LOADERS: dict[Task, Callable[..., Any]] = {
    "translation": translator.load,
    "language_modeling": text_generator.load,
    "masked_lm": mask_filler.load,
    "replaced_token": mask_filler.load,
    "text_classification": text_classifier.load,
    "image_classification": image_classifier.load,
}


def load(*paths: str | Path, device: str = "auto") -> Any:
    """Load a model as the pipeline of its task.

    Several folders of translators make an ensemble.
    """
    if not paths:
        raise ConfigError("name at least one model")
    task = FAMILIES[family_of(Path(paths[0]))].task
    return LOADERS[task](*paths, device=device)
