"""Load any trained model as the pipeline of its task."""

from pathlib import Path

from polyhead.checkpoint.model_dir import load_model
from polyhead.devices import choose
from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES, Task
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.pipelines.text_classifier import TextClassifier
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator

KINDS: tuple[type[Pipeline], ...] = (
    Translator, TextGenerator, MaskFiller, TextClassifier, ImageClassifier,
)  # fmt: skip
PIPELINES: dict[Task, type[Pipeline]] = {task: kind for kind in KINDS for task in kind.tasks}


def load(*paths: str | Path, device: str = "auto") -> Pipeline:
    """Load a model as the pipeline of its task.

    paths: a model directory or a run directory; several translators make an ensemble.
    device: "auto", "cpu", "cuda" or "mps".

    Returns a `Translator`, `TextGenerator`, `MaskFiller`, `TextClassifier` or `ImageClassifier`. To
    state which one is expected, call `from_dir` of that class.

    Example: `polyhead.load("runs/mine").translate(["안녕하세요."])`
    """
    if not paths:
        raise ConfigError("no model given; expected at least one path", "no_model")
    if len(paths) > 1:
        return Translator.from_dir(*paths, device=device)
    chosen = choose(device)
    saved = load_model(Path(paths[0]), str(chosen))
    return PIPELINES[FAMILIES[saved.family].task].from_saved(saved, str(paths[0]), chosen)
