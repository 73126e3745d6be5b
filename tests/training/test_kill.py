"""A run that is killed by SIGKILL at any moment ends bit-identical after resuming."""

import importlib
from pathlib import Path
from random import Random

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_run_that_is_killed_repeatedly_ends_equal(tmp_path, monkeypatch):
    """`python benchmarks/kill.py` repeats this for all tasks, in memory and from a store."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    kill = importlib.import_module("kill")
    counts, run = kill.Counts(), kill.prepare(tmp_path, "translation", stored=True)
    kill.torture(run, tmp_path, Random(1), counts, kills=25, mid_save=5)
    assert counts.kills >= 25
    assert counts.in_mid_save >= 5
    assert counts.finished_runs >= 1
    assert counts.failures == 0, counts
