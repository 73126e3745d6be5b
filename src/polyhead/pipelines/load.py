"""Load any trained model as the pipeline of its task."""

from pathlib import Path
from typing import overload

from polyhead.checkpoint.model_dir import read_family_config
from polyhead.checkpoint.model_files import resolve as resolve_path
from polyhead.devices import choose
from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES, find_task
from polyhead.pipelines.backends import DecodingPipeline, check_engine
from polyhead.pipelines.base import P, Pipeline
from polyhead.pipelines.task_pipeline import pipeline_of
from polyhead.pipelines.translator import Translator


@overload
def load(
    *paths: str | Path, device: str = ..., engine: str = ..., compute_type: str = ...
) -> Pipeline: ...
@overload
def load(
    *paths: str | Path, kind: type[P], device: str = ..., engine: str = ..., compute_type: str = ...
) -> P: ...
def load(
    *paths: str | Path, kind: type[Pipeline] = Pipeline, device: str = "auto", engine: str = "auto",
    compute_type: str = "auto",
) -> Pipeline:  # fmt: skip
    """Load a model as the pipeline of its task.

    paths: a model directory or a run directory; several translators make an ensemble.
    kind: the class that is expected, such as `polyhead.Translator`, for type checkers; models of
        other tasks are refused.
    device: "auto", "cpu", "cuda" or "mps".
    engine: of translators and text generators on a CPU: "torch", "ctranslate2", or "auto" for
        CTranslate2 where it is installed and has the model's parts.
    compute_type: of CTranslate2: "float32" (auto), or "int8", which is faster and rounds.

    Returns a `Translator`, `TextGenerator`, `MaskFiller`, `ReplacedTokenDetector`,
    `TextClassifier`, `Tagger`, `QuestionAnswerer`, `SentenceEmbedder` or `ImageClassifier`.

    Example: `polyhead.load("runs/mine").translate(["안녕하세요."])`
    """
    if not paths:
        raise ConfigError("no model given; expected at least one path", "no_model")
    check_engine(engine)
    if len(paths) > 1:
        if not issubclass(Translator, kind):
            raise ConfigError("only translators form an ensemble; give one path", "one_model")
        return Translator.from_dir(*paths, device=device)
    device = str(choose(device))
    family = read_family_config(resolve_path(Path(paths[0])))["family"]
    actual: type[Pipeline] = pipeline_of(find_task(FAMILIES[family].task))
    expected = actual if issubclass(actual, kind) else kind  # refuses other tasks
    if issubclass(expected, DecodingPipeline) and device == "cpu" and engine != "torch":
        return expected.open(paths[0], device, engine, compute_type)
    return expected.from_dir(paths[0], device=device)
