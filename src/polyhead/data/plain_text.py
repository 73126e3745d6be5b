"""Plain text for models of one language: joined files, of which the end may be held out."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from polyhead.data.columns import open_column
from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus, held_out_count, held_out_notice
from polyhead.data.line_spool import Examples, LineSpool
from polyhead.data.locate import find
from polyhead.data.tables import decoded_kind
from polyhead.data.text_files import BadLine, BadLines, excerpt, open_text, skipped_notices
from polyhead.errors import ConfigError, DataError

MAX_HELD_OUT = 10_000_000  # characters


def load_plain(
    config: DataConfig, spool: LineSpool, most: int | None = None
) -> Corpus[LineSpool, Examples]:
    """Read the plain text of a configuration; without validation files, hold out its last tenth.

    most: lines to hold out.
    """
    if not config.text:
        raise ConfigError("data.text: give a file of plain text, as in --text FILE", "no_data")
    notices: list[str] = []
    spool.write((line,) for line in stream_plain(config.text, config, notices))
    if config.valid_text:
        valid = list(stream_plain(config.valid_text, config, notices))
        return Corpus(spool, Examples(valid), tuple(notices))
    n_lines = len(spool)
    count = count_last(spool.backwards(0), n_lines, most)
    held_out = spool.select(range(n_lines - count, n_lines))
    spool.left_out = range(n_lines - count, n_lines)
    if not any(spool.column(0)) or not any(held_out.texts):
        raise DataError(
            f"{config.text[0]}: {n_lines} lines are not enough to train on and to hold some "
            "out. Give more text, or a validation file.",
            "too_few_examples",
        )
    notices.append(held_out_notice(count, n_lines, "lines, the last ones,"))
    return Corpus(spool, held_out, tuple(notices))


def count_last(backwards: Iterable[str], n_lines: int, most: int | None) -> int:
    """Return how many of the last lines to hold out: a tenth, but no more than are of use."""
    count, n_characters = held_out_count(n_lines, most), 0
    for number, line in enumerate(islice(backwards, count)):
        n_characters += len(line)
        if number and n_characters > MAX_HELD_OUT:
            return number
    return count


def stream_plain(names: Sequence[str], config: DataConfig, notices: list[str]) -> Iterator[str]:
    """Yield the good lines of files; the last messages are added at the end."""
    examples: list[str] = []
    for name in names:
        file_name, lines, of_file = _open(name, config)
        bad, has_text = BadLines(), False
        for line in lines:
            if isinstance(line, BadLine):
                bad.add(line)
                continue
            has_text = has_text or line != ""
            if len(examples) < 2 and line.strip():
                examples.append(line)
            yield line
        if not has_text:
            reason = f" ({bad.first[0]})" if bad.first else ""
            raise DataError(f"{file_name} has no text{reason}", "no_text")
        bad.check(config.on_bad_line)
        notices += [*of_file, *skipped_notices(bad.first, count=bad.count)]
    notices.append(f"{names[0]}: {'; '.join(map(excerpt, examples))}")


def _open(name: str, config: DataConfig) -> tuple[str, Iterator[str | BadLine], tuple[str, ...]]:
    """Open a file, or the text column of a table if one is named; return also its messages."""
    is_table = ".jsonl" in Path(name).suffixes or bool(decoded_kind(find(name)))
    if config.text_key is not None or is_table:
        return open_column(name, config.text_key or "text", config.encoding)
    text = open_text(name, encoding=config.encoding)
    return text.name, iter(text), text.notices
