"""The recurrent translators: local attention, initialization, teacher forcing, memorising."""

import math
from dataclasses import replace

import pytest
import torch
from small_models import LADDER, LENGTHS, PAD, SOURCE, TARGET, VOCAB, D, make, opinionated
from small_models import RECURRENT as SMALL
from torch import nn
from toy_translator import memorise, share_right

from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import greedy_search
from polyhead.layers.kv_cache import Memory
from polyhead.models.baselines import deep_att
from polyhead.special_tokens import EOS
from polyhead.tasks.losses import TranslationLoss
from polyhead.viz.capture import translation_maps

ATTENTIVE = [name for name in SMALL if name.split()[0] in ("bahdanau", "luong", "deep_att", "gnmt")]

attentive = pytest.mark.parametrize("name", ATTENTIVE)


def build(name, **changes):
    return make(replace(SMALL[name], **changes))


# --- the formulas ---


@pytest.mark.parametrize("name", ["luong local_m", "luong local_m unfed"])
def test_luongs_monotonic_attention_sees_the_words_around_the_same_place(name):
    """By gradients: word t depends on h_i for |i - t| ≤ 1 (at most the last words)."""
    model = opinionated(SMALL[name])
    encoding = model.encode(SOURCE)
    h = encoding.memory.states.detach().requires_grad_()
    encoding = encoding._replace(memory=Memory(h, encoding.memory.mask))
    parts = tuple(part[:, :, None] for part in encoding.state)
    for t in range(4):
        x = model.prepare(model.embed_target(TARGET[:, t : t + 1]))
        found, parts = model.decode_step(x, tuple(part.detach() for part in parts), encoding)
        (felt,) = torch.autograd.grad(found.sum(), h)
        for row, length in enumerate(LENGTHS.tolist()):
            centre = min(t, length - 1)
            heard = felt[row].abs().sum(-1).nonzero()[:, 0].tolist()
            assert heard == [i for i in range(length) if abs(i - centre) <= 1]


def test_luongs_predictive_attention_by_hand():
    """Equations 9 and 10, one word after the other, for sentences of five, three and two words."""
    model = opinionated(SMALL["luong local_p"]).requires_grad_(False)
    kernel = model.cross_attention.kernel
    memory = model.encode(SOURCE).memory
    s = torch.randn(3, 4, D)
    found = kernel.weights(s[:, None], memory.states[:, None], memory.mask)[:, 0]
    w, outside = kernel.score.w[0], 0
    for row, length in enumerate(LENGTHS.tolist()):
        for t in range(4):
            inner = torch.tanh(kernel.w_p.weight @ s[row, t])
            place = length / (1 + math.exp(-float(kernel.v_p.weight[0] @ inner)))
            near = [i for i in range(length) if place - 2 <= i <= place + 2]
            outside += length - len(near)
            total = sum(math.exp(float(s[row, t] @ w @ memory.states[row, i])) for i in near)
            for i in range(5):
                expected = 0.0
                if i in near:
                    align = math.exp(float(s[row, t] @ w @ memory.states[row, i])) / total
                    expected = align * math.exp(-((i - place) ** 2) / (2 * 1.0**2))  # σ = D / 2 = 1
                assert float(found[row, t, i]) == pytest.approx(expected, abs=1e-5)
    assert outside  # the window was smaller than a sentence
    c = model.cross_attention(s, memory)
    torch.testing.assert_close(c, torch.einsum("bti,bid->btd", found, memory.states))


def test_where_luong_looks_is_learned():
    model = build("luong local_p").train()
    model(SOURCE, TARGET).logsumexp(-1).sum().backward()
    kernel = model.cross_attention.kernel
    assert all(p.grad.abs().sum() > 0 for p in (kernel.w_p.weight, kernel.v_p.weight))


def test_context_everywhere_is_a_part_of_every_input_and_output():
    model = build("everywhere", bidirectional=False)
    source, target = SOURCE[:1], TARGET[:1]
    _, last = model.encoder.cells(model.embed_source(source))
    z = last[-1][:, None].expand(-1, 4, -1)
    y = model.embed_target(target)
    s, _ = model.decoder.cells(torch.cat([y, z], dim=-1), last)
    both = model.deep_output.w(torch.cat([s, y, z], dim=-1))
    expected = model.to_logits(torch.maximum(both[..., 0::2], both[..., 1::2]))
    torch.testing.assert_close(model(source, target), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "same"), [("gnmt past", 3), ("gnmt current", 2)])
def test_gnmt_queries_with_the_state_before_or_after_the_word(name, same):
    """A change of the third word changes the query of the fourth, or already its own."""
    model = build(name)
    asked = []
    model.cross_attention.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[0]))
    otherwise = TARGET.clone()
    otherwise[:, 2] = 6
    for target in (TARGET, otherwise):
        model(SOURCE, target)
    assert (asked[0][:, 0] == 0).all() == (name == "gnmt past")
    assert (asked[0] == asked[1]).all(-1).all(0).tolist() == [n < same for n in range(4)]


def test_deep_att_is_initialized_with_open_forget_gates_and_unsaturated_scores():
    model = deep_att.DeepAtt(deep_att.DeepAttConfig(50, 50, d_model=64, d_embed=64, dropout=0.0))
    layers = [*model.encoder[0], *model.encoder[1], *model.decoder]
    for layer in layers:
        kept = layer.w_f.bias.unflatten(0, (4, 64))
        assert (kept == torch.tensor([[0.0], [1.0], [0.0], [0.0]])).all()
    memory = model.encode(torch.randint(4, 50, (8, 12)))
    assert memory.keys.std() < 0.6  # tanh is steep up to here; with 2 it would saturate


# --- teacher forcing ---


@pytest.mark.parametrize("config", (SMALL | LADDER).values(), ids=SMALL | LADDER)
def test_without_teacher_forcing_the_model_reads_what_it_said(config):
    model = make(replace(config, teacher_forcing=0.0)).train()
    logits = model(SOURCE, TARGET)
    own = torch.cat([TARGET[:, :1], logits.argmax(-1)[:, :-1]], dim=1)
    torch.testing.assert_close(model.eval()(SOURCE, own), logits, rtol=0, atol=1e-5)
    poisoned = TARGET.clone()
    poisoned[:, 1:] = 10**9  # no embedding has so many rows: reading it would be an error
    torch.testing.assert_close(model.train()(SOURCE, poisoned), logits)


# --- attention ---


@attentive
def test_the_attention_page_sees_one_row_for_each_word(name):
    model = build(name)
    (one,) = translation_maps(model, [3, 4, 5, EOS], [6, 7, EOS])
    assert (one.kind, one.layer, one.queries, one.keys) == ("cross", 1, "target", "source")
    assert one.weights.shape == (1, 3, 4)
    sums = torch.from_numpy(one.weights).sum(-1)
    if "local_p" in name:  # a Gaussian takes from them
        assert ((sums > 0) & (sums < 1)).all()
    else:
        torch.testing.assert_close(sums, torch.ones(1, 3))


@attentive
def test_no_attention_is_wasted_on_padding(name):
    model, rows = build(name), []
    kernel = model.cross_attention.kernel
    kernel.register_forward_pre_hook(lambda one, i: rows.append(one.weights(i[0], i[1], i[3])))
    model(SOURCE, TARGET)
    for weights in rows:
        assert (weights[1, ..., 3:] == 0).all()
        assert (weights[2, ..., 2:] == 0).all()


# --- learning ---


@pytest.mark.parametrize("name", ["reversed", "luong general", "gnmt past"])
def test_a_new_lstm_remembers_more_than_it_forgets(name):
    found = 0
    for module in build(name).modules():
        if isinstance(module, nn.LSTM):
            for _w_x, _w_h, b_x, b_h, *_ in module.all_weights:
                i, f, new, o = (b_x + b_h).chunk(4)
                assert (f == 1).all()
                assert not torch.cat([i, new, o]).any()
                found += 1
    assert found


@pytest.mark.parametrize("name", ["reversed", "bahdanau", "luong general", "deep_att", "gnmt past"])
def test_new_words_are_larger_than_what_reads_them(name):
    """Embeddings as small as the other weights could hardly be distinguished."""
    model = build(name, source_vocab=3000)
    assert model.embed_source.weight.std().item() == pytest.approx(0.5, rel=0.02)
    others = [m for m in model.modules() if isinstance(m, nn.RNNBase)]
    weights = [p for m in others for n, p in m.named_parameters() if n.startswith("weight")]
    assert all(p.abs().max() <= 0.1 for p in weights)


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("first", 0.02), ("everywhere", 0.01), ("bahdanau", 0.01), ("luong general", 0.02),
        ("deep_att", 0.01), ("gnmt current", 0.02),
    ],
)  # fmt: skip
def test_twenty_pairs_are_memorised(name, rate):
    wide = {"d_embed": 32} if "d_embed" in SMALL[name].__dict__ else {}
    wide |= {"d_output": 32, "d_encoder": 32} if name == "bahdanau" else {}
    model = build(name, d_model=32, **wide)
    batch = memorise(model, TranslationLoss(PAD), rate=rate, steps=160)
    assert share_right(greedy_search(model, batch.source, DecodeConfig(beam=1)), batch) >= 0.9


# --- messages ---


def test_a_tied_output_layer_must_be_as_wide_as_a_word():
    assert build("first", tie=True).to_logits.weight.shape == (VOCAB, D)
    with pytest.raises(ValueError, match="reads 4 numbers, but a word has 6"):
        build("bahdanau", tie=True)
