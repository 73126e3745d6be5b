"""Run logs: valid JSON lines that are removed with the steps they belong to."""

import json
import math

import pytest
from expected_errors import raises

from polyhead.errors import PolyheadError
from polyhead.training.callbacks import Callback
from polyhead.training.run_log import RunLog, with_nan, without_nan


def test_numbers_that_are_not_finite_are_null(tmp_path):
    log = RunLog(tmp_path, Callback())
    log.record("train", 3, {"loss": 0.1 + 0.2, "norm": math.inf, "rate": math.nan})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    entry = json.loads(line, parse_constant=pytest.fail)
    assert entry == {"kind": "train", "step": 3, "loss": 0.1 + 0.2, "norm": None, "rate": None}
    assert "train step 3  loss 0.3\n" in (tmp_path / "train.log").read_text()


def test_without_metrics_nothing_is_removed_or_created(tmp_path):
    log = RunLog(tmp_path, Callback())
    log.forget_after(3)
    log.sync()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["metrics.jsonl", "train.log"])
def test_a_full_disk_is_an_error(tmp_path, name):
    (tmp_path / name).symlink_to("/dev/full")
    with raises(PolyheadError, "io", name, "No space left on device"):
        RunLog(tmp_path, Callback()).record("train", 1, {"loss": 1.0})


def test_null_is_read_back_as_nan():
    values = {"loss": math.nan, "bleu": 3.0}
    assert without_nan(values) == {"loss": None, "bleu": 3.0}
    again = with_nan({"loss": None, "bleu": 3.0})
    assert math.isnan(again["loss"])
    assert again["bleu"] == 3.0
    assert with_nan(None) is without_nan(None) is None
