"""A small trained model for every row of tests/support/task_rows.py."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import task_rows
from task_rows import ROWS, Row

import polyhead
from polyhead.training.entry import train

LONGER = {  # and batches so small that validation has several
    "train.steps": 90, "train.validate_every": 45, "train.save_every": 45, "train.max_tokens": 90,
}  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A finished run of a row; `given` is the first input: a line, or the file of an image."""

    name: str
    row: Row
    run: Path
    valid: Path
    given: str | Path

    @cached_property
    def pipeline(self):
        return polyhead.load(self.run, device="cpu", engine="torch")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Return a function that trains a row once."""
    folder, known = tmp_path_factory.mktemp("tasks"), {}

    def trained(name):
        if name not in known:
            row = ROWS[name]
            files = task_rows.write_files(name, folder / f"{name}-files")
            overrides = row.overrides() | LONGER
            train(row.recipe, run=folder / name, overrides=overrides, progress="none", **files)
            valid = Path(files[f"valid_{row.option}"])
            given = row.use[0] if row.use else min(valid.rglob("*.png"))
            known[name] = Trained(name, row, folder / name, valid, given)
        return known[name]

    return trained


@pytest.fixture(params=ROWS)
def one(request, trained):
    """Return the trained model of each row in turn."""
    return trained(request.param)
