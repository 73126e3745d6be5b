"""Descriptions of loaded models, for the list of models of a server and for its web page."""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from polyhead.checkpoint.model_files import WEIGHTS, tensor_header
from polyhead.decoding.options import DecodeConfig
from polyhead.pipelines.backends import DecodingPipeline
from polyhead.pipelines.base import ClassifierPipeline, Pipeline
from polyhead.pipelines.translator import Translator

ATTENTION = {  # the kinds of attention that can be shown
    "generate": ("decoder",),
    "embed": (),
    "classify-image": ("image",),
}


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


def describe(model: Pipeline) -> Description:
    """Return the description of a loaded model; one without torch shows no attention."""
    source, target = model.languages if isinstance(model, Translator) else (None, None)
    decoding = model if isinstance(model, DecodingPipeline) else None
    if decoding is not None and "torch" not in decoding.engines:
        header = json.loads(tensor_header(model.files.directory / WEIGHTS))
        header.pop("__metadata__", None)
        n_parameters = sum(math.prod(entry["shape"]) for entry in header.values())
        attention: tuple[str, ...] = ()
    else:
        n_parameters = sum(weight.numel() for weight in model.model.parameters())
        attention = _attention(model)
    classes = None
    if isinstance(model, ClassifierPipeline) and "classes" in vars(model.saved.config):
        classes = model.classes
    images, has_labels = model.use == "classify-image", model.use == "classify"
    facts: Any = model
    config: Any = model.saved.config if images else None
    numbers = model.files.about.get("range") if has_labels else None
    return Description(
        family=model.files.family,
        use=model.use,
        engine="torch" if decoding is None else decoding.engine,
        source_language=source,
        target_language=target,
        parameters=n_parameters,
        max_length=None if images else model.max_length,
        attention=attention,
        defaults=None if decoding is None else decoding.defaults,
        classes=classes,
        image=(config.height, config.width, config.channels, config.patch) if images else None,
        problem=facts.problem if has_labels else None,
        pairs=facts.pairs if has_labels else "no",
        range=(float(numbers[0]), float(numbers[1])) if numbers else None,
    )


def _attention(model: Pipeline) -> tuple[str, ...]:
    """Return the kinds of attention of a torch model that can be shown."""
    names = [name for name, _ in model.model.named_modules() if "self_attention" in name]
    if not isinstance(model, Translator):
        return ATTENTION.get(model.use, ("encoder",)) if names else ()
    from polyhead.layers.attention_hooks import has_cross_attention

    # Recurrent ones have cross-attention only, or none.
    stacks = {name.split(".")[0] for name in names}
    kinds = tuple(stack for stack in ("encoder", "decoder") if stack in stacks)
    return kinds + ("cross",) * has_cross_attention(model.model)
