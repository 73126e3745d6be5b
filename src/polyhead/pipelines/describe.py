"""What a loaded model is and does, in plain values: for a server's list of models, and its page."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babel import Locale, UnknownLocaleError

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.decoding.config import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import has_cross_attention
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.pipelines.text_classifier import TextClassifier
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator

USES = {
    Translator: "translate",
    TextGenerator: "generate",
    MaskFiller: "fill",
    TextClassifier: "classify",
    ImageClassifier: "classify-image",
}
LANGUAGE = re.compile(r"\.([a-z]{2,3})$")  # train.ko
KINDS = {
    "translate": ("encoder", "decoder", "cross"),
    "generate": ("decoder",),
    "fill": ("encoder",),
    "classify": ("encoder",),
    "classify-image": ("image",),
}

Usable = Translator | TextGenerator | MaskFiller | TextClassifier | ImageClassifier


@dataclass(frozen=True)
class Description:
    """What there is to know about a model before it is asked anything."""

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


def describe(model: Usable) -> Description:
    """A model's family, use, languages, size and limits."""
    if type(model) not in USES:
        raise ConfigError(f"a {type(model).__name__} cannot be put to use here")
    use = USES[type(model)]
    saved = model.models[0] if isinstance(model, Translator) else model.saved
    source, target = languages(saved) if use == "translate" else (None, None)
    return Description(
        family=saved.family,
        use=use,
        source_language=source,
        target_language=target,
        parameters=sum(p.numel() for p in saved.model.parameters()),
        max_length=_max_length(model),
        attention=_kinds(saved, use),
        defaults=model.defaults if isinstance(model, Translator | TextGenerator) else None,
        classes=model.classes if isinstance(model, TextClassifier | ImageClassifier) else None,
        image=_image(model),
    )


def languages(saved: SavedModel) -> tuple[str | None, str | None]:
    """From which language to which: as its maker said, or as the names of its files end."""
    run: dict[str, Any] = saved.about.get("run") or {}
    data = run.get("data", {})
    found = []
    for side in ("source", "target"):
        said = data.get(f"{side}_language") or _ending(data.get(side))
        found.append(said if isinstance(said, str) and said else None)
    return found[0], found[1]


def language_name(code: str) -> str:
    """What a language is called in English; its code, if nobody knows."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _kinds(saved: SavedModel, use: str) -> tuple[str, ...]:
    """The kinds of attention that can be shown; recurrent translators have one, or none."""
    if use == "translate" and saved.family != "transformer":
        return ("cross",) if has_cross_attention(saved.model) else ()
    return KINDS[use]


def _ending(files: Any) -> str | None:
    if not isinstance(files, list | tuple) or not files:
        return None
    endings = {found[1] if (found := LANGUAGE.search(Path(str(f)).name)) else "" for f in files}
    (ending, *others) = endings
    known = ending and language_name(ending) != ending  # train.txt is no language
    return ending if known and not others else None


def _max_length(model: Usable) -> int | None:
    if isinstance(model, TextGenerator):
        return model.context
    if isinstance(model, MaskFiller):
        return int(model.saved.config.max_length)
    return None if isinstance(model, ImageClassifier) else model.max_length


def _image(model: Usable) -> tuple[int, int, int, int] | None:
    if not isinstance(model, ImageClassifier):
        return None
    config = model.saved.config
    return config.height, config.width, config.channels, config.patch
