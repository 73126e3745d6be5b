"""ELECTRA's two players: sizes, what they share, and that no gradient crosses the draw."""

from dataclasses import replace

import pytest
import torch

from polyhead.models.bert import bert_stack
from polyhead.models.electra import PUBLISHED, Electra, ElectraConfig, draw, narrowed

SMALL = ElectraConfig(23, 16, d_embed=8, generator_size=0.5, stack=bert_stack(2, 16, 4))


def blanks(config, batch=4, length=12):
    ids = torch.randint(4, config.vocab - 1, (batch, length))
    ids[1, 9:], chosen = 0, torch.rand(batch, length) < 0.3
    chosen &= ids != 0
    return ids, ids.masked_fill(chosen, config.vocab - 1), chosen


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_sizes_are_those_of_the_originals(name):
    """Sizes as the authors' code computes them: hidden x fraction, 4 x that, one head for 64."""
    hf = pytest.importorskip("transformers")
    sizes = {
        "electra-small": ((128, 256, 12, 4), (64, 1)),
        "electra-base": ((768, 768, 12, 12), (256, 4)),
        "electra-large": ((1024, 1024, 24, 16), (256, 4)),
    }
    (embed, hidden, layers, heads), (g_hidden, g_heads) = sizes[name]

    def settings(hidden, heads):
        return hf.ElectraConfig(
            embedding_size=embed, hidden_size=hidden, num_hidden_layers=layers,
            num_attention_heads=heads, intermediate_size=4 * hidden,
        )  # fmt: skip

    with torch.device("meta"):
        ours = Electra(replace(PUBLISHED[name], sharing="none"))
        generator = hf.ElectraForMaskedLM(settings(g_hidden, g_heads))
        discriminator = hf.ElectraForPreTraining(settings(hidden, heads))
    assert count(ours.generator) == count(generator)
    assert count(ours.discriminator) + count(ours.spot) == count(discriminator)


def test_a_generator_is_narrower_but_as_deep():
    stack = narrowed(bert_stack(12, 768, 12), 0.25)
    assert (stack.n_layers, stack.d_model, stack.d_ff, stack.n_heads) == (12, 192, 768, 3)
    assert narrowed(bert_stack(2, 16, 4), 0.25).n_heads == 1
    assert narrowed(bert_stack(2, 400, 4), 0.5).n_heads == 2  # three heads would not divide 200
    assert narrowed(bert_stack(2, 16, 4), 1.0) == bert_stack(2, 16, 4)


@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_sharing_is_by_storage(sharing):
    size = 1.0 if sharing == "all" else 0.5
    model = Electra(replace(SMALL, sharing=sharing, generator_size=size))
    ours = {p.data_ptr() for p in model.generator.encoder.parameters()}
    shared = {n for n, p in model.discriminator.named_parameters() if p.data_ptr() in ours}
    embeddings = {n for n, _ in model.discriminator.named_parameters() if n.startswith("embed.")}
    everything = {n for n, _ in model.discriminator.named_parameters()}
    assert shared == {"none": set(), "embeddings": embeddings, "all": everything}[sharing]
    tables = model.generator.to_logits.weight, model.generator.encoder.embed.tokens.weight
    assert tables[0] is tables[1]


def test_the_discriminator_reads_the_text_with_the_draws_written_in_and_never_a_mask():
    model, (ids, blanked, chosen) = Electra(SMALL).train(), blanks(SMALL)
    model.generator.to_logits.bias.data[[0, 22]] = 1e9  # padding and [MASK] seem the likeliest
    out = model(ids, blanked, chosen)
    assert torch.equal(out.forged[~chosen], ids[~chosen])
    assert not (out.forged == 22).any()
    assert not (out.forged[chosen] == 0).any()
    assert torch.equal(out.replaced, out.forged != ids)
    model.eval()
    again = model(ids, blanked, chosen)
    torch.testing.assert_close(again.suspicion, model.suspect(again.forged))
    torch.testing.assert_close(again.generated, model.generator(blanked)[chosen], rtol=0, atol=1e-5)


def test_draws_follow_the_softmax():
    logits = torch.tensor([9.0, 2.0, 1.0, 0.0, -1.0])
    drawn = draw(logits.expand(40_000, 5), never=[0]).bincount(minlength=5) / 40_000
    torch.testing.assert_close(drawn[1:], logits[1:].softmax(0), rtol=0, atol=0.01)


@pytest.mark.parametrize("drawn", [0.0, 1 - 2**-24])
def test_rounding_draws_no_word_that_cannot_be(monkeypatch, drawn):
    logits = 3 * torch.randn(500, 40)
    logits[:, [0, 1, 38, 39]] = -torch.inf
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, drawn))
    found = draw(logits, never=[2, 37])
    assert set(found.tolist()) == {3 if drawn == 0 else 36}
