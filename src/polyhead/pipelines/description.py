"""Descriptions of models, and those of models without torch."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polyhead.checkpoint.arrays import ArrayFile, open_tensors
from polyhead.checkpoint.model_files import WEIGHTS, resolve
from polyhead.decoding.options import DecodeConfig
from polyhead.engines.ctranslate2_engine import CTranslate2Engine, CTranslate2Generator
from polyhead.pipelines.fast_pipelines import FastGenerator, FastTranslator


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
    attention: tuple[str, ...] = ()
    defaults: DecodeConfig | None = None
    classes: tuple[str, ...] | None = None
    image: tuple[int, int, int, int] | None = None  # height, width, channels, patch
    problem: str | None = None  # the kind of the labels of a text classifier
    pairs: Literal["no", "optional", "required"] = "no"  # of texts
    range: tuple[float, float] | None = None  # of the numbers in training


def engine_name(engine: CTranslate2Engine | CTranslate2Generator | None) -> str:
    """Return the name of the engine that decodes, with the type of its numbers."""
    return "torch" if engine is None else f"ctranslate2 {engine.compute_type}"


def describe_fast(model: FastTranslator | FastGenerator) -> Description:
    """Return the description of a model without torch, which shows no attention."""
    source, target = model.languages if isinstance(model, FastTranslator) else (None, None)
    weights = resolve(Path(model.name)) / WEIGHTS
    with open_tensors(weights, "np") as file:
        shapes = ArrayFile(weights, file).shapes.values()
    return Description(
        family=model.families[0],
        use=model.use,
        engine=engine_name(model.engine),
        source_language=source,
        target_language=target,
        parameters=sum(map(math.prod, shapes)),
        max_length=model.max_length,
        defaults=model.defaults,
    )
