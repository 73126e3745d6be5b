"""One or many inputs of a pipeline, and lists of results that show themselves in notebooks."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from polyhead.errors import ConfigError
from polyhead.render import notebook


@runtime_checkable
class Shown(Protocol):
    """A result that has an HTML form."""

    def _repr_html_(self) -> str: ...


R = TypeVar("R", bound=Shown)
Lines = str | Path | Iterable[str | Path]  # a file, texts in memory, or several files


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


def as_lines(given: Lines, method: str, encoding: str = "utf-8") -> list[str]:
    """Return lines in memory, or those of files: a name, a path or a list of paths."""
    from polyhead.data.config import DataConfig
    from polyhead.data.dataset_dir import evaluation_files
    from polyhead.data.plain_text import stream_plain  # which imports numpy

    if isinstance(given, str | Path):
        given = [Path(given)]
    if isinstance(given, Sequence) and given and all(isinstance(item, Path) for item in given):
        config = DataConfig(encoding=encoding, on_bad_line="fail")
        return list(stream_plain(evaluation_files(given, "text"), config, []))
    return as_texts(given, method)
