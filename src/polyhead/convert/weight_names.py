"""Names of weights and of configuration values, ours and theirs; the tables are in names.toml.

A `WeightTable` has a row for every module, ours first; weights and biases follow their module. The
values of config.json have tables too (`read_fields`), a row for every field of our configuration.
Everything that comes from a file is checked before it is used.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.errors import CheckpointError
from polyhead.layers.feed_forward import Activation
from polyhead.layers.transformer_stack import StackConfig

Weights = dict[str, Tensor]
Names = Mapping[str, str]

TABLES = tomllib.loads(files(__package__).joinpath("names.toml").read_text(encoding="utf-8"))
LAYER = re.compile(r"\b(blocks|layers|layer|h)\.(\d+)\.")
OLD_LEAVES = {"gamma": "weight", "beta": "bias"}  # of norms in old files
ONE_OF_MANY = "single_label_classification"
THEIR_ACTIVATIONS: dict[Activation, str] = {
    "relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "silu": "silu",
}  # fmt: skip
ACTIVATIONS: dict[str, Activation] = {
    **{theirs: ours for ours, theirs in THEIR_ACTIVATIONS.items()},
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
}


@dataclass(frozen=True)
class WeightTable:
    """Names of an architecture's weights in both directions.

    names: our module, or single tensor, and theirs.
    aliases: further names of theirs, which are read and not written.
    prefix: start of their names, which some files lack.
    ignored: parts of names of theirs that have no counterpart here.
    tied: their output layer's weight, which has no counterpart if it is that of the embedding.
    fused: end of their modules that hold W_q, W_k and W_v below each other; the rows of `names`
        call these `.0`, `.1` and `.2`.
    transposed: ends of their matrices that are stored as (in, out).
    """

    names: Names
    aliases: Names = field(default_factory=dict)
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    tied: str | None = None
    fused: str | None = None
    transposed: tuple[str, ...] = ()

    def to_ours(self, state: Mapping[str, Tensor], *, tie: bool = False) -> Weights:
        """Return their tensors under our names."""
        ignored = (*self.ignored, self.tied) if tie and self.tied else self.ignored
        pairs = [*self.names.items(), *self.aliases.items()]
        table = {theirs: ours for ours, theirs in pairs}
        converted: Weights = {}
        for name, tensor in state.items():
            if any(part in name for part in ignored):
                continue
            turned = tensor.t() if name.endswith(self.transposed) else tensor
            module, _, leaf = name.rpartition(".")
            leaf = OLD_LEAVES.get(leaf, leaf)
            parts = {f"{module}.{leaf}" if module else leaf: turned}
            if self.fused is not None and module.endswith(self.fused):
                if turned.dim() == 0 or len(turned) % 3:
                    raise CheckpointError(
                        f"{name}: {tuple(tensor.shape)} cannot be cut into 3 equal parts",
                        "wrong_shape",
                    )
                parts = {f"{module}.{i}.{leaf}": part for i, part in enumerate(turned.chunk(3))}
            for part_name, part in parts.items():
                converted[_other_name(part_name, table, self.prefix)] = part.contiguous()
        return converted

    def to_theirs(self, weights: Mapping[str, Tensor]) -> Weights:
        """Return our tensors under their names."""
        converted = {_other_name(name, self.names): tensor for name, tensor in weights.items()}
        for name in [n for n in converted if self.fused is not None and f"{self.fused}.0." in n]:
            before, _, leaf = name.rpartition("0.")
            parts = [converted.pop(f"{before}{i}.{leaf}") for i in range(3)]
            converted[before + leaf] = torch.cat(parts)
        return {
            name: (tensor.t() if name.endswith(self.transposed) else tensor).contiguous()
            for name, tensor in converted.items()
        }


def _other_name(name: str, table: Names, prefix: str = "") -> str:
    for full_name in (name, prefix + name):
        number = LAYER.search(full_name)
        if full_name in table:
            return table[full_name]
        module, _, leaf = LAYER.sub(r"\1.{}.", full_name, count=1).rpartition(".")
        if module in table:
            return f"{table[module].format(number.group(2) if number else '')}.{leaf}"
    raise CheckpointError(f"{name}: this kind of model has no such weight here", "unknown_weight")


def require_fit(converted: Mapping[str, Tensor], model: nn.Module) -> None:
    """Check that every weight of the model is there, in its shape, and nothing else is."""
    wanted = dict(model.named_parameters())
    for name, parameter in wanted.items():
        if name not in converted:
            raise CheckpointError(
                f"{name} is missing: the file does not hold a whole model", "missing_weight"
            )
        if converted[name].shape != parameter.shape:
            raise CheckpointError(
                f"{name} has the shape {tuple(converted[name].shape)}, but the configuration "
                f"requires {tuple(parameter.shape)}",
                "wrong_shape",
            )
    for name in converted:
        if name not in wanted:
            raise CheckpointError(
                f"{name} has no place in a model of this configuration", "unknown_weight"
            )


def whole(values: Mapping[str, Any], name: str) -> int:
    """Return a whole number of a foreign configuration."""
    return int(_number(values, name, int, "a whole number"))


def real(values: Mapping[str, Any], name: str) -> float:
    """Return a number of a foreign configuration."""
    return float(_number(values, name, int | float, "a number"))


def _number(values: Mapping[str, Any], name: str, kind: Any, expected: str) -> Any:
    value = values.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CheckpointError(
            f"config.json: {name} = {value!r}: expected {expected}", "invalid_config_value"
        )
    return value


def activation(
    values: Mapping[str, Any], name: str, known: Mapping[str, Activation] = ACTIVATIONS
) -> Activation:
    """Return our name of an activation function."""
    value: Any = values.get(name)
    if value not in known:
        raise CheckpointError(
            f"config.json: {name} = {value!r} is unknown; expected one of {', '.join(known)}",
            "unsupported_config_value",
        )
    return known[value]


def n_classes(values: Mapping[str, Any]) -> int:
    """Return the number of classes; models that do not choose one of them are refused."""
    if values.get("problem_type") is not None:
        require(values, {"problem_type": ONE_OF_MANY})
    labels = values.get("id2label")
    return len(labels) if isinstance(labels, Mapping) else 2


READERS: dict[str, Callable[[Mapping[str, Any], str], Any]] = {
    "dropout": real, "attention_dropout": real, "activation_dropout": real, "norm_eps": real,
    "activation": activation, "tie": lambda values, name: bool(values[name]),
}  # fmt: skip


def read_fields(values: Mapping[str, Any], table: Names) -> dict[str, Any]:
    """Return the fields of our configuration; `table` has their name of each."""
    return {ours: READERS.get(ours, whole)(values, theirs) for ours, theirs in table.items()}


def write_fields(config: object, table: Names) -> dict[str, Any]:
    """Return the values of our fields under their names."""
    values = {ours: getattr(config, ours) for ours in table}
    if "activation" in values:
        values["activation"] = THEIR_ACTIVATIONS[values["activation"]]
    return {table[ours]: value for ours, value in values.items()}


def require_exportable(
    stack: StackConfig, norm: str, others: Mapping[str, tuple[object, object]]
) -> None:
    """Refuse to write a model that theirs cannot express; `others`: our value and theirs."""
    values = {
        "norm": (stack.norm, norm), "score": (stack.score, "scaled_dot"),
        "attention": (stack.attention, "full"), "reversible": (stack.reversible, False),
        "experts": (stack.experts.n, 0), **others,
    }  # fmt: skip
    wanting = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    if wanting:
        ours = ", ".join(f"{name} = {own!r}" for name, (own, _) in wanting.items())
        theirs = " and ".join(f"{name} = {wanted!r}" for name, (_, wanted) in wanting.items())
        raise CheckpointError(
            f"{ours}: the target's model of this family has only {theirs}. Retrain with that to "
            "export it.",
            "not_exportable",
        )


def known_values(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the values of a config.json with the defaults; raises if our model cannot be it."""
    require(values, TABLES[kind].get("only", {}))
    return {**TABLES[kind]["defaults"], **values}


def require(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a variant that our model cannot express, instead of computing something else."""
    for name, value in wanted.items():
        if values.get(name, value) != value:
            raise CheckpointError(
                f"config.json: {name} = {values[name]!r} is not supported, only {value!r}",
                "unsupported_config_value",
            )
