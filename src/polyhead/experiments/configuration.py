"""Sizes of a compared system, and the deviations of its configuration from its paper's.

The paper's configuration is the system's preset in `models.registry`. Its training settings are
known for the Transformer only: they are those of the recipes base and big.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from polyhead.experiments.systems import System
from polyhead.models.registry import find_config
from polyhead.training.config import RunConfig, read_run, stack_of

UNCOMPARED = ("pad", "max_length")  # no part of an architecture
TRAINING = ("max_tokens", "clip_norm", "smoothing", "optimizer", "schedule")


@dataclass(frozen=True)
class ModelSizes:
    """Layers of the encoder and, if their number differs, of the decoder; their width."""

    layers: tuple[int, ...]
    width: str
    norm: str = ""  # "pre" or "post" of a Transformer
    experts: int = 0


@dataclass(frozen=True)
class Deviation:
    """An option whose value differs from the published one; both as text."""

    name: str
    value: str
    published: str


def sizes_of(config: Any) -> ModelSizes:
    """Return the sizes of a model configuration of any translator."""
    values = vars(config)
    stack = stack_of(config)
    if "encoder" in values:  # layers of different widths: ConvS2S
        widths = [width for width, _ in (*config.encoder, *config.decoder)]
        ends = sorted({min(widths), max(widths)})
        layers = dict.fromkeys((len(config.encoder), len(config.decoder)))
        return ModelSizes(tuple(layers), " – ".join(map(str, ends)))
    sizes = values if stack is None else vars(stack)
    experts = sizes["experts"].n if "experts" in sizes else 0
    layers = dict.fromkeys((sizes["n_layers"], values.get("decoder_layers") or sizes["n_layers"]))
    return ModelSizes(tuple(layers), str(sizes["d_model"]), sizes.get("norm", ""), experts)


def deviations(system: System, run: RunConfig) -> list[Deviation]:
    """Return the options of a run that differ from the system's paper; none without a preset."""
    if system.preset is None:
        return []
    published = flat(asdict(find_config(system.preset)[1]))
    ours = flat(asdict(run.model))
    if system.paper_recipe:
        published |= flat(_training(read_run(system.paper_recipe)))
        ours |= flat(_training(run))
    return [
        Deviation(name, shown(ours.get(name)), shown(value))
        for name, value in published.items()
        if ours.get(name) != value and name not in UNCOMPARED
    ]


def _training(run: RunConfig) -> dict[str, Any]:
    train = asdict(run.train)
    values = {name: train[name] for name in TRAINING}
    if run.train.schedule.kind == "noam":
        del values["schedule"]["rate"]  # it has none
    return values


def flat(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return nested values by their own names; those of a table that is no stack keep its name."""
    by_name: dict[str, Any] = {}
    for name, value in values.items():
        inner = "" if name == "stack" else f"{name}."
        by_name |= flat(value, inner) if isinstance(value, Mapping) else {where + name: value}
    return by_name


def shown(value: Any) -> str:
    """Return a value as text: lists of equal layers shortened, None as the default."""
    if value is None:
        return "default"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        runs = [(len(list(group)), item) for item, group in groupby(value)]
        return " + ".join(f"{n} x {list(item)}" for n, item in runs)
    return str(value).lower() if isinstance(value, bool) else str(value)
