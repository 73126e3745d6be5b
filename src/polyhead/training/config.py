"""Configuration of a run: a recipe or a TOML file, checked and completed with defaults.

Its tables [data], [text], [model], [train] and [decode] are dataclasses beside the code that uses
them: DataConfig, TextConfig, those of `FAMILIES`, TrainConfig and DecodeConfig.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from importlib import resources
from os.path import basename, isabs
from pathlib import Path
from typing import Any

from polyhead.checkpoint.atomic_dir import CHECKPOINTS
from polyhead.checkpoint.model_dir import read_family_config
from polyhead.checkpoint.model_files import read_config, resolve
from polyhead.config import (
    from_dict,
    habits,
    plain,
    read,
    set_by_path,
    setting_keys,
    suggest,
    to_toml,
)
from polyhead.data.config import LISTS, DataConfig
from polyhead.data.dataset_dir import with_splits
from polyhead.decoding.options import DecodeConfig
from polyhead.devices import memory_size
from polyhead.errors import ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.metrics.named_metrics import METRICS
from polyhead.models.registry import (
    FAMILIES,
    FINE_TUNED,
    find_task,
    has_mask_token,
    max_positions,
    outline,
    vocab_fields,
)
from polyhead.tokenizers.base import TextConfig
from polyhead.training.loop import TrainConfig

DEFAULT_RECIPE = "small"
RECIPES = {  # for files of a kind, unless the model to initialize from has this task
    "labelled": ("text_classification", "classify-small"),
    "source": ("translation", DEFAULT_RECIPE),
    "pairs": ("translation", DEFAULT_RECIPE),
}
DEFAULT_FAMILY = "transformer"
MOST_TENSORS = 50_000  # of a model that is trained; 2,048 experts in two layers have 16,800
SHORTEST = 3  # tokens of a text: BOS, EOS and one between them
SHORTEST_PAIR = 8  # tokens of a question and a part of its context
READ = {  # by task: the options of [data] that only some tasks read; those of plug-ins read all
    "translation": "source target pairs source_key target_key source_language target_language "
                   "adapt encoding",
    "language_modeling": "text text_key encoding",
    "masked_lm": "text text_key encoding blanks",
    "replaced_token": "text text_key encoding blanks",
    "text_classification": "labelled text_key text_pair_key label_key problem encoding",
    "token_classification": "labelled text_key label_key tag_names words encoding",
    "question_answering": "labelled stride max_answer encoding",
    "sentence_embedding": "source target pairs source_key target_key labelled text_key "
                          "text_pair_key label_key problem encoding",
    "image_classification": "images label_key augment",
}  # fmt: skip
COLUMNS = {  # options of [data]: kinds of files whose columns they name
    "source_key": "pairs", "target_key": "pairs", "text_key": "text labelled",
    "text_pair_key": "labelled", "label_key": "labelled images",
}  # fmt: skip
OF_THE_FILES = (  # options of [data] that describe the files of a recipe
    *COLUMNS, "corpus", "problem", "source_language", "target_language", "encoding", "tag_names",
)  # fmt: skip
TABLES: dict[str, Any] = {
    "data": DataConfig,
    "text": TextConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
}


@dataclass(frozen=True)
class RunConfig:
    """The checked configuration of a run."""

    description: str
    family: str
    data: DataConfig
    text: TextConfig
    model: Any
    train: TrainConfig
    decode: DecodeConfig
    overridden: dict[str, Any] = field(default_factory=dict, compare=False)  # by table

    @property
    def task(self) -> str:
        return FAMILIES[self.family].task

    def plain(self) -> dict[str, Any]:
        """Return all values, defaults included, as plain TOML types."""
        return {
            "description": self.description,
            "data": plain(self.data),
            "text": plain(self.text),
            "model": {"family": self.family, **plain(self.model)},
            "train": plain(self.train),
            "decode": plain(self.decode),
        }

    def portable(self) -> dict[str, Any]:
        """Return all values, with names only for absolute paths: models are passed on."""
        values, init = self.plain(), self.train.init
        for name in LISTS:
            paths = values["data"][name]
            values["data"][name] = [basename(path) if isabs(path) else path for path in paths]
        if init is not None and isabs(init):
            values["train"]["init"] = basename(init)
        return values

    def with_files(self, files: Mapping[str, Sequence[str]]) -> "RunConfig":
        """Return the configuration with other files, by option of [data]."""
        named = {option: tuple(paths) for option, paths in files.items()}
        return replace(self, data=replace(self.data, **named))  # type: ignore[arg-type]

    def with_steps(self, n_batches: int) -> "RunConfig":
        """Return the configuration with the steps of its epochs, of `n_batches` batches each."""
        steps = math.ceil((self.train.epochs or 0) * n_batches / self.train.accumulate)
        return replace(self, train=replace(self.train, steps=max(1, steps)))

    def toml(self) -> str:
        """Return all values as the text of a TOML file."""
        return to_toml(self.plain())


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with polyhead."""
    folder = resources.files("polyhead") / "recipes"
    return sorted(
        item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")
    )


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given its path or its name."""
    own, names = Path(name), recipe_names()
    if name in names:  # also beside a file of this name
        return Path(str(resources.files("polyhead") / "recipes" / f"{name}.toml"))
    if own.suffix == ".toml" or own.is_file():
        return own
    raise ConfigError(f"there is no recipe {name!r}{suggest(name, names)}", "no_recipe")


def read_run(
    recipe: str | None = None,
    overrides: Iterable[str] = (),
    files: Mapping[str, Sequence[str]] | None = None,
) -> RunConfig:
    """Read a recipe, replace its files if any are given, and apply overrides (train.steps=5).

    recipe: a name, a TOML file, or the directory of a model or run whose configuration to use.
    """
    name = recipe or DEFAULT_RECIPE
    if name in recipe_names() or not Path(name).is_dir():
        values = read(find_recipe(name))
    elif values := run_values(resolve(Path(name))):
        values["train"].pop("init", None)
    else:
        raise ConfigError(
            f"{name} was not trained with polyhead, so it has no configuration; name a recipe",
            "no_recipe",
        )
    return build(with_files(values, files), overrides)


def with_files(values: dict[str, Any], files: Mapping[str, Sequence[str]] | None) -> dict[str, Any]:
    """Return a recipe's values with these files instead of its own, if there are any."""
    given = {name: list(paths) for name, paths in (files or {}).items() if paths}
    if not given:
        return values
    data = {k: v for k, v in values.get("data", {}).items() if k not in (*LISTS, *OF_THE_FILES)}
    return {**values, "data": data | given}


def run_values(directory: Path) -> dict[str, Any]:
    """Return the configuration saved with a model, with the whole paths if the run is here."""
    values: dict[str, Any] = deepcopy(read_config(directory)["about"].get("run") or {})
    path = directory.parent.parent / "config.toml"
    if values and directory.parent.name == CHECKPOINTS and path.is_file():
        data = read(path).get("data", {})
        values["data"] = values.get("data", {}) | {n: data[n] for n in LISTS if n in data}
    return values


def fitting_recipe(
    init: str | Path | None, files: Mapping[str, Sequence[str]] | None
) -> str | None:
    """Return the recipe for files of a kind, or the directory of the model to initialize from."""
    task = None
    if init is not None:
        task = FAMILIES[read_family_config(resolve(Path(init)))["family"]].task
    for kind, (wanted, recipe) in RECIPES.items():
        if files and files.get(kind) and task != wanted:
            return recipe
    return None if init is None else str(init)


def build(
    values: dict[str, Any], overrides: Iterable[str] = (), *, any_size: bool = False
) -> RunConfig:
    """Check plain values and return them as a `RunConfig`.

    any_size: accept models that are too large for this machine.
    """
    values, overridden = deepcopy(values), {"model": dict[str, Any]()}
    description = str(values.pop("description", ""))
    recipe_model = deepcopy(values.get("model", {}))
    for override in overrides:
        set_by_path(values, override)
        set_by_path(overridden, override)
    _check_tables(values)
    given = overridden.get("train", {})
    if "steps" in given and "epochs" not in given:  # steps replace the recipe's epochs
        values["train"].pop("epochs", None)
    model = dict(values.get("model", {}))
    family = model.pop("family", DEFAULT_FAMILY)
    FAMILIES.check(str(family), "model.family")
    if "family" in overridden["model"] and isinstance(recipe_model, dict):
        _check_new_family(recipe_model, family)
    data = dict(values.get("data", {}))
    if overridden["model"] or overridden.get("text"):  # the user chose sizes
        data["adapt"] = overridden.get("data", {}).get("adapt", False)
    data |= {name: [data[name]] for name in LISTS if isinstance(data.get(name), str)}
    values["data"] = with_splits(data)
    tables = {
        name: from_dict(kind, values.get(name, {}), f"{name}.") for name, kind in TABLES.items()
    }
    for name in vocab_fields(FAMILIES[family].config):  # until the tokenizer is trained
        model.setdefault(name, tables["text"].vocab)
    config = from_dict(FAMILIES[family].config, model, "model.")
    run = RunConfig(description, family, model=config, overridden=overridden, **tables)
    _check_overrides(overridden, run)
    _check_task(run)
    _check_data(run)
    if not any_size:
        weights = outline(run.family, config, MOST_TENSORS).parameters()
        n_parameters, memory = sum(weight.numel() for weight in weights), memory_size()
        if memory is not None and 4 * n_parameters > memory:
            raise ConfigError(
                f"model: {n_parameters:,} parameters need {4 * n_parameters / 2**30:,.0f} GB, more "
                "than this machine's memory. Reduce the sizes in [model].",
                "out_of_memory",
            )
    if run.train.init is None:
        check_positions(config, run.data.max_length)  # else the sizes are those of the model
    return run


def setting_of(name: str) -> str | None:
    """Return the setting that has this name as its last part, or that other tools call so."""
    keys = list(setting_keys(read_run().plain()))
    last = {key.rsplit(".", 1)[1]: key for key in reversed(keys)} | habits()["settings"]
    close = get_close_matches(name, last, n=1, cutoff=0.85)
    return last[close[0]] if close else None


def _check_new_family(recipe_model: Mapping[str, Any], family: str) -> None:
    """Refuse a family that lacks an option of the recipe; the message names its own recipes."""
    known = {item.name for item in fields(FAMILIES[family].config)}
    others = [name for name in recipe_model if name not in (*known, "family")]
    if others:
        recipes = {name: read(find_recipe(name)).get("model", {}) for name in recipe_names()}
        names = [n for n, model in recipes.items() if model.get("family", DEFAULT_FAMILY) == family]
        use = f"use the recipe {' or '.join(names)}" if names else "write a recipe for it"
        raise ConfigError(
            f"model.family = {family}: this recipe sets model.{others[0]}, which {family} models "
            f"do not have; {use}",
            "family_changed",
        )


def _check_tables(values: Mapping[str, Any]) -> None:
    for name, table in values.items():
        if name not in (*TABLES, "model"):
            setting = setting_of(name)
            hint = f"; did you mean {setting}?" if setting else suggest(name, [*TABLES, "model"])
            raise ConfigError(f"{name}: unknown table{hint}", "unknown_key")
        if not isinstance(table, dict):
            raise ConfigError(
                f"{name} = {table!r}: expected a table, as in [{name}]. Write {name}.NAME=VALUE to "
                "set one of its values.",
                "not_a_table",
            )


def _check_overrides(overridden: Mapping[str, Any], run: RunConfig) -> None:
    """Refuse overrides that have no effect beside the other settings."""
    train, model = overridden.get("train", {}), overridden["model"]
    schedule, stack = train.get("schedule", {}), model.get("stack", {})
    kind, sizes = run.train.schedule.kind, vars(run.model)
    given = stack_of(run.model)
    attention = {"lsh", "local"} if given is None or run.train.init else set(given.kinds)
    encoder = sizes.get("encoder_attention") or ()
    attention |= {encoder} if isinstance(encoder, str) else set(encoder)
    grid = run.train.init or sizes.get("positions") == "axial"
    ignored = {  # setting: reason
        name: "the tokenizer sets it, by text.vocab"
        for name in setting_keys(model, "model.")
        if name.endswith("vocab")
    }
    if "steps" in train and "epochs" in train:
        ignored["train.steps"] = "train.epochs replaces it"
    if "rate" in schedule and kind == "noam":
        reason = 'train.schedule.kind = "noam" computes it from train.schedule.factor'
        ignored["train.schedule.rate"] = reason
    if "factor" in schedule and kind != "noam":
        reason = f'it belongs to train.schedule.kind = "noam", not "{kind}"'
        ignored["train.schedule.factor"] = reason
    if "window" in stack and "local" not in attention:
        ignored["model.stack.window"] = "no layer is local"
    if "lsh" in stack and "lsh" not in attention:
        ignored["model.stack.lsh"] = "no layer has LSH"
    if "axial" in model and not grid:
        ignored["model.axial"] = 'model.positions is not "axial"'
    for name, reason in ignored.items():
        raise ConfigError(
            f"{name} would have no effect: {reason}. Leave one of them out.", "no_effect"
        )


def _check_task(run: RunConfig) -> None:
    """Refuse options that models of this task or family do not have."""
    task, text, length = run.task, run.text, run.data.max_length
    decay, judge_by, kind = run.train.optimizer.layer_decay, run.train.judge_by, find_task(task)
    shortest = SHORTEST_PAIR if task == "question_answering" else SHORTEST
    if not text.joint and (task != "translation" or vars(run.model).get("tie") == "all"):
        raise ConfigError(
            "text.joint = false: the model has one vocabulary, or shares its embeddings by "
            'model.tie = "all". Leave it out, or set model.tie = "target" for translation.',
            "one_vocabulary",
        )
    if text.sampling and task not in ("translation", "text_classification"):
        raise ConfigError(
            f"text.sampling = {text.sampling}: only translators and text classifiers sample "
            "subwords. Leave it out.",
            "no_sampling",
        )
    if length < shortest and has_mask_token(run.family):
        raise ConfigError(
            f"data.max_length = {length}: expected at least {shortest} tokens, with BOS and EOS",
            "out_of_range",
        )
    if run.train.compile and task in ("replaced_token", *FINE_TUNED):
        raise ConfigError(
            f"train.compile is not supported for {run.family} models. Leave it out.", "no_compile"
        )
    if judge_by not in kind.metrics and not (kind.outputs and METRICS[judge_by].compute):
        raise ConfigError(
            f"train.judge_by = {judge_by!r}: validation of {task} does not report it"
            f"{suggest(judge_by, kind.metrics)}",
            "unknown_metric",
        )
    if run.train.smoothing and task == "question_answering":
        raise ConfigError(
            f"train.smoothing = {run.train.smoothing}: not supported for {run.family} models. Set "
            "it to 0.",
            "no_smoothing",
        )
    if decay != 1 and stack_of(run.model) is None:
        raise ConfigError(
            f"train.optimizer.layer_decay = {decay}: {run.family} models have no Transformer "
            "blocks. Leave it out.",
            "no_blocks",
        )


def _check_data(run: RunConfig) -> None:
    """Refuse files that the task does not read, and options that would have no effect on it."""
    data, used = vars(run.data), READ.get(run.task, "").split()
    selective = {name for names in READ.values() for name in names.split() if used}
    kinds = {name.removeprefix("valid_") for name in LISTS if data[name]}
    for name, default in vars(DataConfig()).items():
        kind, of = name.removeprefix("valid_"), COLUMNS.get(name, "").split()
        ignored = (kind in selective and kind not in used) or (of and kinds.isdisjoint(of))
        if data[name] != default and (ignored or (kind == "labelled" and len(kinds) > 1)):
            files = " and ".join(sorted(kinds - {kind})) or "no files"
            raise ConfigError(
                f"data.{name} would have no effect on {run.task.replace('_', ' ')} with {files}. "
                "Leave it out.",
                "wrong_data" if name in LISTS else "no_effect",
            )


def check_positions(model: Any, max_length: int) -> None:
    """Refuse texts longer than the positions that a model configuration can learn."""
    limit = max_positions(model)
    if limit is not None and max_length > limit:
        raise ConfigError(
            f"data.max_length = {max_length}: the model has only {limit} positions. Lower "
            "data.max_length or raise model.max_length.",
            "too_few_positions",
        )


def stack_of(model: Any) -> StackConfig | None:
    """Return the Transformer stack in a model configuration or in its encoder, if it has one."""
    for value in vars(model).values():
        if isinstance(value, StackConfig):
            return value
        if is_dataclass(value) and (stack := stack_of(value)) is not None:
            return stack
    return None
