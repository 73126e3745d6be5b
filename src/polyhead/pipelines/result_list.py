"""One or many inputs of a pipeline, and lists of results that show themselves in notebooks."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from polyhead.errors import ConfigError
from polyhead.render import notebook


@runtime_checkable
class Shown(Protocol):
    """A result that has an HTML form."""

    def _repr_html_(self) -> str: ...


R = TypeVar("R", bound=Shown)


class ResultList(list[R]):
    """Results of many inputs, in their order."""

    def _repr_html_(self) -> str:
        shown = "".join(result._repr_html_() for result in self[: notebook.MAX_ROWS])
        more = len(self) - notebook.MAX_ROWS
        return shown + (f"<p>and {more:,} more</p>" if more > 0 else "")


def as_texts(given: object, method: str) -> list[str]:
    """Return a text, or many, as a list; ConfigError for anything else."""
    if isinstance(given, str):
        return [given]
    kind = type(given).__name__
    if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping):
        texts: list[str] = list(given)
        other = next((n for n, text in enumerate(texts) if not isinstance(text, str)), None)
        if other is None:
            return texts
        kind = f"{kind} with {type(texts[other]).__name__} at {other}"
    raise ConfigError(f"{method} takes a text or a list of texts, not {kind}", "not_text")
