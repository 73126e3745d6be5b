"""Decorators that register parts of your own: the contents of a plug-in.

    from polyhead.plugins import register_activation

    @register_activation("relu2")
    class ReLU2(nn.Module): ...

`polyhead train small --plugin relu2.py model.stack.activation=relu2` then trains with it. A name is
valid wherever a built-in one is: in recipes, in all commands, in the server and the viewer. One
that is taken is refused. See docs/en/plugins.md for examples.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from polyhead.layers.attention_scores import SCORES
from polyhead.layers.embeddings import POSITIONS, PositionCode
from polyhead.layers.feed_forward import ACTIVATIONS
from polyhead.layers.transformer_stack import ATTENTION, AttentionKernel
from polyhead.metrics.named_metrics import METRICS, NamedMetric
from polyhead.models.registry import FAMILIES, TASKS, Family
from polyhead.plugin_registry import load_plugin
from polyhead.tasks.losses import OBJECTIVES
from polyhead.tasks.verbs import VERBS, NoOptions, Verb
from polyhead.training.optim import OPTIMIZERS, SCHEDULES

__all__ = [
    "load_plugin", "register_activation", "register_attention", "register_family",
    "register_metric", "register_objective", "register_optimizer", "register_positions",
    "register_schedule", "register_score", "register_task",
]  # fmt: skip
C = TypeVar("C", bound=Callable[..., Any])


def register_family(
    name: str, *, config: type, task: str, presets: Mapping[str, Any] | None = None
) -> Callable[[C], C]:
    """Register a model class for model.family.

    config: frozen dataclass of its sizes, all with defaults; the class is called with one.
    task: such as "translation"; the model has the methods that the task calls (docs/en/plugins.md).
    presets: configurations by name, for `polyhead.create_model`.
    """
    TASKS.check(task, "task")
    sizes = dict(presets or {})
    return _adder(lambda model: FAMILIES.add(name, Family(model, config, task, sizes), model))


def register_task(activity: str, help: str, *, options: type = NoOptions) -> Callable[[C], C]:
    """Register a subclass of `polyhead.tasks.base.Task`, with its verb: a command and a route.

    activity: what a progress bar shows, such as "tagging".
    help: of the command; its first line is also the summary of the route.
    options: a dataclass of the options of the command, of requests, and in Python.
    """

    def add(task: Any) -> None:
        place, summary = f"{task.__module__}:{task.__qualname__}", help.strip().split("\n")[0]
        words = Verb(place, activity, help, summary, summary, f"Results of {activity}.", options)
        VERBS.add(task.verb, words, task)
        TASKS.add(task.name, place, task)

    return _adder(add)


def register_attention(
    name: str, *, shared: bool = False, marks_padding: bool = False
) -> Callable[[C], C]:
    """Register a kernel for model.stack.attention.

    Registered is a class or function that takes a `StackConfig` and returns a module like
    `polyhead.layers.attention.Kernel`.

    shared: queries and keys share one projection.
    marks_padding: the kernel needs to know padding on the right beside the causal mask.
    """
    return _adder(
        lambda make: ATTENTION.add(
            name, AttentionKernel(make, shared=shared, marks_padding=marks_padding), make
        )
    )


def register_score(name: str) -> Callable[[C], C]:
    """Register a score for model.stack.score.

    Registered is a class or function that takes n_heads, d_query and d_key, and returns a module
    that maps queries and keys to scores before the softmax.
    """
    return _adder(lambda make: SCORES.add(name, make))


def register_positions(
    name: str, *, rotation: Callable[[int], Any] | None = None, bounded: bool = False
) -> Callable[[C], C]:
    """Register a position code for model.positions.

    Registered is a class or function that takes `PositionSizes` and returns a module that maps
    (length, offset) to [length d_model] vectors, which are added to the embeddings.

    rotation: takes d_head and returns a module that turns queries and keys, like `Rotary`.
    bounded: the code has no positions beyond model.max_length.
    """
    return _adder(lambda make: POSITIONS.add(name, PositionCode(make, rotation, bounded), make))


def register_activation(name: str) -> Callable[[C], C]:
    """Register a function φ of the feed-forward network for model.stack.activation.

    Registered is a class or function without arguments that returns a module.
    """
    return _adder(lambda make: ACTIVATIONS.add(name, make))


def register_objective(name: str) -> Callable[[C], C]:
    """Register a loss for train.objective.

    Registered is a class or function that takes a `TaskSetup` and returns an `Objective`: a
    function of model and batch that returns a `polyhead.tasks.losses.Loss`.
    """
    return _adder(lambda make: OBJECTIVES.add(name, make))


def register_metric(name: str, *, lower_is_better: bool = False) -> Callable[[C], C]:
    """Register a metric for train.judge_by and `polyhead evaluate --metric`.

    Registered is a function that takes outputs and references, two lists of texts or of names of
    classes, and returns a number.
    """
    return _adder(lambda compute: METRICS.add(name, NamedMetric(lower_is_better, compute), compute))


def register_optimizer(name: str) -> Callable[[C], C]:
    """Register an optimizer for train.optimizer.kind.

    Registered is a function that takes parameter groups and an `OptimizerConfig`, and returns a
    `torch.optim.Optimizer`; see `polyhead.training.optim.MakeOptimizer`.
    """
    return _adder(lambda make: OPTIMIZERS.add(name, make))


def register_schedule(name: str) -> Callable[[C], C]:
    """Register a learning-rate schedule for train.schedule.kind.

    Registered is a function that takes a `ScheduleConfig` and a `Moment`, and returns the rate.
    """
    return _adder(lambda schedule: SCHEDULES.add(name, schedule))


def _adder(add: Callable[[Any], None]) -> Callable[[C], C]:
    def decorate(part: C) -> C:
        add(part)
        return part

    return decorate
