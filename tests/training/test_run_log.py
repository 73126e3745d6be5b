"""The journal: lines that every reader of JSON understands, and that do not outlive their steps."""

import json
import math
import sys
import types
from typing import ClassVar

import pytest

from polyhead.errors import MissingError, PolyheadError
from polyhead.training import run_log as reports
from polyhead.training.run_log import NullReporter, ProgressReporter, RunLog


def entries(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_line_is_json_even_when_a_number_is_none(tmp_path):
    journal = RunLog(tmp_path, NullReporter())
    journal.record("train", 3, {"loss": 0.1 + 0.2, "norm": math.inf, "rate": math.nan})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    entry = json.loads(line, parse_constant=pytest.fail)
    assert entry == {"kind": "train", "step": 3, "loss": 0.1 + 0.2, "norm": None, "rate": None}
    assert "train step 3  loss 0.3\n" in (tmp_path / "train.log").read_text()


def test_the_future_is_forgotten_and_the_past_is_kept_to_the_byte(tmp_path):
    journal = RunLog(tmp_path, NullReporter())
    for step in range(1, 6):
        journal.record("train", step, {"loss": step / 7})
    before = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    journal.forget_after(3)
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(before[:3])
    journal.record("train", 4, {"loss": 1.0})
    assert [entry["step"] for entry in entries(tmp_path)] == [1, 2, 3, 4]


def test_there_may_be_nothing_to_forget_or_to_wait_for(tmp_path):
    journal = RunLog(tmp_path, NullReporter())
    journal.forget_after(3)
    journal.sync()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(PolyheadError, match=r"cannot write .*/metrics\.jsonl: No space left on"):
        RunLog(tmp_path, NullReporter()).record("train", 1, {"loss": 1.0})


def test_numbers_that_are_none_come_back_as_such():
    values = {"loss": math.nan, "bleu": 3.0}
    assert reports.without_nan(values) == {"loss": None, "bleu": 3.0}
    again = reports.with_nan({"loss": None, "bleu": 3.0})
    assert math.isnan(again["loss"])
    assert again["bleu"] == 3.0
    assert reports.with_nan(None) is reports.without_nan(None) is None


def test_silence_is_a_reporter():
    assert isinstance(NullReporter(), ProgressReporter)


# TensorBoard


class FakeWriter:
    """Remembers what TensorBoard would have been told."""

    made: ClassVar[list] = []

    def __init__(self, place, purge_step=None):
        self.place, self.purge_step, self.scalars, self.closed = place, purge_step, [], False
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


def test_tensorboard_hears_every_number_and_forgets_with_us(tmp_path, board):
    journal = RunLog(tmp_path, NullReporter(), tensorboard=True)
    journal.forget_after(0)
    journal.record("train", 1, {"loss": 2.0, "norm": math.nan, "epoch": 3})
    journal.forget_after(7)
    journal.record("valid", 8, {"bleu": 5.0})
    first, second = board
    assert first.scalars == [("train/loss", 2.0, 1), ("train/epoch", 3, 1)]
    assert (first.purge_step, first.closed) == (1, True)
    assert (second.purge_step, second.scalars) == (8, [("valid/bleu", 5.0, 8)])
    assert second.place == str(tmp_path / "tensorboard")


def test_without_tensorboard_one_is_told_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(MissingError, match=r"add it with: pip install 'polyhead\[tb\]'"):
        RunLog(tmp_path, NullReporter(), tensorboard=True)
