"""Cancellation of work that uses a model, by a hook before each of its layers."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from polyhead.decoding.cancel import Cancelled
from polyhead.pipelines.base import Pipeline

T = TypeVar("T")


def run_cancellable(model: Pipeline, work: Callable[[], T], is_cancelled: Callable[[], bool]) -> T:
    """Return the result of `work`, or raise Cancelled before its next layer.

    Nothing else may use the model meanwhile.
    """

    def check(_layer: Any, _inputs: Any) -> None:
        if is_cancelled():
            raise Cancelled

    with ExitStack() as hooks:
        for saved in model.models:
            for layer in saved.model.modules():
                hooks.enter_context(layer.register_forward_pre_hook(check))
        return work()
