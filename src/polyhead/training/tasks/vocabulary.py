"""The tokenizers of a run: learned from its training text at its first start, then kept."""

from collections.abc import Sequence
from pathlib import Path

from polyhead.checkpoint import atomic_dir as store
from polyhead.tokenizers import storage as tokenizer
from polyhead.tokenizers.storage import TextConfig, Tokenizers
from polyhead.training import run_dir as runs
from polyhead.training.run_log import RunLog


def tokenizers_of(
    folder: Path,
    sources: Sequence[str],
    targets: Sequence[str],
    config: TextConfig,
    journal: RunLog,
) -> Tokenizers:
    """Those in the run's folder, or new ones that are written there. Plain text is all source."""
    place = folder / runs.TOKENIZER
    if not place.exists():
        journal.stage("learning the vocabulary")
        learned = tokenizer.train_tokenizers(sources, targets, config)
        with store.atomic_dir(place) as draft:
            tokenizer.save(learned, draft)
    return tokenizer.load(place)
