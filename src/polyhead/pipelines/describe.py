"""Descriptions of loaded models, for the list of models of a server and for its web page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from babel import Locale, UnknownLocaleError

from polyhead.data.config import DataConfig
from polyhead.decoding.config import DecodeConfig
from polyhead.layers.attention_hooks import has_cross_attention
from polyhead.pipelines.base import ClassifierPipeline, Pipeline
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator

LANGUAGE = re.compile(r"\.([a-z]{2,3})$")  # train.ko
ATTENTION = {  # the kinds of attention that can be shown
    "generate": ("decoder",),
    "fill": ("encoder",),
    "classify": ("encoder",),
    "classify-image": ("image",),
}


@dataclass(frozen=True)
class Description:
    """Family, use, languages, size and limits of a model."""

    family: str
    use: str
    source_language: str | None
    target_language: str | None
    parameters: int
    max_length: int | None  # tokens that it reads at once; None for images
    attention: tuple[str, ...]
    defaults: DecodeConfig | None
    classes: tuple[str, ...] | None
    image: tuple[int, int, int, int] | None  # height, width, channels, patch


def describe(model: Pipeline) -> Description:
    """Return the description of a loaded model."""
    config = model.saved.config
    translates, images = isinstance(model, Translator), isinstance(model, ImageClassifier)
    source, target = languages(model.data) if translates else (None, None)
    attention: tuple[str, ...] = ATTENTION.get(model.use, ())
    if translates:  # recurrent ones have cross-attention only, or none
        names = [name for name, _ in model.model.named_modules() if "self_attention" in name]
        stacks = {name.split(".")[0] for name in names}
        attention = tuple(stack for stack in ("encoder", "decoder") if stack in stacks)
        attention += ("cross",) * has_cross_attention(model.model)
    return Description(
        family=model.saved.family,
        use=model.use,
        source_language=source,
        target_language=target,
        parameters=sum(weight.numel() for weight in model.model.parameters()),
        max_length=None if images else model.max_length,
        attention=attention,
        defaults=model.defaults if isinstance(model, Translator | TextGenerator) else None,
        classes=model.classes if isinstance(model, ClassifierPipeline) else None,
        image=(config.height, config.width, config.channels, config.patch) if images else None,
    )


def languages(data: DataConfig) -> tuple[str | None, str | None]:
    """Return the languages of source and target: as configured, or from the names of the files."""
    return (
        data.source_language or _file_language(data.source),
        data.target_language or _file_language(data.target),
    )


def language_name(code: str) -> str:
    """Return the English name of a language; its code if it is unknown."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _file_language(files: Sequence[str]) -> str | None:
    """Return the language that the endings of all files name; None for others, as in train.txt."""
    endings = {match[1] if (match := LANGUAGE.search(Path(f).name)) else "" for f in files}
    if len(endings) != 1:
        return None
    (ending,) = endings
    return ending if ending and language_name(ending) != ending else None
