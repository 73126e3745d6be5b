"""Names of weights and of configuration values, ours and theirs; the tables are in names.toml.

A `WeightTable` has a row for every module, ours first; weights and biases follow their module. The
values of config.json have tables too (`read_fields`), a row for every field of our configuration.
Everything that comes from a file is checked before it is used.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.config import MAX_FLOAT, MAX_INTEGER
from polyhead.errors import CheckpointError
from polyhead.layers.feed_forward import Activation
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.text_classifier import Problem

Weights = dict[str, Tensor]
Names = Mapping[str, str]

TABLES = tomllib.loads(files(__package__).joinpath("names.toml").read_text(encoding="utf-8"))
TABLES["pegasus"] = TABLES["marian"] | {
    "defaults": TABLES["marian"]["defaults"] | TABLES["pegasus"]["defaults"]
}
LAYER = re.compile(r"\b(blocks|layers|layer|h)\.(\d+)\.")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OLD_LEAVES = {"gamma": "weight", "beta": "bias"}  # of norms in old files
ONE_OF_MANY = "single_label_classification"
PROBLEMS: dict[Problem, str] = {  # ours, and their problem_type
    "single_label": ONE_OF_MANY, "multi_label": "multi_label_classification",
    "regression": "regression",
}  # fmt: skip
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
                ours = _other_name(part_name, table, self.prefix)
                if ours in converted:
                    raise CheckpointError(
                        f"{part_name}: the file has this weight twice, under two names",
                        "duplicate_weight",
                    )
                converted[ours] = part.contiguous()
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
    """Check that every weight of the model is there, as floats of its shape, and nothing else."""
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
        if converted[name].dtype not in FLOATS:
            raise CheckpointError(
                f"{name} is not stored as float16, bfloat16, float32 or float64: integers and "
                "quantized weights are not read. Convert the file to one of these types.",
                "not_float",
            )
    for name in converted:
        if name not in wanted:
            raise CheckpointError(
                f"{name} has no place in a model of this configuration", "unknown_weight"
            )


def reordered(state: Mapping[str, Tensor], ends: str | tuple[str, ...], rows: Tensor) -> Weights:
    """Return the weights with other rows in the modules that have these ends."""
    weights = dict(state)
    for name, tensor in state.items():
        if name.rpartition(".")[0].endswith(ends):
            if tensor.dim() == 0 or len(tensor) != len(rows):
                raise CheckpointError(
                    f"{name}: {tuple(tensor.shape)}, but the configuration requires {len(rows)} "
                    "rows",
                    "wrong_shape",
                )
            weights[name] = tensor.index_select(0, rows)
    return weights


def with_zero_biases(state: Mapping[str, Tensor], ends: tuple[str, ...]) -> Weights:
    """Add biases of 0 to the matrices that have these ends."""
    return dict(state) | {
        name.removesuffix("weight") + "bias": weight.new_zeros(len(weight))
        for name, weight in state.items()
        if name.endswith(ends) and weight.dim()
    }


def with_new_output(weights: Weights, n_classes: int, d_model: int) -> Weights:
    """Add the output layer that an encoder lacks, of zeros, so that all classes are equal."""
    like = next(iter(weights.values()), torch.empty(0))
    new = like.new_zeros(n_classes, d_model), like.new_zeros(n_classes)
    return weights | {"to_logits.weight": new[0], "to_logits.bias": new[1]}


def shown(value: Any) -> str:
    """Return a foreign value for a message: short, and on one line."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list) and any(isinstance(item, list | Mapping) for item in value):
        return "a list of lists or tables"
    return repr(value[:9] if isinstance(value, list) else value)[:80]


def _refused(name: str, value: Any, expected: str) -> CheckpointError:
    return CheckpointError(
        f"config.json: {name} = {shown(value)}: expected {expected}", "invalid_config_value"
    )


def whole(values: Mapping[str, Any], name: str) -> int:
    """Return a natural number of a foreign configuration."""
    value = values.get(name)
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise _refused(name, value, f"a whole number from 0 to {MAX_INTEGER:,}")
    return value


def real(values: Mapping[str, Any], name: str) -> float:
    """Return a number of a foreign configuration."""
    value = values.get(name)
    if type(value) not in (int, float) or not abs(value) <= MAX_FLOAT:  # type: ignore[arg-type]
        raise _refused(name, value, f"a number up to {MAX_FLOAT:g}")
    return float(value)  # type: ignore[arg-type]


def flag(values: Mapping[str, Any], name: str) -> bool:
    """Return a boolean of a foreign configuration."""
    value = values.get(name)
    if not isinstance(value, bool):
        raise _refused(name, value, "true or false")
    return value


def activation(
    values: Mapping[str, Any], name: str, known: Mapping[str, Activation] = ACTIVATIONS
) -> Activation:
    """Return our name of an activation function."""
    value = values.get(name)
    if not isinstance(value, str) or value not in known:
        raise CheckpointError(
            f"config.json: {name} = {shown(value)} is unknown; expected one of {', '.join(known)}",
            "unsupported_config_value",
        )
    return known[value]


def n_classes(values: Mapping[str, Any]) -> int:
    """Return the number of classes; models that do not choose one of them are refused."""
    if values.get("problem_type") is not None:
        why = "a class is chosen here by softmax, so that its loss and outputs would be others"
        require(values, {"problem_type": (ONE_OF_MANY, why)})
    labels = values.get("id2label")
    if labels is None:
        return whole({"num_labels": 2, **values}, "num_labels")
    if not isinstance(labels, Mapping):
        raise _refused("id2label", labels, "a table of the classes' names")
    return len(labels)


def problem_and_classes(values: Mapping[str, Any]) -> tuple[Problem, int]:
    """Return the kind of the labels of a text classifier, and the number of its outputs."""
    name, n_labels = values.get("problem_type"), n_classes({**values, "problem_type": None})
    if name is None:
        return "regression" if n_labels == 1 else "single_label", n_labels
    problem = next((ours for ours, theirs in PROBLEMS.items() if theirs == name), None)
    if problem is None:
        raise _refused("problem_type", name, f"one of {', '.join(PROBLEMS.values())}")
    return problem, n_labels


READERS: dict[str, Callable[[Mapping[str, Any], str], Any]] = {
    "dropout": real, "attention_dropout": real, "activation_dropout": real, "norm_eps": real,
    "activation": activation, "tie": flag,
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
    d_head = stack.d_model // stack.n_heads
    values = {
        "d_k": (stack.d_key, d_head), "d_v": (stack.d_value, d_head),
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
    table = TABLES[kind]
    require(values, table.get("only", {}))
    other_names = {}
    for other, name in table.get("synonyms", {}).items():
        if other in values and values.get(name, values[other]) != values[other]:
            raise CheckpointError(
                f"config.json: {other} = {shown(values[other])} and {name} = "
                f"{shown(values[name])}, which are two names of one value",
                "invalid_config_value",
            )
        if other in values:
            other_names[name] = values[other]
    return {**table["defaults"], **other_names, **values}


def require(values: Mapping[str, Any], wanted: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a variant that our model cannot express; `wanted`: the value that it can, and why."""
    for name, (value, why) in wanted.items():
        if values.get(name, value) != value:
            raise CheckpointError(
                f"config.json: {name} = {shown(values[name])} is not supported, only {value!r}: "
                f"{why}",
                "unsupported_config_value",
            )


def lost_dropouts(values: Mapping[str, Any], kind: str, config: Any) -> tuple[str, ...]:
    """Return notes about dropout rates of theirs that our configuration has no field for."""
    notes = []
    table = TABLES.get(kind, {})
    values = {**table.get("defaults", {}), **values}
    for name, ours in table.get("dropouts", {}).items():
        rate, kept = real(values, name), getattr(config.stack, ours) if ours else 0.0
        if rate != kept:
            notes.append(f"{name} = {rate:g} is not kept: training it further uses {kept:g}")
    return tuple(notes)
