"""Comparisons at great length: peers compute what we compute, peaks are peaks, twins are twins."""

import footprint
import long
import peers_long
import pytest
import torch

from polyhead.layers.lsh.attention import LSHAttention


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
