"""Polyhead: Transformers and their predecessors, from the papers to models of your own.

    import polyhead
    polyhead.train(source=["train.ko"], target=["train.en"], run="runs/mine")
    polyhead.Translator.from_dir("runs/mine").translate("안녕하세요.")

    polyhead.train("gpt-tiny", text="my.txt", run="runs/writer")
    polyhead.TextGenerator.from_dir("runs/writer").generate("오늘은")

All names of `__all__` are imported when they are first used, so `import polyhead` is quick.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyhead.checkpoint.bare_model import load_model, save_model
    from polyhead.decoding.options import DecodeConfig
    from polyhead.devices import set_seed
    from polyhead.errors import PolyheadError
    from polyhead.experiments.comparison import compare
    from polyhead.experiments.run_list import list_runs
    from polyhead.layers.attention import Mask, MultiHeadAttention
    from polyhead.layers.feed_forward import FeedForward
    from polyhead.layers.transformer_stack import StackConfig, TransformerStack
    from polyhead.models.registry import create_model, list_models
    from polyhead.pipelines.base import Pipeline
    from polyhead.pipelines.evaluator import evaluate
    from polyhead.pipelines.image_classifier import ImageClassifier
    from polyhead.pipelines.load import load
    from polyhead.pipelines.task_pipeline import (
        MaskFiller,
        QuestionAnswerer,
        ReplacedTokenDetector,
        SentenceEmbedder,
        Tagger,
        TextClassifier,
    )
    from polyhead.pipelines.text_generator import FastGenerator, TextGenerator
    from polyhead.pipelines.translator import FastTranslator, Translator
    from polyhead.plugin_registry import load_plugin
    from polyhead.training.callbacks import (
        Callback,
        SavedCheckpoint,
        TrainingEnd,
        TrainingStart,
        TrainingStep,
        Validation,
    )
    from polyhead.training.entry import train
    from polyhead.training.result import TrainResult
    from polyhead.viz.capture import attention_view
    from polyhead.viz.views import AttentionView, ImageView

# How long threads of libgomp, torch's OpenMP, spin before they sleep; read when torch is imported.
# Its default of 300,000 holds a core that other processes need (benchmarks/threads.py).
if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
    os.environ["GOMP_SPINCOUNT"] = "3000"

__version__ = "0.2.0.dev0"

__all__ = [
    "AttentionView", "Callback", "DecodeConfig", "FastGenerator", "FastTranslator",
    "FeedForward", "ImageClassifier", "ImageView", "Mask", "MaskFiller", "MultiHeadAttention",
    "Pipeline", "PolyheadError", "QuestionAnswerer", "ReplacedTokenDetector", "SavedCheckpoint",
    "SentenceEmbedder", "StackConfig", "Tagger", "TextClassifier", "TextGenerator",
    "TrainResult", "TrainingEnd", "TrainingStart", "TrainingStep", "TransformerStack",
    "Translator", "Validation", "__version__", "attention_view", "compare", "create_model",
    "evaluate", "list_models", "list_runs", "load", "load_model", "load_plugin", "save_model",
    "set_seed", "train",
]  # fmt: skip

_MODULES = {
    "AttentionView": "viz.views",
    "Callback": "training.callbacks",
    "DecodeConfig": "decoding.options",
    "FastGenerator": "pipelines.text_generator",
    "FastTranslator": "pipelines.translator",
    "FeedForward": "layers.feed_forward",
    "ImageClassifier": "pipelines.image_classifier",
    "ImageView": "viz.views",
    "Mask": "layers.attention",
    "MaskFiller": "pipelines.task_pipeline",
    "MultiHeadAttention": "layers.attention",
    "Pipeline": "pipelines.base",
    "PolyheadError": "errors",
    "QuestionAnswerer": "pipelines.task_pipeline",
    "ReplacedTokenDetector": "pipelines.task_pipeline",
    "SavedCheckpoint": "training.callbacks",
    "SentenceEmbedder": "pipelines.task_pipeline",
    "StackConfig": "layers.transformer_stack",
    "Tagger": "pipelines.task_pipeline",
    "TextClassifier": "pipelines.task_pipeline",
    "TextGenerator": "pipelines.text_generator",
    "TrainResult": "training.result",
    "TrainingEnd": "training.callbacks",
    "TrainingStart": "training.callbacks",
    "TrainingStep": "training.callbacks",
    "TransformerStack": "layers.transformer_stack",
    "Translator": "pipelines.translator",
    "Validation": "training.callbacks",
    "attention_view": "viz.capture",
    "compare": "experiments.comparison",
    "create_model": "models.registry",
    "evaluate": "pipelines.evaluator",
    "list_models": "models.registry",
    "list_runs": "experiments.run_list",
    "load": "pipelines.load",
    "load_model": "checkpoint.bare_model",
    "load_plugin": "plugin_registry",
    "save_model": "checkpoint.bare_model",
    "set_seed": "devices",
    "train": "training.entry",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'polyhead' has no attribute {name!r}")
    with import_module("polyhead.errors").torch_needed():
        return getattr(import_module(f"polyhead.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
