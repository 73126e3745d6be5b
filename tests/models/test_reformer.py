"""The Reformer: its published size, its formula, and what writing with it costs."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.reformer import PATTERN, PUBLISHED, Reformer, ReformerConfig

VOCAB = 11
SMALL = StackConfig(
    4, 16, 2, 32, dropout=0.0, norm="pre", attention=PATTERN, window=3,
    lsh=LSHConfig(chunk=4, rounds=2), reversible=True,
)  # fmt: skip
close = {"rtol": 1e-4, "atol": 1e-5}


def reformer(**choices):
    """A small one whose weights are not small, so that everything that it does is felt."""
    model = Reformer(ReformerConfig(VOCAB, 256, stack=replace(SMALL, **choices))).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def dense_twin(model):
    """Return a model with the same weights and chunks that hold the whole input."""
    twin = reformer(lsh=LSHConfig(chunk=256))
    twin.load_state_dict(model.state_dict())
    return twin


def text(batch, length):
    return torch.randint(1, VOCAB, (batch, length))


def test_the_published_model_has_the_published_sizes():
    """In the authors' layers of 1,024: local ones have four matrices, LSH ones three."""
    with torch.device("meta"):
        model = Reformer(PUBLISHED["reformer-enwik8"])
    d, wide = 1024, 4096
    matrices = sum(p.numel() for p in model.stack.parameters() if p.dim() > 1)
    assert matrices == 9 * 4 * d * d + 3 * 3 * d * d + 12 * 2 * d * wide
    tables = sum(p.numel() for p in model.embed.parameters())
    assert tables == 258 * d + 128 * 256 + 512 * 768


def test_its_matrices_are_as_many_as_those_of_transformers():
    theirs = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    config = theirs.ReformerConfig(
        attn_layers=list(PATTERN), hidden_size=16, num_attention_heads=2, attention_head_size=8,
        feed_forward_size=32, vocab_size=VOCAB, axial_pos_shape=(16, 16),
        axial_pos_embds_dim=(8, 8), is_decoder=True,
    )  # fmt: skip
    encoder = theirs.ReformerModel(config)
    ours = reformer()
    for mine, other in ((ours.stack, encoder.encoder), (ours.embed, encoder.embeddings)):
        counts = [
            sum(p.numel() for p in part.parameters() if p.squeeze().dim() > 1)
            for part in (mine, other)
        ]
        assert counts[0] == counts[1] > 0


def by_hand(model, ids):
    """Two streams, with attention as the paper prints it: every pair, one after the other."""
    x_1 = x_2 = model.embed.tokens(ids) + model.embed.positions(ids.size(1))
    for block, kind in zip(model.stack.blocks, PATTERN, strict=True):
        y_1 = x_1 + looked(block.self_attention, block.self_residual.norm(x_2), kind)
        h = block.feed_residual.norm(y_1)
        middle = torch.relu(h @ block.feed_forward.w_1.weight.T + block.feed_forward.w_1.bias)
        y_2 = x_2 + middle @ block.feed_forward.w_2.weight.T + block.feed_forward.w_2.bias
        x_1, x_2 = y_1, y_2
    return model.stack.norm((x_1 + x_2) / 2) @ model.to_logits.weight.T


def looked(attention, h, kind):
    """One sentence, head by head and position by position."""
    k, v = attention.w_k(h[0]), attention.w_v(h[0])
    q = k if kind == "lsh" else attention.w_q(h[0])
    out = torch.zeros_like(v)
    for head in range(2):
        part = slice(8 * head, 8 * head + 8)
        for i in range(len(q)):
            seen = range(max(0, i - 3), i + 1) if kind == "local" else range(max(1, i))
            keys = torch.stack([k[j, part] for j in seen])
            keys = keys / (keys.norm(dim=-1, keepdim=True) if kind == "lsh" else 8**0.5)
            weights = (keys @ q[i, part]).softmax(0)
            out[i, part] = sum(w * v[j, part] for w, j in zip(weights, seen, strict=True))
    return attention.w_o(out)[None]


def test_it_is_its_formula():
    """Local layers see three back and themselves; LSH ones all others before, if there are any."""
    model, ids = dense_twin(reformer()), text(1, 12)
    torch.testing.assert_close(model(ids), by_hand(model, ids), **close)


def test_the_same_text_gives_the_same_result_in_use_and_another_one_in_training():
    model, ids = reformer(), text(2, 64)
    torch.manual_seed(1)
    first = model(ids)
    torch.manual_seed(2)
    assert torch.equal(model(ids), first)
    model.train()
    assert not torch.allclose(model(ids), model(ids), **close)


def test_decoding_without_a_prompt_uses_no_hashing():
    """Chunks of 4 would miss most of 40 positions; step by step, all of them are looked at."""
    model, ids = reformer(), text(2, 40)
    twin = dense_twin(model)
    assert not torch.allclose(model(ids), twin(ids), **close)
    state = model.begin(ids[:, :0], max_length=40)
    steps = [model.step(last[:, None], state)[:, 0] for last in ids.unbind(1)]
    torch.testing.assert_close(torch.stack(steps, 1), twin(ids), **close)


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest tensor had that was computed."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for one in found if isinstance(found, tuple | list) else (found,):
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return found


def test_neither_a_prompt_nor_a_step_costs_the_square_of_the_length():
    model = reformer(lsh=LSHConfig(chunk=4, buckets=8))

    def largest(length):
        with torch.inference_mode():
            with Largest() as prompt:
                state = model.begin(text(1, length), max_length=4)
            with Largest() as step:
                model.step(text(1, 1), state)
        return prompt.numbers, step.numbers

    for short, long in zip(largest(60), largest(240), strict=True):
        assert long <= 4.5 * short


def test_an_input_beyond_the_grid_is_refused():
    with pytest.raises(ValueError, match="16 x 16 = 256 positions, but the input reaches posit"):
        reformer()(text(1, 257))


@pytest.mark.parametrize("length", [1, 2, 5, 63, 64, 65])
def test_no_length_has_to_be_a_multiple_of_the_chunk(length):
    """Internal padding does not change the output."""
    model, ids = reformer(lsh=LSHConfig(chunk=32)), text(1, length)
    assert model(ids).shape == (1, length, VOCAB)
    if length <= 32:
        torch.testing.assert_close(model(ids), dense_twin(model)(ids), **close)
