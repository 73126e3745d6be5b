"""Comparisons at great length: peers compute what we compute, peaks are peaks, twins are twins."""

import xml.etree.ElementTree as ET

import footprint
import long
import long_language
import long_time
import measuring
import peers_long
import pytest
import torch

from polyhead.errors import MissingError
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.transformer_stack import StackConfig, TransformerStack


@pytest.fixture
def measured(monkeypatch):
    """Footprints by a formula instead of a process: 100 MB, and 50 more a layer if ordinary."""
    steps = []

    def measure(step):
        steps.append(step)
        parameters = 10_000_000 * step.n_layers
        rest = 100_000_000 + (2 if step.reversible else 50) * 1_000_000 * step.n_layers
        return footprint.Footprint(rest + 2 * parameters, parameters, 7_000_000, 1.5, 5.5)

    monkeypatch.setattr(footprint, "measure", measure)
    return steps


@pytest.mark.parametrize("name", ["transformers", "reformer-pytorch"])
def test_peers_with_our_weights_give_our_outputs_and_gradients(name):
    """Their two chunks see each other, the first one around the corner: that is every pair.

    Ours do not look around the corner, and need one chunk to see all.
    """
    pytest.importorskip(peers_long.INSTALL[name][0])
    ours = peers_long.without_biases(peers_long.Ours(16, 2, LSHAttention(chunk=8, n_rounds=1)))
    theirs = peers_long.PEERS[name](ours, 16)
    ours.attention.kernel = LSHAttention(chunk=16, n_rounds=1)
    x = torch.randn(2, 16, 16, requires_grad=True)
    there, here = theirs(x), ours(x)
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)
    weights = torch.randn_like(here)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (there, here)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


def test_the_peak_counts_what_is_there_at_one_time_only(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n")
    assert footprint.resident("VmHWM", status) == 2 * 2**20
    assert footprint.resident("VmRSS", status) == 2**20
    with pytest.raises(MissingError, match="only Linux has"):
        footprint.resident("VmRSS", tmp_path / "nowhere")


def test_a_step_in_a_process_of_its_own_needs_at_least_what_it_must_hold():
    """The logits' gradient, the streams and the parameters exist at once."""
    if not footprint.STATUS.exists():
        pytest.skip("peaks are read from /proc")
    found = footprint.measure(footprint.Step(length=8192, d_model=64, n_layers=1, update=True))
    stream = 8192 * 64 * 4
    assert found.kept >= 2 * stream
    assert 4 * stream + 2 * found.parameters < found.peak < 200 * stream
    assert found.loss == pytest.approx(torch.tensor(256.0).log().item(), abs=0.3)


def test_only_ordinary_stacks_keep_more_when_they_are_deeper():
    small = {"length": 128, "d_model": 16, "n_heads": 2}
    kept = {
        (reversible, depth): footprint.take(
            footprint.Step(n_layers=depth, reversible=reversible, **small)
        ).kept
        for reversible in (True, False)
        for depth in (2, 4)
    }
    assert kept[True, 2] == kept[True, 4] > 0
    assert kept[False, 4] > 1.8 * kept[False, 2]


def comparison(**seconds):
    """Return samples of 1000 tokens, three times, in these seconds."""
    sample = measuring.Sample
    return long_time.Comparison({k: [sample(1000, s)] * 3 for k, s in seconds.items()})


def test_a_crossover_is_where_being_faster_begins_for_good():
    found = {
        512: comparison(LSH=0.9, local=3.0, dense=1.0),  # by chance
        1024: comparison(LSH=3.0, local=0.9, dense=1.0),
        2048: comparison(LSH=1.0, local=0.5, dense=2.0),
        4096: comparison(LSH=1.0, local=0.5, dense=4.0),
    }
    assert (long_time.crossover(found, "LSH"), long_time.crossover(found, "local")) == (2048, 1024)
    assert long_time.crossover({512: comparison(LSH=2.0, dense=1.0)}, "LSH") is None


def test_the_memory_of_reversible_stacks_is_held_to_a_tenth(measured, capsys, tmp_path):
    figure = tmp_path / "memory.svg"
    assert long.main(["memory", "--figure", str(figure)]) == 0
    out = capsys.readouterr().out
    assert [step.n_layers for step in measured] == [n for n in (2, 4, 8, 12, 24) for _ in "ab"]
    # 104 MB at two layers, 148 at twenty-four
    assert "from 2 to 24 layers: grows 42.3 % beyond parameters and gradients (bar" in out
    assert "| 24 | 628 | 148 | 7 | 1.5 | 1,780 | 1,300 | 7 | 1.5 |" in out
    assert len(ET.fromstring(figure.read_text()).findall(".//{*}polyline")) == 2


def test_the_twin_has_the_same_parameters_and_has_dense_attention():
    words = dict(pair.split("=", 1) for pair in long_language.twin(("local", "lsh"), 2048))
    assert words["model.stack.attention"] == '["full", "lsh"]'
    assert words["model.stack.lsh.chunk"] == "2048"
    sparse = StackConfig(2, 16, 2, 32, norm="pre", attention=("local", "lsh"))
    dense = StackConfig(2, 16, 2, 32, norm="pre", attention=("full", "lsh"))
    one, other = (TransformerStack(config).state_dict() for config in (sparse, dense))
    assert {k: v.shape for k, v in one.items()} == {k: v.shape for k, v in other.items()}


def test_a_quick_run_trains_both_and_tells_the_difference(tmp_path, monkeypatch, capsys):
    text = "".join(f"Line {n}, to be or not to be.\n" for n in range(100))
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text(text)
    monkeypatch.setenv("POLYHEAD_DATA", str(tmp_path))
    words = ["language", "--quick", "--recipe", "gpt-shakespeare-small", "--runs", str(tmp_path)]
    pattern = ['model.stack.attention=["local", "lsh"]', "model.stack.lsh.chunk=16"]
    assert long.main([*words, *pattern]) == 0
    out = capsys.readouterr().out
    assert "| sparse | 1 | 4 |" in out
    assert "| dense | 1 | 4 |" in out
    assert "sparse minus dense: " in out


@pytest.mark.parametrize(("mode", "rows"), [("time", "| 128 |"), ("short", "| 32 |")])
def test_a_quick_run_measures_all_systems(mode, rows, capsys):
    assert long.main([mode, "--quick", "--rounds", "1"]) == 0
    assert capsys.readouterr().out.count(rows) == 2  # while measuring, and in the table
