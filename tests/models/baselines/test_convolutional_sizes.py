"""ConvS2S and ByteNet: the sizes their papers give, and what cannot be."""

import pytest
import torch

from polyhead.models import registry as models
from polyhead.models.baselines import bytenet, convs2s

CLASSES = {models.ConvS2SConfig: models.ConvS2S, models.ByteNetConfig: models.ByteNet}


def n_parameters(config):
    with torch.device("meta"):
        return sum(p.numel() for p in CLASSES[type(config)](config).parameters())


def normed(d_in, d_out, kernel=1):
    return d_out * d_in * kernel + 2 * d_out  # v, g and bias


def test_convs2s_as_published_for_english_german():
    """15 layers: 10 of 512 and 3 of 768 with kernel 3, 2 of 2048 with kernel 1; words of 512."""
    config = convs2s.PUBLISHED["convs2s-wmt-en-de"]
    assert (len(config.encoder), len(config.decoder), config.d_embed) == (15, 15, 512)
    stack = 9 * normed(512, 1024, 3) + normed(512, 1024, 3)
    stack += normed(512, 1536, 3) + normed(512, 768) + 2 * normed(768, 1536, 3)
    stack += normed(768, 4096) + normed(768, 2048) + normed(2048, 4096)
    looks = sum(normed(d, 512) + normed(512, d) for d in [512] * 10 + [768] * 3 + [2048] * 2)
    around = 2 * normed(512, 512) + 2 * normed(2048, 512)  # into both stacks, and out of them
    tables = 2 * (40_000 + 1024) * 512 + normed(512, 40_000)
    assert n_parameters(config) == 2 * stack + looks + around + tables


def test_convs2s_as_published_for_english_french():
    """Widths from 512 to 4096; "an effective context size of only 25 words" (section 5.1)."""
    config = convs2s.PUBLISHED["convs2s-wmt-en-fr"]
    assert config.encoder == config.decoder
    widths = [width for width, _ in config.decoder]
    assert widths == [512] * 5 + [768] * 4 + [1024] * 3 + [2048, 4096]
    assert 1 + sum(kernel - 1 for _, kernel in config.decoder) == 25


def test_convs2s_as_published_for_english_romanian():
    config = convs2s.PUBLISHED["convs2s-wmt-en-ro"]
    assert config.encoder == config.decoder == ((512, 3),) * 20


def test_bytenet_as_published():
    """30 blocks each way with d = 800: six sets of dilations 1, 2, 4, 8 and 16, kernels of 3."""
    config = bytenet.PUBLISHED["bytenet-wmt-en-de"]
    d = 800
    block = (2 * d * d + d) + (3 * d * d + d) + (d * 2 * d + 2 * d) + 2 * 2 * d + 2 * 2 * d
    tables = (296 + 323) * 2 * d + (323 * 2 * d + 323)
    rest = 2 * 2 * (2 * d) + (2 * d) * (2 * d) + 2 * d  # two norms, and W_o
    assert n_parameters(config) == 60 * block + tables + rest
    with torch.device("meta"):
        model = models.ByteNet(config)
    for stack in (model.encoder, model.decoder):
        assert [block.convolution.dilation for block in stack] == [1, 2, 4, 8, 16] * 6


def test_a_tied_output_layer_must_be_as_wide_as_a_word():
    with pytest.raises(ValueError, match="reads 7 numbers, but a word has 6"):
        models.ConvS2S(models.ConvS2SConfig(9, 9, d_embed=6, d_output=7, tie=True))
