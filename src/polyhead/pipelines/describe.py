"""Descriptions of loaded models, for the list of models of a server and for its web page."""

from polyhead.layers.attention_hooks import has_cross_attention
from polyhead.pipelines.base import ClassifierPipeline, Pipeline
from polyhead.pipelines.description import Description, engine_name
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.task_pipeline import TextClassifier
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator

ATTENTION = {  # the kinds of attention that can be shown
    "generate": ("decoder",),
    "fill": ("encoder",),
    "detect": ("encoder",),
    "classify": ("encoder",),
    "tag": ("encoder",),
    "answer": ("encoder",),
    "classify-image": ("image",),
}


def describe(model: Pipeline) -> Description:
    """Return the description of a loaded model."""
    config = model.saved.config
    translates, images = isinstance(model, Translator), isinstance(model, ImageClassifier)
    source, target = model.languages if isinstance(model, Translator) else (None, None)
    names = [name for name, _ in model.model.named_modules() if "self_attention" in name]
    attention: tuple[str, ...] = ATTENTION.get(model.use, ()) if names else ()
    if translates:  # recurrent ones have cross-attention only, or none
        stacks = {name.split(".")[0] for name in names}
        attention = tuple(stack for stack in ("encoder", "decoder") if stack in stacks)
        attention += ("cross",) * has_cross_attention(model.model)
    classes = None
    if isinstance(model, ClassifierPipeline) and "classes" in vars(config):
        classes = model.classes
    numbers = model.saved.about.get("range") if isinstance(model, TextClassifier) else None
    return Description(
        family=model.saved.family,
        use=model.use,
        engine=engine_name(model.engine if isinstance(model, Translator | TextGenerator) else None),
        source_language=source,
        target_language=target,
        parameters=sum(weight.numel() for weight in model.model.parameters()),
        max_length=None if images else model.max_length,
        attention=attention,
        defaults=model.defaults if isinstance(model, Translator | TextGenerator) else None,
        classes=classes,
        image=(config.height, config.width, config.channels, config.patch) if images else None,
        problem=model.problem if isinstance(model, TextClassifier) else None,
        pairs=model.pairs if isinstance(model, TextClassifier) else "no",
        range=(float(numbers[0]), float(numbers[1])) if numbers else None,
    )
