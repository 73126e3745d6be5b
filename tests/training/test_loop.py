"""The loop: an update is the same however its batch is cut; bad numbers never reach a weight."""

import copy
import math
import resource
import subprocess
import sys
from itertools import cycle, pairwise, repeat

import pytest
import torch

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.translation import collate
from polyhead.errors import PolyheadError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.training.loop import (
    MAX_SKIPS,
    Callbacks,
    NotFinite,
    Progress,
    TrainConfig,
    accumulate,
    average_and_clip,
    out_of_memory,
    over,
    train,
)
from polyhead.training.losses import Loss, TranslationLoss
from polyhead.training.optim import OptimizerConfig, build_optimizer

PAIRS = [
    ([4, 5, 2], [5, 4, 2]),
    ([6, 2], [6, 2]),
    ([4, 4, 5, 2], [5, 4, 4, 6, 6, 2]),
    ([5, 2], [5, 2]),
    ([7, 6, 5, 4, 7, 2], [7, 2]),
]
N_TOKENS = sum(len(source) + len(target) for source, target in PAIRS)
TORCH_SAYS = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"
)


def tiny_model(dropout=0.0):
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=8, n_heads=2, d_ff=16, dropout=dropout)
    return Transformer(TransformerConfig(8, 8, stack=stack)).double()


class Recorder:
    """Callbacks that remember. Validation scores come from a list."""

    def __init__(self, scores=(), stop_at=None):
        self.scores, self.stop_at = iter(scores), stop_at
        self.updates, self.saved, self.validated = [], [], []
        self.step = 0

    def callbacks(self):
        return Callbacks(self.updated, self.validate, self.save, lambda: self.step == self.stop_at)

    def updated(self, progress, update):
        self.step = progress.step
        self.updates.append(update)

    def validate(self, progress):
        self.validated.append(progress.step)
        return next(self.scores, 0.0)

    def save(self, progress):
        self.saved.append(progress.step)


def placed(batches):
    return ((DataPosition(0, number + 1), batch) for number, batch in enumerate(batches))


def run(model, batches, config, *, objective=None, recorder=None, progress=None, kind=None):
    recorder = Recorder() if recorder is None else recorder
    progress = Progress() if progress is None else progress
    chosen = torch.optim.SGD(model.parameters()) if kind is None else kind
    rule = TranslationLoss(0) if objective is None else objective
    train(
        model, rule, placed(batches), chosen, lambda _: 0.1, config, recorder.callbacks(), progress
    )
    return recorder, progress


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
    assert cut.updates[0].loss == pytest.approx(once.updates[0].loss, rel=1e-12)
    assert cut.updates[0].norm == pytest.approx(once.updates[0].norm, rel=1e-10)
    assert (cut.updates[0].tokens, cut.updates[0].pieces) == (N_TOKENS, len(batches))
    assert (progress.step, progress.batch, progress.tokens) == (1, len(batches), N_TOKENS)
    assert progress.window_count == sum(len(target) for _, target in PAIRS)


@pytest.mark.parametrize("clip_norm", [1e-3, 0.5, 1.0, 1e6])
def test_clipping_is_torch_s(clip_norm):
    """The oracle gets the gradient of the mean; we get that of the sum, and the count."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(3, 4), (5,), ()]
    count = 7
    ours, theirs = [], []
    for shape in shapes:
        gradient = torch.randn(shape, generator=generator, dtype=torch.float64)
        for parameters, factor in ((ours, count), (theirs, 1)):
            parameter = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
            parameter.grad = gradient * factor
            parameters.append(parameter)
    frozen = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))  # has no gradient
    norm = average_and_clip([*ours, frozen], count, clip_norm)
    oracle = torch.nn.utils.clip_grad_norm_(theirs, clip_norm).item()
    assert norm == pytest.approx(oracle, rel=1e-12)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-15)


def test_without_clipping_the_gradient_keeps_its_length():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([30.0, 40.0])
    assert average_and_clip([parameter], 10, clip_norm=0.0) == pytest.approx(5.0)
    assert parameter.grad.tolist() == pytest.approx([3.0, 4.0])


def test_the_rate_follows_the_step_and_the_roll_back():
    seen = []
    recorder = Recorder()
    progress = Progress(step=10, rate_factor=0.5)
    model = tiny_model()
    train(
        model,
        TranslationLoss(0),
        placed(repeat(collate(PAIRS), 2)),
        torch.optim.SGD(model.parameters()),
        lambda step: seen.append(step) or step / 100,
        TrainConfig(steps=12),
        recorder.callbacks(),
        progress,
    )
    assert seen == [11, 12]
    assert [update.rate for update in recorder.updates] == [0.055, 0.06]


# When to stop


def test_it_validates_and_saves_when_it_should():
    config = TrainConfig(steps=10, validate_every=4, save_every=3)
    recorder, _ = run(
        tiny_model(), cycle([collate(PAIRS)]), config, recorder=Recorder([3.0, 4.0, 5.0])
    )
    assert recorder.validated == [4, 8, 10]
    assert recorder.saved == [3, 4, 6, 9, 10]  # 4: a new best


def test_patience_ends_a_run_and_it_stays_ended():
    config = TrainConfig(steps=100, validate_every=2, save_every=50, patience=2)
    recorder, progress = run(
        tiny_model(), cycle([collate(PAIRS)]), config, recorder=Recorder([3.0, 2.0, 2.0, 5.0, 1.0])
    )
    assert recorder.validated == [2, 4, 6, 8]
    assert recorder.saved[-1] == progress.step == 8
    assert (progress.best, progress.best_step, progress.since_best) == (2.0, 4, 2)
    assert over(config, progress)
    again, _ = run(tiny_model(), cycle([collate(PAIRS)]), config, progress=progress)
    assert (again.updates, again.saved, progress.step) == ([], [], 8)


def test_somebody_who_asks_to_stop_finds_everything_saved():
    config = TrainConfig(steps=100, validate_every=50, save_every=50)
    recorder, progress = run(
        tiny_model(), cycle([collate(PAIRS)]), config, recorder=Recorder(stop_at=7)
    )
    assert (progress.step, recorder.saved, recorder.validated) == (7, [7], [])


def test_a_score_that_is_not_a_number_is_never_the_best():
    progress = Progress()
    assert not progress.judge(math.nan)
    assert progress.best == math.inf
    assert progress.judge(2.0)
    assert not progress.judge(3.0)
    assert (progress.best, progress.since_best) == (2.0, 1)


def test_progress_without_a_best_score_is_still_json():
    assert "best" not in Progress().plain()
    assert Progress(**Progress().plain()) == Progress()
    reached = Progress(step=3, best=1.5, seconds=0.1)
    assert Progress(**reached.plain()) == reached


# Numbers that are not finite


class Poisoned:
    """The usual objective, but some calls give a loss or a gradient that is not finite."""

    def __init__(self, calls, poison):
        self.calls, self.poison, self.call = set(calls), poison, 0

    def __call__(self, model, batch):
        self.call += 1
        loss = TranslationLoss(0)(model, batch)
        if self.call not in self.calls:
            return loss
        if self.poison == "only the loss":
            return Loss(loss.total + math.inf, loss.count)
        if self.poison == "only the gradient":
            zero = (next(model.parameters()).sum() * 0.0).clamp(min=0)
            return Loss(loss.total + zero.sqrt() * 0.0, loss.count)  # d√x/dx at 0 is infinite
        return Loss(loss.total * self.poison, loss.count)


@pytest.mark.parametrize(
    "poison", [math.nan, math.inf, -math.inf, "only the loss", "only the gradient"]
)
def test_a_step_that_is_not_finite_is_left_out_and_counted(poison):
    batches = [collate(PAIRS[i : i + 2]) for i in (0, 2, 3)]
    model = tiny_model()
    objective = Poisoned([2], poison)
    adam = build_optimizer(model, OptimizerConfig())
    recorder, progress = run(model, batches, TrainConfig(steps=3), objective=objective, kind=adam)
    assert (progress.step, progress.skipped, progress.skipped_in_a_row) == (3, 1, 0)
    assert not (math.isfinite(recorder.updates[1].loss) and math.isfinite(recorder.updates[1].norm))

    clean = tiny_model()
    adam = build_optimizer(clean, OptimizerConfig())
    run(clean, [batches[0], batches[2]], TrainConfig(steps=2), kind=adam)
    for a, b in zip(model.parameters(), clean.parameters(), strict=True):
        assert torch.equal(a, b)  # as if the bad batch had not been
    assert progress.window_count == sum(
        len(target) for i in (0, 3) for _, target in PAIRS[i : i + 2]
    )


def test_several_in_a_row_are_too_many_and_the_weights_stay():
    model = tiny_model()
    before = copy.deepcopy(model.state_dict())
    recorder = Recorder()
    progress = Progress()
    with pytest.raises(NotFinite, match=r"step 3: loss nan, gradient nan"):
        run(
            model,
            cycle([collate(PAIRS)]),
            TrainConfig(steps=9),
            objective=Poisoned(range(1, 9), math.nan),
            recorder=recorder,
            progress=progress,
        )
    assert progress.step == progress.skipped == MAX_SKIPS == 3
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_bad_steps_between_good_ones_are_borne():
    bad = [n for n in range(1, 31) if n % 3]  # two of three
    _, progress = run(
        tiny_model(),
        cycle([collate(PAIRS)]),
        TrainConfig(steps=30),
        objective=Poisoned(bad, math.nan),
    )
    assert (progress.step, progress.skipped) == (30, 20)


# Memory


class Cramped:
    """The usual objective on a machine that holds at most `room` sentences at once."""

    def __init__(self, room, error=None):
        self.room = room
        self.error = RuntimeError(TORCH_SAYS) if error is None else error
        self.seen = []

    def __call__(self, model, batch):
        self.seen.append(len(batch.source))
        loss = TranslationLoss(0)(model, batch)
        if len(batch.source) > self.room:
            raise self.error
        return loss


def gradients(model, objective, batches):
    model.zero_grad()
    found = accumulate(model, objective, batches, TrainConfig())
    return found, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize(
    "error", [RuntimeError(TORCH_SAYS), MemoryError(), torch.OutOfMemoryError()]
)
@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_batch_too_large_for_memory_is_cut_and_means_the_same(room, error):
    model = tiny_model()
    batches = [collate(PAIRS), collate(PAIRS[:2])]
    whole, expected = gradients(model, TranslationLoss(0), batches)
    cramped = Cramped(room, error)
    found, gradient = gradients(model, cramped, batches)
    assert found.total == pytest.approx(whole.total, rel=1e-12)
    assert found.predictions == whole.predictions
    assert found.pieces > whole.pieces == 2
    assert max(cramped.seen[-found.pieces :]) <= room
    assert sum(cramped.seen[-found.pieces :]) == 7
    for a, b in zip(gradient, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_memory_that_runs_out_in_the_second_batch_does_not_count_the_first_twice():
    model = tiny_model()
    batches = [collate(PAIRS[:2]), collate(PAIRS)]
    _, expected = gradients(model, TranslationLoss(0), batches)
    _, gradient = gradients(model, Cramped(2), batches)
    for a, b in zip(gradient, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_an_attempt_that_failed_leaves_no_trace_in_the_dice():
    """With dropout: the same as if the batch had come in pieces from the beginning."""
    model = tiny_model(dropout=0.3)
    batch = collate(PAIRS)
    torch.manual_seed(5)
    _, expected = gradients(model, TranslationLoss(0), [*batch.halves()])
    torch.manual_seed(5)
    _, gradient = gradients(model, Cramped(3), [batch])
    for a, b in zip(gradient, expected, strict=True):
        assert torch.equal(a, b)


def test_memory_too_small_for_one_sentence_is_an_error_that_says_what_to_do():
    with pytest.raises(PolyheadError, match=r"even by one sentence at a time; make the model"):
        accumulate(tiny_model(), Cramped(0), [collate(PAIRS)], TrainConfig())


def test_other_errors_are_not_taken_for_memory():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        accumulate(
            tiny_model(),
            Cramped(1, RuntimeError("mat1 and mat2 shapes cannot be multiplied")),
            [collate(PAIRS)],
            TrainConfig(),
        )


def test_torch_s_own_words_are_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.int8)
    assert out_of_memory(caught.value)


def test_real_memory_that_runs_out_is_survived():
    """A process that may have only a little more than it has: the whole batch does not fit.

    It is a new one, because this one may have freed memory that it could use again.
    """
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _train_in_little_memory():
    torch.manual_seed(0)
    stack = StackConfig(n_layers=1, d_model=16, n_heads=2, d_ff=4096, dropout=0.0)
    model = Transformer(TransformerConfig(8, 8, stack=stack))
    batch = collate([([4] * 20 + [2], [5] * 20 + [2])] * 64)
    accumulate(model, TranslationLoss(0), [collate(PAIRS)], TrainConfig())  # what is always needed
    model.zero_grad()
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + 48 * 2**20, most))
    found = accumulate(model, TranslationLoss(0), [batch], TrainConfig())
    good = found.pieces > 1 and found.predictions == 64 * 21 and math.isfinite(found.total)
    return 0 if good else 1


# Configuration


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps = 0: expected at least 1"),
        ({"save_every": 0}, "save_every = 0: expected at least 1"),
        ({"seed": -1}, "seed = -1: expected at least 0"),
        ({"clip_norm": -0.5}, "clip_norm = -0.5: expected at least 0"),
        ({"epochs": 0.0}, "epochs = 0.0: expected more than 0"),
        ({"smoothing": 1.0}, "smoothing = 1.0: expected 0 or more, and less than 1"),
        ({"judge_by": "bleu", "bleu_sentences": 0}, 'judge_by = "bleu" needs bleu_sentences'),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**options)


if __name__ == "__main__":
    sys.exit(_train_in_little_memory())
