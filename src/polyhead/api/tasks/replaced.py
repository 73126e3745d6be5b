"""Replaced-token detection: ELECTRA learns to spot forged tokens (Clark et al. 2020)."""

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
from polyhead.data.masking import ELECTRA
from polyhead.data.sequences import BlankBatch
from polyhead.evaluate.detection import detected
from polyhead.models.electra import SPOTTING_WEIGHT
from polyhead.text.tokenizer import PAD
from polyhead.train.pretraining import Spotting

SEED = 0  # of the forgeries in validation


@dataclass(frozen=True)
class Replaced:
    """For a generator that forges tokens and a discriminator that spots them."""

    use: str = "polyhead train classify-small --data FILE --init"

    def read(self, run: Run) -> Lines:
        """The training and the validation text."""
        return read_lines(run)

    def fingerprints(self, material: Lines) -> dict[str, str]:
        """Both texts."""
        return fingerprints_of(material)

    def prepare(self, run: Run, folder: Path, material: Lines, journal: Journal) -> Prepared:
        """A tokenizer, and sequences whose blanks are drawn anew in every epoch."""
        found = material_of(run, folder, material, ELECTRA, journal)
        return Prepared(
            found.run,
            found.tokenizers,
            found.train,
            Spotting(PAD, SPOTTING_WEIGHT),
            partial(examine, found.valid),
            found.summary,
        )


@torch.inference_mode()
def examine(batches: Sequence[BlankBatch], model: Any, _step: int) -> dict[str, float]:
    """Both players on the same blanks, with forgeries drawn by the same dice, every time.

    generator_accuracy: how often the likeliest token is the true one.
    precision, recall: of the tokens under suspicion, how many were replaced; of the replaced ones,
        how many were under suspicion. To suspect nothing would be right nine times of ten.
    auc: how often a replaced token is more suspect than an original one.
    """
    device = next(model.parameters()).device
    total, count, right, n_blanks = 0.0, 0, 0, 0
    suspicion, replaced = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for batch in (batch.to(device) for batch in batches):
            said = model(batch.ids, batch.blanked, batch.chosen)
            labels, real = batch.ids[batch.chosen], batch.ids != PAD
            total += Spotting(PAD, SPOTTING_WEIGHT).of(said, batch).total.item()
            count += batch.n_tokens
            right += int((said.generated.argmax(-1) == labels).sum())
            n_blanks += len(labels)
            suspicion.append(said.suspicion[real].float().cpu())
            replaced.append(said.replaced[real].cpu())
    found = detected(torch.cat(suspicion).numpy(), torch.cat(replaced).numpy())
    return {
        "loss": total / max(1, count),
        "generator_accuracy": right / max(1, n_blanks),
        "precision": found.precision,
        "recall": found.recall,
        "auc": found.auc,
    }
