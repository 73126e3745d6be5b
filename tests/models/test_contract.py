"""Contract of every family: a new family adds one row to CASES and passes."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from polyhead.checkpoint.model_dir import set_weights, weights_of
from polyhead.config import from_dict
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models import registry as models

POST = StackConfig(n_layers=2, d_model=16, n_heads=4, d_ff=32, dropout=0.0)
PRE = StackConfig(n_layers=2, d_model=16, n_heads=4, d_ff=32, dropout=0.0, norm="pre")
LONG = replace(  # chunks hold the whole input, so that hashing finds all pairs
    PRE, attention=("local", "lsh"), window=3, lsh=LSHConfig(chunk=32), reversible=True
)
VOCAB, PAD, LENGTH = 11, 0, 7


def text(batch: int, length: int = LENGTH) -> Tensor:
    return torch.randint(1, VOCAB, (batch, length))


def blanks(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    ids, chosen = text(batch), torch.rand(batch, LENGTH) < 0.5
    return ids, ids.masked_fill(chosen, VOCAB - 1), chosen


class Case(NamedTuple):
    """A model small enough for a test, and what its forward pass wants for a batch of that size."""

    config: Any
    inputs: Callable[[int], tuple[Tensor, ...]]


def pair(batch: int) -> tuple[Tensor, Tensor]:
    return text(batch, 5), text(batch)


def segments(batch: int) -> tuple[Tensor, Tensor]:
    return text(batch), torch.randint(0, 2, (batch, LENGTH))


SIZES = {"source_vocab": VOCAB, "target_vocab": VOCAB, "d_model": 16}
ENCODER = models.BERTConfig(VOCAB, max_length=32, stack=POST)
CASES = {
    "transformer": Case(models.TransformerConfig(VOCAB, VOCAB, stack=POST, tie="all"), pair),
    "ladder": Case(models.LadderConfig(**SIZES, n_layers=2, dropout=0.0), pair),
    "seq2seq": Case(models.Seq2SeqConfig(**SIZES, d_embed=12, context="everywhere"), pair),
    "bahdanau": Case(models.BahdanauConfig(**SIZES, d_encoder=20, d_embed=12), pair),
    "luong": Case(models.LuongConfig(**SIZES, d_embed=12), pair),
    "deep_att": Case(models.DeepAttConfig(**SIZES, d_embed=12, n_layers=2, decoder_layers=2), pair),
    "gnmt": Case(models.GNMTConfig(**SIZES, n_layers=3), pair),
    "convs2s": Case(
        models.ConvS2SConfig(
            VOCAB, VOCAB, d_embed=12, encoder=((16, 3), (20, 1)), decoder=((16, 3), (20, 2))
        ),
        pair,
    ),
    "bytenet": Case(models.ByteNetConfig(**SIZES, n_layers=3, max_dilation=4), pair),
    "moe": Case(models.MoEConfig(**SIZES, d_ff=24, experts=ExpertsConfig(n=3, k=2)), pair),
    "gpt": Case(models.GPTConfig(VOCAB, max_length=32, stack=PRE), lambda batch: (text(batch),)),
    "reformer": Case(
        models.ReformerConfig(VOCAB, max_length=32, stack=LONG), lambda batch: (text(batch),)
    ),
    "bert": Case(ENCODER, segments),
    "electra": Case(
        models.ElectraConfig(VOCAB, max_length=32, d_embed=8, generator_size=0.5, stack=POST),
        blanks,
    ),
    "classifier": Case(models.ClassifierConfig(3, encoder=ENCODER), segments),
    "vit": Case(
        models.ViTConfig(classes=5, height=8, width=12, patch=4, stack=PRE),
        lambda batch: (torch.randn(batch, 3, 8, 12),),
    ),
}

every = pytest.mark.parametrize("family", models.FAMILIES)
READERS = [name for name, family in models.FAMILIES.items() if family.task == "translation"]
translators = pytest.mark.parametrize("family", READERS)
writers = pytest.mark.parametrize("family", [*READERS, "gpt", "reformer"])
close = {"rtol": 1e-4, "atol": 1e-5}


def build(family):
    return models.FAMILIES[family].model(CASES[family].config).eval()


def grown(family):
    """A model after some training: none of its weights is zero any more, not even an output."""
    model = build(family)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def outputs(model, *inputs):
    """Return all outputs of a model with a fixed seed."""
    torch.manual_seed(1)
    said = model(*inputs)
    return said if isinstance(said, tuple) else (said,)


def after_prompt(model, prompt, history):
    """Return the prompt as source for a model without one."""
    return model(torch.cat([prompt, history], dim=1))


def test_the_table_is_complete():
    assert set(CASES) == set(models.FAMILIES)


@every
def test_its_configuration_survives_as_plain_values(family):
    config = CASES[family].config
    assert from_dict(type(config), asdict(config)) == config


@every
def test_its_weights_can_be_saved_and_loaded(family, tmp_path):
    one, other, inputs = grown(family), build(family), CASES[family].inputs(2)
    save_file(weights_of(one), tmp_path / "model.safetensors")
    assert not torch.equal(outputs(other, *inputs)[0], outputs(one, *inputs)[0])
    set_weights(other, load_file(tmp_path / "model.safetensors"))
    for now, then in zip(outputs(other, *inputs), outputs(one, *inputs), strict=True):
        assert torch.equal(now, then)


@every
def test_every_parameter_learns(family):
    model = build(family).train()
    said = outputs(model, *CASES[family].inputs(2))
    sum(part.square().sum() for part in said if part.requires_grad).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@every
def test_it_learns_in_mixed_precision(family):
    """`train.bf16`: all parameters learn, and before any draw nearly the same is said."""
    model, inputs = grown(family).train(), CASES[family].inputs(2)
    precise = outputs(model, *inputs)
    # without oneDNN, whose 16-bit products crash on machines that promise AMX and lack it
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            mixed = outputs(model, *inputs)
        sum(part.float().square().sum() for part in mixed if part.requires_grad).backward()
    at = 1 if family == "electra" else 0  # another forgery is another text for the one who spots it
    assert (mixed[at] - precise[at]).norm() < 0.1 * precise[at].norm()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@every
def test_no_two_layers_begin_alike(family):
    """Copying one layer N times, as deepcopy does, would begin with N equal layers.

    What begins at zero (the gates of experts) does so on purpose.
    """
    tensors = [p for p in build(family).parameters() if p.dim() > 1 and p.any()]
    for i, one in enumerate(tensors):
        for other in tensors[i + 1 :]:
            assert one.shape != other.shape or not torch.equal(one, other)


@every
def test_rows_of_a_batch_do_not_mix(family):
    model, inputs = grown(family), CASES[family].inputs(3)
    alone = outputs(model, *(rows[:1] for rows in inputs))
    for together, one in zip(outputs(model, *inputs), alone, strict=True):
        torch.testing.assert_close(together[: len(one)], one, **close)


@translators
def test_padding_changes_nothing(family):
    model, (source, target) = build(family), CASES[family].inputs(2)
    padded = F.pad(source, (0, 3), value=PAD)
    torch.testing.assert_close(model(padded, target), model(source, target), **close)


@writers
def test_the_future_is_not_seen(family):
    model, (*source, target) = build(family), CASES[family].inputs(2)
    otherwise = torch.cat([target[:, :4], text(2, LENGTH - 4)], dim=1)
    now, then = model(*source, target), model(*source, otherwise)
    torch.testing.assert_close(now[:, :4], then[:, :4], **close)


@writers
def test_step_by_step_equals_all_at_once(family):
    model, (*source, target) = build(family), CASES[family].inputs(2)
    state = model.begin(*source or [target[:, :0]], width=1, max_length=LENGTH)
    steps = [model.step(last[:, None], state)[:, 0] for last in target.unbind(1)]
    torch.testing.assert_close(torch.stack(steps, 1), model(*source, target), **close)


@writers
@given(data=st.data(), width=st.integers(1, 4), batch=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_beams_that_are_rearranged_at_will_equal_their_histories_read_at_once(
    family, data, width, batch
):
    """Cached equals uncached decoding for every hypothesis, with reordering and removal."""
    torch.manual_seed(data.draw(st.integers(0, 99)))
    model, source = build(family), CASES[family].inputs(batch)[0]
    read_at_once = model if len(CASES[family].inputs(1)) > 1 else partial(after_prompt, model)
    state = model.begin(source, width=width, max_length=6)
    histories = torch.zeros(batch, width, 0, dtype=torch.long)
    for _ in range(6):
        last = torch.randint(1, VOCAB, (len(source), width))
        histories = torch.cat([histories, last[..., None]], dim=-1)
        logits = model.step(last, state)
        read = [read_at_once(source, histories[:, beam])[:, -1] for beam in range(width)]
        torch.testing.assert_close(logits, torch.stack(read, 1), **close)
        parents = torch.randint(0, width, (len(source), width))
        state.select(parents)
        histories = histories.take_along_dim(parents[..., None], dim=1)
        if len(source) > 1 and data.draw(st.booleans()):
            stay = torch.randperm(len(source))[: len(source) - 1]
            state.keep(stay)
            source, histories = source[stay], histories[stay]
