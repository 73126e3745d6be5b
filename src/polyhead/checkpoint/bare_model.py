"""Models without a tokenizer: `polyhead.save_model` and `polyhead.load_model`."""

from pathlib import Path

from torch import nn

from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.checkpoint.model_dir import SavedModel, write_model
from polyhead.checkpoint.model_dir import load_model as load_saved
from polyhead.errors import ConfigError
from polyhead.models.registry import CONFIGS, FAMILIES


def save_model(model: nn.Module, path: str | Path, *, config: object = None) -> Path:
    """Write the weights of a model as safetensors, with its configuration and checksums.

    model: as built by `polyhead.create_model` or `polyhead.load_model`.
    path: the directory to write; a model that is there is replaced.
    config: the configuration of a model that was built in another way.

    Returns the directory, which holds config.json and model.safetensors.

    Example: `polyhead.save_model(polyhead.create_model("gpt2"), "models/gpt2-new")`
    """
    names = [name for name, family in FAMILIES.items() if family.model is type(model)]
    config = CONFIGS.get(model) if config is None else config
    if not names or not isinstance(config, FAMILIES[names[0]].config):
        raise ConfigError(
            f"{type(model).__name__}: its configuration is unknown; expected a model of "
            "polyhead.create_model, or config=",
            "unknown_config",
        )
    with atomic_dir(Path(path)) as draft:
        write_model(draft, SavedModel(names[0], config, model, None))
    return Path(path)


def load_model(path: str | Path, *, device: str = "cpu") -> nn.Module:
    """Load a model with its weights only, in evaluation mode.

    path: a directory of `save_model`, a model directory, or a run, whose best model is taken.
    device: where it computes, such as "cpu" or "cuda".

    Every file is checked against its checksum, every weight against the configuration; no code is
    run. For a model with its tokenizer, use `polyhead.load`.

    Example: `polyhead.load_model("runs/mine").eval()`
    """
    saved = load_saved(Path(path), device)
    CONFIGS[saved.model] = saved.config
    return saved.model
