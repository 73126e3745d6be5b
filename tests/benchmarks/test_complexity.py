"""The benchmark of Table 1: paths as the paper has them, exponents, tables and a picture."""

import math

import complexity as script
import pytest
import torch


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("self-attention, as printed", lambda _: 1),
        ("self-attention, fused", lambda _: 1),
        ("recurrent", lambda _: 1),  # one layer, which is n steps long
        ("convolution", lambda n: math.ceil((n - 1) / 2)),
        ("convolution, dilated", lambda n: math.ceil(math.log(n, 3))),
        ("restricted attention", lambda n: math.ceil((n - 1) / 16)),
    ],
)
def test_paths_are_those_of_the_paper(name, path):
    kind = script.KINDS[name]
    assert [script.layers_needed(kind, n) for n in (40, 50)] == [path(40), path(50)]
    shorter, longer = (script.sequential_steps(kind.make(4, 0), n, 4) for n in (40, 80))
    assert (longer > shorter) == (name == "recurrent")


def test_peak_memory_is_what_was_allocated_at_one_time():
    def work():
        for _ in range(3):  # one after the other
            torch.empty(1000, 1000).add_(1)
        both = [torch.zeros(500, 1000), torch.zeros(500, 1000), torch.zeros(100, 1000)]
        return len(both)

    assert script.peak_bytes(work) == pytest.approx(4.4e6, rel=0.01)


def test_printed_attention_keeps_more_than_the_fused_kernel():
    printed, fused = (
        script.peak_bytes(script.there_and_back(script.KINDS[name].make(8, 0), 256, 8))
        for name in ("self-attention, as printed", "self-attention, fused")
    )
    assert printed > 256 * 256 * 4 > fused


def test_tables_show_exponents_beside_those_of_the_paper():
    lengths, widths = (10, 20, 40), (4, 8, 16)
    power_laws = {
        name: script.Measured(
            {n: script.Point(1e-4 * n**kind.theory.n, 100 * n) for n in lengths},
            {d: script.Point(1e-4 * d**kind.theory.d, 100 * d) for d in widths},
            {n: 5 * n**kind.theory.steps for n in lengths},
            dict.fromkeys(lengths, 1),
        )
        for name, kind in script.KINDS.items()
    }
    lines = script.exponents(power_laws)
    assert lines[2] == "| self-attention, as printed | n^2.00 (2) | d^1.00 (1) | n^1.00 | d^1.00 |"
    assert lines[4] == "| recurrent | n^1.00 (1) | d^2.00 (2) | n^1.00 | d^1.00 |"
    rows = script.paths(power_laws)
    assert rows[4] == "| recurrent | 50 100 200 | 1.00 (1) | 1 1 1 | 1.00 (n^1) |"
    assert rows[6].endswith("| 0.00 (log n) |")


def test_a_quick_run_prints_both_tables_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "QUICK", script.Sizes((40, 80), 8, (8, 16), 40, (40, 80)))
    figure = tmp_path / "figure.svg"
    assert script.main(["--quick", "--rounds", "1", "--figure", str(figure)]) == 0
    out = capsys.readouterr().out
    assert out.count("| restricted attention |") == 2
    assert figure.read_text(encoding="utf-8").startswith("<svg")
