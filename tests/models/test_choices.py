"""The choices that every family shares; `test_contract.py` has variants with each of them."""

from dataclasses import replace

import pytest
import torch
from small_models import POSITIONS, TRANSFORMERS, VOCAB, make
from small_models import STACK as SMALL

from polyhead.layers.attention import FullAttention
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig

close = {"rtol": 1e-4, "atol": 1e-5}


def text(batch, length):
    return torch.randint(1, VOCAB, (batch, length))


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
    model = make(TRANSFORMERS["transformer tanh none"])
    source, order = text(1, 6), torch.randperm(6)
    shuffled = model.encode(source[:, order]).states
    torch.testing.assert_close(shuffled, model.encode(source).states[:, order], **close)
    ordered = make(TRANSFORMERS["transformer tanh rotary"])
    assert not torch.allclose(
        ordered.encode(source[:, order]).states, ordered.encode(source).states[:, order], **close
    )


def test_an_encoder_may_have_an_attention_of_its_own():
    model = make(TRANSFORMERS["transformer lsh"])
    kinds = [type(block.self_attention.kernel) for block in model.encoder.blocks]
    assert kinds == [LSHAttention, LocalAttention]
    kinds = [type(block.self_attention.kernel) for block in model.decoder.blocks]
    assert kinds == [FullAttention] * 2


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
