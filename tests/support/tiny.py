"""A run that trains in two seconds, for all tests that need a finished model."""

from pathlib import Path

from polyhead.data.schedules import generator as schedules
from polyhead.training.config import read_run
from polyhead.training.trainer import train

SMALL = (
    "text.vocab=900", "model.stack.n_layers=2", "model.stack.d_model=16",
    "model.stack.n_heads=2", "model.stack.d_ff=32", "train.steps=12", "train.max_tokens=400",
    "train.validate_every=6", "train.save_every=4", "train.log_every=2", "train.bleu_sentences=4",
    "train.schedule.warmup=4", "data.hold_out=20",
)  # fmt: skip


def write_corpus(folder: Path, n: int = 160, seed: int = 3) -> dict[str, list[str]]:
    """A few sentences of the embedded corpus as two files."""
    pairs = schedules.generate(n, 0, 0, seed).train
    files = {"source": folder / "train.ko", "target": folder / "train.en"}
    for (_, path), side in zip(files.items(), zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return {name: [str(path)] for name, path in files.items()}


def train_tiny(folder: Path, name: str = "run", overrides: tuple[str, ...] = ()) -> Path:
    """Train in folder/name; the corpus lies beside it."""
    files = write_corpus(folder)
    train(read_run("small", (*SMALL, *overrides), files), folder / name)
    return folder / name
