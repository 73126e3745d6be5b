"""Exit codes of commands that a signal stopped after saving."""

import signal
from pathlib import Path

import pytest

from polyhead.cli.compare import run_comparison
from polyhead.experiments import runner
from polyhead.experiments.worker_pool import Interrupted
from polyhead.training.entry import TrainRequest
from polyhead.training.result import TrainResult

NAMES = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_training_ends_with_128_plus_the_signal(run, monkeypatch, rank, name):
    number = signal.Signals[name]
    stopped = TrainResult(Path("x"), Path("x"), 3, number, {}, "interrupted", rank)
    monkeypatch.setattr(TrainRequest, "train", lambda _: stopped)
    code, _, said = run("train", "gpt-tiny", "--text", "a", "--run", "x")
    assert code == 128 + number
    assert ("Saved at step 3" in said) == (rank == 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_comparison_ends_with_128_plus_the_signal(monkeypatch, name):
    number = signal.Signals[name]

    def stop(*_, **__):
        raise Interrupted(number)

    monkeypatch.setattr(runner, "compare_systems", stop)
    assert run_comparison(None, "en") == 128 + number
