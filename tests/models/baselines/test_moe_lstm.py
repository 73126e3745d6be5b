"""Experts between LSTM layers: the whole model by hand, its published size, memorising."""

from dataclasses import replace

import pytest
import torch
from small_models import MOE, PAD, SOURCE, TWO_LEVELS, D
from small_models import opinionated as with_large_weights
from torch import nn
from toy_translator import memorise, share_right

from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import greedy_search
from polyhead.layers.mixture_of_experts import record_usage
from polyhead.models.baselines.moe_lstm import PUBLISHED, MoE, MoEConfig, ProjectedLSTM
from polyhead.training.losses import BalancedLoss, TranslationLoss

TARGET = torch.tensor([[1, 5, 6, 7], [1, 9, 10, PAD], [1, 4, PAD, PAD]])


def opinionated():
    """A model whose weights are so large that everything matters, its gates among it."""
    model = with_large_weights(MOE, 4.0)
    for mixture in (model.encoder_experts, model.decoder_experts):
        torch.nn.init.normal_(mixture.layer.gate.w_g)
        for expert in mixture.layer.experts:
            torch.nn.init.normal_(expert.w_2.bias)  # it begins where σ is nearly closed
    return model


def mix(mixture, x):
    """x + σ(Σ G E), for one vector, with all experts computed."""
    h = x @ mixture.layer.gate.w_g
    kept = h.topk(mixture.layer.gate.config.k).indices
    gates = torch.zeros_like(h)
    gates[kept] = h[kept].softmax(0)
    answers = [e.w_2(torch.relu(e.w_1(x))) for e in mixture.layer.experts]
    return x + torch.sigmoid(
        sum(gate * answer for gate, answer in zip(gates, answers, strict=True))
    )


def cell_of(cells):
    """A layer's weights in torch's own single-step cell."""
    cell = nn.LSTMCell(cells.input_size, cells.hidden_size)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in cells.state_dict().items()})
    return cell


def test_the_translator_by_hand():
    """One sentence, one word after the other, with torch's LSTM cells and sums written out."""
    model = opinionated()
    source, target = SOURCE[:1], TARGET[:1]
    with torch.no_grad():
        x = model.embed_source(source)
        x = x + model.encoder[0].cells(x)[0]
        x = x + model.encoder[1].cells(x)[0]
        x = torch.stack([mix(model.encoder_experts, one) for one in x[0]])[None]
        h = (x + model.encoder[2].cells(x)[0])[0]

        look = model.cross_attention
        u = torch.tanh(look.w_h(h))
        first, second = (cell_of(layer.cells) for layer in model.decoder)
        s_1 = s_2 = (torch.zeros(1, D), torch.zeros(1, D))
        rows = []
        for word in target[0]:
            y = model.embed_target(word)[None]
            w = torch.tanh(look.kernel.score.w_s(s_1[0]))
            scores = (look.kernel.score.v * w * u).sum(-1)
            c = scores.softmax(0) @ h
            s_1 = first(torch.cat([y, c[None]], -1), s_1)
            x = mix(model.decoder_experts, (y + s_1[0])[0])[None]
            s_2 = second(x, s_2)
            rows.append(model.to_logits(x + s_2[0]))
        torch.testing.assert_close(model(source, target)[0], torch.cat(rows), rtol=1e-4, atol=1e-5)


def test_a_projected_layer_turns_as_pytorchs_own_does():
    layer, theirs = ProjectedLSTM(6, 10, 5, bidirectional=False), nn.LSTM(5, 10, proj_size=6)
    layer.cells.load_state_dict(theirs.state_dict())
    x = torch.randn(7, 3, 5)
    expected, last = theirs(x)
    parts = (torch.zeros(1, 3, 6), torch.zeros(1, 3, 10))
    for t in range(7):
        top, parts = layer.step(layer.gates(x[t]), parts)
        torch.testing.assert_close(top, expected[t], rtol=0, atol=1e-6)
    for one, other in zip(parts, last, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


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
