"""The peers of the image benchmark compute what ours computes, and the script runs."""

from dataclasses import replace

import images as benchmark
import peers_vit
import pytest
import torch

from polyhead.models.vit import ViT, ViTConfig

STACK = replace(ViTConfig().stack, n_layers=2, d_model=16, n_heads=4, d_ff=32)


@pytest.mark.parametrize("pooling", ["class", "mean"])
def test_a_plain_vit_with_our_weights_gives_our_logits(pooling):
    config = ViTConfig(10, 8, 12, 3, 4, pooling, stack=STACK)
    ours = ViT(config).eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    pictures = torch.randn(3, 3, 8, 12)
    theirs = peers_vit.to_plain(ours, config)
    torch.testing.assert_close(theirs(pictures), ours(pictures), rtol=1e-4, atol=1e-4)
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())


def test_timm_has_as_many_parameters():
    pytest.importorskip("timm")
    config = ViTConfig(10, 8, 8, 3, 4, "class", stack=STACK)
    theirs = peers_vit.to_timm(config)
    ours = ViT(config)
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())


def test_the_speed_is_measured_in_turns(capsys):
    assert benchmark.main(["speed", "--quick", "--rounds", "1"]) == 0
    told = capsys.readouterr().out
    assert "| polyhead | " in told
    assert "| torch | " in told
