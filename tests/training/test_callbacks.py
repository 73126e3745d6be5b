"""Callbacks: typed events in order, stopping, errors, and what the result says afterwards."""

import json
from dataclasses import FrozenInstanceError

import pytest
import torch
from expected_errors import raises
from reporters import Crash
from tiny import SMALL, write_corpus

import polyhead
from polyhead.checkpoint.atomic_dir import list_checkpoints
from polyhead.errors import ConfigError
from polyhead.training.callbacks import EVENTS, Callbacks, TrainingStep
from polyhead.training.config import read_run
from polyhead.training.trainer import train


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    files = write_corpus(tmp_path_factory.mktemp("corpus"))
    return read_run("small", [*SMALL, "train.bleu_sentences=1"], files)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """Metrics of an uninterrupted run."""
    return train(config, tmp_path_factory.mktemp("whole") / "run").metrics


class Events(polyhead.Callback):
    """Records every event with a number; returns True at one step or validation."""

    def __init__(self, stop_at=None):
        self.stop_at, self.seen = stop_at, []

    def keep(self, event):
        self.seen.append(event)
        return (type(event).__name__, event.step) == self.stop_at

    on_start = on_step = on_validation = on_save = on_end = keep

    def of(self, kind):
        return [event for event in self.seen if type(event).__name__ == kind]


def test_events_come_in_order_with_the_numbers_of_the_log(config, tmp_path):
    events = Events()
    result = train(config, tmp_path / "run", callbacks=[events])
    kinds = [type(event).__name__ for event in events.seen]
    assert (kinds[0], kinds[1], kinds[-1]) == ("TrainingStart", "SavedCheckpoint", "TrainingEnd")
    steps, validations = events.of("TrainingStep"), events.of("Validation")
    assert [step.step for step in steps] == list(range(1, 13))
    assert [validation.step for validation in validations] == [6, 12]
    assert events.of("TrainingEnd")[0].reason == result.reason == "finished"
    assert events.of("TrainingEnd")[0].metrics == validations[-1].metrics == result.metrics
    saved = events.of("SavedCheckpoint")
    assert [checkpoint.step for checkpoint in saved] == [0, 4, 6, 8, 12]
    assert saved[-1].path == list_checkpoints(tmp_path / "run" / "checkpoints")[-1][1]
    assert events.of("TrainingStart")[0].config["train"]["steps"] == 12
    model = events.of("TrainingStart")[0].model  # the one that was trained
    for name, weight in polyhead.load_model(saved[-1].path).state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name
    assert {type(event) for event in events.seen} <= {getattr(polyhead, kind) for kind in kinds}
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    rates = [line["rate"] for line in lines if line["kind"] == "train"]
    assert rates == [step.rate for step in steps][1::2]  # train.log_every = 2
    with pytest.raises(FrozenInstanceError):
        steps[0].loss = 0.0


@pytest.mark.parametrize(("at", "step"), [(("TrainingStep", 5), 5), (("Validation", 6), 6)])
def test_a_callback_that_returns_true_stops_training_after_a_checkpoint(
    config, whole, tmp_path, at, step
):
    events = Events(stop_at=at)
    stopped = train(config, tmp_path / "run", callbacks=[events, polyhead.Callback()])
    assert (stopped.step, stopped.reason, stopped.signal) == (step, "stopped", None)
    assert events.seen[-1].reason == "stopped"
    assert list_checkpoints(tmp_path / "run" / "checkpoints")[-1][0] == step
    resumed = train(config, tmp_path / "run")
    assert (resumed.step, resumed.metrics) == (12, whole)


@pytest.mark.parametrize("event", ["on_start", "on_step", "on_validation", "on_save"])
def test_an_error_in_a_callback_ends_the_run_and_leaves_whole_checkpoints(
    config, whole, tmp_path, event
):
    class Broken:
        ends = ()

        def on_end(self, end):
            self.ends = (*self.ends, end.reason)

    def crash(_event):
        raise Crash

    broken, run = Broken(), tmp_path / "run"
    setattr(broken, event, crash)
    with pytest.raises(Crash):
        train(config, run, callbacks=[broken])
    assert broken.ends == ("failed",)
    assert not list(run.rglob(".tmp-*"))
    assert train(config, run).metrics == whole


def test_any_object_with_a_method_is_a_callback_and_others_are_refused():
    class Duck:
        steps = 0

        def on_step(self, _step):
            self.steps += 1
            return "not True"

    duck = Duck()
    both = Callbacks([duck, polyhead.Callback()])
    step = TrainingStep(1, 1.0, 1.0, 0.1, 0, 9, 9.0, 1.0)
    assert both.on_step(step) is False
    assert duck.steps == 1
    for wrong in (object(), Duck, "on_step"):
        with raises(ConfigError, "not_a_callback"):
            Callbacks([wrong])
    assert {"on_step", "on_validation", "on_save", "on_end"} < set(EVENTS)
    assert {name for name in vars(Callbacks) if name.startswith("on_")} == set(EVENTS)


def test_the_result_has_the_curve_a_plot_and_the_model(config, tmp_path):
    pandas = pytest.importorskip("pandas")
    result = train(config, tmp_path / "run")
    curve = result.curve
    assert [step.step for step in curve.steps] == [2, 4, 6, 8, 10, 12]
    assert curve.validations[-1].metrics == result.metrics
    frame = curve.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["step"]) == [2, 4, 6, 8, 10, 12]
    assert frame["valid_loss"].notna().tolist() == [False, False, True, False, False, True]
    svg = result.plot()._repr_svg_()
    assert svg.startswith("<svg")
    assert svg.count('<circle class="c') == 6 + 2 + 2  # training, validation, BLEU
    assert "data:image/svg+xml" in result._repr_html_()
    assert isinstance(result.model, polyhead.Translator)
    assert result.model is result.model
