"""Served models, named by their directories.

Requests select a model by name only; no path, address or code from a request is ever used.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyhead.data.images.files import pillow
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.describe import Description, describe
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.load import load
from polyhead.server.errors import HTTPError

INSIDE_RUN = re.compile("best|last|step-[0-9]+|checkpoints|model")


@dataclass(frozen=True)
class ServedModel:
    """A loaded model with its name."""

    name: str
    model: Pipeline
    about: Description


@dataclass(frozen=True)
class ModelRegistry:
    """All served models, in the order of the command line."""

    models: tuple[ServedModel, ...]

    def pick(
        self,
        name: str | None,
        uses: Sequence[str],
        source: str | None = None,
        target: str | None = None,
    ) -> ServedModel:
        """Return the named model, or the first one for these uses and languages.

        Raises HTTPError 404 or 422 if there is none.
        """
        if name is not None:
            candidates = [served for served in self.models if served.name == name]
            if not candidates:
                raise HTTPError(404, "unknown model; see /v1/models", field="model")
            if (use := candidates[0].about.use) not in uses:
                message = f"{name} is a model for {use}, not for {' or '.join(uses)}"
                raise HTTPError(422, message, field="model")
        else:
            candidates = [served for served in self.models if served.about.use in uses]
            if not candidates:
                raise HTTPError(404, f"no model for {' or '.join(uses)}; see /v1/models")
        for served in candidates:
            about = served.about
            if _fits(source, about.source_language) and _fits(target, about.target_language):
                return served
        raise HTTPError(422, "no model for these languages; see /v1/models")

    @property
    def translators(self) -> tuple[ServedModel, ...]:
        """All translation models."""
        return tuple(served for served in self.models if served.about.use == "translate")


def _fits(requested: str | None, known: str | None) -> bool:
    return requested in (None, "auto", "") or known is None or requested == known


def load_models(paths: Sequence[Path], device: str) -> ModelRegistry:
    """Load all models and give them distinct names."""
    models: list[ServedModel] = []
    for path in paths:
        model = load(path, device=device)
        base = name = _name(path)
        number = 2
        while any(served.name == name for served in models):
            name, number = f"{base}-{number}", number + 1
        if isinstance(model, ImageClassifier):
            pillow()  # MissingError now rather than at the first image
        models.append(ServedModel(name, model, describe(model)))
    return ModelRegistry(tuple(models))


def _name(path: Path) -> str:
    """Return the last meaningful part of a path: "mine" for runs/mine/best."""
    parts = [part for part in path.absolute().parts if not INSIDE_RUN.fullmatch(part)]
    return re.sub(r"[^\w.-]+", "-", parts[-1]).strip("-") or "model"
