"""The vocabulary for small corpora of sentence pairs, and warnings about them.

With few pairs, a Transformer needs fewer subwords than usual (Sennrich and Zhang 2019, "Revisiting
Low-Resource Neural Machine Translation"). More dropout, which they also use, was worse in the 12
epochs of `small`: see `benchmarks/RESULTS.md`.
"""

from dataclasses import replace
from itertools import chain

from polyhead.data.line_spool import Examples
from polyhead.data.stored_text import StoredText
from polyhead.errors import DataError
from polyhead.training.config import RunConfig
from polyhead.training.run_log import RunLog

MIN_PAIRS = 9  # of ten, one is held out
FEW, ENOUGH = 1_000, 20_000  # pairs
PIECES = 500  # subwords beside single characters that a vocabulary must have room for
BYTES_AND_SPECIALS = 260
VOCABULARIES = ((10_000, 2_000), (20_000, 4_000))  # up to so many pairs: subwords


def check_enough(n_pairs: int) -> None:
    """Raise DataError if there are hardly any training pairs."""
    if n_pairs < MIN_PAIRS:
        raise DataError(
            f"only {n_pairs} pairs to train on, at least {MIN_PAIRS} are needed. Give more text.",
            "too_few_examples",
        )


def warn_if_few(config: RunConfig, n_pairs: int, log: RunLog) -> None:
    """Warn about too few training pairs."""
    if n_pairs >= ENOUGH or config.data.corpus is not None or config.train.init is not None:
        return
    expected = "only repetitions of them" if n_pairs < FEW else "mistakes in most new sentences"
    log.notice(
        f"warning: {n_pairs:,} pairs are few, expect {expected}; translators of everyday sentences "
        "are trained on 100,000 or more"
    )


def adapt(config: RunConfig, pairs: StoredText | Examples, log: RunLog) -> RunConfig:
    """Choose the vocabulary by the number of pairs, if `data.adapt` says so."""
    vocab = next((vocab for most, vocab in VOCABULARIES if len(pairs) <= most), None)
    if vocab is None or config.train.init is not None:
        return config
    chosen = config.overridden.get("data", {}).keys() | config.overridden.get("text", {}).keys()
    if not config.data.adapt:
        if config.overridden.get("model") and not chosen & {"adapt", "vocab"}:
            log.notice(
                f"few pairs: text.vocab stays {config.text.vocab} beside changed values of the "
                "model; data.adapt=true chooses a smaller one"
            )
        return config
    n_characters = len(set(chain.from_iterable(chain(*pairs.columns))))
    vocab = max(vocab, n_characters + BYTES_AND_SPECIALS + PIECES)
    vocab = min(vocab, config.text.vocab)
    log.notice(f"few pairs: text.vocab = {vocab} (with data.adapt=false as in the recipe)")
    return replace(config, text=replace(config.text, vocab=vocab))
