"""Corpora with their training examples in memory."""

from dataclasses import replace

from polyhead.data.line_spool import Examples, LineSpool
from polyhead.data.schedules.generator import make_missing


def load(read, config, n_columns=2, **options):
    """Read a corpus by `load_parallel`, `load_labelled` or `load_plain`."""
    make_missing(config)
    corpus = read(config, spool=LineSpool(n_columns), **options)
    return replace(corpus, train=Examples(*map(list, corpus.train.columns)))


def load_texts(read, config, **options):
    """Return lists of lines to train on and to validate on, and the messages."""
    corpus = load(read, config, 1, **options)
    return corpus.train.texts, corpus.valid.texts, corpus.notices
