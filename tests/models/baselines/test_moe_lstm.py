"""Experts between LSTM layers: padding, published sizes, dropout, memorising."""

from dataclasses import replace

import pytest
import torch
from small_models import MOE, PAD, SOURCE, TWO_LEVELS
from toy_translator import memorise, share_right

from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import greedy_search
from polyhead.layers.mixture_of_experts import record_usage
from polyhead.models.baselines.moe_lstm import PUBLISHED, MoE, MoEConfig
from polyhead.tasks.losses import BalancedLoss, TranslationLoss

TARGET = torch.tensor([[1, 5, 6, 7], [1, 9, 10, PAD], [1, 4, PAD, PAD]])


def test_experts_skip_padding_on_both_sides():
    with record_usage(MoE(MOE).eval()) as none_yet:
        pass
    assert none_yet == {}
    model = MoE(MOE).eval()
    with record_usage(model) as uses:
        model(SOURCE, TARGET)
    heard = {name.split(".")[0]: int(use.load.sum()) for name, use in uses.items()}
    assert heard == {"encoder_experts": 2 * 10, "decoder_experts": 2 * 9}


@pytest.mark.parametrize(
    ("name", "millions"), [("moe-32", 85), ("moe-512", 85), ("moe-multilingual", 102)]
)
def test_published_models_work_as_much_for_a_word_as_their_paper_says(name, millions):
    """Operations for one step of time: each weight that is used once (section 5.3, appendix E)."""
    config = PUBLISHED[name]
    with torch.device("meta"):
        model = MoE(config)
    used = 0
    for path, parameter in model.named_parameters():
        if parameter.dim() > 1 and not path.startswith("embed"):
            groups, k = config.experts.groups, config.experts.k
            share = (k**2 if groups else k) / config.experts.n if ".experts." in path else 1
            share = k / groups if ".secondary." in path else share
            used += parameter.numel() * share
    assert used / 1e6 == pytest.approx(millions, rel=0.05)
    expert = model.encoder_experts.layer.experts[0]
    assert expert.w_1.weight.numel() + expert.w_2.weight.numel() == 2 * 512 * config.d_ff


def test_dropout_of_new_experts_does_not_drown_the_words():
    """Compare the change by dropout with the distance between different words."""
    model = MoE(MoEConfig(500, 500, d_model=64, d_ff=64, dropout=0.3)).train()
    source = torch.randint(3, 500, (16, 12))
    with torch.no_grad():
        noise = torch.stack([model.encode(source).memory.states for _ in range(8)]).std(0).mean()
        words = model.eval().encode(source).memory.states.flatten(0, 1).std(0).mean()
    assert noise < words


@pytest.mark.parametrize("experts", [MOE.experts, TWO_LEVELS], ids=["flat", "two levels"])
def test_twenty_pairs_are_memorised_with_all_experts(experts):
    model = MoE(replace(MOE, d_model=32, d_ff=32, experts=experts))
    batch = memorise(model, BalancedLoss(TranslationLoss(PAD)), rate=0.01, steps=120)
    with record_usage(model) as uses:
        said = greedy_search(model, batch.source, DecodeConfig(beam=1))
    assert share_right(said, batch) >= 0.9
    assert all((use.load > 0).all() for use in uses.values())
