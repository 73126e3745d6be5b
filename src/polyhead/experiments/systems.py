"""Systems that can be compared: a row each, with the recipe of its sizes. See systems.toml."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from polyhead.config import from_dict, plain, read, set_by_path, suggest
from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES, find_config, vocab_fields
from polyhead.training.config import DEFAULT_FAMILY, find_recipe

HOME = "multi30k-de-en"  # the recipe whose data the systems' recipes were made for
LENGTHS = ("epochs", "steps")  # replaced by the budget
CARRIED = ("optimizer", "schedule", "clip_norm", "smoothing", "accumulate")  # to other data
Scale = Literal["small", "paper"]  # the recipes' sizes, or the published ones
OF_DATA = ("bleu_sentences", "device", "bf16", "workers", "max_tokens")


@dataclass(frozen=True)
class Stage:
    """A share of the budget, or a number of steps, and the overrides of this stage.

    recipe: the stage's own, as of a pre-training; then only `changes` are its overrides, and
        variants of the system share it.
    files: options of [data], such as "text", that it reads from; all if there are none.
    """

    share: float = 1.0
    changes: tuple[str, ...] = ()
    recipe: str = ""
    files: tuple[str, ...] = ()
    steps: int = 0


@dataclass(frozen=True)
class System:
    """One row of the table; systems.toml describes the fields."""

    name: str
    title: str = ""
    paper: str = ""
    paper_title: str = ""
    paper_recipe: str = ""
    preset: str | None = None
    recipe: str = ""
    changes: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = (Stage(),)
    published: str | None = None
    bar: float | None = None
    variation: tuple[str, ...] = ()  # values of varied settings
    origin: str = ""  # the system that this one is a variant of
    baseline: str = ""  # the variant that it is tested against

    def title_at(self, scale: "Scale") -> str:
        """Return the title; systems of published size may have the paper's."""
        return self.paper_title or self.title if scale == "paper" else self.title


@dataclass(frozen=True)
class Contest:
    """A set of systems, those compared by default, and the baseline of the significance tests.

    translates: systems translate the same test set with the same vocabulary; otherwise every run
        reads its data itself, and its scores are those of its task's validation.
    recipe: of systems that have none. vary: settings that are varied unless others are given.
    """

    name: str
    systems: tuple[System, ...]
    usual: tuple[str, ...] = ()
    baseline: str = ""
    title: str = ""
    translates: bool = False
    recipe: str = ""
    vary: tuple[str, ...] = ()


TABLES = tomllib.loads(files(__package__).joinpath("systems.toml").read_text(encoding="utf-8"))
CONTESTS = {name: from_dict(Contest, {"name": name, **table}) for name, table in TABLES.items()}


def select_systems(contest: Contest, names: Sequence[str]) -> tuple[System, ...]:
    """Return the named systems, or the usual ones, in the order of the table."""
    known = [system.name for system in contest.systems]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--systems {name}: no such system{suggest(name, known)}", "unknown_system"
            )
    chosen = names or contest.usual or known
    return tuple(system for system in contest.systems if system.name in chosen)


def system_values(
    system: System,
    base: Mapping[str, Any],
    *,
    home: bool,
    changes: Iterable[str] = (),
    scale: Scale = "small",
) -> dict[str, Any]:
    """Return the values of a run: the system's model and training, the base's data and tokenizer.

    home: the base has the data that the system's recipe was made for; otherwise batches are as
        large as in the base.
    scale: "paper" replaces the recipe's model by the published one, and its training settings by
        the paper's where they are known.
    """
    name, own_changes = f"{HOME}-{system.recipe}" if system.recipe else HOME, system.changes
    if scale == "paper":
        name, own_changes = system.paper_recipe or name, ()
    own = read(find_recipe(name))
    train = own["train"]
    if scale == "paper" and system.preset is not None:
        family, config = find_config(system.preset)
        of_tokenizer = (*vocab_fields(config), "pad")
        sizes = {k: v for k, v in plain(config).items() if k not in of_tokenizer}
        own["model"] = {"family": family, **sizes}
    if not home:
        given = {name: base["train"][name] for name in OF_DATA if name in base.get("train", {})}
        train = {name: train[name] for name in (*CARRIED, "max_tokens") if name in train} | given
    title = system.title_at(scale)
    values: dict[str, Any] = {
        "description": f"{title} ({system.paper})" if system.paper else title,
        "data": dict(base.get("data", {})),
        "text": dict(base.get("text", {})),
        "model": own["model"],
        "train": {name: value for name, value in train.items() if name not in LENGTHS},
        "decode": dict(base.get("decode", {})),
    }
    for change in (*own_changes, *changes):
        set_by_path(values, change)
    model = values["model"]
    if not values["text"].get("joint", True) and "tie" not in model:
        # Share no table between two vocabularies where the model's default would.
        default = FAMILIES[model.get("family", DEFAULT_FAMILY)].config()
        if getattr(default, "tie", None) == "all":
            model["tie"] = "target"
    return values
