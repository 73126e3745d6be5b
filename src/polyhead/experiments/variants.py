"""Variants of recipes and of plans: all combinations of the values of varied settings.

    --vary model.positions=rotary,sinusoidal --vary model.stack.norm=pre,post       four variants
    --vary recipe=gpt-tiny,reformer-tiny                                             two recipes
    --vary 'model.widths=[16,32],[32,64]' --vary 'text.kind="bpe","words"'

Values stand between commas; commas in brackets or quotes separate nothing. A plan is a TOML file
with systems, see plans/.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path

from polyhead.config import from_dict, read, suggest
from polyhead.errors import ConfigError
from polyhead.experiments.systems import CONTESTS, Contest, System

PIECE = re.compile(r'"[^"]*"|\'[^\']*\'|[\[{(]|[\]})]|,|[^"\'\[\]{}(),]+|.')
UNSAFE = re.compile(r"[^\w=.,+-]+")  # in the name of a directory
LONGEST_NAME = 120
BUILT_IN = {"table2": "compare", "ladder": "ladder"}  # plans with data and options of their own
Varied = Mapping[str, Sequence[str]]


def read_vary(given: Sequence[str]) -> dict[str, list[str]]:
    """Parse `model.positions=rotary,sinusoidal`; return the values of each setting."""
    varied: dict[str, list[str]] = {}
    for text in given:
        key, equals, values = text.partition("=")
        key, listed = key.strip(), split_values(values)
        if not equals or ("." not in key and key != "recipe") or not all(listed):
            raise ConfigError(
                f"--vary {text}: expected a setting and its values, such as "
                "model.positions=rotary,sinusoidal, or recipe=NAME,NAME",
                "invalid_vary",
            )
        if key in varied or len(set(listed)) < len(listed):
            raise ConfigError(f"--vary {text}: given twice. Leave one of them out.", "varied_twice")
        varied[key] = listed
    return varied


def split_values(text: str) -> list[str]:
    """Split a text at the commas outside of brackets and quotes."""
    values, depth = [""], 0
    for piece in PIECE.findall(text):
        depth += (piece in "[{(") - (piece in "]})")
        if piece == "," and depth == 0:
            values.append("")
        else:
            values[-1] += piece
    return [value.strip() for value in values]


def plan_names() -> list[str]:
    """Return the names of the plans that come with polyhead."""
    folder = files(__package__) / "plans"
    own = [item.name.removesuffix(".toml") for item in folder.iterdir()]
    return [*BUILT_IN, *sorted(own)]


def find_plan(name: str) -> Contest:
    """Return a plan, given its name or the path of its TOML file."""
    if name in BUILT_IN:
        return CONTESTS[BUILT_IN[name]]
    path = Path(name)
    if path.suffix != ".toml":
        path = Path(str(files(__package__) / "plans" / f"{name}.toml"))
        if not path.is_file():
            raise ConfigError(
                f"--plan {name}: no such plan{suggest(name, plan_names())}", "no_plan"
            )
    plan = from_dict(Contest, {"name": path.stem, **read(path)})
    names = [system.name for system in plan.systems]
    if len(set(names)) < len(names) or not all(names) or plan.baseline not in ("", *names):
        raise ConfigError(
            f"{path}: expected systems with different names, and one of them as baseline",
            "invalid_plan",
        )
    return plan


def plan_of_recipes(recipes: Sequence[str]) -> Contest:
    """Return the plan that compares these recipes; the system of a single one has no name."""
    stems = [Path(recipe).stem for recipe in recipes]
    if len(set(stems)) < len(stems):
        raise ConfigError(f"{' '.join(recipes)}: two recipes of the same name", "varied_twice")
    names = stems if len(stems) > 1 else [""]
    systems = [System(n, n, recipe=r) for n, r in zip(names, recipes, strict=True)]
    return Contest("+".join(stems), tuple(systems), title=", ".join(stems))


def expand(plan: Contest, varied: Varied, baseline: str | None = None) -> Contest:
    """Return the plan with all combinations of varied values of each system.

    A variant is tested against the plan's baseline with the same values, if there are several
    systems; otherwise, or with the name of a variant as `baseline`, all against one.
    """
    reference = baseline or plan.baseline or plan.systems[0].name
    shorts = short_names(varied)
    variants = []
    for values in product(*varied.values()):
        label = [f"{short}={value}" for short, value in zip(shorts, values, strict=True)]
        changes = tuple(f"{key}={value}" for key, value in zip(varied, values, strict=True))
        for system in plan.systems:
            parts = [part for part in (system.title or system.name, *label) if part]
            variants.append(replace(
                system,
                name=directory_name([system.name, *label]),
                title=", ".join(parts) or plan.title,
                recipe=system.recipe or plan.recipe,
                variation=changes,
                origin=system.name,
                baseline=directory_name([reference, *label]),
            ))  # fmt: skip
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise ConfigError("--vary: two variants have the same name; shorten values", "varied_twice")
    if reference not in [system.name for system in plan.systems]:
        if reference not in names:
            raise ConfigError(
                f"--baseline {reference}: no such variant{suggest(reference, names)}",
                "unknown_baseline",
            )
        variants = [replace(variant, baseline=reference) for variant in variants]
    elif len(plan.systems) == 1:
        variants = [replace(variant, baseline=names[0]) for variant in variants]
    if len(varied) == 1 and len(plan.systems) > 1:  # by system, then by value
        variants.sort(key=lambda variant: [s.name for s in plan.systems].index(variant.origin))
    return replace(plan, systems=tuple(variants), usual=(), baseline=reference)


def short_names(varied: Varied) -> list[str]:
    """Return the last parts of the settings' names, as many as distinguish them."""
    shorts = []
    for key in varied:
        parts = key.split(".")
        n = 1
        while any(
            other != key and other.split(".")[-n:] == parts[-n:] for other in varied
        ) and n < len(parts):
            n += 1
        shorts.append(".".join(parts[-n:]))
    return shorts


def directory_name(parts: Sequence[str]) -> str:
    """Return a name for directories: parts between commas, without characters that need quotes."""
    name = ",".join(UNSAFE.sub("_", part).strip("_") for part in parts if part)
    return name[:LONGEST_NAME] or "run"
