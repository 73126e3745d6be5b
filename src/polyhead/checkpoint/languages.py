"""Languages of a translation model on disk, which can be changed without training it again."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from polyhead.checkpoint.atomic_dir import MANIFEST, atomic_dir, list_checkpoints, verify
from polyhead.checkpoint.model_card import card_title, front_matter
from polyhead.checkpoint.model_dir import read_family_config
from polyhead.checkpoint.model_files import CARD, CONFIG, saved_languages
from polyhead.errors import CheckpointError


def run_languages(checkpoints: Path) -> tuple[str, str]:
    """Return the languages of the newest checkpoint of a run, "" where they are unknown."""
    for _, path in reversed(list_checkpoints(checkpoints)):
        with suppress(CheckpointError):
            return saved_languages(read_family_config(path)["about"])
    return "", ""


def set_languages(directory: Path, languages: Sequence[str]) -> None:
    """Change the languages of a model directory, which is replaced atomically.

    Only config.json, the head of the model card and the checksums change. A damaged directory is
    refused: new checksums would make it look intact.
    """
    values = read_family_config(directory)
    if saved_languages(values["about"]) == tuple(languages):
        return
    names = [name for name in verify(directory) if name != MANIFEST]
    old = values["about"]
    values["about"] = {**old, "languages": list(languages)}
    with atomic_dir(directory) as draft:
        for name in names:
            (draft / name).parent.mkdir(exist_ok=True)
            try:
                os.link(directory / name, draft / name)
            except OSError:  # a file system without hard links
                shutil.copy2(directory / name, draft / name)
        changed = {CONFIG: json.dumps(values, indent=2, ensure_ascii=False) + "\n"}
        if CARD in names:
            card = (directory / CARD).read_text(encoding="utf-8")
            family, about = values["family"], values["about"]
            card = card.replace(front_matter(family, old), front_matter(family, about), 1)
            title = re.compile(f"^{re.escape(card_title(family, {}))}.*$", re.MULTILINE)
            changed[CARD] = title.sub(lambda _: card_title(family, about), card, count=1)
        for name, text in changed.items():
            (draft / name).unlink()  # a link to the old file
            (draft / name).write_text(text, encoding="utf-8")


def set_run_languages(checkpoints: Path, languages: Sequence[str]) -> None:
    """Change the languages of all checkpoints of a run; damaged ones, never used, stay as is."""
    for _, path in list_checkpoints(checkpoints):
        with suppress(CheckpointError):
            set_languages(path, languages)
