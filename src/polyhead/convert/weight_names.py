"""Two names for the same tensor: tables, and the one function that reads them.

A table has a row for every module, ours first; {} stands for the number of a layer:

    {"stack.blocks.{}.self_attention.w_q": "encoder.layer.{}.attention.self.query", …}

Weights and biases follow their module. The numbers of a stack have such tables too (`STACK`), a row
for every field of `StackConfig`. Nothing here imports the library whose names it knows, and
everything that comes from a file is checked before it is believed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from polyhead.errors import CheckpointError
from polyhead.layers.feed_forward import Activation
from polyhead.layers.transformer_stack import StackConfig

Weights = dict[str, Tensor]
Names = Mapping[str, str]

LAYER = re.compile(r"\b(blocks|layers|layer|h)\.(\d+)\.")
ONE_OF_MANY = "single_label_classification"
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
THEIR_ACTIVATIONS: dict[Activation, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "silu": "silu",
}


def swapped(table: Names) -> dict[str, str]:
    """Return the table in the other direction."""
    return {theirs: ours for ours, theirs in table.items()}


def renamed(state: Mapping[str, Tensor], table: Names, ignored: Iterable[str] = ()) -> Weights:
    """Every tensor under its other name; `ignored` are endings of names that have no other."""
    converted: Weights = {}
    for name, tensor in state.items():
        if name.endswith(tuple(ignored)):
            continue
        number = LAYER.search(name)
        module, _, leaf = LAYER.sub(r"\1.{}.", name, count=1).rpartition(".")
        if module not in table:
            raise CheckpointError(
                f"{name}: this kind of model has no such weight here", "incompatible_weights"
            )
        other = table[module].format(number.group(2) if number else "")
        converted[f"{other}.{leaf}"] = tensor
    return converted


def without_prefix(state: Mapping[str, Tensor], prefix: str) -> Weights:
    """Remove a prefix from the names that have it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


def split_rows(tensor: Tensor, n: int, name: str) -> list[Tensor]:
    """Split a tensor that holds n others below each other, such as W_q, W_k and W_v."""
    if tensor.dim() == 0 or len(tensor) % n:
        raise CheckpointError(
            f"{name}: {tuple(tensor.shape)} cannot be cut into {n} equal parts",
            "incompatible_weights",
        )
    return list(tensor.chunk(n))


def require_fit(converted: Mapping[str, Tensor], model: nn.Module) -> None:
    """Every weight of the model is there, in its shape, and nothing else is."""
    wanted = dict(model.named_parameters())
    for name, parameter in wanted.items():
        if name not in converted:
            raise CheckpointError(
                f"{name} is missing: the file does not hold a whole model", "not_found"
            )
        if converted[name].shape != parameter.shape:
            raise CheckpointError(
                f"{name} has the shape {tuple(converted[name].shape)}, but the configuration "
                f"requires {tuple(parameter.shape)}",
                "incompatible_weights",
            )
    for name in converted:
        if name not in wanted:
            raise CheckpointError(
                f"{name} has no place in a model of this configuration", "incompatible_weights"
            )


def whole(values: Mapping[str, Any], name: str) -> int:
    """Return a natural number of a foreign configuration."""
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(
            f"config.json: {name} = {value!r}: expected a whole number", "incompatible_weights"
        )
    return value


def n_classes(values: Mapping[str, Any]) -> int:
    """Return the number of classes; one that does something else is refused."""
    if values.get("problem_type") is not None:
        require(values, {"problem_type": ONE_OF_MANY})
    labels = values.get("id2label")
    return len(labels) if isinstance(labels, Mapping) else 2


def real(values: Mapping[str, Any], name: str) -> float:
    """Return a number of a foreign configuration."""
    value = values.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise CheckpointError(
            f"config.json: {name} = {value!r}: expected a number", "incompatible_weights"
        )
    return float(value)


def activation(values: Mapping[str, Any], name: str) -> Activation:
    """Our name of an activation function."""
    value = values.get(name)
    if value not in ACTIVATIONS:
        raise CheckpointError(
            f"config.json: {name} = {value!r} is unknown; expected one of {', '.join(ACTIVATIONS)}",
            "incompatible_weights",
        )
    return ACTIVATIONS[value]


READERS: dict[str, Callable[[Mapping[str, Any], str], Any]] = {
    "n_layers": whole, "d_model": whole, "n_heads": whole, "d_ff": whole, "dropout": real,
    "attention_dropout": real, "activation_dropout": real, "norm_eps": real,
    "activation": activation,
}  # fmt: skip


def stack_from_hf(
    values: Mapping[str, Any], table: Names, norm: Literal["pre", "post"]
) -> StackConfig:
    """Return our stack from a foreign configuration; other values keep their defaults."""
    converted = {ours: READERS[ours](values, theirs) for ours, theirs in table.items()}
    return StackConfig(norm=norm, **converted)


def stack_to_hf(stack: StackConfig, table: Names) -> dict[str, Any]:
    """Return our numbers under their names."""
    converted = {theirs: getattr(stack, ours) for ours, theirs in table.items()}
    return converted | {table["activation"]: THEIR_ACTIVATIONS[stack.activation]}


def require_classic(stack: StackConfig, *, norm: str, positions: str, own: str) -> None:
    """Refuse to write a model that theirs could not express. `own` is our kind of positions."""
    theirs = {
        "norm": norm, "score": "scaled_dot", "attention": "full", "reversible": False,
        "positions": positions, "experts": 0,
    }  # fmt: skip
    ours = {
        "norm": stack.norm, "score": stack.score, "attention": stack.attention,
        "reversible": stack.reversible, "positions": own, "experts": stack.experts.n,
    }  # fmt: skip
    wanting = {name: value for name, value in theirs.items() if ours[name] != value}
    for name, value in wanting.items():
        like = " and ".join(f"{other} = {wanted!r}" for other, wanted in wanting.items())
        raise CheckpointError(
            f"{name} = {ours[name]!r}: the target's model of this family has only {value!r}. "
            f"Retrain with {like} to export it.",
            "not_exportable",
        )


def require(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a variant that our model cannot express, instead of computing something else."""
    for name, value in wanted.items():
        if values.get(name, value) != value:
            raise CheckpointError(
                f"config.json: {name} = {values[name]!r} is not supported, only {value!r}",
                "incompatible_weights",
            )
