"""The recurrent translators: their formulas by hand, teacher forcing, memorising."""

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
from polyhead.layers.recurrent import AdditiveLookBack, Recurrence
from polyhead.models.baselines import deep_att
from polyhead.special_tokens import EOS
from polyhead.training.losses import TranslationLoss
from polyhead.viz.capture import translation_maps

ATTENTIVE = [name for name in SMALL if name.split()[0] in ("bahdanau", "luong", "deep_att", "gnmt")]

attentive = pytest.mark.parametrize("name", ATTENTIVE)


def build(name, **changes):
    return make(replace(SMALL[name], **changes))


# --- the cells ---


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_one_turn_after_the_other_is_pytorchs_own_recurrence(cell):
    ours = Recurrence(cell, 6, 2, 0.0, d_in=5)
    theirs = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell](5, 6, 2, batch_first=True)
    ours.cells.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 7, 5)
    expected, last = theirs(x)
    parts = tuple(torch.zeros(2, 3, 6) for _ in range(2 if cell == "lstm" else 1))
    for t in range(7):
        gates = ours.gates(x[:, t, :2]) + ours.gates(x[:, t, 2:], start=2)  # in two parts
        top, parts = ours.step(gates, parts)
        torch.testing.assert_close(top, expected[:, t], rtol=0, atol=1e-6)
    for one, other in zip(parts, last if cell == "lstm" else (last,), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_a_fast_forward_layer_is_an_lstm_that_shows_its_gates():
    layer, theirs = deep_att.Layer(5, 6), nn.LSTM(5, 6, batch_first=True)
    with torch.no_grad():
        layer.w_f.weight.copy_(theirs.weight_ih_l0)
        layer.w_f.bias.copy_(theirs.bias_ih_l0 + theirs.bias_hh_l0)
        layer.w_h.weight.copy_(theirs.weight_hh_l0)
    x = torch.randn(3, 7, 5)
    torch.testing.assert_close(layer(layer.w_f(x)), theirs(x)[0], rtol=0, atol=1e-6)


# --- the formulas ---


def test_bahdanau_by_hand():
    """One sentence, one word after the other, with torch's GRU cell and sums written out."""
    model = opinionated(SMALL["bahdanau"])
    source, target = SOURCE[:1], TARGET[:1]
    encoding = model.encode(source)
    h = encoding.memory.states[0]
    cell = nn.GRUCell(6 + 10, D)
    cells = model.decoder.cells
    for ours in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, ours).data = getattr(cells, f"{ours}_l0").data
    look = model.cross_attention
    assert isinstance(look, AdditiveLookBack)
    score = look.kernel.score
    last = model.encoder.encode(model.embed_source(source), LENGTHS[:1])[1][0][-1]
    s = torch.tanh(model.bridge.over[0](last))
    for t, word in enumerate(target[0]):
        y = model.embed_target(word)[None]
        energies = torch.stack(
            [score.v(torch.tanh(score.w_s(s[0]) + look.w_h(h_i)))[0] for h_i in h]
        )
        c = (energies.softmax(0)[:, None] * h).sum(0, keepdim=True)
        s = cell(torch.cat([y, c], dim=-1), s)
        both = model.deep_output.w(torch.cat([s, c, y], dim=-1))[0]
        t_i = torch.stack([torch.maximum(both[2 * i], both[2 * i + 1]) for i in range(4)])
        expected = model.to_logits(t_i)
        torch.testing.assert_close(model(source, target)[0, t], expected, rtol=0, atol=1e-5)


def test_luong_with_input_feeding_by_hand():
    model = opinionated(replace(SMALL["luong general"], n_layers=1))
    source, target = SOURCE[:1], TARGET[:1]
    encoding = model.encode(source)
    h = encoding.memory.states[0]
    cell, cells = nn.LSTMCell(6 + D, D), model.decoder.cells
    for ours in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, ours).data = getattr(cells, f"{ours}_l0").data
    _, last = model.encoder.cells(model.embed_source(source))
    s, memory, fed = last[0][0], last[1][0], torch.zeros(1, D)
    w = model.cross_attention.kernel.score.w[0]
    for t, word in enumerate(target[0]):
        s, memory = cell(torch.cat([model.embed_target(word)[None], fed], dim=-1), (s, memory))
        weights = torch.stack([s[0] @ w @ h_i for h_i in h]).softmax(0)
        c = (weights[:, None] * h).sum(0, keepdim=True)
        fed = torch.tanh(torch.cat([c, s], dim=-1) @ model.w_c.weight.T)
        expected = model.to_logits(fed)[0]
        torch.testing.assert_close(model(source, target)[0, t], expected, rtol=0, atol=1e-5)


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


def test_cho_by_hand():
    """c = tanh(V h_n), s_0 = tanh(V' c), and c in every input and every maxout (A.1, A.2)."""
    model = opinionated(replace(SMALL["bridge"], cell="gru", n_layers=1))
    source, target = SOURCE[:1], TARGET[:1]
    cell = nn.GRUCell(6 + D, D)
    for ours in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, ours).data = getattr(model.decoder.cells, f"{ours}_l0").data
    _, last = model.encoder.cells(model.embed_source(source))
    c = torch.tanh(last[-1] @ model.v.weight.T + model.v.bias)
    s = torch.tanh(model.bridge.over[0](c))
    for t, word in enumerate(target[0]):
        y = model.embed_target(word)[None]
        s = cell(torch.cat([y, c], dim=-1), s)
        both = model.deep_output.w(torch.cat([s, y, c], dim=-1))[0]
        t_i = torch.stack([torch.maximum(both[2 * i], both[2 * i + 1]) for i in range(5)])
        expected = model.to_logits(t_i)
        torch.testing.assert_close(model(source, target)[0, t], expected, rtol=0, atol=1e-5)


def test_the_first_state_is_all_that_sutskever_hands_over():
    model = build("first")
    _, last = model.encoder.cells(model.embed_source(SOURCE[:1]))
    s, _ = model.decoder.cells(model.embed_target(TARGET[:1]), last)
    torch.testing.assert_close(model(SOURCE[:1], TARGET[:1]), model.to_logits(s))


def test_a_reversed_source_is_the_reversed_sentence():
    turned, plain = build("reversed"), build("first")
    turned.load_state_dict(plain.state_dict())
    source = SOURCE[:1]
    torch.testing.assert_close(turned(source, TARGET[:1]), plain(source.flip(1), TARGET[:1]))


def test_gnmt_adds_from_the_third_layer_on_and_gives_the_context_to_all_but_the_first():
    model = opinionated(replace(SMALL["gnmt current"], n_layers=4))
    source, target = SOURCE[:1], TARGET[:1]
    x, _ = model.encoder[0].cells(model.embed_source(source))
    x, _ = model.encoder[1].cells(x)
    for layer in list(model.encoder)[2:]:
        x = layer.cells(x)[0] + x
    h = x[0]
    u, _ = model.decoder[0].cells(model.embed_target(target))
    look = model.cross_attention
    score = look.kernel.score
    energies = score.v(torch.tanh(score.w_s(u[0])[:, None] + look.w_h(h)[None]))[..., 0]
    c = (energies.softmax(-1) @ h)[None]
    x = model.decoder[1].cells(torch.cat([u, c], dim=-1))[0]
    for layer in list(model.decoder)[2:]:
        x = layer.cells(torch.cat([x, c], dim=-1))[0] + x
    torch.testing.assert_close(model(source, target), model.to_logits(x), rtol=0, atol=1e-5)


def test_gnmt_queries_past_as_the_paper_does():
    """The first word asks with zeros; a change of the third word changes no look before the 4th."""
    model = build("gnmt past")
    asked = []
    model.cross_attention.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[0]))
    model(SOURCE, TARGET)
    otherwise = TARGET.clone()
    otherwise[:, 2] = 6
    model(SOURCE, otherwise)
    assert (asked[0][:, 0] == 0).all()
    same = (asked[0] == asked[1]).all(-1).all(0)
    assert same.tolist() == [True, True, True, False]


def test_deep_att_reads_in_turn_from_both_sides_and_has_a_linear_way_down():
    """The lower layer of a column reads from one side only: its state knows one side of a word."""
    model = build("deep_att", n_layers=1)
    x = torch.randn(1, 5, 6, requires_grad=True)
    states, _ = model.run_encoder(x, torch.tensor([5]))
    assert states.shape == (1, 5, 10 * D // 4)
    left, right = (column[0] for column in model.encoder)
    f, g = left.w_f(x), right.w_f(x)
    h, k = left(f), right(g.flip(1)).flip(1)
    expected = model.w_p(torch.cat([h, f, k, g], dim=-1))
    torch.testing.assert_close(states, expected)
    deep = build("deep_att", n_layers=2)
    f = deep.encoder[0][0].w_f(x)
    h = deep.encoder[0][0](f)
    above = deep.encoder[0][1]
    f2 = above.w_f(torch.cat([f[..., : 2 * D], h], dim=-1))
    h2 = above(f2.flip(1)).flip(1)  # against the direction of the one below
    states, _ = deep.run_encoder(x, torch.tensor([5]))
    other = deep.encoder[1]
    g = other[0].w_f(x)
    k = other[0](g.flip(1)).flip(1)
    g2 = other[1].w_f(torch.cat([g[..., : 2 * D], k], dim=-1))
    expected = deep.w_p(torch.cat([h2, f2, other[1](g2), g2], dim=-1))
    torch.testing.assert_close(states, expected)


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
