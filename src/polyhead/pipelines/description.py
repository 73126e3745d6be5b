"""Descriptions of models, and that of a translator without torch."""

import math
from dataclasses import dataclass
from pathlib import Path

from polyhead.checkpoint.arrays import ArrayFile, open_tensors
from polyhead.checkpoint.model_files import WEIGHTS, resolve
from polyhead.decoding.options import DecodeConfig
from polyhead.engines.ctranslate2_engine import CTranslate2Engine
from polyhead.pipelines.fast_pipelines import FastTranslator


@dataclass(frozen=True)
class Description:
    """Family, use, languages, size and limits of a model."""

    family: str
    use: str
    engine: str
    source_language: str | None
    target_language: str | None
    parameters: int
    max_length: int | None  # tokens that it reads at once; None for images
    attention: tuple[str, ...]
    defaults: DecodeConfig | None
    classes: tuple[str, ...] | None
    image: tuple[int, int, int, int] | None  # height, width, channels, patch


def engine_name(engine: CTranslate2Engine | None) -> str:
    """Return the name of the engine that decodes, with the type of its numbers."""
    return "torch" if engine is None else f"ctranslate2 {engine.compute_type}"


def describe_translator(model: FastTranslator) -> Description:
    """Return the description of a translator without torch, which shows no attention."""
    source, target = model.languages
    weights = resolve(Path(model.name)) / WEIGHTS
    with open_tensors(weights, "np") as file:
        shapes = ArrayFile(weights, file).shapes.values()
    return Description(
        family="transformer",
        use=model.use,
        engine=engine_name(model.engine),
        source_language=source,
        target_language=target,
        parameters=sum(map(math.prod, shapes)),
        max_length=model.max_length,
        attention=(),
        defaults=model.defaults,
        classes=None,
        image=None,
    )
