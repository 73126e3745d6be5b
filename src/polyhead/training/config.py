"""A run's configuration: a recipe or a file of your own, checked and complete.

    [data]    which files              polyhead.data.config.DataConfig
    [text]    how text becomes ids     polyhead.tokenizers.base.TextConfig
    [model]   family and size          polyhead.models.FAMILIES
    [train]   how to train             polyhead.training.loop.TrainConfig
    [decode]  how to translate         polyhead.decoding.config.DecodeConfig

Each table is a dataclass beside the code that reads it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from polyhead.config import from_dict, plain, read, set_by_path, suggest, to_toml
from polyhead.data.config import DataConfig
from polyhead.decoding.config import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.layers.positions import BOUNDED_POSITIONS
from polyhead.models.registry import FAMILIES
from polyhead.tokenizers.base import TextConfig
from polyhead.training.loop import TrainConfig

DEFAULT_RECIPE = "small"
LISTS = (
    "source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "text",
    "valid_text", "labelled", "valid_labelled", "images", "valid_images",
)  # fmt: skip
SIZES = {  # what follows from the size of the vocabulary, until the real one is known
    "transformer": ("source_vocab", "target_vocab"),
    "ladder": ("source_vocab", "target_vocab"),
    "seq2seq": ("source_vocab", "target_vocab"),
    "bahdanau": ("source_vocab", "target_vocab"),
    "luong": ("source_vocab", "target_vocab"),
    "deep_att": ("source_vocab", "target_vocab"),
    "gnmt": ("source_vocab", "target_vocab"),
    "convs2s": ("source_vocab", "target_vocab"),
    "bytenet": ("source_vocab", "target_vocab"),
    "moe": ("source_vocab", "target_vocab"),
    "gpt": ("vocab",),
    "reformer": ("vocab",),
    "bert": ("vocab",),
    "electra": ("vocab",),
}
CONTINUED = ("gpt", "reformer", "bert", "electra", "vit")  # whose sizes are those of train.init
TABLES: dict[str, Any] = {
    "data": DataConfig,
    "text": TextConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
}


@dataclass(frozen=True)
class RunConfig:
    """One configuration, checked: what to read, how large a model, and how to train it.

    asked: what of [model] was set by overrides; the rest may give way to the sizes of `train.init`.
    """

    description: str
    family: str
    data: DataConfig
    text: TextConfig
    model: Any
    train: TrainConfig
    decode: DecodeConfig
    asked: dict[str, Any] = field(default_factory=dict, compare=False)

    def plain(self) -> dict[str, Any]:
        """Every value, with the defaults filled in, as it would stand in a file."""
        tables = {name: plain(getattr(self, name)) for name in ("data", "text", "train", "decode")}
        model = {"family": self.family, **plain(self.model)}
        return {
            "description": self.description,
            "data": tables["data"],
            "text": tables["text"],
            "model": model,
            "train": tables["train"],
            "decode": tables["decode"],
        }

    def toml(self) -> str:
        """The same as a TOML file."""
        return to_toml(self.plain())


def recipe_names() -> list[str]:
    """The recipes that come with polyhead."""
    folder = resources.files("polyhead") / "recipes"
    return sorted(
        item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")
    )


def find_recipe(name: str) -> Path:
    """A file of one's own, or a recipe by its name."""
    own = Path(name)
    if own.suffix == ".toml" or own.is_file():
        return own
    if name not in recipe_names():
        raise ConfigError(f"there is no recipe {name!r}{suggest(name, recipe_names())}")
    return Path(str(resources.files("polyhead") / "recipes" / f"{name}.toml"))


def read_run(
    recipe: str | None = None,
    overrides: Iterable[str] = (),
    files: Mapping[str, Sequence[str]] | None = None,
) -> RunConfig:
    """Read a recipe; then come the user's files, if any, then overrides such as train.steps=5."""
    values = read(find_recipe(recipe or DEFAULT_RECIPE))
    if files:
        data = {k: v for k, v in values.get("data", {}).items() if k not in (*LISTS, "corpus")}
        values["data"] = data | {name: list(paths) for name, paths in files.items() if paths}
    return build(values, overrides)


def build(values: dict[str, Any], overrides: Iterable[str] = ()) -> RunConfig:
    """Check plain values and make a `RunConfig` of them."""
    from_file = {name: table for name, table in values.items() if name != "description"}
    overrides, asked = list(overrides), {"model": dict[str, Any]()}
    for override in overrides:
        set_by_path(from_file, override)
        set_by_path(asked, override)
    for name in from_file:
        if name not in (*TABLES, "model"):
            raise ConfigError(f"{name}: no such table{suggest(name, [*TABLES, 'model'])}")
        if not isinstance(from_file[name], dict):
            raise ConfigError(
                f"{name} = {from_file[name]!r}: expected a table, as in [{name}]; write "
                f"{name}.NAME=VALUE to set one of its values"
            )
    _let_steps_win(from_file, overrides)
    model = dict(from_file.get("model", {}))
    family = model.pop("family", "transformer")
    if family not in FAMILIES:
        raise ConfigError(f"model.family: no family {family!r}{suggest(str(family), FAMILIES)}")
    tables = {
        name: from_dict(kind, _listed(from_file.get(name, {})), f"{name}.")
        for name, kind in TABLES.items()
    }
    for name in SIZES.get(family, ()):
        model.setdefault(name, tables["text"].vocab)
    config = from_dict(FAMILIES[family].config, model, "model.")
    if not tables["text"].joint:
        _check_two_vocabularies(family, config)
    if tables["train"].init is None or family not in CONTINUED:  # else the sizes are another's
        _check_places(config, tables["data"].max_length)
    description = str(values.get("description", ""))
    return RunConfig(description, family, model=config, asked=asked["model"], **tables)


def _check_places(config: Any, longest: int) -> None:
    """Texts must not be longer than the positions that are learned."""
    places = getattr(config, "max_length", longest)  # images have as many as there are patches
    if getattr(config, "positions", None) in BOUNDED_POSITIONS and longest > places:
        raise ConfigError(
            f"data.max_length = {longest}: the model learns only {places} positions; "
            "raise model.max_length or lower data.max_length"
        )


def _check_two_vocabularies(family: str, config: Any) -> None:
    """`text.joint = false` is for models of two languages that do not share their tables."""
    if "source_vocab" not in SIZES.get(family, ()):
        raise ConfigError(
            f"text.joint = false: two vocabularies are for two languages, and a model of family "
            f"{family} reads one; leave it out"
        )
    if getattr(config, "tie", None) == "all":
        raise ConfigError('model.tie = "all" needs text.joint = true; or set model.tie = "target"')


def _let_steps_win(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Who asks for train.steps means it, although the recipe counts in epochs."""
    asked = {override.partition("=")[0] for override in overrides}
    if "train.steps" in asked and "train.epochs" not in asked:
        values["train"].pop("epochs", None)


def _listed(table: dict[str, Any]) -> dict[str, Any]:
    """`source = "a.txt"` means the same as `source = ["a.txt"]`."""
    return {
        name: [value] if name in LISTS and isinstance(value, str) else value
        for name, value in table.items()
    }
