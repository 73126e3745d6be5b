"""A language model that trains in a second or two, for all tests that need a finished one."""

from pathlib import Path

from tiny import write_corpus

from polyhead.training.config import RunConfig, read_run
from polyhead.training.trainer import train

SMALL = (
    "data.max_length=16", "text.vocab=900", "model.max_length=16", "model.stack.n_layers=2",
    "model.stack.d_model=16", "model.stack.n_heads=2", "model.stack.d_ff=32",
    "model.stack.attention_dropout=0.1", "train.steps=12", "train.max_tokens=128",
    "train.validate_every=6", "train.save_every=4", "train.log_every=2", "train.schedule.warmup=4",
    "decode.max_length=30",
)  # fmt: skip


def tiny_gpt(folder: Path, *overrides: str) -> RunConfig:
    """The configuration of a tiny model on a few Korean sentences, which are written to a file."""
    text = write_corpus(folder)["source"]
    return read_run("gpt-tiny", (*SMALL, *overrides), {"text": text})


def train_gpt(folder: Path, *overrides: str) -> Path:
    """Train in folder/run; the corpus lies beside it."""
    train(tiny_gpt(folder, *overrides), folder / "run")
    return folder / "run"
