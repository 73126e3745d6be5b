"""What kind of model lies in a folder, and whether it is good for what is asked of it."""

import shlex
from pathlib import Path

from polyhead.checkpoint import model_dir as model_folder
from polyhead.errors import CheckpointError
from polyhead.models.registry import FAMILIES, command_of


def family_of(path: Path) -> str:
    """The family of a model, or of a run's best one, without loading it."""
    return str(model_folder.read_config(model_folder.resolve(path))["family"])


def check_use(path: Path, use: str) -> None:
    """Refuse a model that is meant for another command than `use`, and say for which."""
    family = family_of(path)
    meant = command_of(family) if family in FAMILIES else ""
    if meant == use:
        return
    instead = f"; use it with: {meant} {shlex.quote(str(path))}" if meant else ""
    raise CheckpointError(
        f"{path} holds a model of family {family}, which `{use}` cannot use{instead}"
    )
