"""Plain text for models of one language: joined files, of which the end may be held out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from polyhead.data.columns import read_column
from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus, held_out_count, held_out_notice
from polyhead.data.schedules.generator import make_missing
from polyhead.data.text_files import TextFile, check_bad_lines, excerpt, read_text, skipped_notices
from polyhead.errors import ConfigError, DataError

PlainCorpus = Corpus[list[str]]


def load_plain(config: DataConfig, most: int | None = None) -> PlainCorpus:
    """Read the plain text of a configuration; without validation files, hold out its last tenth."""
    if not config.text:
        raise ConfigError("data.text: give a file of plain text, as in --text FILE", "no_data")
    make_missing(config)
    notices: list[str] = []
    lines = _read(config.text, config, notices)
    if config.valid_text:
        return PlainCorpus(lines, _read(config.valid_text, config, notices), tuple(notices))
    count = held_out_count(len(lines), most)
    train, valid = lines[:-count], lines[-count:]
    if not any(train) or not any(valid):
        raise DataError(
            f"{config.text[0]}: {len(lines)} lines are not enough to train on and to hold some "
            "out. Give more text, or a validation file.",
            "too_few_examples",
        )
    notices.append(held_out_notice(len(valid), len(lines), "lines, the last ones,"))
    return PlainCorpus(train, valid, tuple(notices))


def _read(names: Sequence[str], config: DataConfig, notices: list[str]) -> list[str]:
    lines: list[str] = []
    for name in names:
        text = _read_file(name, config)
        if not any(text.lines):
            reason = f" ({text.bad[0]})" if text.bad else ""
            raise DataError(f"{text.name} has no text{reason}", "no_text")
        check_bad_lines(text.bad, config.on_bad_line)
        lines += text.lines
        notices += [*text.notices, *skipped_notices(text.bad)]
    examples = islice(filter(str.strip, lines), 2)
    notices.append(f"{names[0]}: {'; '.join(map(excerpt, examples))}")
    return lines


def _read_file(name: str, config: DataConfig) -> TextFile:
    """Read the good lines of a file, or the text column of a table if one is named."""
    if config.text_key is not None:
        return read_column(name, config.text_key, config.encoding)
    text = read_text(name, encoding=config.encoding)
    bad = {line.line for line in text.bad}
    return replace(text, lines=[line for n, line in enumerate(text.lines, start=1) if n not in bad])
