"""ConvS2S and ByteNet: receptive fields, scalings, unfolding, memorising."""

import math
from dataclasses import replace

import pytest
import torch
from small_models import BYTENET, CONVS2S, PAD, SOURCE, VOCAB, make
from small_models import CONVOLUTIONAL as SMALL
from toy_translator import memorise, share_right

from polyhead.decoding.beam import beam_search
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import greedy_search
from polyhead.errors import ConfigError
from polyhead.models import registry as models
from polyhead.models.baselines import convs2s
from polyhead.special_tokens import EOS
from polyhead.tasks.losses import TranslationLoss
from polyhead.viz.capture import translation_maps

TARGET = torch.tensor([[1, 5, 6, 7, 3, 3, 4], [1, 9, 10, 3, 5, 6, 7], [1, 4, 4, 8, 9, 3, 8]])

every = pytest.mark.parametrize("name", SMALL)


def build(name):
    return make(SMALL[name])


# --- receptive fields ---


def embedded(embedding):
    """Record the outputs of an embedding with gradients."""
    said = []

    def record(_module, _inputs, output):
        output.retain_grad()
        said.append(output)

    embedding.register_forward_hook(record)
    return said


def seen(gradient):
    places = gradient[0].abs().sum(-1).nonzero()[:, 0]
    assert places.tolist() == list(range(int(places[0]), int(places[-1]) + 1)), "without gaps"
    return int(places[0]), int(places[-1])


LONG = torch.randint(3, VOCAB, (1, 80), generator=torch.Generator().manual_seed(3))
ENCODERS = {  # how far to each side: the sum of (k - 1) / 2 · dilation
    "convs2s": (replace(CONVS2S, encoder=((8, 3), (8, 5), (10, 1))), 1 + 2 + 0),
    "convs2s deep": (replace(CONVS2S, encoder=((8, 3),) * 6), 6),
    "bytenet": (replace(BYTENET, n_layers=4), 1 + 2 + 4 + 1),
    "bytenet as published": (replace(BYTENET, n_layers=5, max_dilation=16), 31),
    "bytenet wide": (replace(BYTENET, n_layers=2, kernel=5), 2 * (1 + 2)),
}
DECODERS = {  # how far into the past: the sum of (k - 1) · dilation
    "convs2s": (replace(CONVS2S, decoder=((8, 3), (10, 2), (10, 1))), 2 + 1 + 0),
    "convs2s deep": (replace(CONVS2S, decoder=((8, 3),) * 6), 12),
    "bytenet": (BYTENET, 2 * (1 + 2 + 4)),
    "bytenet as published": (replace(BYTENET, decoder_layers=5, max_dilation=16), 62),
    "bytenet narrow": (replace(BYTENET, decoder_kernel=2), 1 + 2 + 4),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_gradients_show_how_far_an_encoder_sees(name):
    config, reach = ENCODERS[name]
    model = make(config)
    said = embedded(model.embed_source)
    encoding = model.encode(LONG)
    top = encoding.memory.states if encoding.keys is None else encoding.keys
    (top[0, 40] * torch.randn(top.size(-1))).sum().backward()
    assert seen(said[0].grad) == (40 - reach, 40 + reach)


@pytest.mark.parametrize("name", DECODERS)
def test_gradients_show_how_far_a_decoder_sees(name):
    config, reach = DECODERS[name]
    model = make(config)
    said = embedded(model.embed_target)
    (model(LONG, LONG)[0, 70] * torch.randn(VOCAB)).sum().backward()
    assert seen(said[0].grad) == (70 - reach, 70)


def test_a_word_of_bytenet_sees_the_columns_below_its_past_and_through_them_what_they_saw():
    model = make(replace(BYTENET, n_layers=2, decoder_layers=1))
    said = embedded(model.embed_source)
    (model(LONG, LONG)[0, 40] * torch.randn(VOCAB)).sum().backward()
    assert seen(said[0].grad) == (40 - 2 - 3, 40 + 3)


# --- scalings and beginnings of ConvS2S ---


def test_the_encoders_gradient_is_divided_by_twice_the_number_of_looks(monkeypatch):
    model = build("convs2s")

    def gradients():
        model.zero_grad()
        model(SOURCE, TARGET).square().sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    scaled = gradients()
    monkeypatch.setattr(convs2s.ScaledGradient, "apply", lambda x, _factor: x)
    whole = gradients()
    encoders = [name for name in whole if name.startswith(("encoder.", "enter_source", "w_z"))]
    assert len(encoders) == 3 * 3 + 3 + 3 + 3  # v, g and bias of each; one layer has a skip
    for name in whole:
        if name in encoders:
            torch.testing.assert_close(scaled[name], whole[name] / 6)
        elif not name.startswith("embed_source"):
            torch.testing.assert_close(scaled[name], whole[name])


def test_weights_begin_as_the_paper_says():
    p = 0.25
    config = models.ConvS2SConfig(
        900, 900, d_embed=128, encoder=((128, 3),), decoder=((128, 5),), dropout=p
    )
    model = make(config)
    near = {"rel": 0.05}
    for table in (model.embed_source.tokens, model.embed_target.positions.table):
        assert table.weight.std().item() == pytest.approx(0.1, **near)
    for layer, n in ((model.encoder[0], 3 * 128), (model.decoder[0], 5 * 128)):
        std = math.sqrt(4 * (1 - p) / n)
        assert layer.convolution.weight.std().item() == pytest.approx(std, **near)
    assert model.w_z.weight.std().item() == pytest.approx(128**-0.5, **near)
    assert model.enter_source.weight.std().item() == pytest.approx((0.75 / 128) ** 0.5, **near)
    biases = [b for name, b in model.named_parameters() if name.endswith("bias")]
    assert all((bias == 0).all() for bias in biases)


# --- unfolding ---


def test_a_source_is_unfolded_to_a_times_its_length_plus_b_columns():
    model = build("bytenet")
    unfolded, real = model.unfold(SOURCE)
    assert real.sum(1).tolist() == [6, 4, 3]  # ⌈1.2 · 5⌉, ⌈1.2 · 3⌉, ⌈1.2 · 2⌉
    assert unfolded.shape == (3, 6)
    assert torch.equal(unfolded[:, :5], SOURCE)
    z = model.encode(SOURCE).memory.states
    assert ((z != 0).any(-1) == real).all()
    longer = make(replace(BYTENET, a=1.0, b=2))
    assert longer.unfold(SOURCE)[1].sum(1).tolist() == [7, 5, 4]
    shorter = make(replace(BYTENET, a=0.5))  # every word of the source keeps its column
    assert shorter.unfold(SOURCE)[1].sum(1).tolist() == [5, 3, 2]


# --- steps ---


@every
def test_a_state_is_as_large_after_forty_words_as_after_one(name):
    model = build(name)
    state = model.begin(SOURCE, width=2, max_length=40)
    before = [part.shape for part in state.parts]
    for _ in range(40):
        model.step(torch.full((3, 2), 5), state)
    assert [part.shape for part in state.parts] == before
    convolutions = [layer.convolution for layer in model.decoder]
    assert [len(part) for part in state.parts] == [
        (one.kernel - 1) * one.dilation for one in convolutions
    ]


# --- attention ---


def test_the_attention_page_sees_every_layer_of_convs2s():
    maps = translation_maps(build("convs2s"), [3, 4, 5, EOS], [6, 7, EOS])
    assert [(one.kind, one.layer) for one in maps] == [("cross", 1), ("cross", 2), ("cross", 3)]
    for one in maps:
        assert one.weights.shape == (1, 3, 4)
        torch.testing.assert_close(torch.from_numpy(one.weights).sum(-1), torch.ones(1, 3))


def test_bytenet_looks_at_nothing():
    with pytest.raises(ConfigError, match="has no attention"):
        translation_maps(build("bytenet"), [3, 4, 5, EOS], [6, 7, EOS])


# --- learning ---


@pytest.mark.parametrize(
    "config",
    [
        models.ConvS2SConfig(
            VOCAB, VOCAB, d_embed=32, encoder=((32, 3),) * 2, decoder=((32, 3),) * 2, dropout=0.0
        ),
        models.ByteNetConfig(
            VOCAB, VOCAB, d_model=48, n_layers=3, max_dilation=4, dropout=0.0, tie=True
        ),
    ],
    ids=["convs2s", "bytenet"],
)
def test_twenty_pairs_are_memorised(config):
    model = make(config)
    batch = memorise(model, TranslationLoss(PAD), rate=0.01, steps=120)
    for options, search in (
        (DecodeConfig(beam=1), greedy_search),
        (DecodeConfig(beam=3), beam_search),
    ):
        assert share_right(search(model, batch.source, options), batch) >= 0.9
