"""`polyhead.train`: the options of `polyhead train`, with the same names and meanings."""

import inspect
import signal
from pathlib import Path

import pytest
from cpu_time import cpu_time
from expected_errors import raises

import polyhead
from polyhead.cli.train import train as command
from polyhead.data.memory import OPTIONS
from polyhead.errors import ConfigError
from polyhead.training import entry
from polyhead.training.callbacks import Callback
from polyhead.training.config import read_run
from polyhead.training.display import (
    NotebookDisplay,
    TrainingScreen,
    choose_display,
)
from polyhead.training.entry import SETTINGS, as_overrides
from polyhead.training.result import TrainResult


@pytest.fixture
def calls(monkeypatch):
    recorded = []

    def record(config, run_dir, **options):
        recorded.append((config, run_dir, options))
        return TrainResult(run_dir, run_dir, 0, None, {})

    monkeypatch.setattr(entry, "train_run", record)
    return recorded


def test_the_function_has_the_options_of_the_command():
    only_command, only_python = {"print_config"}, {"callbacks"}
    options = set(inspect.signature(command).parameters)
    parameters = set(inspect.signature(polyhead.train).parameters)
    assert options - only_command == parameters - only_python
    assert {*OPTIONS, *SETTINGS} < parameters
    named = inspect.getdoc(polyhead.train)
    assert all(name in named for name in parameters if not name.startswith("valid_"))


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


def test_recipe_and_run_follow_from_the_arguments(calls):
    polyhead.train(source="a.ko", target="a.en", valid_source="b.ko", valid_target="b.en")
    polyhead.train(data="a.tsv", run="x")
    polyhead.train("gpt-tiny")
    (translation, first, _), (classification, _, _), (_, third, _) = calls
    assert translation.task == "translation"
    assert (translation.data.source, translation.data.valid_target) == (("a.ko",), ("b.en",))
    assert classification.task == "text_classification"
    assert (first, third) == (Path("runs/mine"), Path("runs/gpt-tiny"))


@pytest.mark.parametrize("given", [{}, {"text": "a.txt"}, {"images": "a"}, {"text": ["두 줄"]}])
def test_a_missing_recipe_is_the_error_of_the_command(given):
    with raises(ConfigError, "no_recipe", "polyhead recipes"):
        polyhead.train(**given)


def test_settings_and_flags_are_passed_on(calls, tmp_path):
    init = tmp_path / 'a "quoted" model'
    polyhead.train("small", pairs="a", run="x", init=init, overrides=["train.steps=7"],
                   device="cpu", encoding="cp949", on_bad_line="fail", source_column="2",
                   languages="ko-en", fresh=True, accept_changes=True, progress="none",
                   callbacks=[Callback()])  # fmt: skip
    ((config, _, options),) = calls
    assert (config.train.init, config.train.steps, config.train.device) == (str(init), 7, "cpu")
    data = config.data
    assert (data.encoding, data.on_bad_line, data.source_key) == ("cp949", "fail", "2")
    assert (data.source_language, data.target_language) == ("ko", "en")
    assert (options["fresh"], options["accept_changes"], options["memory"]) == (True, True, None)
    assert [type(callback) for callback in options["callbacks"]] == [Callback, Callback]


def test_overrides_are_strings_or_nested_dicts():
    nested = {"train.epochs": 1, "model": {"stack": {"n_layers": 2}, "tie": "all"}}
    texts = ["train.epochs=1", "model.stack.n_layers=2", 'model.tie="all"']
    assert list(as_overrides(nested)) == texts
    assert read_run("small", as_overrides(nested)) == read_run("small", texts)
    assert list(as_overrides("train.steps=5")) == ["train.steps=5"]
    assert list(as_overrides({"data": {"pairs": ("a", "b")}})) == ['data.pairs=["a", "b"]']
    with raises(ConfigError, "bad_override", "train.epochs"):
        list(as_overrides({"train": {"epochs": None}}))


def test_the_display_suits_the_output(monkeypatch):
    assert type(choose_display("none")) is Callback
    assert isinstance(choose_display(), TrainingScreen)
    assert choose_display("bar").console.is_terminal
    assert not choose_display("lines").console.is_terminal
    monkeypatch.setattr("polyhead.training.display.is_notebook", lambda: True)
    monkeypatch.setattr(NotebookDisplay, "__init__", lambda _: None)
    assert isinstance(choose_display(), NotebookDisplay)
    with raises(ConfigError, "unknown_progress", "dots"):
        choose_display("dots")


def test_several_processes_run_the_same_command(calls, monkeypatch):
    started, finished = [], TrainResult(Path("x"), Path("x"), 3, None, {})
    monkeypatch.setattr(entry, "launch", lambda words, n: started.append((words, n)) or 0)
    monkeypatch.setattr(entry, "read_result", lambda _: finished)
    result = polyhead.train(valid_pairs="b.tsv", pairs=["a.tsv", "c.tsv"], run="x", processes=2,
                            source_column="ko", log_to="wandb", overrides={"train.accumulate": 2},
                            fresh=True)  # fmt: skip
    words = ["train", "train.accumulate=2", "--run", "x", "--pairs", "a.tsv", "--pairs", "c.tsv",
             "--valid-pairs", "b.tsv", "--source-column", "ko", "--fresh", "--log-to", "wandb",
             "--progress", "auto"]  # fmt: skip
    assert (result, started, calls) == (finished, [(words, 2)], [])
    with raises(ConfigError, "not_in_processes"):
        polyhead.train(pairs=[("가", "a")], run="x", processes=2)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_is_delivered_again_after_saving(monkeypatch, name):
    """Ctrl-C and SIGTERM end a loop over seeds; SIGUSR1 only ends this training."""
    number, received = signal.Signals[name], []
    stopped = TrainResult(Path("x"), Path("x"), 3, number, {}, "interrupted")
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
