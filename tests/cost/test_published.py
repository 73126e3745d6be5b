"""The paper's figures are written down as printed, and its own arithmetic gives them."""

import pytest
from expected_errors import raises

from polyhead.cost.published import (
    TABLE_2,
    TRAININGS,
    PublishedSystem,
    estimated_flops,
    gain,
    table_2,
)
from polyhead.errors import ConfigError


def test_the_papers_estimate_gives_its_table():
    assert TRAININGS["base"].flops == 12 * 3600 * 8 * 9.5e12
    for name, training in TRAININGS.items():
        printed = TABLE_2[name].cost_en_de
        assert float(f"{training.flops:.1e}") == printed == TABLE_2[name].cost_en_fr


def test_an_ensemble_costs_about_eight_single_models():
    for name in ("Deep-Att", "GNMT", "ConvS2S"):
        ratio = TABLE_2[f"{name} ensemble"].cost_en_fr / TABLE_2[name].cost_en_fr
        assert ratio == pytest.approx(8, rel=0.03)


@pytest.mark.parametrize("numbers", [(-1.0, 8, 1e12), (1.0, 0, 1e12), (1.0, 8, 0.0)])
def test_impossible_estimates_are_refused(numbers):
    with raises(ConfigError, "out_of_range"):
        estimated_flops(*numbers)


def test_the_table_ends_with_a_row_of_ones_own():
    lines = table_2(PublishedSystem("mine", 20.5, None, 1.25e15, None)).split("\n")
    assert len(lines) == 2 + 10 + 1
    assert lines[2] == "| ByteNet | 23.75 |  |  |  |"
    assert lines[11] == "| Transformer (big) | 28.4 | 41.8 | 2.3e19 | 2.3e19 |"
    assert lines[-1] == "| mine | 20.5 |  | 1.2e15 |  |"
    assert table_2().split("\n") == lines[:-1]


def test_gains_are_differences_of_bleu_and_ratios_of_cost():
    assert gain("base", "ByteNet") == (3.55, None, None, None)
    better = gain("big", "ConvS2S ensemble")
    assert better == (2.04, 0.51, pytest.approx(3.348, rel=1e-3), pytest.approx(52.17, rel=1e-3))
    assert gain("base", "base")[:2] == (0.0, 0.0)
