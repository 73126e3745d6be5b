"""The Transformer against PyTorch's own and against the numbers of its paper."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.training.config import read_run

PAD = 0


def copy_attention(theirs, ours):
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def copy_block(theirs, ours):
    norms = [theirs.norm1, theirs.norm2]
    copy_attention(theirs.self_attn, ours.self_attention)
    norms[0].load_state_dict(ours.self_residual.norm.state_dict())
    if ours.cross_attention is not None:
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        norms[1].load_state_dict(ours.cross_residual.norm.state_dict())
        norms.append(theirs.norm3)
    norms[-1].load_state_dict(ours.feed_residual.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())


def embedded(table, ids):
    """Sections 3.4 and 3.5: √d E + PE."""
    d_model = table.size(1)
    angle = torch.arange(ids.size(1))[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    code = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    return d_model**0.5 * table[ids] + code


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_whole_model_is_pytorchs_with_the_same_weights(norm, activation):
    stack = StackConfig(2, 16, 4, 32, dropout=0.0, norm=norm, activation=activation)
    ours = Transformer(TransformerConfig(9, 13, tie="target", stack=stack)).eval()
    for parameter in ours.parameters():  # norms that do nothing would hide a mix-up
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    theirs = nn.Transformer(
        16, 4, 2, 2, 32, 0.0, activation, batch_first=True, norm_first=norm == "pre"
    ).eval()
    for a, b in zip(theirs.encoder.layers, ours.encoder.blocks, strict=True):
        copy_block(a, b)
    for a, b in zip(theirs.decoder.layers, ours.decoder.blocks, strict=True):
        copy_block(a, b)
    if norm == "pre":
        theirs.encoder.norm.load_state_dict(ours.encoder.norm.state_dict())
        theirs.decoder.norm.load_state_dict(ours.decoder.norm.state_dict())
    else:
        theirs.encoder.norm = theirs.decoder.norm = None  # the paper has no norm after the last

    source = torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, PAD, PAD]])
    target = torch.tensor([[1, 5, 6, 7], [1, 9, 12, 3]])
    with torch.no_grad():
        hidden = theirs(
            embedded(ours.embed_source.tokens.weight, source),
            embedded(ours.embed_target.tokens.weight, target),
            tgt_mask=torch.ones(4, 4).triu(1).bool(),
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
        )
        expected = hidden @ ours.embed_target.tokens.weight.t()
        torch.testing.assert_close(ours(source, target), expected, rtol=0, atol=1e-5)


def count(config):
    with torch.device("meta"):
        model = Transformer(config)
    return sum(p.numel() for p in model.parameters()) / 1e6


def by_hand(d_model, d_ff, n_layers, vocab):
    """Every matrix and bias of section 3, added up."""
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return (n_layers * (encoder + decoder) + vocab * d_model) / 1e6


@pytest.mark.parametrize(("recipe", "published"), [("base", 65), ("big", 213)])
def test_base_and_big_have_the_sizes_of_the_paper(recipe, published):
    """Its Table 3 says 65 and 213 million. With the 37,000 entries of section 5.1 they are 63.1 and
    214.3: no single vocabulary gives both published figures (65 would need 40,700 entries, 213
    would need 35,700), so the match is to 3 %. The differences below are free of the vocabulary.
    """
    config = read_run(recipe).model
    stack = config.stack
    assert (config.source_vocab, config.target_vocab) == (37_000, 37_000)
    assert count(config) == by_hand(stack.d_model, stack.d_ff, stack.n_layers, 37_000)
    assert count(config) == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(("recipe", "hours", "averaged"), [("base", 12, 5), ("big", 84, 20)])
def test_base_and_big_have_the_training_settings_of_the_paper(recipe, hours, averaged):
    """Sections 5 and 6.1; the checkpoints of the last 5 or 20 times 10 minutes are averaged."""
    run = read_run(recipe)
    train, optimizer = run.train, run.train.optimizer
    assert run.model == FAMILIES["transformer"].presets[f"transformer-{recipe}"]
    assert (optimizer.kind, optimizer.beta_1, optimizer.beta_2) == ("adam", 0.9, 0.98)
    assert (optimizer.epsilon, optimizer.weight_decay, train.clip_norm) == (1e-9, 0, 0)
    assert (train.schedule.kind, train.schedule.warmup, train.smoothing) == ("noam", 4000, 0.1)
    assert train.max_tokens == 2 * 25_000
    assert train.save_every == pytest.approx(train.steps / hours / 6, rel=0.11)
    assert train.validate_every == train.save_every  # no checkpoint of a best step between them
    assert train.steps % train.save_every == 0
    assert train.keep == averaged
    assert (run.decode.beam, run.decode.length_penalty, run.decode.limit(30)) == (4, 0.6, 80)


@pytest.mark.parametrize(
    ("changes", "published"),
    [
        ({"n_layers": 2}, 36), ({"n_layers": 4}, 50), ({"n_layers": 8}, 80),
        ({"d_ff": 1024}, 53), ({"d_ff": 4096}, 90), ({"d_k": 16}, 58), ({"d_k": 32}, 60),
    ],
)  # fmt: skip
def test_variations_differ_from_base_as_in_table_3(changes, published):
    """Both published figures are rounded to a million, so their difference may be off by one."""
    base = read_run("base").model
    other = replace(base, stack=replace(base.stack, **changes))
    assert count(other) - count(base) == pytest.approx(published - 65, abs=1.0)


@pytest.mark.parametrize(("tie", "n_tables"), [("none", 3), ("target", 2), ("all", 1)])
def test_tied_tables_are_one_table(tie, n_tables):
    model = Transformer(TransformerConfig(50, 50, tie=tie, stack=StackConfig(1, 8, 2, 8)))
    tables = [model.embed_source.tokens, model.embed_target.tokens, model.to_logits]
    assert len({table.weight.data_ptr() for table in tables}) == n_tables


def test_learned_positions_end_with_a_message_and_sinusoids_do_not_end():
    source = torch.ones(1, 9, dtype=torch.long)
    stack = StackConfig(1, 8, 2, 8)
    learned = Transformer(TransformerConfig(5, 5, positions="learned", max_length=8, stack=stack))
    with pytest.raises(ValueError, match="this model has 8 positions, but the input reaches posit"):
        learned.encode(source)
    Transformer(TransformerConfig(5, 5, stack=stack)).encode(source)


def test_a_decoder_may_be_shallower_than_its_encoder():
    stack = StackConfig(4, 8, 2, 8)
    model = Transformer(TransformerConfig(5, 5, stack=stack, decoder_layers=1))
    assert (len(model.encoder.blocks), len(model.decoder.blocks)) == (4, 1)
