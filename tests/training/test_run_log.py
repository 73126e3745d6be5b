"""Run logs: valid JSON lines that are removed with the steps they belong to."""

import json
import math
import sys
import types
from typing import ClassVar

import pytest
from expected_errors import raises

from polyhead.errors import MissingError, PolyheadError
from polyhead.training.run_log import ProgressReporter, RunLog, with_nan, without_nan


def test_numbers_that_are_not_finite_are_null(tmp_path):
    log = RunLog(tmp_path, ProgressReporter())
    log.record("train", 3, {"loss": 0.1 + 0.2, "norm": math.inf, "rate": math.nan})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    entry = json.loads(line, parse_constant=pytest.fail)
    assert entry == {"kind": "train", "step": 3, "loss": 0.1 + 0.2, "norm": None, "rate": None}
    assert "train step 3  loss 0.3\n" in (tmp_path / "train.log").read_text()


def test_without_metrics_nothing_is_removed_or_created(tmp_path):
    log = RunLog(tmp_path, ProgressReporter())
    log.forget_after(3)
    log.sync()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["metrics.jsonl", "train.log"])
def test_a_full_disk_is_an_error(tmp_path, name):
    (tmp_path / name).symlink_to("/dev/full")
    with raises(PolyheadError, "io", name, "No space left on device"):
        RunLog(tmp_path, ProgressReporter()).record("train", 1, {"loss": 1.0})


def test_null_is_read_back_as_nan():
    values = {"loss": math.nan, "bleu": 3.0}
    assert without_nan(values) == {"loss": None, "bleu": 3.0}
    again = with_nan({"loss": None, "bleu": 3.0})
    assert math.isnan(again["loss"])
    assert again["bleu"] == 3.0
    assert with_nan(None) is without_nan(None) is None


# TensorBoard


class FakeWriter:
    """A writer that records its calls."""

    made: ClassVar[list] = []

    def __init__(self, directory, purge_step=None):
        self.directory, self.purge_step = directory, purge_step
        self.scalars, self.closed = [], False
        self.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        pass

    def close(self):
        self.closed = True


@pytest.fixture
def board(monkeypatch):
    module = types.ModuleType("torch.utils.tensorboard.writer")
    module.SummaryWriter = FakeWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.ModuleType("board"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", module)
    monkeypatch.setattr(FakeWriter, "made", [])
    return FakeWriter.made


def test_tensorboard_gets_every_number_and_purges_removed_steps(tmp_path, board):
    log = RunLog(tmp_path, ProgressReporter(), tensorboard=True)
    log.forget_after(0)
    log.record("train", 1, {"loss": 2.0, "norm": math.nan, "epoch": 3})
    log.forget_after(7)
    log.record("valid", 8, {"bleu": 5.0})
    first, second = board
    assert first.scalars == [("train/loss", 2.0, 1), ("train/epoch", 3, 1)]
    assert (first.purge_step, first.closed) == (1, True)
    assert (second.purge_step, second.scalars) == (8, [("valid/bleu", 5.0, 8)])
    assert second.directory == str(tmp_path / "tensorboard")


def test_missing_tensorboard_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with raises(MissingError, "no_tensorboard", "pip install"):
        RunLog(tmp_path, ProgressReporter(), tensorboard=True)
