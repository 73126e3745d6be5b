"""The tokenizers of a run: learned from its training text at its first start, then kept."""

from collections.abc import Sequence
from pathlib import Path

from polyhead.api import runs
from polyhead.api.reports import Journal
from polyhead.checkpoint import store
from polyhead.text import tokenizer
from polyhead.text.tokenizer import TextConfig, Tokenizers


def tokenizers_of(
    folder: Path,
    sources: Sequence[str],
    targets: Sequence[str],
    config: TextConfig,
    journal: Journal,
) -> Tokenizers:
    """Those in the run's folder, or new ones that are written there. Plain text is all source."""
    place = folder / runs.TOKENIZER
    if not place.exists():
        journal.stage("learning the vocabulary")
        learned = tokenizer.train_tokenizers(sources, targets, config)
        with store.writing(place) as draft:
            tokenizer.save(learned, draft)
    return tokenizer.load(place)
