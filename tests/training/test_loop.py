"""The training loop: updates do not depend on how batches are cut, and stay finite."""

import copy
import math
import os
import resource
import subprocess
import sys
from itertools import cycle, pairwise, repeat

import pytest
import torch
from expected_errors import raises

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.translation import collate
from polyhead.errors import PolyheadError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tasks.losses import Loss, TranslationLoss
from polyhead.tasks.reward import RewardConfig
from polyhead.training.loop import (
    MAX_SKIPS,
    NotFinite,
    Progress,
    TrainConfig,
    accumulate,
    average_and_clip,
    finished,
    out_of_memory,
    set_seed,
    train_loop,
)
from polyhead.training.optim import OptimizerConfig, ScheduleConfig, build_optimizer

PAIRS = [
    ([4, 5, 2], [5, 4, 2]),
    ([6, 2], [6, 2]),
    ([4, 4, 5, 2], [5, 4, 4, 6, 6, 2]),
    ([5, 2], [5, 2]),
    ([7, 6, 5, 4, 7, 2], [7, 2]),
]
N_TOKENS = sum(len(source) + len(target) for source, target in PAIRS)
OUT_OF_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"
)


def tiny_model(dropout=0.0):
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16, dropout=dropout)
    return Transformer(TransformerConfig(8, 8, stack=stack)).double()


def placed(batches):
    return ((DataPosition(0, number + 1), batch) for number, batch in enumerate(batches))


def run(model, batches, config, *, objective=None, progress=None, kind=None, rate=lambda _: 0.1):
    """Train to the end; return all updates and the progress."""
    progress = Progress() if progress is None else progress
    optimizer = torch.optim.SGD(model.parameters()) if kind is None else kind
    objective = TranslationLoss(0) if objective is None else objective
    updates = train_loop(model, objective, placed(batches), optimizer, rate, config, progress)
    return list(updates), progress


# One update


@pytest.mark.parametrize("cuts", [[1], [2, 4], [1, 2, 3, 4]])
def test_accumulation_equals_one_large_batch(cuts):
    """Also when the pieces differ in length: every token weighs the same."""
    config = TrainConfig(steps=1, clip_norm=0.01)
    whole = tiny_model()
    once, _ = run(whole, [collate(PAIRS)], config)
    pieces = tiny_model()
    edges = [0, *cuts, len(PAIRS)]
    batches = [collate(PAIRS[a:b]) for a, b in pairwise(edges)]
    config = TrainConfig(steps=1, accumulate=len(batches), clip_norm=0.01)
    cut, progress = run(pieces, batches, config)
    for a, b in zip(pieces.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert cut[0].loss == pytest.approx(once[0].loss, rel=1e-12)
    assert cut[0].norm == pytest.approx(once[0].norm, rel=1e-10)
    assert (cut[0].tokens, cut[0].pieces) == (N_TOKENS, len(batches))
    assert (progress.step, progress.batch, progress.tokens) == (1, len(batches), N_TOKENS)
    assert progress.window_count == sum(len(target) for _, target in PAIRS)


@pytest.mark.parametrize("clip_norm", [1e-3, 0.5, 1.0, 1e6, math.inf])
def test_clipping_equals_torch(clip_norm):
    """torch gets the gradient of the mean, the loop that of the sum and the count; ∞ is off."""
    count = 7
    ours, theirs = [], []
    for shape in ((3, 4), (5,), ()):
        gradient = torch.randn(shape, dtype=torch.float64)
        for parameters, factor in ((ours, count), (theirs, 1)):
            parameter = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
            parameter.grad = gradient * factor
            parameters.append(parameter)
    frozen = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))  # has no gradient
    norm = average_and_clip([*ours, frozen], count, 0.0 if clip_norm == math.inf else clip_norm)
    oracle = torch.nn.utils.clip_grad_norm_(theirs, clip_norm).item()
    assert norm == pytest.approx(oracle, rel=1e-12)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-15)


def test_the_rate_follows_the_step_and_the_roll_back():
    steps = []

    def rate(step):
        steps.append(step)
        return step / 100

    progress = Progress(step=10, rate_factor=0.5)
    batches = repeat(collate(PAIRS), 2)
    updates, _ = run(tiny_model(), batches, TrainConfig(steps=12), progress=progress, rate=rate)
    assert steps == [11, 12]
    assert [update.rate for update in updates] == [0.055, 0.06]


# The end


def test_training_ends_after_the_last_step_or_when_patience_is_exhausted():
    batches = cycle([collate(PAIRS)])
    updates, progress = run(tiny_model(), batches, TrainConfig(steps=3))
    assert (len(updates), progress.step) == (3, 3)
    config = TrainConfig(steps=100, patience=2)
    for since_best, n_updates in ((2, 0), (0, 5)):
        progress = Progress(since_best=since_best)
        loop = train_loop(
            (model := tiny_model()), TranslationLoss(0), placed(batches),
            torch.optim.SGD(model.parameters()), lambda _: 0.1, config, progress,
        )  # fmt: skip
        for _ in loop:
            if progress.step == 5:
                progress.since_best = 2  # as a validation would
        assert progress.step == n_updates
        assert finished(config, progress)


def test_a_nan_score_is_never_the_best():
    progress = Progress()
    assert not progress.judge(math.nan)
    assert progress.best == math.inf
    assert progress.judge(2.0)
    assert not progress.judge(3.0)
    assert (progress.best, progress.since_best) == (2.0, 1)


# Losses and gradients that are not finite


class BadLoss:
    """The usual loss, but not finite at some calls."""

    def __init__(self, calls, kind):
        self.calls, self.kind, self.call = set(calls), kind, 0

    def __call__(self, model, batch):
        self.call += 1
        loss = TranslationLoss(0)(model, batch)
        if self.call not in self.calls:
            return loss
        if self.kind == "only the loss":
            return Loss(loss.total + math.inf, loss.count)
        if self.kind == "only the gradient":
            zero = next(model.parameters()).sum() * 0.0
            zero.register_hook(lambda gradient: gradient * math.inf)
            return Loss(loss.total + zero, loss.count)
        return Loss(loss.total * self.kind, loss.count)


@pytest.mark.parametrize(
    "kind", [math.nan, math.inf, -math.inf, "only the loss", "only the gradient"]
)
def test_a_step_that_is_not_finite_is_skipped_and_counted(kind):
    batches = [collate(PAIRS[i : i + 2]) for i in (0, 2, 3)]
    model = tiny_model()
    objective = BadLoss([2], kind)
    adam = build_optimizer(model, OptimizerConfig())
    updates, progress = run(model, batches, TrainConfig(steps=3), objective=objective, kind=adam)
    assert (progress.step, progress.skipped, progress.skipped_in_a_row) == (3, 1, 0)
    assert not (math.isfinite(updates[1].loss) and math.isfinite(updates[1].norm))

    clean = tiny_model()
    adam = build_optimizer(clean, OptimizerConfig())
    run(clean, [batches[0], batches[2]], TrainConfig(steps=2), kind=adam)
    for a, b in zip(model.parameters(), clean.parameters(), strict=True):
        assert torch.equal(a, b)  # as without the bad batch
    assert progress.window_count == sum(
        len(target) for i in (0, 3) for _, target in PAIRS[i : i + 2]
    )


def test_several_bad_steps_in_a_row_raise_and_keep_the_weights():
    model = tiny_model()
    before = copy.deepcopy(model.state_dict())
    progress = Progress()
    with pytest.raises(NotFinite, match="step 3"):
        run(model, cycle([collate(PAIRS)]), TrainConfig(steps=9),
            objective=BadLoss(range(1, 9), math.nan), progress=progress)  # fmt: skip
    assert progress.step == progress.skipped == MAX_SKIPS == 3
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_bad_steps_between_good_ones_are_only_skipped():
    objective = BadLoss([n for n in range(1, 31) if n % 3], math.nan)  # two of three
    batches = cycle([collate(PAIRS)])
    _, progress = run(tiny_model(), batches, TrainConfig(steps=30), objective=objective)
    assert (progress.step, progress.skipped) == (30, 20)


# Memory


class SmallMemoryLoss:
    """The usual loss on a machine with memory for `room` sentences."""

    def __init__(self, room, error=None):
        self.room = room
        self.error = RuntimeError(OUT_OF_MEMORY) if error is None else error
        self.fitting = []  # sizes of the batches that fit

    def __call__(self, model, batch):
        loss = TranslationLoss(0)(model, batch)
        if len(batch.source) > self.room:
            raise self.error
        self.fitting.append(len(batch.source))
        return loss


def gradients(model, objective, batches):
    model.zero_grad()
    summed = accumulate(model, objective, batches, TrainConfig())
    return summed, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    "error", [RuntimeError(OUT_OF_MEMORY), MemoryError(), torch.OutOfMemoryError()]
)
@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_batch_too_large_for_memory_is_split_with_equal_gradients(room, error):
    model = tiny_model()
    batches = [collate(PAIRS), collate(PAIRS[:2])]
    whole, expected = gradients(model, TranslationLoss(0), batches)
    small = SmallMemoryLoss(room, error)
    split, gradient = gradients(model, small, batches)
    assert split.total == pytest.approx(whole.total, rel=1e-12)
    assert split.predictions == whole.predictions
    assert split.pieces > whole.pieces == 2
    assert sum(small.fitting[-split.pieces :]) == 7
    for a, b in zip(gradient, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_out_of_memory_in_the_second_batch_does_not_count_the_first_twice():
    model = tiny_model()
    batches = [collate(PAIRS[:2]), collate(PAIRS)]
    _, expected = gradients(model, TranslationLoss(0), batches)
    _, gradient = gradients(model, SmallMemoryLoss(2), batches)
    for a, b in zip(gradient, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_failed_attempt_does_not_change_the_random_state():
    """With dropout, the result equals that of a batch that was split from the start."""
    model = tiny_model(dropout=0.3)
    batch = collate(PAIRS)
    torch.manual_seed(5)
    _, expected = gradients(model, TranslationLoss(0), [*batch.halves()])
    torch.manual_seed(5)
    _, gradient = gradients(model, SmallMemoryLoss(3), [batch])
    for a, b in zip(gradient, expected, strict=True):
        assert torch.equal(a, b)


def test_out_of_memory_with_one_sentence_is_a_polyhead_error():
    with raises(PolyheadError, "out_of_memory"):
        accumulate(tiny_model(), SmallMemoryLoss(0), [collate(PAIRS)], TrainConfig())


def test_other_runtime_errors_are_raised_unchanged():
    objective = SmallMemoryLoss(1, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        accumulate(tiny_model(), objective, [collate(PAIRS)], TrainConfig())


def test_torch_s_own_message_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.int8)
    assert out_of_memory(caught.value)


def test_training_survives_a_real_memory_limit():
    """A new process, because this one may reuse freed memory; the whole batch does not fit."""
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, __file__], env=os.environ | {"PYTHONPATH": paths}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _train_in_little_memory():
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=16, n_heads=2, d_ff=4096, dropout=0.0)
    model = Transformer(TransformerConfig(8, 8, stack=stack))
    batch = collate([([4] * 20 + [2], [5] * 20 + [2])] * 64)
    accumulate(model, TranslationLoss(0), [collate(PAIRS)], TrainConfig())  # always needed
    model.zero_grad()
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + 48 * 2**20, most))
    summed = accumulate(model, TranslationLoss(0), [batch], TrainConfig())
    good = summed.pieces > 1 and summed.predictions == 64 * 21 and math.isfinite(summed.total)
    return 0 if good else 1


# Configuration


OUT_OF_RANGE = {
    TrainConfig: {"steps": [0], "save_every": [0], "seed": [-1, 2**63], "clip_norm": [-0.5],
                  "epochs": [0.0], "smoothing": [1.0]},
    OptimizerConfig: {"beta_1": [1.0], "beta_2": [-0.1], "epsilon": [0.0], "weight_decay": [-1.0],
                      "layer_decay": [0.0, 1.1]},
    ScheduleConfig: {"warmup": [0], "rate": [0.0], "factor": [-1.0]},
    RewardConfig: {"samples": [1, -1], "likelihood": [-1.0]},
}  # fmt: skip


@pytest.mark.parametrize("config", OUT_OF_RANGE)
def test_values_out_of_range_are_refused(config):
    for name, values in OUT_OF_RANGE[config].items():
        for value in values:
            with pytest.raises(ValueError, match=f"{name} = {value}"):
                config(**{name: value})


def test_judging_by_bleu_requires_sentences():
    with pytest.raises(ValueError, match="bleu_sentences"):
        TrainConfig(judge_by="bleu", bleu_sentences=0)


if __name__ == "__main__":
    sys.exit(_train_in_little_memory())


@pytest.mark.parametrize("kind", ["cpu", "cuda", "mps"])
def test_the_generators_of_the_device_are_seeded_and_no_others(kind, monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: seeded.append(("cuda", seed)))
    monkeypatch.setattr(torch.mps, "manual_seed", lambda seed: seeded.append(("mps", seed)))
    with torch.random.fork_rng(devices=[]):
        set_seed(7, torch.device(kind))
        assert torch.initial_seed() == 7
    assert seeded == [(kind, 7)] * (kind != "cpu")
