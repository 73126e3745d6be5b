"""Work that ends as soon as nobody waits for it any more.

A model cannot be stopped from outside, but whatever it does, it does layer by layer. A hook before
each layer asks if the answer is still wanted, and raises `Cancelled` if not. So a beam, a walk, a
text with many blanks and a look at all heads end early alike, and none of them knows about it.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from polyhead.decoding.cancel import Cancelled
from polyhead.pipelines.describe import Usable
from polyhead.pipelines.translator import Translator

T = TypeVar("T")


def while_wanted(model: Usable, work: Callable[[], T], wanted: Callable[[], bool]) -> T:
    """What `work` gives; it must be the only one that uses the model meanwhile."""

    def ask(_layer: Any, _inputs: Any) -> None:
        if not wanted():
            raise Cancelled

    members = model.models if isinstance(model, Translator) else (model.saved,)
    with ExitStack() as hooks:
        for saved in members:
            for layer in saved.model.modules():
                hooks.enter_context(layer.register_forward_pre_hook(ask))
        return work()
