"""The choices that every family shares: each keeps the promises of the contract."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from polyhead.layers.attention import FullAttention
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention, LSHConfig
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig

VOCAB, PAD, LENGTH = 11, 0, 9
SMALL = StackConfig(n_layers=2, d_model=16, n_heads=2, d_ff=32, dropout=0.0, attention_dropout=0.0)
STACKS = {
    "dot": replace(SMALL, score="dot"),
    "general": replace(SMALL, score="general"),
    "additive": replace(SMALL, score="additive"),
    "local": replace(SMALL, attention="local", window=2),
    "mixed": replace(SMALL, attention=("local", "full"), window=2, norm="pre"),
    "experts": replace(SMALL, experts=ExpertsConfig(n=3, k=2)),
    "experts before": replace(SMALL, experts=ExpertsConfig(n=4, k=1), norm="pre"),
    "tanh": replace(SMALL, activation="gelu_tanh", norm_eps=1e-12),
}
POSITIONS = ["sinusoidal", "learned", "axial", "rotary", "none"]
CHOICES = [(name, "sinusoidal") for name in STACKS] + [
    (name, positions) for name in ("tanh", "local") for positions in POSITIONS[1:]
]

choices = pytest.mark.parametrize(("stack", "positions"), CHOICES)
close = {"rtol": 1e-4, "atol": 1e-5}


def translator(stack, positions):
    config = TransformerConfig(
        VOCAB, VOCAB, stack=STACKS[stack], positions=positions, max_length=LENGTH + 3
    )
    return Transformer(config).eval()


def writer(stack, positions):
    config = GPTConfig(VOCAB, max_length=LENGTH + 9, positions=positions, stack=STACKS[stack])
    return GPT(config).eval()


def text(batch, length=LENGTH):
    return torch.randint(1, VOCAB, (batch, length))


@choices
def test_padding_changes_nothing(stack, positions):
    model, source, target = translator(stack, positions), text(2, 7), text(2)
    padded = F.pad(source, (0, 3), value=PAD)
    torch.testing.assert_close(model(padded, target), model(source, target), **close)


@choices
def test_the_future_is_not_seen(stack, positions):
    model, source, target = translator(stack, positions), text(2), text(2)
    otherwise = torch.cat([target[:, :4], text(2, LENGTH - 4)], dim=1)
    now, then = model(source, target), model(source, otherwise)
    torch.testing.assert_close(now[:, :4], then[:, :4], **close)
    assert not torch.allclose(now[:, 4:], then[:, 4:], **close)


@choices
def test_every_parameter_learns(stack, positions):
    model = translator(stack, positions).train()
    model(text(2), text(2)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@choices
@given(data=st.data(), width=st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_beams_equal_their_histories_read_at_once(stack, positions, data, width):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    prompt, batch = data.draw(st.integers(0, 6)), 2
    source = text(batch, 5)
    models = [
        (translator(stack, positions), source, lambda m, h: m(source, h)),
        (writer(stack, positions), text(batch, prompt), None),
    ]
    for model, start, read in models:
        read = read or (lambda m, h, start=start: m(torch.cat([start, h], dim=1)))
        state = model.begin(start, width=width, max_length=6)
        histories = torch.zeros(batch, width, 0, dtype=torch.long)
        for _ in range(6):
            last = text(batch, width)
            histories = torch.cat([histories, last[..., None]], dim=-1)
            logits = model.step(last, state)
            whole = [read(model, histories[:, beam])[:, -1] for beam in range(width)]
            torch.testing.assert_close(logits, torch.stack(whole, 1), **close)
            parents = torch.randint(0, width, (batch, width))
            state.select(parents)
            histories = histories.take_along_dim(parents[..., None], dim=1)


def test_a_pattern_of_attention_is_repeated_over_the_layers():
    stack = replace(SMALL, n_layers=4, attention=("local", "full", "lsh"), norm="pre")
    model = Transformer(TransformerConfig(VOCAB, VOCAB, stack=stack))
    kinds = [type(block.self_attention.kernel) for block in model.encoder.blocks]
    assert kinds == [LocalAttention, FullAttention, LSHAttention, LocalAttention]
    crossing = [type(block.cross_attention.kernel) for block in model.decoder.blocks]
    assert crossing == [FullAttention] * 4


def test_shared_queries_and_keys_are_one_projection():
    stack = replace(SMALL, attention="lsh", norm="pre")
    names = dict(Transformer(TransformerConfig(VOCAB, VOCAB, stack=stack)).named_parameters())
    assert "encoder.blocks.0.self_attention.w_k.weight" in names
    assert "encoder.blocks.0.self_attention.w_q.weight" not in names
    assert "decoder.blocks.0.cross_attention.w_q.weight" in names


def test_rotary_attention_knows_distances_and_not_places():
    """Without any other position code, moving the whole sentence changes nothing."""
    stack = replace(SMALL, norm="pre")
    model = Transformer(TransformerConfig(VOCAB, VOCAB, stack=stack, positions="rotary")).eval()
    x = torch.randn(1, 5, 16)
    places = torch.arange(5)
    here, there = (model.encoder(x, places=places + offset) for offset in (0, 37))
    torch.testing.assert_close(here, there, **close)
    apart = model.encoder(x, places=places * 2)
    assert not torch.allclose(here, apart, **close)


def test_without_positions_a_sentence_is_a_bag_of_words():
    model = translator("tanh", "none")
    source, order = text(1, 6), torch.randperm(6)
    shuffled = model.encode(source[:, order]).states
    torch.testing.assert_close(shuffled, model.encode(source).states[:, order], **close)
    ordered = translator("tanh", "rotary")
    assert not torch.allclose(
        ordered.encode(source[:, order]).states, ordered.encode(source).states[:, order], **close
    )


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"attention": "local", "score": "additive"},
         'local attention supports score = "scaled_dot" only, got \'additive\'; leave score out'),
        ({"attention": ("full", "lsh"), "score": "dot"}, 'lsh attention supports score = '),
        ({"attention": ()}, r"attention = \[\]: name at least one kind"),
        ({"attention": "local", "window": 0}, "window = 0: expected at least 1"),
        ({"reversible": True}, r'norm is "post"; write norm = "pre", or reversible = false'),
        ({"reversible": True, "norm": "pre", "experts": ExpertsConfig(n=4)},
         "reversible = true: the balance of experts needs what this would forget; leave it out"),
        ({"feed_chunk": 9, "experts": ExpertsConfig(n=4)}, "feed_chunk = 9: the balance of exp"),
        ({"n_heads": 3}, r"d_model \(16\) must be a multiple of n_heads \(3\); write n_heads = 2"),
        ({"n_heads": 0}, r"multiple of n_heads \(0\); write n_heads = 1"),
    ],
)  # fmt: skip
def test_choices_that_do_not_go_together_are_refused_with_what_to_write(choice, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **choice)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"buckets": 7}, "n_buckets must be even.* got 7; write 8"),
        ({"chunk": 0}, "chunk = 0: expected at least 1"),
        ({"rounds": 0}, "rounds = 0: expected at least 1"),
        ({"eval_rounds": -1}, "eval_rounds = -1: expected at least 0"),
    ],
)
def test_hashing_that_cannot_be_done_is_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        LSHConfig(**choice)


def test_an_encoder_may_have_an_attention_of_its_own():
    stack = replace(SMALL, norm="pre")
    config = TransformerConfig(VOCAB, VOCAB, stack=stack, encoder_attention=("lsh", "local"))
    model = Transformer(config).eval()
    kinds = [type(block.self_attention.kernel) for block in model.encoder.blocks]
    assert kinds == [LSHAttention, LocalAttention]
    kinds = [type(block.self_attention.kernel) for block in model.decoder.blocks]
    assert kinds == [FullAttention] * 2
    source, target = text(2, 7), text(2)
    padded = F.pad(source, (0, 3), value=PAD)
    torch.testing.assert_close(model(padded, target), model(source, target), **close)


@pytest.mark.parametrize("build", [translator, writer])
def test_a_reversible_model_is_trained_and_written_with_like_any_other(build, monkeypatch):
    """Cached equals uncached, and every parameter gets a gradient."""
    monkeypatch.setitem(
        STACKS, "reversible", replace(SMALL, norm="pre", reversible=True, feed_chunk=5)
    )
    model = build("reversible", "rotary")
    target = text(2)
    inputs = (text(2, 5), target) if build is translator else (target,)
    state = model.begin(inputs[0] if build is translator else target[:, :0], max_length=LENGTH)
    steps = [model.step(last[:, None], state)[:, 0] for last in target.unbind(1)]
    torch.testing.assert_close(torch.stack(steps, 1), model(*inputs), **close)
    model.train()(*inputs).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_family_that_has_positions_offers_all_of_them(positions):
    """Only "none" is invariant to the order of the input."""
    ids, order = text(1, 6), torch.tensor([1, 0, 3, 2, 5, 4])
    options = {"positions": positions, "stack": SMALL}
    bert = BERT(BERTConfig(VOCAB, 12, **options)).eval().double()
    electra = ElectraConfig(VOCAB, 12, d_embed=8, generator_size=0.5, **options)
    electra = Electra(electra).eval().double()
    options["stack"] = replace(SMALL, norm="pre")
    vit = ViT(ViTConfig(3, 8, 12, 1, 4, "mean", **options)).eval().double()
    patches = torch.randn(1, 1, 8, 12, dtype=torch.float64)
    tiles = patches.unflatten(2, (2, 4)).unflatten(4, (3, 4)).permute(0, 1, 2, 4, 3, 5)
    mixed = tiles.flatten(2, 3)[:, :, order].unflatten(2, (2, 3)).permute(0, 1, 2, 4, 3, 5)
    for read, whole, shuffled in (
        (bert.hidden, ids, ids[:, order]),
        (electra.discriminator, ids, ids[:, order]),
        (vit.hidden, patches, mixed.flatten(2, 3).flatten(3, 4)),
    ):
        same = torch.allclose(read(shuffled), read(whole)[:, order], rtol=0, atol=1e-12)
        assert same == (positions == "none")
