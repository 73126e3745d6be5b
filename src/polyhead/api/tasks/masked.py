"""Masked language modelling: BERT learns to fill in blanks (Devlin et al. 2019)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from polyhead.api.reports import Journal
from polyhead.api.run import Run
from polyhead.api.tasks.contract import Prepared
from polyhead.api.tasks.sequences import fingerprints_of, material_of, read_lines
from polyhead.data.lines import Lines
from polyhead.data.masking import BERT
from polyhead.data.sequences import BlankBatch
from polyhead.train.pretraining import Filling


@dataclass(frozen=True)
class Masked:
    """For models that fill in blanks."""

    use: str = "polyhead fill"

    def read(self, run: Run) -> Lines:
        """The training and the validation text."""
        return read_lines(run)

    def fingerprints(self, material: Lines) -> dict[str, str]:
        """Both texts."""
        return fingerprints_of(material)

    def prepare(self, run: Run, folder: Path, material: Lines, journal: Journal) -> Prepared:
        """A tokenizer, and sequences whose blanks are drawn anew in every epoch."""
        found = material_of(run, folder, material, BERT, journal)
        return Prepared(
            found.run,
            found.tokenizers,
            found.train,
            Filling(),
            partial(examine, found.valid),
            found.summary,
        )


@torch.inference_mode()
def examine(batches: Sequence[BlankBatch], model: Any, _step: int) -> dict[str, float]:
    """How well the same blanks are filled in every time.

    Accuracy counts how often the likeliest token is the true one.
    """
    total, right, count = 0.0, 0, 0
    device = next(model.parameters()).device
    for batch in batches:
        ids, blanked, chosen, _ = batch.to(device)
        logits, labels = model.fill(blanked, chosen).float(), ids[chosen]
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        right += int((logits.argmax(-1) == labels).sum())
        count += len(labels)
    loss = total / max(1, count)
    return {
        "loss": loss,
        "perplexity": math.exp(min(700.0, loss)),
        "accuracy": right / max(1, count),
    }
