"""`polyhead.train`: its keywords become the configuration of a run."""

import signal
from pathlib import Path

import pytest
from cpu_time import cpu_time
from expected_errors import raises

import polyhead
from polyhead.errors import ConfigError
from polyhead.training import entry
from polyhead.training.config import read_run
from polyhead.training.trainer import TrainResult


@pytest.fixture
def calls(monkeypatch):
    recorded = []

    def record(config, run_dir, **options):
        recorded.append((config, run_dir, options))
        return TrainResult(run_dir, run_dir, 0, None, {})

    monkeypatch.setattr(entry, "train_run", record)
    return recorded


@pytest.mark.parametrize(
    ("recipe", "keyword", "option"),
    [
        ("small", "pairs", "pairs"),
        ("gpt-tiny", "text", "text"),
        ("classify-small", "data", "labelled"),
        ("vit-digits", "images", "images"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "valid_"])
def test_files_of_every_kind_are_passed_on(calls, recipe, keyword, option, prefix):
    polyhead.train(recipe, run="runs/x", **{prefix + keyword: ["a", Path("b")]})
    ((config, run_dir, _),) = calls
    assert getattr(config.data, prefix + option) == ("a", "b")
    assert run_dir == Path("runs/x")


def test_the_recipe_follows_from_the_files(calls):
    polyhead.train(source="a.ko", target="a.en", valid_source="b.ko", valid_target="b.en", run="x")
    polyhead.train(data="a.tsv", run="x")
    (translation, _, _), (classification, _, _) = calls
    assert translation.task == "translation"
    assert (translation.data.source, translation.data.valid_target) == (("a.ko",), ("b.en",))
    assert classification.task == "text_classification"


def test_init_overrides_and_flags_are_passed_on(calls, tmp_path):
    init = tmp_path / 'a "quoted" model'
    polyhead.train("gpt-tiny", text="a", run="x", init=init, overrides=["train.steps=7"],
                   fresh=True, accept_changes=True, tensorboard=True)  # fmt: skip
    ((config, _, options),) = calls
    assert config.train.init == str(init)
    assert config.train.steps == 7
    assert options == {
        "fresh": True, "accept_changes": True, "reporter": None, "tensorboard": True,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_is_delivered_again_after_saving(monkeypatch, name):
    """Ctrl-C and SIGTERM end a loop over seeds; SIGUSR1 only ends this training."""
    number, received = signal.Signals[name], []
    stopped = TrainResult(Path("x"), Path("x"), 3, number, {})
    monkeypatch.setattr(entry, "train_run", lambda *_, **__: stopped)
    before = signal.signal(number, lambda n, _: received.append(n))
    try:
        assert polyhead.train("gpt-tiny", text="a", run="x") is stopped
    finally:
        signal.signal(number, before)
    assert received == ([] if name == "SIGUSR1" else [number])


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("model.stack.d_model=1000000000", "out_of_memory"),
        ("model.stack.n_layers=1000000000", "invalid_value"),
        ("model.stack.n_heads=2305843009213693950", "invalid_value"),
        ("train.steps=2305843009213693950", "invalid_value"),
        ("decode.beam=1000000000", "invalid_value"),
    ],
)
def test_impossible_sizes_are_refused_before_data_is_read(override, code):
    with cpu_time() as used, raises(ConfigError, code):
        read_run("small", [override])
    assert used.seconds < 1
