"""Served models, named by their directories.

Requests select a model by name only; no path, address or code from a request is ever used.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from polyhead.data.images.files import require_pillow
from polyhead.pipelines.backends import USES
from polyhead.pipelines.base import ModelFiles, Pipeline
from polyhead.pipelines.describe import Description, describe
from polyhead.pipelines.text_generator import FastGenerator
from polyhead.pipelines.translator import FastTranslator
from polyhead.server.responses import HTTPError

INSIDE_RUN = re.compile("best|last|step-[0-9]+|checkpoints|model")


P = TypeVar("P", bound=Pipeline, covariant=True)


@dataclass(frozen=True)
class ServedModel(Generic[P]):
    """A loaded model with its name."""

    name: str
    model: P
    about: Description
    created: int = field(default_factory=lambda: int(time.time()))  # Unix time of loading


@dataclass(frozen=True)
class ModelRegistry:
    """All served models, in the order of the command line."""

    models: tuple[ServedModel[Pipeline], ...]
    use_torch: bool = True

    def pick(
        self,
        name: str | None,
        *kinds: type[P],
        source: str | None = None,
        target: str | None = None,
    ) -> ServedModel[P]:
        """Return the named model, or the first one of these kinds and languages.

        Raises HTTPError 404 or 422 if there is none.
        """
        candidates = [served for served in self.models if name in (None, served.name)]
        if not candidates:
            raise HTTPError(404, "unknown model; see /v1/models", field="model")
        uses = " or ".join(kind.use for kind in kinds)
        suitable: list[Any] = [c for c in candidates if isinstance(c.model, kinds)]
        if not suitable and name is not None:
            message = f"{name} is a model for {candidates[0].about.use}, not for {uses}"
            raise HTTPError(422, message, field="model")
        if not suitable:
            raise HTTPError(404, f"no model for {uses}; see /v1/models")
        for served in suitable:
            languages = served.about.source_language, served.about.target_language
            if _fits(source, languages[0]) and _fits(target, languages[1]):
                picked: ServedModel[P] = served
                return picked
        raise HTTPError(422, "no model for these languages; see /v1/models")


def _fits(requested: str | None, known: str | None) -> bool:
    return requested in (None, "auto", "") or known is None or requested == known


def load_models(
    paths: Sequence[Path], device: str, engine: str = "auto", compute_type: str = "auto"
) -> ModelRegistry:
    """Load all models and give them distinct names."""
    has_torch = find_spec("torch") is not None
    use_torch = engine != "ctranslate2" and (engine != "auto" or has_torch)
    models: list[ServedModel[Pipeline]] = []
    for path in paths:
        base = name = _name(path)
        number = 2
        while any(served.name == name for served in models):
            name, number = f"{base}-{number}", number + 1
        model = (
            _load(path, device, engine, compute_type)
            if use_torch
            else _load_fast(path, compute_type)
        )
        models.append(ServedModel(name, model, describe(model)))
    return ModelRegistry(tuple(models), use_torch)


def _load_fast(path: Path, compute_type: str) -> Pipeline:
    is_generator = USES.get(ModelFiles(str(path)).family) == "generate"
    return (FastGenerator if is_generator else FastTranslator)(path, compute_type=compute_type)


def _load(path: Path, device: str, engine: str, compute_type: str) -> Pipeline:
    from polyhead.devices import keep_freed_memory
    from polyhead.pipelines.load import load

    keep_freed_memory()
    model = load(path, device=device, engine=engine, compute_type=compute_type)
    if model.use == "classify-image":
        require_pillow()  # MissingError now rather than at the first image
    return model


def _name(path: Path) -> str:
    """Return the last meaningful part of a path: "mine" for runs/mine/best."""
    parts = [part for part in path.absolute().parts if not INSIDE_RUN.fullmatch(part)]
    return re.sub(r"[^\w.-]+", "-", parts[-1]).strip("-") or "model"
