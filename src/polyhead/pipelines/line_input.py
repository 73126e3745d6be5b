"""Lines of text for an evaluation, from files or in memory.

Apart from `result_list`, which translating from the shell imports, because reading files of all
kinds imports numpy.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from polyhead.data.config import DataConfig
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.plain_text import stream_plain
from polyhead.pipelines.result_list import as_texts

Lines = str | Path | Iterable[str | Path]  # a file, texts in memory, or several files


def as_lines(given: Lines, method: str, encoding: str = "utf-8") -> list[str]:
    """Return lines in memory, or those of files: a name, a path or a list of paths."""
    if isinstance(given, str | Path):
        given = [Path(given)]
    if isinstance(given, Sequence) and given and all(isinstance(item, Path) for item in given):
        config = DataConfig(encoding=encoding, on_bad_line="fail")
        return list(stream_plain(evaluation_files(given, "text"), config, []))
    return as_texts(given, method)
