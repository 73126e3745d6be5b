"""Training: whatever interrupts it, it ends where it would have ended, to the last bit."""

import errno
import hashlib
import json
import math
import os
import signal
import threading
from dataclasses import replace

import pytest
from tiny import SMALL, write_corpus

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint import tensors
from polyhead.data import config as corpus_module
from polyhead.data.batches.translation import collate
from polyhead.errors import CheckpointError, Diverged, PolyheadError
from polyhead.tokenizers.storage import PAD
from polyhead.training import trainer as training
from polyhead.training.config import read_run
from polyhead.training.losses import Loss, TranslationLoss
from polyhead.training.run_log import NullReporter
from polyhead.training.tasks import translation
from polyhead.training.trainer import train

STEPS = 24
TIMES = ("seconds", "tokens_per_second")
TORCH_SAYS = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000 bytes."
VARIANTS = {
    "plain": (),
    "judged": ("train.bleu_sentences=3",),
    "accumulated": ("train.accumulate=3",),
    "sampled": ("text.sampling=0.2",),
    "worked": ("train.workers=2",),
}


@pytest.fixture(autouse=True)
def _a_disk_that_does_not_wait(monkeypatch):
    """No power fails here; what a killed process leaves is tested in test_kill.py."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), n=240)


@pytest.fixture(scope="module")
def make(corpus):
    """A tiny run of two layers with dropout, and changes to it."""

    def run(*overrides):
        settings = (*SMALL, f"train.steps={STEPS}", "train.validate_every=8",
                    "train.bleu_sentences=0", *overrides)  # fmt: skip
        found = read_run("small", settings, corpus)
        return replace(found, train=replace(found.train, epochs=None))

    return run


@pytest.fixture(scope="module")
def uninterrupted(make, tmp_path_factory):
    """What each variant comes to when nobody disturbs it."""
    found = {}

    def get(variant):
        if variant not in found:
            folder = tmp_path_factory.mktemp("whole") / variant
            train(make(*VARIANTS[variant]), folder)
            found[variant] = trace(folder)
        return found[variant]

    return get


def trace(folder):
    """Everything that a run leaves behind, but for the time it took."""
    lines = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        lines.append({name: value for name, value in entry.items() if name not in TIMES})
    last = folder / "last"
    numbers = json.loads((last / "training.json").read_text())
    del numbers["progress"]["seconds"]
    sums = {
        name: hashlib.sha256((last / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "training.safetensors", "config.json")
    }
    samples = {path.name: path.read_text() for path in folder.glob("samples/*")}
    return {"metrics": lines, "numbers": numbers, "sums": sums, "samples": samples}


class Watcher(NullReporter):
    """A reporter that remembers, and that does something at a certain step."""

    def __init__(self, at=None, act=lambda: None):
        self.at, self.act = at, act
        self.notices, self.metrics = [], []

    def notice(self, what):
        self.notices.append(what)

    def step(self, metrics):
        self.metrics.append(metrics)
        if metrics["step"] == self.at:
            self.act()

    def told(self, words):
        return [notice for notice in self.notices if words in notice]


class Crash(Exception):
    """Somebody pulled the plug."""


def crash():
    raise Crash


def tell(number):
    return lambda: os.kill(os.getpid(), number)


def progress_of(folder):
    return json.loads((folder / "last" / "training.json").read_text())["progress"]


def kept(folder):
    return [step for step, _ in store.list_checkpoints(folder / "checkpoints")]


# To the last bit


def test_two_runs_are_the_same(make, tmp_path, uninterrupted):
    train(make(), tmp_path / "run")
    assert trace(tmp_path / "run") == uninterrupted("plain")


def test_dropout_is_on(make, uninterrupted, tmp_path):
    """Or else the state of its generator would not have been tested."""
    train(make("model.stack.dropout=0.0"), tmp_path / "run")
    assert trace(tmp_path / "run")["sums"] != uninterrupted("plain")["sums"]


def test_a_run_told_to_leave_at_every_step_ends_the_same(make, tmp_path, uninterrupted):
    for step in range(1, STEPS):
        result = train(make(), tmp_path / "run", reporter=Watcher(step, tell(signal.SIGTERM)))
        assert (result.step, result.signal) == (step, signal.SIGTERM)
    assert train(make(), tmp_path / "run").signal is None
    assert trace(tmp_path / "run") == uninterrupted("plain")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_that_crashed_ends_the_same(make, tmp_path, uninterrupted, variant):
    run = make(*VARIANTS[variant])
    for step in (1, 4, 6, 9, 17, 23):
        with pytest.raises(Crash):
            train(run, tmp_path / "run", reporter=Watcher(step, crash))
    train(run, tmp_path / "run")
    assert trace(tmp_path / "run") == uninterrupted(variant)


def test_the_number_of_workers_may_change_on_the_way(make, tmp_path, uninterrupted):
    train(make(), tmp_path / "run", reporter=Watcher(3, tell(signal.SIGTERM)))
    train(make("train.workers=2"), tmp_path / "run", reporter=Watcher(7, tell(signal.SIGTERM)))
    train(make(), tmp_path / "run")
    assert trace(tmp_path / "run")["metrics"] == uninterrupted("plain")["metrics"]
    sums = trace(tmp_path / "run")["sums"]
    assert sums["model.safetensors"] == uninterrupted("plain")["sums"]["model.safetensors"]


def test_a_finished_run_stays_as_it_is(make, tmp_path, uninterrupted):
    train(make(), tmp_path / "run")
    watcher = Watcher()
    result = train(make(), tmp_path / "run", reporter=watcher)
    assert watcher.metrics == []
    assert watcher.told("going on from step 24: nothing is left to do")
    assert (result.step, result.signal) == (STEPS, None)
    assert result.metrics == uninterrupted("plain")["numbers"]["metrics"]
    assert trace(tmp_path / "run") == uninterrupted("plain")


# What a crash leaves behind


@pytest.mark.parametrize("name", ["model.safetensors", "training.json", "manifest.json"])
def test_a_damaged_checkpoint_is_passed_over_with_a_notice(make, tmp_path, uninterrupted, name):
    folder = tmp_path / "run"
    run = make("train.keep=1")
    train(run, folder, reporter=Watcher(14, tell(signal.SIGTERM)))
    assert kept(folder) == [8, 14]
    path = folder / "checkpoints" / "step-00000014" / name
    path.write_bytes(path.read_bytes()[:-2])
    watcher = Watcher(11, crash)
    with pytest.raises(Crash):
        train(run, folder, reporter=watcher)
    (told,) = watcher.told("going back to an older checkpoint")
    assert name in told
    assert watcher.told("going on from step 8")
    watcher = Watcher(13, tell(signal.SIGTERM))
    train(run, folder, reporter=watcher)  # saves 13, before the damaged 14
    assert kept(folder) == [8, 13]
    train(run, folder)
    assert trace(folder)["metrics"] == uninterrupted("plain")["metrics"]


def test_without_any_sound_checkpoint_it_starts_over_and_says_so(make, tmp_path, uninterrupted):
    folder = tmp_path / "run"
    train(make(), folder, reporter=Watcher(9, tell(signal.SIGTERM)))
    for path in (folder / "checkpoints").glob("*/manifest.json"):
        path.unlink()
    watcher = Watcher()
    train(make(), folder, reporter=watcher)
    assert watcher.told("no checkpoint is left that can be used; starting over")
    assert trace(folder) == uninterrupted("plain")


def test_links_are_right_after_a_crash_between_a_checkpoint_and_its_links(
    make, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    point = store.link

    def fail(link, to):
        if to.name == "step-00000024":
            raise Crash
        point(link, to)

    monkeypatch.setattr(store, "link", fail)
    with pytest.raises(Crash):
        train(make(), folder)
    assert os.readlink(folder / "last") == "checkpoints/step-00000020"
    monkeypatch.undo()
    train(make(), folder)  # nothing is left to do but this
    assert os.readlink(folder / "last") == "checkpoints/step-00000024"
    assert os.readlink(folder / "best") == "checkpoints/step-00000024"


def test_a_torn_line_of_metrics_is_mended(make, tmp_path, uninterrupted):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        train(make(), folder, reporter=Watcher(11, crash))
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\n[]\nnull\n{"kind": "train", "step": 10, "lo')
    train(make(), folder)
    assert trace(folder) == uninterrupted("plain")


def test_only_the_last_ones_and_the_best_stay_on_the_disk(make, tmp_path, monkeypatch):
    scores = iter([1.0, 5.0, 4.0])
    monkeypatch.setattr(training, "validate", lambda *_: next(scores))
    folder = tmp_path / "run"
    train(make("train.save_every=1", "train.keep=2"), folder)
    assert kept(folder) == [8, 23, 24]
    assert os.readlink(folder / "best") == "checkpoints/step-00000008"
    assert os.readlink(folder / "last") == "checkpoints/step-00000024"
    assert {p.name for p in folder.iterdir()} == {
        ".lock", "best", "checkpoints", "config.toml", "data.json", "last", "metrics.jsonl",
        "tokenizer", "train.log",
    }  # fmt: skip


def test_seconds_go_on_where_they_stopped(make, tmp_path, monkeypatch):
    """Every look at the clock takes a second; between the sessions lies a long night."""
    folder = tmp_path / "run"
    times = iter(range(100_000))
    monkeypatch.setattr(training.time, "perf_counter", lambda: float(next(times)))
    train(make(), folder, reporter=Watcher(5, tell(signal.SIGTERM)))
    before = progress_of(folder)["seconds"]
    assert 5 <= before < 100
    times = iter(range(50_000, 100_000))
    train(make(), folder)
    assert before < progress_of(folder)["seconds"] < before + 100
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    seconds = [entry["seconds"] for entry in entries if entry["kind"] == "train"]
    assert seconds == sorted(seconds)


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_polite_signal_saves_and_leaves(make, tmp_path, number):
    handler = signal.getsignal(number)
    watcher = Watcher(6, tell(number))
    result = train(make(), tmp_path / "run", reporter=watcher)
    assert (result.step, result.signal, len(watcher.metrics)) == (6, number, 6)
    assert os.readlink(tmp_path / "run" / "last") == "checkpoints/step-00000006"
    store.verify(tmp_path / "run" / "last")
    assert signal.getsignal(number) == handler


def test_a_second_ctrl_c_leaves_at_once(make, tmp_path):
    def twice():
        tell(signal.SIGINT)()
        tell(signal.SIGINT)()

    before = signal.getsignal(signal.SIGINT)  # a shell's background jobs begin by ignoring it
    with pytest.raises(KeyboardInterrupt):
        train(make(), tmp_path / "run", reporter=Watcher(6, twice))
    assert kept(tmp_path / "run") == [0, 4]
    assert signal.getsignal(signal.SIGINT) == before


def test_a_signal_at_the_last_step_has_interrupted_nothing(make, tmp_path):
    result = train(make(), tmp_path / "run", reporter=Watcher(STEPS, tell(signal.SIGTERM)))
    assert (result.step, result.signal) == (STEPS, None)


def test_it_trains_in_a_thread_too(make, tmp_path, uninterrupted):
    """Where signals cannot be caught."""
    thread = threading.Thread(target=train, args=(make(), tmp_path / "run"))
    thread.start()
    thread.join()
    assert trace(tmp_path / "run") == uninterrupted("plain")


# Numbers that are not finite


def train_by(monkeypatch, objective):
    """Let translation be trained by another objective; validation stays as it is."""
    prepare = translation.TranslationTask.prepare

    def otherwise(self, run, *rest):
        prepared = prepare(self, run, *rest)
        return replace(prepared, objective=objective(PAD, run.train.smoothing))

    monkeypatch.setattr(translation.TranslationTask, "prepare", otherwise)


class Poisoned(TranslationLoss):
    """The usual objective, but its calls from `first` to `last` give a loss that is no number."""

    calls, first, last = 0, 0, 0

    def __call__(self, model, batch):
        loss = super().__call__(model, batch)
        Poisoned.calls += 1
        if self.first <= self.calls <= self.last:
            return Loss(loss.total * math.nan, loss.count)
        return loss


@pytest.fixture
def poison(monkeypatch):
    def set_up(first, last):
        Poisoned.calls, Poisoned.first, Poisoned.last = 0, first, last
        train_by(monkeypatch, Poisoned)

    return set_up


def all_finite(folder):
    return all(
        model_folder.first_not_finite(model_folder.load_model(path).model) is None
        for _, path in store.list_checkpoints(folder / "checkpoints")
    )


def test_a_bad_step_is_skipped_and_told(make, tmp_path, poison):
    poison(10, 10)
    watcher = Watcher()
    train(make(), tmp_path / "run", reporter=watcher)
    (told,) = watcher.told("skipped")
    assert told == "step 10 skipped: loss nan or its gradient is not finite"
    progress = progress_of(tmp_path / "run")
    assert (progress["step"], progress["skipped"], progress["rolled_back"]) == (STEPS, 1, 0)
    for line in (tmp_path / "run" / "metrics.jsonl").open():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize("save_every", [1, 4])
def test_three_bad_steps_lead_back_once_at_half_the_rate(make, tmp_path, poison, save_every):
    poison(10, 12)
    watcher = Watcher()
    run = make(f"train.save_every={save_every}")
    train(run, tmp_path / "run", reporter=watcher)
    back = 9 if save_every == 1 else 8
    (told,) = watcher.told("went back")
    assert told == (
        f"step 12: loss nan, gradient nan: went back to step {back} and halved the learning rate"
    )
    progress = progress_of(tmp_path / "run")
    assert (progress["rolled_back"], progress["rate_factor"]) == (1, 0.5)
    assert (progress["step"], progress["skipped"]) == (STEPS, 0)
    assert all_finite(tmp_path / "run")
    rates = [metrics["rate"] for metrics in watcher.metrics if metrics["step"] == back + 1]
    assert rates[1] == rates[0] / 2
    logged = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert logged == sorted(logged)
    assert len([step for step in logged if step == 10]) == 1


@pytest.mark.parametrize("save_every", [1, 4])
def test_trouble_without_end_is_an_error_and_ruins_nothing(make, tmp_path, poison, save_every):
    poison(10, 10_000)
    with pytest.raises(Diverged) as caught:
        train(make(f"train.save_every={save_every}"), tmp_path / "run")
    text = str(caught.value)
    assert "not finite again after going back once with half the rate; lower train." in text
    assert "\n" not in text
    assert caught.value.exit_code == 6
    assert all_finite(tmp_path / "run")


def test_a_run_that_was_rolled_back_resumes_as_it_was(make, tmp_path, poison):
    """The roll-back is part of the state: killed after it, the run still goes at half the rate."""
    poison(10, 12)
    train(make(), tmp_path / "whole")
    poison(10, 12)
    train(make(), tmp_path / "run", reporter=Watcher(15, tell(signal.SIGTERM)))
    poison(0, 0)
    train(make(), tmp_path / "run")
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")


def test_weights_that_are_no_numbers_are_never_saved(make, tmp_path):
    """A rate so high that the first update already leaves the numbers."""
    run = make("train.schedule.rate=1e38", "train.schedule.warmup=1", "train.save_every=1")
    with pytest.raises(Diverged, match=r"step 1: .* is no longer finite"):
        train(run, tmp_path / "run")
    assert kept(tmp_path / "run") == [0]
    assert all_finite(tmp_path / "run")


# The machine gives up


class Cramped(TranslationLoss):
    """The usual objective on a machine with room for four sentences."""

    def __call__(self, model, batch):
        if len(batch.source) > 4:
            raise RuntimeError(TORCH_SAYS)
        return super().__call__(model, batch)


def test_a_batch_too_large_for_memory_is_cut_and_told(make, tmp_path, monkeypatch):
    still = ("model.stack.dropout=0.0", "train.steps=8")
    train(make(*still), tmp_path / "whole")
    train_by(monkeypatch, Cramped)
    watcher = Watcher()
    train(make(*still), tmp_path / "run", reporter=watcher)
    assert watcher.told("step 1: memory ran out, and the batch was cut into 4 pieces; a smaller")
    whole, cut = (
        [(entry["loss"], entry.get("norm", 0.0)) for entry in trace(tmp_path / name)["metrics"]]
        for name in ("whole", "run")
    )
    for one, other in zip(whole, cut, strict=True):
        assert one == pytest.approx(other, rel=1e-3)


def test_memory_that_runs_out_elsewhere_is_one_line(make, tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError(TORCH_SAYS)

    monkeypatch.setattr(translation, "valid_loss", full)
    with pytest.raises(PolyheadError, match=r"memory is exhausted; lower train\.max_tokens") as e:
        train(make(), tmp_path / "run")
    assert e.value.exit_code == 1
    assert kept(tmp_path / "run") == [0, 4]


def test_a_disk_that_fills_in_mid_save_is_one_line_and_the_run_can_go_on(
    make, tmp_path, monkeypatch, uninterrupted
):
    folder, save = tmp_path / "run", tensors.save_tensors
    calls = iter(range(1000))

    def fill(found, path):
        if next(calls) == 7:  # two a checkpoint: in the middle of the fourth
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(found, path)

    monkeypatch.setattr(tensors, "save_tensors", fill)
    with pytest.raises(PolyheadError) as caught:
        train(make(), folder)
    assert str(caught.value) == (
        f"cannot write {folder}/checkpoints/step-00000012: No space left on device; "
        "what was saved before is intact"
    )
    assert caught.value.exit_code == 1
    assert kept(folder) == [0, 4, 8]
    store.verify(folder / "last")
    train(make(), folder)
    assert trace(folder) == uninterrupted("plain")


def test_a_log_that_cannot_be_written_is_one_line(make, tmp_path):
    folder = tmp_path / "run"
    train(make(), folder, reporter=Watcher(5, tell(signal.SIGTERM)))
    (folder / "train.log").unlink()
    (folder / "train.log").symlink_to("/dev/full")
    with pytest.raises(PolyheadError, match=r"cannot write .*/train\.log: No space left on device"):
        train(make(), folder)


# When it ends


def test_it_stops_early_by_loss_and_stays_stopped(make, tmp_path, monkeypatch):
    scores = iter([3.0, 2.0, 2.5, 2.5, 1.0])
    monkeypatch.setattr(training, "validate", lambda *_: next(scores))
    run = make("train.validate_every=2", "train.patience=2")
    result = train(run, tmp_path / "run")
    assert result.step == 8
    assert os.readlink(tmp_path / "run" / "best") == "checkpoints/step-00000004"
    assert train(run, tmp_path / "run").step == 8


@pytest.mark.parametrize(("judge_by", "best"), [("bleu", 16), ("loss", 24)])
def test_the_best_is_judged_as_asked(make, tmp_path, monkeypatch, judge_by, best):
    bleu = iter([5.0, 50.0, 49.0])
    monkeypatch.setattr(translation, "quick_bleu", lambda *_: next(bleu))
    monkeypatch.setattr(translation, "translate_quickly", lambda *_: ["a translation"])
    run = make("train.bleu_sentences=1", f'train.judge_by="{judge_by}"')
    result = train(run, tmp_path / "run")
    assert os.readlink(tmp_path / "run" / "best") == f"checkpoints/step-000000{best}"
    assert result.best == tmp_path / "run" / "best"
    assert result.metrics["bleu"] == 49.0


def test_validation_is_without_dropout_and_without_smoothing(make, tmp_path):
    settings = ("model.stack.dropout=0.5", "train.smoothing=0.5", "train.bleu_sentences=2")
    run = make("train.steps=2", *settings)
    result = train(run, tmp_path / "run")
    saved = model_folder.load_model(tmp_path / "run" / "last")
    held = corpus_module.load(run.data, run.train.seed).valid
    total = count = 0
    for source, target in held:
        ids = saved.tokenizers.source.encode(source), saved.tokenizers.target.encode(target)
        loss = TranslationLoss(0)(saved.model, collate([ids]))
        total, count = total + loss.total.item(), count + loss.count
    assert result.metrics["loss"] == pytest.approx(total / count, rel=1e-5)
    assert math.exp(result.metrics["loss"]) == pytest.approx(result.metrics["perplexity"])
    assert saved.about["valid"] == result.metrics
    samples = (tmp_path / "run" / "samples" / "step-00000002.txt").read_text()
    for source, target in list(held)[:2]:
        assert f"{source}\n  = {target}\n  > " in samples


def test_epochs_decide_how_many_steps(corpus, tmp_path):
    settings = ("train.epochs=1", "train.accumulate=3", "train.bleu_sentences=0")
    run = read_run("small", (*SMALL, *settings), corpus)
    watcher = Watcher()
    result = train(run, tmp_path / "run", reporter=watcher)
    assert len(watcher.metrics) == result.step
    progress = progress_of(tmp_path / "run")
    seen = progress["tokens"] / sum(metrics["tokens"] for metrics in watcher.metrics)
    assert seen == 1
    assert (progress["epoch"], progress["batch"]) in {(0, 3 * result.step), (1, 1), (1, 2)}


def test_a_checkpoint_of_another_kind_of_progress_is_refused(make, tmp_path):
    folder = tmp_path / "run"
    train(make(), folder, reporter=Watcher(5, tell(signal.SIGTERM)))
    last = (folder / "last").resolve()
    numbers = json.loads((last / "training.json").read_text())
    numbers["progress"]["mood"] = "good"
    (last / "training.json").write_text(json.dumps(numbers))
    (last / "manifest.json").unlink()
    store.seal(last)
    with pytest.raises(CheckpointError, match=r"training\.json: mood: no such option"):
        train(make(), folder)
