"""Tiny pre-trained models for all tests that need one: some sentences, a few steps."""

from pathlib import Path

import torch

from polyhead.data.batches.masked import MaskedBatches, Masker
from polyhead.data.config import DataConfig
from polyhead.data.schedules import generator as schedules
from polyhead.data.token_store import TokenSequences
from polyhead.metrics.perplexity import map_here
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.tasks.base import Used
from polyhead.tasks.masked_tokens import MaskedSequence, MaskInput
from polyhead.training.config import read_run
from polyhead.training.trainer import train

TINY = (
    "text.vocab=700", "train.max_tokens=300", "train.steps=6", "train.validate_every=3",
    "train.save_every=3", "train.log_every=2", "train.schedule.warmup=2",
)  # fmt: skip
STACK = ("n_layers=1", "d_model=16", "n_heads=2", "d_ff=24")
SIZES = {
    "bert-tiny": tuple(f"model.stack.{size}" for size in STACK),
    "electra-tiny": (*(f"model.stack.{size}" for size in STACK), "model.d_embed=8"),
    **dict.fromkeys(
        ("classify-small", "tagger-small", "qa-small"),
        tuple(f"model.encoder.stack.{size}" for size in STACK),
    ),
}


def write_lines(folder: Path, n: int = 90) -> dict[str, list[str]]:
    """Korean sentences of the embedded corpus."""
    path = folder / "lines.txt"
    pairs = schedules.generate(n, 0, 0, seed=3).train
    path.write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    return {"text": [str(path)]}


def write_labelled(folder: Path, n: int = 60) -> dict[str, list[str]]:
    """Write sentences of the embedded corpus with labels."""
    found = schedules.generate_labelled(n, 30, 0, seed=3)
    paths = {"labelled": "train", "valid_labelled": "valid"}
    for split in paths.values():
        rows = "".join(f"{text}\t{label}\n" for text, label in found[split])
        (folder / f"{split}.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    return {name: [str(folder / f"{split}.tsv")] for name, split in paths.items()}


def masked_batches(masking, vocab: int, max_tokens: int = 48):
    """Random texts of different lengths with masked tokens; [MASK] is the last id."""
    generator = torch.Generator().manual_seed(5)
    lines = [
        [BOS, *torch.randint(4, vocab - 1, (length,), generator=generator).tolist(), EOS]
        for length in (*range(1, 9), 3, 5, 5, 8)
    ]
    masker = Masker(masking, vocab - 1, vocab)
    return list(MaskedBatches(TokenSequences.of(lines, vocab), masker, max_tokens, 0).of_epoch(0))


def masked_scores(task, model, batches):
    """The validation metrics of a model on batches of masked sequences."""
    sequences = []
    for batch in batches:
        for ids, blanked, chosen in zip(batch.ids, batch.blanked, batch.chosen, strict=True):
            places = chosen.nonzero()[:, 0]
            seen = blanked[places].tolist()
            sequences.append(MaskedSequence(ids[ids != PAD].tolist(), places.tolist(), seen))
    used = Used(model, None, 16, "a model", None, {}, DataConfig())
    given = [MaskInput("", sequences)]
    return task.measure(used, given, (), "validate", map_here, lambda _: None).validation


def configured(recipe: str, files: dict[str, list[str]], *overrides: str):
    """A recipe, made tiny."""
    return read_run(recipe, (*TINY, *SIZES[recipe], *overrides), files)


def pretrain(folder: Path, recipe: str, *overrides: str) -> Path:
    """A run in folder/recipe."""
    train(configured(recipe, write_lines(folder), *overrides), folder / recipe)
    return folder / recipe
