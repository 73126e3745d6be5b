"""kill -9 at any moment: the run that is started again is the run that was never killed."""

import importlib
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_run_that_is_killed_again_and_again_ends_as_if_nothing_had_been(tmp_path, monkeypatch):
    """The same, a thousand times: python benchmarks/kill.py."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    kill = importlib.import_module("kill")
    counts = kill.torture(tmp_path, kills=25, seed=1)
    assert counts.kills == 25
    assert counts.in_mid_save >= 5
    assert counts.finished_runs >= 1
    assert counts.failures == 0, counts
