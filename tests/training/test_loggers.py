"""Loggers: TensorBoard, W&B and MLflow get every number once, also after a resumption."""

import json
import math
import sys
import types

import pytest
from expected_errors import raises
from reporters import Crash, crash_at
from tiny import SMALL, write_corpus

from polyhead.errors import ConfigError, MissingError
from polyhead.training import loggers
from polyhead.training.callbacks import TrainingEnd, TrainingStart
from polyhead.training.config import read_run
from polyhead.training.loggers import create_loggers
from polyhead.training.trainer import train

MODULES = {
    "tensorboard": "torch.utils.tensorboard.writer", "wandb": "wandb", "mlflow": "mlflow",
}  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    files = write_corpus(tmp_path_factory.mktemp("corpus"))
    return read_run("small", [*SMALL, "train.bleu_sentences=0"], files)


class Service:
    """Stands in for wandb, mlflow and TensorBoard's writer; records what it is given."""

    def __init__(self):
        self.calls, self.points = [], []
        self.id, self.summary, self.info = "run-1", {}, types.SimpleNamespace(run_id="run-1")

    def opened(self, *given, **options):
        self.calls.append(("open", given, options))
        return self

    SummaryWriter = init = start_run = opened

    def log(self, values, step):
        self.points += [(name, step, value) for name, value in values.items()]

    log_metrics = log

    def add_scalar(self, name, value, step):
        self.log({name: value}, step)

    def closed(self, *given, **options):
        self.calls.append(("close", given, options))

    finish = end_run = close = closed

    def log_params(self, values):
        assert len(values) <= 100
        self.calls.append(("parameters", (values,), {}))

    def add_text(self, *given):
        self.calls.append(("text", given, {}))

    def flush(self):
        pass

    def of(self, kind):
        return [(given, options) for name, given, options in self.calls if name == kind]


@pytest.fixture(params=MODULES)
def service(request, monkeypatch):
    service = Service()
    monkeypatch.setitem(sys.modules, MODULES[request.param], service)
    if request.param == "tensorboard":
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.ModuleType("board"))
    service.name = request.param
    return service


def test_a_crashed_run_continues_the_same_record_without_duplicates(service, config, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(Crash):
        train(config, run, callbacks=[*create_loggers(service.name), crash_at(11)])
    result = train(config, run, callbacks=create_loggers([service.name]))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    expected = {
        (f"{line['kind']}/{name}", line["step"])
        for line in lines for name in line if name not in ("kind", "step")
    }  # fmt: skip
    final = {(f"final/{name}", 12) for name in result.metrics}
    logged = [(name, step) for name, step, _ in service.points]
    if service.name == "tensorboard":  # hides points from the step of the checkpoint on
        (_, first), (_, second) = service.of("open")
        assert (first["purge_step"], second["purge_step"]) == (1, 9)
        assert set(logged) == expected | final
    elif service.name == "wandb":
        assert service.summary == {f"final/{name}": v for name, v in result.metrics.items()}
        assert sorted(logged) == sorted(expected)
        (_, first), (_, second) = service.of("open")
        assert (first["id"], second["id"]) == (None, "run-1")
        assert first["config"]["train"]["steps"] == 12
        assert [options["exit_code"] for _, options in service.of("close")] == [1, 0]
    else:
        assert sorted(logged) == sorted(expected | final)
        (_, first), (_, second) = service.of("open")
        assert (first["run_id"], second["run_id"]) == (None, "run-1")
        parameters = {k: v for (values,), _ in service.of("parameters") for k, v in values.items()}
        assert parameters["train.steps"] == "12"
        assert [given for given, _ in service.of("close")] == [("FAILED",), ("FINISHED",)]


def test_a_fresh_run_gets_a_record_of_its_own(service, config, tmp_path):
    for fresh in (False, True):
        train(config, tmp_path / "run", fresh=fresh, callbacks=create_loggers(service.name))
    names = {"wandb": "id", "mlflow": "run_id", "tensorboard": "none"}
    assert [options.get(names[service.name]) for _, options in service.of("open")] == [None, None]


@pytest.mark.parametrize("returns", ["during training", "after it"])
def test_a_lost_service_ends_nothing_and_gets_every_line_once(
    service, config, tmp_path, monkeypatch, caplog, returns
):
    if service.name == "tensorboard":
        pytest.skip("writes to the disk")
    log, tries = service.log, []

    def lost(values, step):
        tries.append(step)
        if returns == "after it" or len(tries) < 4:
            raise ConnectionError("no route\nto host")
        log(values, step)

    monkeypatch.setattr("polyhead.training.loggers.REST", 0)  # on a busy machine attempts are slow
    for name in ("log", "log_metrics"):
        monkeypatch.setattr(service, name, lost)
    assert train(config, tmp_path / "run", callbacks=[*create_loggers(service.name)]).signal is None
    messages = [record.getMessage() for record in caplog.records]
    assert "no route to host" in messages[0]
    assert len(messages) == {("after it", "mlflow"): 3, ("after it", "wandb"): 2}.get(
        (returns, service.name), 1
    )
    for name in ("log", "log_metrics"):
        monkeypatch.setattr(service, name, log)
    train(config, tmp_path / "run", callbacks=create_loggers(service.name))
    points = [(name, step) for name, step, _ in service.points if not name.startswith("final")]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert points == [
        (f"{line['kind']}/{name}", line["step"])
        for line in lines for name in line if name not in ("kind", "step")
    ]  # fmt: skip
    assert len(caplog.records) == len(messages)


def test_a_service_that_is_slow_to_fail_is_tried_seldom(monkeypatch, tmp_path):
    service, clock, tries = Service(), [0.0], []
    monkeypatch.setitem(sys.modules, "mlflow", service)

    def lost(_values, step):
        tries.append(step)
        clock[0] += 60
        raise TimeoutError

    monkeypatch.setattr(service, "log_metrics", lost)
    monkeypatch.setattr(loggers.time, "monotonic", lambda: clock[0])
    (logger,) = create_loggers("mlflow")
    logger.on_start(TrainingStart(tmp_path, 0, 3, {}, {"train": {"seed": 1}}))
    for step in range(100):
        clock[0] += 60
        logger.on_record("train", step, {"loss": 2.0})
    assert 4 <= len(tries) <= 6  # at most 5 % of the time


def test_values_that_are_not_finite_are_left_out_and_failed_runs_have_no_final_scores(
    service, tmp_path
):
    (logger,) = create_loggers(service.name)
    logger.on_start(TrainingStart(tmp_path, 0, 3, {}, {"train": {"seed": 1}}))
    logger.on_record("train", 1, {"loss": 2.0})
    logger.on_rewind(0)
    logger.on_end(TrainingEnd(1, "failed", {"loss": math.nan}))
    assert service.points == [("train/loss", 1, 2.0)]


@pytest.mark.parametrize("name", MODULES)
def test_a_missing_package_is_one_line_with_the_command(name, monkeypatch):
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with raises(MissingError, "no_logger", name, "pip install"):
        create_loggers(name)


def test_loggers_are_listed_by_commas_or_repeated(monkeypatch):
    for module in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, module, Service())
    for given in ("wandb, mlflow", ["wandb,mlflow"], ["wandb", "mlflow", "wandb"]):
        assert [logger.name for logger in create_loggers(given)] == ["wandb", "mlflow"]
    assert create_loggers(()) == create_loggers("") == []
    with raises(ConfigError, "unknown_logger", "comet", "tensorboard"):
        create_loggers("comet")
