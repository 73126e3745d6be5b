"""Languages of a finished run or model: read and changed without training again."""

from pathlib import Path

from polyhead.checkpoint.atomic_dir import CHECKPOINTS
from polyhead.checkpoint.languages import set_languages, set_run_languages
from polyhead.checkpoint.model_dir import read_family_config
from polyhead.checkpoint.model_files import resolve, saved_languages
from polyhead.config import from_dict
from polyhead.data.config import DataConfig
from polyhead.data.languages import configured_languages
from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES
from polyhead.training.run_dir import CONFIG, RunDir


def languages_of(path: Path) -> tuple[str, str]:
    """Return the languages of a translation model or run, "" where they are unknown."""
    values = read_family_config(resolve(path))
    if FAMILIES[values["family"]].task != "translation":
        raise ConfigError(f"{path}: a {values['family']} model does not translate", "wrong_task")
    languages = saved_languages(values["about"])
    if any(languages):
        return languages
    run = values["about"].get("run") or {}
    return configured_languages(from_dict(DataConfig, run.get("data", {}), "data."))


def relabel(path: Path, languages: tuple[str, str]) -> None:
    """Change the languages of a translation model, or of all checkpoints of a run."""
    languages_of(path)
    directory = resolve(path)
    run_dir = RunDir(directory.parent.parent)
    if directory.parent.name != CHECKPOINTS or not (run_dir.path / CONFIG).is_file():
        set_languages(directory, languages)
        return
    with run_dir.exclusive_lock():
        set_languages(directory, languages)
        set_run_languages(run_dir.checkpoints, languages)
