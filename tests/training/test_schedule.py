"""Learning rates: the paper's numbers, and where each curve begins, peaks and ends."""

import math
from itertools import pairwise

import pytest

from polyhead.training.schedule import ScheduleConfig, learning_rate, noam

KINDS = ["noam", "inverse_sqrt", "linear", "cosine", "constant"]


def rates(kind, *, steps=1000, warmup=100, d_model=512, rate=3e-3):
    config = ScheduleConfig(kind, rate=rate, warmup=warmup)
    return [
        learning_rate(config, step, steps=steps, d_model=d_model) for step in range(1, steps + 1)
    ]


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1.74693e-7), (4000, 6.98771e-4), (100_000, 1.39754e-4)]
)
def test_the_base_model_has_the_rates_of_the_paper(step, rate):
    """Equation 3 of Vaswani et al. 2017 with d_model = 512 and 4,000 steps of warm-up."""
    config = ScheduleConfig()
    assert learning_rate(config, step, steps=10**6, d_model=512) == pytest.approx(rate, rel=5e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_rises_in_a_straight_line_to_its_peak(kind):
    found = rates(kind)
    peak = found[99]
    assert max(found) == pytest.approx(peak)
    for step in range(1, 101):
        assert found[step - 1] == pytest.approx(peak * step / 100)
    if kind != "noam":
        assert peak == pytest.approx(3e-3)


@pytest.mark.parametrize("kind", ["noam", "inverse_sqrt", "linear", "cosine"])
def test_every_schedule_but_the_constant_falls_after_its_peak(kind):
    found = rates(kind)
    assert all(later < earlier for earlier, later in pairwise(found[100:]))


def test_inverse_sqrt_is_noam_by_its_peak():
    ratios = [a / b for a, b in zip(rates("inverse_sqrt"), rates("noam"), strict=True)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))


def test_linear_goes_straight_down_to_nothing():
    config = ScheduleConfig("linear", rate=3e-3, warmup=100)
    found = rates("linear")
    falls = [a - b for a, b in pairwise(found[100:])]
    assert falls == pytest.approx([3e-3 / 900] * len(falls))
    assert found[-1] == pytest.approx(3e-3 / 900)
    assert learning_rate(config, 1001, steps=1000, d_model=512) == 0.0
    assert learning_rate(config, 5000, steps=1000, d_model=512) == 0.0


def test_cosine_is_half_a_wave():
    config = ScheduleConfig("cosine", rate=3e-3, warmup=100)
    for step in (101, 326, 551, 776, 1001):  # quarters of the way
        share = (step - 101) / 900
        expected = 3e-3 * (1 + math.cos(math.pi * share)) / 2
        assert learning_rate(config, step, steps=1000, d_model=1) == pytest.approx(expected)
    assert learning_rate(config, 1001, steps=1000, d_model=1) == pytest.approx(0, abs=1e-12)


def test_constant_stays_where_it_is():
    assert rates("constant")[100:] == [3e-3] * 900


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_shorter_than_its_warm_up_still_has_rates(kind):
    found = rates(kind, steps=10, warmup=100)
    assert all(0 < rate < 3e-3 for rate in found)
    assert found == sorted(found)


def test_step_zero_is_taken_for_the_first():
    assert noam(0, 512, 4000) == noam(1, 512, 4000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup": 0}, "warmup = 0: expected at least 1 step"),
        ({"rate": 0.0}, "rate = 0.0: expected more than 0"),
        ({"factor": -1.0}, "factor = -1.0: expected more than 0"),
    ],
)
def test_impossible_schedules_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ScheduleConfig(**options)
