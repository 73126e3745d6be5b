"""Polyhead: from the Transformer's papers to a Transformer of your own.

    import polyhead
    polyhead.train(source=["train.ko"], target=["train.en"], run="runs/mine")
    polyhead.load("runs/mine").translate(["안녕하세요."])

    polyhead.train("gpt-tiny", text="my.txt", run="runs/writer")
    polyhead.load("runs/writer").generate("오늘은")

Nothing heavy is imported until one of the two is used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PLACES = {"load": "polyhead.pipelines.load", "train": "polyhead.training.entry"}

__all__ = ["__version__", "load", "train"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'polyhead' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
