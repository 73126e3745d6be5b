"""Training ends in the same state, bit for bit, whatever interrupts it."""

import errno
import hashlib
import json
import math
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from expected_errors import raises
from loading import load
from reporters import Crash, Recorder, crash_at, send, stop_at
from tiny import SMALL, write_corpus

from polyhead.checkpoint import model_dir
from polyhead.checkpoint.atomic_dir import list_checkpoints, seal, verify
from polyhead.checkpoint.model_dir import first_not_finite, load_model
from polyhead.data.batches.translation import collate
from polyhead.data.parallel import load_parallel
from polyhead.errors import CheckpointError, ConfigError, Diverged, PolyheadError
from polyhead.special_tokens import PAD
from polyhead.tasks.losses import Loss, TranslationLoss
from polyhead.training import run_dir
from polyhead.training import trainer as trainer_module
from polyhead.training.config import read_run
from polyhead.training.tasks import translation
from polyhead.training.trainer import Trainer, train

STEPS = 24
TIMES = ("seconds", "tokens_per_second")
OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000 bytes."
VARIANTS = {
    "plain": (),
    "bleu": ("train.bleu_sentences=3",),
    "accumulated": ("train.accumulate=3",),
    "sampled": ("text.sampling=0.2",),
    "workers": ("train.workers=2",),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), n=240)


@pytest.fixture(scope="module")
def make(corpus):
    """Return a function that configures a tiny run of two layers with dropout."""

    def configure(*overrides):
        settings = (*SMALL, f"train.steps={STEPS}", "train.validate_every=8",
                    "train.bleu_sentences=0", *overrides)  # fmt: skip
        return read_run("small", settings, corpus)

    return configure


@pytest.fixture(scope="module")
def uninterrupted(make, tmp_path_factory):
    """Return a function with the trace of an uninterrupted run of each variant."""
    traces = {}

    def get(variant):
        if variant not in traces:
            folder = tmp_path_factory.mktemp("whole") / variant
            train(make(*VARIANTS[variant]), folder)
            traces[variant] = trace(folder)
        return traces[variant]

    return get


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def trace(folder):
    """Return everything that a run writes, without times."""
    lines = [
        {name: value for name, value in entry.items() if name not in TIMES}
        for entry in entries_of(folder)
    ]
    last = folder / "last"
    state = json.loads((last / "training.json").read_text())
    del state["progress"]["seconds"]
    sums = {
        name: hashlib.sha256((last / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "training.safetensors", "config.json")
    }
    samples = {path.name: path.read_text() for path in folder.glob("samples/*")}
    return {"metrics": lines, "state": state, "sums": sums, "samples": samples}


def entries_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").open()]


def progress_of(folder):
    return json.loads((folder / "last" / "training.json").read_text())["progress"]


def steps_in(folder):
    return [step for step, _ in list_checkpoints(folder / "checkpoints")]


# Bit-exactness


def test_the_tested_runs_use_dropout(make, uninterrupted, folder):
    """Otherwise the state of its generator would not be tested."""
    train(make("model.stack.dropout=0.0"), folder)
    assert trace(folder)["sums"] != uninterrupted("plain")["sums"]


def test_a_run_stopped_by_a_signal_at_every_step_ends_equal(make, folder, uninterrupted):
    for step in range(1, STEPS):
        result = train(make(), folder, callbacks=[stop_at(step)])
        assert (result.step, result.signal) == (step, signal.SIGTERM)
    assert train(make(), folder).signal is None
    assert trace(folder) == uninterrupted("plain")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_that_crashed_ends_equal(make, folder, uninterrupted, variant):
    config = make(*VARIANTS[variant])
    for step in (1, 4, 6, 9, 17, 23):
        with pytest.raises(Crash):
            train(config, folder, callbacks=[crash_at(step)])
    train(config, folder)
    assert trace(folder) == uninterrupted(variant)


def test_the_number_of_workers_may_change_between_sessions(make, folder, uninterrupted):
    train(make(), folder, callbacks=[stop_at(3)])
    train(make("train.workers=2"), folder, callbacks=[stop_at(7)])
    train(make(), folder)
    actual, expected = trace(folder), uninterrupted("plain")
    assert actual["metrics"] == expected["metrics"]
    assert actual["sums"]["model.safetensors"] == expected["sums"]["model.safetensors"]


def test_a_finished_run_is_not_changed(make, folder, uninterrupted):
    train(make(), folder)
    recorder = Recorder()
    result = train(make(), folder, callbacks=[recorder])
    assert recorder.metrics == []
    assert recorder.matching("step 24: training already complete")
    assert (result.step, result.signal) == (STEPS, None)
    assert result.metrics == uninterrupted("plain")["state"]["metrics"]
    assert trace(folder) == uninterrupted("plain")


def test_training_in_a_thread_ends_equal(make, folder, uninterrupted):
    """Signals cannot be handled there."""
    thread = threading.Thread(target=train, args=(make(), folder))
    thread.start()
    thread.join()
    assert trace(folder) == uninterrupted("plain")


# After a crash


@pytest.mark.parametrize("name", ["model.safetensors", "training.json", "manifest.json"])
def test_a_damaged_checkpoint_is_skipped_with_a_notice(make, folder, uninterrupted, name):
    config = make("train.keep=1")
    train(config, folder, callbacks=[stop_at(14)])
    assert steps_in(folder) == [8, 14]
    path = folder / "checkpoints" / "step-00000014" / name
    path.write_bytes(path.read_bytes()[:-2])
    recorder = crash_at(11)
    with pytest.raises(Crash):
        train(config, folder, callbacks=[recorder])
    (notice,) = recorder.matching("using an older checkpoint")
    assert name in notice
    assert recorder.matching("resuming from step 8")
    train(config, folder, callbacks=[stop_at(13)])  # saves 13, before the damaged 14
    assert steps_in(folder) == [8, 13]
    train(config, folder)
    assert trace(folder)["metrics"] == uninterrupted("plain")["metrics"]


def test_without_a_usable_checkpoint_training_starts_from_scratch(make, folder, uninterrupted):
    train(make(), folder, callbacks=[stop_at(9)])
    for path in (folder / "checkpoints").glob("*/manifest.json"):
        path.unlink()
    recorder = Recorder()
    train(make(), folder, callbacks=[recorder])
    assert recorder.matching("no usable checkpoint found; starting from scratch")
    assert trace(folder) == uninterrupted("plain")


def test_links_are_updated_after_a_crash_between_checkpoint_and_links(make, folder, monkeypatch):
    link = run_dir.link

    def fail(path, to):
        if to.name == "step-00000024":
            raise Crash
        link(path, to)

    monkeypatch.setattr(run_dir, "link", fail)
    with pytest.raises(Crash):
        train(make(), folder)
    assert os.readlink(folder / "last") == "checkpoints/step-00000020"
    monkeypatch.undo()
    train(make(), folder)
    assert os.readlink(folder / "last") == "checkpoints/step-00000024"
    assert os.readlink(folder / "best") == "checkpoints/step-00000024"


def test_an_incomplete_line_of_metrics_is_removed(make, folder, uninterrupted):
    with pytest.raises(Crash):
        train(make(), folder, callbacks=[crash_at(11)])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\n[]\nnull\n{"kind": "train", "step": 10, "lo')
    train(make(), folder)
    assert trace(folder) == uninterrupted("plain")


def test_only_the_last_checkpoints_and_the_best_are_kept(make, folder, monkeypatch):
    scores = iter([1.0, 5.0, 4.0])
    monkeypatch.setattr(Trainer, "validate", lambda _: next(scores))
    train(make("train.save_every=1", "train.keep=2"), folder)
    assert steps_in(folder) == [8, 23, 24]
    assert os.readlink(folder / "best") == "checkpoints/step-00000008"
    assert os.readlink(folder / "last") == "checkpoints/step-00000024"
    assert {p.name for p in folder.iterdir()} == {
        ".lock", "best", "checkpoints", "config.toml", "data.json", "held-out.jsonl", "last",
        "metrics.jsonl", "tokenizer", "train.log",
    }  # fmt: skip


def test_seconds_are_added_up_over_sessions(make, folder, monkeypatch):
    """Every reading of the clock takes a second; a long time passes between the sessions."""
    times = iter(range(100_000))
    monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: float(next(times)))
    train(make(), folder, callbacks=[stop_at(5)])
    before = progress_of(folder)["seconds"]
    assert 5 <= before < 100
    times = iter(range(50_000, 100_000))
    train(make(), folder)
    assert before < progress_of(folder)["seconds"] < before + 100
    seconds = [entry["seconds"] for entry in entries_of(folder) if entry["kind"] == "train"]
    assert seconds == sorted(seconds)


def test_models_name_no_absolute_paths_and_their_run_knows_them(make, folder):
    config = make("train.steps=4")
    given = config.data.source[0]
    assert Path(given).is_absolute()
    train(config, folder)
    init = ("train.steps=4", f'train.init="{folder}"')
    train(make(*init), folder.with_name("again"))
    for run in (folder, folder.with_name("again")):
        for file in (run / "last").rglob("*"):
            content = b"" if file.is_dir() else file.read_bytes()
            assert not any(str(p).encode() in content for p in (folder.parent, Path(given).parent))
    assert Path(given).name in (folder / "last" / "README.md").read_text()
    assert read_run(str(folder)).data.source == (given,)
    copytree((folder / "last").resolve(), folder.with_name("copy"))
    assert read_run(str(folder.with_name("copy"))).data.source == (Path(given).name,)


# Signals


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_saves_and_stops(make, folder, name):
    number = signal.Signals[name]
    handler = signal.getsignal(number)
    recorder = Recorder(6, send(number))
    result = train(make(), folder, callbacks=[recorder])
    assert (result.step, result.signal, len(recorder.metrics)) == (6, number, 6)
    assert os.readlink(folder / "last") == "checkpoints/step-00000006"
    verify(folder / "last")
    assert signal.getsignal(number) == handler


def test_a_second_ctrl_c_stops_at_once(make, folder):
    def twice():
        send(signal.SIGINT)()
        send(signal.SIGINT)()

    before = signal.getsignal(signal.SIGINT)  # background jobs of a shell ignore it
    with pytest.raises(KeyboardInterrupt):
        train(make(), folder, callbacks=[Recorder(6, twice)])
    assert steps_in(folder) == [0, 4]
    assert signal.getsignal(signal.SIGINT) == before


def test_a_signal_at_the_last_step_does_not_interrupt(make, folder):
    result = train(make(), folder, callbacks=[stop_at(STEPS)])
    assert (result.step, result.signal) == (STEPS, None)


# Losses and weights that are not finite


def replace_objective(monkeypatch, objective):
    """Train translation with another objective; validation is unchanged."""
    setup = translation.TranslationTask.setup

    def setup_with_objective(self, config, *rest):
        return replace(setup(self, config, *rest), objective=objective(PAD, config.train.smoothing))

    monkeypatch.setattr(translation.TranslationTask, "setup", setup_with_objective)


class NaNLoss(TranslationLoss):
    """The usual loss, but NaN from call `first` to call `last`."""

    calls, first, last = 0, 0, 0

    def __call__(self, model, batch):
        loss = super().__call__(model, batch)
        NaNLoss.calls += 1
        if self.first <= self.calls <= self.last:
            return Loss(loss.total * math.nan, loss.count)
        return loss


@pytest.fixture
def set_nan(monkeypatch):
    def set_range(first, last):
        NaNLoss.calls, NaNLoss.first, NaNLoss.last = 0, first, last
        replace_objective(monkeypatch, NaNLoss)

    return set_range


def all_finite(folder):
    return all(
        first_not_finite(load_model(path).model) is None
        for _, path in list_checkpoints(folder / "checkpoints")
    )


def test_a_step_that_is_not_finite_is_skipped_with_a_notice(make, folder, set_nan):
    set_nan(10, 10)
    recorder = Recorder()
    train(make(), folder, callbacks=[recorder])
    (notice,) = recorder.matching("skipped")
    assert notice.startswith("step 10 skipped: loss nan")
    progress = progress_of(folder)
    assert (progress["step"], progress["skipped"], progress["rolled_back"]) == (STEPS, 1, 0)
    for line in (folder / "metrics.jsonl").open():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize(
    ("options", "good"),
    [
        (["train.save_every=1"], 9),
        (["train.save_every=4"], 8),
        # both were saved between skipped steps; the older one is restored
        (["train.save_every=1", "train.keep=2", "train.validate_every=100"], 10),
    ],
)
def test_divergence_rolls_back_once_at_half_the_rate(make, folder, set_nan, options, good):
    set_nan(10, 12)
    recorder, left = Recorder(), []
    recorder.on_rewind = lambda step: left.append((steps_in(folder)[-1], step))
    train(make(*options), folder, callbacks=[recorder])
    (notice,) = recorder.matching("rolled back")
    assert notice.startswith("step 12: loss nan, gradient nan")
    assert f"to step {good} " in notice
    assert left == [(good, good)]  # nothing newer that a killed process would resume from
    progress = progress_of(folder)
    assert (progress["rolled_back"], progress["rate_factor"]) == (1, 0.5)
    assert (progress["step"], progress["skipped"]) == (STEPS, 1 if good == 10 else 0)
    assert all_finite(folder)
    rates = [metrics["rate"] for metrics in recorder.metrics if metrics["step"] == good + 1]
    assert rates[1] == rates[0] / 2
    logged = [entry["step"] for entry in entries_of(folder)]
    assert logged == sorted(logged)
    assert logged.count(10) == 1


@pytest.mark.parametrize("save_every", [1, 4])
def test_divergence_after_the_roll_back_is_an_error(make, folder, set_nan, save_every):
    set_nan(10, 10_000)
    with raises(Diverged, "diverged", "train.schedule.rate") as caught:
        train(make(f"train.save_every={save_every}"), folder)
    assert caught.value.exit_code == 6
    assert all_finite(folder)


def test_a_run_that_was_rolled_back_resumes_at_half_the_rate(make, tmp_path, set_nan):
    set_nan(10, 12)
    train(make(), tmp_path / "whole")
    set_nan(10, 12)
    train(make(), tmp_path / "run", callbacks=[stop_at(15)])
    set_nan(0, 0)
    train(make(), tmp_path / "run")
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")


def test_weights_that_are_not_finite_are_never_saved(make, folder):
    config = make("train.schedule.warmup=1", "train.save_every=1")
    schedule = replace(config.train.schedule, rate=1e38)  # more than a file may set
    config = replace(config, train=replace(config.train, schedule=schedule))
    with raises(Diverged, "diverged", "step 1: "):
        train(config, folder)
    assert steps_in(folder) == [0]
    assert all_finite(folder)


# Memory and disk


class SmallMemoryLoss(TranslationLoss):
    """The usual loss on a machine with memory for four sentences."""

    def __call__(self, model, batch):
        if len(batch.source) > 4:
            raise RuntimeError(OUT_OF_MEMORY)
        return super().__call__(model, batch)


def test_a_batch_too_large_for_memory_is_split_with_a_notice(make, tmp_path, monkeypatch):
    config = make("model.stack.dropout=0.0", "train.steps=8")
    train(config, tmp_path / "whole")
    replace_objective(monkeypatch, SmallMemoryLoss)
    recorder = Recorder()
    train(config, tmp_path / "run", callbacks=[recorder])
    assert recorder.matching("step 1: out of memory; the batch was split into 4 pieces")
    whole, split = (
        [(entry["loss"], entry.get("norm", 0.0)) for entry in trace(tmp_path / name)["metrics"]]
        for name in ("whole", "run")
    )
    for expected, actual in zip(whole, split, strict=True):
        assert actual == pytest.approx(expected, rel=1e-3)


def test_out_of_memory_in_validation_is_a_polyhead_error(make, folder, monkeypatch):
    def full(*_):
        raise RuntimeError(OUT_OF_MEMORY)

    monkeypatch.setattr(translation, "quick_bleu", full)
    with raises(PolyheadError, "out_of_memory", "train.max_tokens") as caught:
        train(make("train.bleu_sentences=1"), folder)
    assert caught.value.exit_code == 1
    assert steps_in(folder) == [0, 4]


def test_a_full_disk_is_an_error_after_which_training_resumes(
    make, folder, monkeypatch, uninterrupted
):
    save = model_dir.save_tensors
    calls = iter(range(1000))

    def fill(tensors, path):
        if next(calls) == 3:  # the fourth checkpoint
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(tensors, path)

    monkeypatch.setattr(model_dir, "save_tensors", fill)
    with raises(PolyheadError, "io", f"{folder}/checkpoints/step-00000012", "No space") as caught:
        train(make(), folder)
    assert caught.value.exit_code == 1
    assert steps_in(folder) == [0, 4, 8]
    verify(folder / "last")
    train(make(), folder)
    assert trace(folder) == uninterrupted("plain")


# Validation and the end of training


def test_training_stops_early_and_stays_stopped(make, folder, monkeypatch):
    scores = iter([3.0, 2.0, 2.5, 2.5, 1.0])
    monkeypatch.setattr(Trainer, "validate", lambda _: next(scores))
    config = make("train.validate_every=2", "train.patience=2")
    assert train(config, folder).step == 8
    assert os.readlink(folder / "best") == "checkpoints/step-00000004"
    assert train(config, folder).step == 8


@pytest.mark.parametrize(("judge_by", "best"), [("bleu", 16), ("loss", 24)])
def test_the_best_checkpoint_is_judged_by_the_chosen_metric(
    make, folder, monkeypatch, judge_by, best
):
    bleu = iter([5.0, 50.0, 49.0])
    monkeypatch.setattr(translation, "quick_bleu", lambda *_: next(bleu))
    config = make("train.bleu_sentences=1", f'train.judge_by="{judge_by}"')
    result = train(config, folder)
    assert os.readlink(folder / "best") == f"checkpoints/step-000000{best}"
    assert result.best == folder / "best"
    assert result.metrics["bleu"] == 49.0


def test_validation_is_without_dropout_and_without_smoothing(make, folder):
    settings = ("model.stack.dropout=0.5", "train.smoothing=0.5", "train.bleu_sentences=2")
    config = make("train.steps=2", *settings)
    result = train(config, folder)
    saved = load_model(folder / "last")
    held_out = load(load_parallel, config.data, seed=config.train.seed).valid
    total = count = 0
    for source, target in held_out:
        ids = saved.tokenizers.source.encode(source), saved.tokenizers.target.encode(target)
        loss = TranslationLoss(0)(saved.model, collate([ids]))
        total, count = total + loss.total.item(), count + loss.count
    assert result.metrics["loss"] == pytest.approx(total / count, rel=1e-5)
    assert math.exp(result.metrics["loss"]) == pytest.approx(result.metrics["perplexity"])
    assert saved.about["valid"] == result.metrics
    samples = (folder / "samples" / "step-00000002.txt").read_text()
    for source, target in list(held_out)[:2]:
        assert f"{source}\n  = {target}\n  > " in samples


def test_epochs_set_the_number_of_steps(corpus, folder):
    settings = [setting for setting in SMALL if not setting.startswith("train.steps")]
    more = ("train.epochs=1", "train.accumulate=3", "train.bleu_sentences=0")
    recorder = Recorder()
    result = train(read_run("small", (*settings, *more), corpus), folder, callbacks=[recorder])
    assert len(recorder.metrics) == result.step
    progress = progress_of(folder)
    assert progress["tokens"] == recorder.metrics[-1]["tokens"]
    assert (progress["epoch"], progress["batch"]) in {(0, 3 * result.step), (1, 1), (1, 2)}


def test_a_checkpoint_with_unknown_progress_is_refused(make, folder):
    train(make(), folder, callbacks=[stop_at(5)])
    last = (folder / "last").resolve()
    state = json.loads((last / "training.json").read_text())
    state["progress"]["mood"] = "good"
    (last / "training.json").write_text(json.dumps(state))
    (last / "manifest.json").unlink()
    seal(last)
    with raises(CheckpointError, "damaged_state", "training.json", "mood"):
        train(make(), folder)


def test_a_family_that_does_not_fit_the_recipe_is_refused_with_the_name_of_its_own():
    recipe = "multi30k-de-en-luong"
    with raises(ConfigError, "family_changed", "model.d_encoder", recipe):
        read_run("multi30k-de-en-gru-attention", ("model.family=luong",))
    assert read_run(recipe).family == read_run(f"{recipe}-local").family == "luong"
    assert read_run("multi30k-de-en-lstm", ("model.family=luong",)).family == "luong"


def test_layer_decay_requires_transformer_blocks():
    with raises(ConfigError, "no_blocks", "layer_decay"):
        read_run("multi30k-de-en-gnmt", ("train.optimizer.layer_decay=0.5",))
