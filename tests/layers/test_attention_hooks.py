"""Recorded attention: complete, equal to the fused kernel, and without effect on the model."""

import pytest
import torch

from polyhead.layers.attention import CAUSAL, MultiHeadAttention
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig

STACK = StackConfig(n_layers=2, d_model=8, n_heads=2, d_ff=16)


def model_and_inputs():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(9, 9, stack=STACK)).eval()
    source, target = torch.randint(1, 9, (3, 5)), torch.randint(1, 9, (3, 4))
    source[1, 3:] = 0
    return model, source, target


def test_all_three_kinds_of_attention_are_recorded():
    model, source, target = model_and_inputs()
    before = model(source, target)
    with record_attention(model) as maps:
        assert torch.equal(model(source, target), before)
    assert maps["encoder.blocks.1.self_attention"].shape == (3, 2, 5, 5)
    assert maps["decoder.blocks.0.self_attention"].shape == (3, 2, 4, 4)
    assert maps["decoder.blocks.0.cross_attention"].shape == (3, 2, 4, 5)
    assert len(maps) == 6
    assert maps.seen == maps.buckets == {}  # no restrictions
    for name, weights in maps.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if name.startswith("decoder") and "self" in name:
            assert (weights.triu(1) == 0).all()
        else:
            assert (weights[1, :, :, 3:] == 0).all()  # padding
    maps.clear()
    model(source, target)
    assert maps == {}


def test_recorded_weights_times_values_equal_the_output_of_the_fused_kernel():
    model, source, target = model_and_inputs()
    outputs, values = {}, {}
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):

            def keep(_kernel, inputs, output, name=name):
                values[name], outputs[name] = inputs[2], output

            module.kernel.register_forward_hook(keep)
    with record_attention(model) as maps:
        model(source, target)
    assert len(outputs) == 6
    for name, weights in maps.items():
        torch.testing.assert_close(weights @ values[name], outputs[name], rtol=0, atol=1e-6)


# Restricted attention: local and LSH

LENGTH, CHUNK = 12, 3


def restricted(kind, **options):
    """Return a self-attention layer with a restricted kernel, and its input."""
    torch.manual_seed(3)
    kernel = LSHAttention(CHUNK, 2, **options) if kind == "lsh" else LocalAttention(2)
    layer = MultiHeadAttention(8, 2, kernel, shared=kind == "lsh").eval()
    x = torch.randn(1, LENGTH, 8)
    return layer, x


def run(layer, x):
    torch.manual_seed(4)
    return layer(x, layer.project(x), CAUSAL)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["lsh", "local"])
def test_restricted_attention_is_recorded_with_the_same_random_hashes(kind, training):
    layer, x = restricted(kind)
    layer.train(training)  # in training, every call draws new hashes
    before = run(layer, x)
    outputs = []
    layer.kernel.register_forward_hook(lambda _k, inputs, out: outputs.append((inputs[2], out)))
    with record_attention(layer) as maps:
        assert torch.equal(run(layer, x), before)
    ((values, output),) = outputs
    torch.testing.assert_close(maps[""] @ values, output, rtol=0, atol=1e-6)
    assert ((maps[""] > 0) <= maps.seen[""]).all()
    assert (maps.seen[""].sum(-1) < LENGTH).all()


@pytest.mark.parametrize("same_bucket", [False, True])
def test_allowed_pairs_follow_from_the_buckets(same_bucket):
    layer, x = restricted("lsh", same_bucket=same_bucket)
    with record_attention(layer) as maps:
        run(layer, x)
    buckets = maps.buckets[""]
    assert buckets.shape == (2, 1, 2, LENGTH)  # rounds, batch, heads, positions
    for head in range(2):
        expected = [[False] * LENGTH for _ in range(LENGTH)]
        for hashed in buckets[:, 0, head].tolist():
            order = sorted(range(LENGTH), key=lambda i, hashed=hashed: (hashed[i], i))
            chunk = {position: slot // CHUNK for slot, position in enumerate(order)}
            for i in range(LENGTH):
                for j in range(i):
                    near = chunk[i] - chunk[j] in (0, 1)
                    expected[i][j] |= near and (not same_bucket or hashed[i] == hashed[j])
        for i in range(LENGTH):
            expected[i][i] = not any(expected[i])  # itself, if no other key is allowed
        assert maps.seen[""][0, head].tolist() == expected


def test_local_attention_allows_only_pairs_in_the_window():
    layer, x = restricted("local")
    with record_attention(layer) as maps:
        run(layer, x)
    expected = [[0 <= i - j <= 2 for j in range(LENGTH)] for i in range(LENGTH)]
    assert maps.seen[""][0, 0].tolist() == expected
    assert maps.buckets == {}
