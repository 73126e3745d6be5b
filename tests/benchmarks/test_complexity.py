"""The benchmark of Table 1: paths as the paper has them, exponents, tables and a picture."""

import math

import complexity as script
import pytest


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


def test_a_quick_run_prints_both_tables_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "QUICK", script.Sizes((40, 80), 8, (8, 16), 40, (40, 80)))
    figure = tmp_path / "figure.svg"
    assert script.main(["--quick", "--rounds", "1", "--figure", str(figure)]) == 0
    out = capsys.readouterr().out
    assert out.count("| restricted attention |") == 2
    assert figure.read_text(encoding="utf-8").startswith("<svg")
