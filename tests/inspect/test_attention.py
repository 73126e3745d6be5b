"""Recording must show every attention that ran, agree with the fused kernel, and leave no trace."""

import torch

from polyhead.inspect.attention import recorded_attention
from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.stack import StackConfig
from polyhead.models import Transformer, TransformerConfig

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
    with recorded_attention(model) as maps:
        assert torch.equal(model(source, target), before)
    assert maps["encoder.blocks.1.self_attention"].shape == (3, 2, 5, 5)
    assert maps["decoder.blocks.0.self_attention"].shape == (3, 2, 4, 4)
    assert maps["decoder.blocks.0.cross_attention"].shape == (3, 2, 4, 5)
    assert len(maps) == 6
    for name, weights in maps.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if name.startswith("decoder") and "self" in name:
            assert (weights.triu(1) == 0).all()
        else:
            assert (weights[1, :, :, 3:] == 0).all()  # padding
    maps.clear()
    model(source, target)
    assert maps == {}


def test_the_recorded_weights_give_what_the_fused_kernel_gave():
    """weights · V, with the weights of the second pass, is the output of the kernel itself."""
    model, source, target = model_and_inputs()
    outputs, values = {}, {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):

            def listen(_kernel, inputs, output, name=name):
                values[name], outputs[name] = inputs[2], output

            handles.append(module.kernel.register_forward_hook(listen))
    with recorded_attention(model) as maps:
        model(source, target)
    for handle in handles:
        handle.remove()
    assert len(outputs) == 6
    for name, weights in maps.items():
        torch.testing.assert_close(weights @ values[name], outputs[name], rtol=0, atol=1e-6)
