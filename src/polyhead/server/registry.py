"""The models of a server: loaded once, named by their folders' names, chosen by what is asked.

A request names a model by its name only. No path, address or code from a request is ever used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.pipelines.describe import Description, describe
from polyhead.pipelines.load import load
from polyhead.server.errors import HTTPError
from polyhead.server.uploads import check_reader

INSIDE = re.compile("best|last|step-[0-9]+|checkpoints|model")  # folders of a run


@dataclass(frozen=True)
class ServedModel:
    """One model with its name. `model` is what `polyhead.load` gives."""

    name: str
    model: Any
    about: Description


@dataclass(frozen=True)
class ModelRegistry:
    """All models, in the order of the command line."""

    books: tuple[ServedModel, ...]

    def pick(
        self,
        name: str | None,
        uses: Sequence[str],
        source: str | None = None,
        target: str | None = None,
    ) -> ServedModel:
        """The model of this name, or the first that can do it, with these languages if given."""
        if name is not None:
            found = [book for book in self.books if book.name == name]
            if not found:
                raise HTTPError(404, "there is no such model; see /v1/models", field="model")
            if found[0].about.use not in uses:
                raise HTTPError(
                    422, f"{found[0].name} cannot do this; it is for {found[0].about.use}",
                    field="model",
                )  # fmt: skip
        else:
            found = [book for book in self.books if book.about.use in uses]
            if not found:
                raise HTTPError(404, f"no model here is for {' or '.join(uses)}; see /v1/models")
        for book in found:
            about = book.about
            if fits(source, about.source_language) and fits(target, about.target_language):
                return book
        raise HTTPError(422, "no model here translates between these languages; see /v1/models")

    @property
    def translators(self) -> tuple[ServedModel, ...]:
        """The models that translate."""
        return tuple(book for book in self.books if book.about.use == "translate")


def fits(asked: str | None, has: str | None) -> bool:
    """Whether a language is the one that is asked for; unknown ones fit everything."""
    return asked in (None, "auto", "") or has is None or asked == has


def fill(paths: Sequence[Path], device: str) -> ModelRegistry:
    """Load all models."""
    books: list[ServedModel] = []
    for path in paths:
        model = load(path, device=device)
        name = _name(path)
        taken = {book.name for book in books}
        number = 2
        while name in taken:
            name, number = f"{_name(path)}-{number}", number + 1
        books.append(ServedModel(name, model, describe(model)))
        if books[-1].about.use == "classify-image":
            check_reader()  # rather now than with the first image
    return ModelRegistry(tuple(books))


def _name(path: Path) -> str:
    """The last part of a path that says something: runs/mine/best is "mine"."""
    parts = [part for part in path.absolute().parts if not INSIDE.fullmatch(part)]
    return re.sub(r"[^\w.-]+", "-", parts[-1]).strip("-") or "model"
