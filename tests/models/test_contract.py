"""Contract of every family and its variants: a new family adds one row to CASES and passes."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from small_models import (
    CLASSES,
    HASHED,
    PAD,
    PRE,
    REFORMER,
    SOURCE,
    STACK,
    TRANSLATORS,
    VOCAB,
    WRITERS,
    grown,
    make,
)
from torch import Tensor
from torch.nn import functional as F

from polyhead.checkpoint.model_dir import set_weights, weights_of
from polyhead.config import from_dict
from polyhead.layers.mixture_of_experts import record_usage
from polyhead.models import electra
from polyhead.models import registry as models

POST = replace(STACK, n_heads=4)
LENGTH = 7


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


ENCODER = models.BERTConfig(VOCAB, max_length=32, stack=POST)
CASES = {
    "transformer": Case(models.TransformerConfig(VOCAB, VOCAB, stack=POST, tie="all"), pair),
    "gpt": Case(models.GPTConfig(VOCAB, max_length=32, stack=PRE), lambda batch: (text(batch),)),
    "reformer": Case(
        models.ReformerConfig(VOCAB, max_length=32, stack=REFORMER), lambda batch: (text(batch),)
    ),
    "bert": Case(ENCODER, segments),
    "electra": Case(
        models.ElectraConfig(VOCAB, max_length=32, d_embed=8, generator_size=0.5, stack=POST),
        blanks,
    ),
    "classifier": Case(models.ClassifierConfig(3, encoder=ENCODER), segments),
    "tagger": Case(models.TaggerConfig(3, encoder=ENCODER), segments),
    "span_extractor": Case(models.SpanExtractorConfig(ENCODER), segments),
    "sentence_encoder": Case(
        models.SentenceEncoderConfig(encoder=ENCODER), lambda batch: (text(batch),)
    ),
    "vit": Case(
        models.ViTConfig(classes=5, height=8, width=12, patch=4, stack=PRE),
        lambda batch: (torch.randn(batch, 3, 8, 12),),
    ),
    "resnet": Case(
        models.ResNetConfig(classes=5, height=8, width=12, widths=(8, 16), n_blocks=2),
        lambda batch: (torch.randn(batch, 3, 8, 12),),
    ),
}

CASES |= {name: Case(config, pair) for name, config in TRANSLATORS.items()}
CASES |= {name: Case(config, lambda batch: (text(batch),)) for name, config in WRITERS.items()}
every = pytest.mark.parametrize("name", CASES)
first = pytest.mark.parametrize(  # one of each family
    "name", {type(case.config): name for name, case in reversed(CASES.items())}.values()
)
HASHED_ENCODER = replace(ENCODER, max_length=64, stack=HASHED)
PADDABLE = {name: case.config for name, case in CASES.items() if name not in ("vit", "resnet")} | {
    "transformer hashed": models.TransformerConfig(VOCAB, VOCAB, stack=HASHED),
    "gpt hashed": models.GPTConfig(VOCAB, max_length=64, positions="rotary", stack=HASHED),
    "reformer hashed": models.ReformerConfig(VOCAB, max_length=64, stack=HASHED),
    "bert hashed": HASHED_ENCODER,
    "electra hashed": models.ElectraConfig(VOCAB, max_length=64, stack=HASHED),
    "classifier hashed": models.ClassifierConfig(3, pooling="mean", encoder=HASHED_ENCODER),
}
READERS = [name for name, case in CASES.items() if case.inputs is pair]
translators = pytest.mark.parametrize("name", READERS)
writers = pytest.mark.parametrize("name", [*READERS, "gpt", "reformer", *WRITERS])
close = {"rtol": 1e-4, "atol": 1e-5}


def build(name):
    return make(CASES[name].config)


def outputs(model, *inputs):
    """Return all outputs of a model with a fixed seed."""
    torch.manual_seed(1)
    said = model(*inputs)
    return said if isinstance(said, tuple) else (said,)


def said(model, *ids):
    """Return all outputs for texts, every second token of which an ELECTRA has to guess."""
    if not isinstance(model, models.Electra):
        return outputs(model, *ids)
    (text,) = ids
    chosen = (torch.arange(text.size(1)) % 2 == 0) & (text != PAD)
    suspicion, generated, *_ = model(text, text.masked_fill(chosen, VOCAB - 1), chosen)
    per_line = generated.new_zeros(*text.shape, VOCAB).masked_scatter(chosen[..., None], generated)
    return suspicion, per_line


def after_prompt(model, prompt, history):
    """Return the prompt as source for a model without one."""
    return model(torch.cat([prompt, history], dim=1))


def test_the_table_is_complete():
    assert {type(case.config) for case in CASES.values()} == set(CLASSES)


@every
def test_its_configuration_survives_as_plain_values(name):
    config = CASES[name].config
    assert from_dict(type(config), asdict(config)) == config


@every
def test_its_weights_can_be_saved_and_loaded(name, tmp_path):
    one, other, inputs = grown(build(name)), build(name), CASES[name].inputs(2)
    save_file(weights_of(one), tmp_path / "model.safetensors")
    assert not torch.equal(outputs(other, *inputs)[0], outputs(one, *inputs)[0])
    set_weights(other, load_file(tmp_path / "model.safetensors"))
    for now, then in zip(outputs(other, *inputs), outputs(one, *inputs), strict=True):
        assert torch.equal(now, then)


@every
def test_every_parameter_learns(name):
    model = build(name).train()
    with record_usage(model, learning=True) as uses:
        said = outputs(model, *CASES[name].inputs(8))  # enough words for every expert
    balance = sum(use.loss for use in uses.values())
    (balance + sum(part.square().sum() for part in said if part.requires_grad)).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@first
def test_it_learns_in_mixed_precision(name):
    """`train.bf16`: all parameters learn, and before any draw nearly the same is said."""
    model, inputs = grown(build(name)).train(), CASES[name].inputs(2)
    precise = outputs(model, *inputs)
    # without oneDNN, whose 16-bit products crash on machines that promise AMX and lack it
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            mixed = outputs(model, *inputs)
        sum(part.float().square().sum() for part in mixed if part.requires_grad).backward()
    at = 1 if name == "electra" else 0  # another forgery is another text for the one who spots it
    assert (mixed[at] - precise[at]).norm() < 0.1 * precise[at].norm()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@first
def test_no_two_layers_begin_alike(name):
    """Copying one layer N times, as deepcopy does, would begin with N equal layers.

    What begins at zero (the gates of experts) does so on purpose.
    """
    tensors = [p for p in build(name).parameters() if p.dim() > 1 and p.any()]
    for i, one in enumerate(tensors):
        for other in tensors[i + 1 :]:
            assert one.shape != other.shape or not torch.equal(one, other)


@every
def test_rows_of_a_batch_do_not_mix(name):
    model, inputs = grown(build(name)), CASES[name].inputs(3)
    alone = outputs(model, *(rows[:1] for rows in inputs))
    for together, one in zip(outputs(model, *inputs), alone, strict=True):
        torch.testing.assert_close(together[: len(one)], one, **close)


@pytest.mark.parametrize("name", PADDABLE)
def test_a_line_has_the_same_output_alone_and_beside_longer_ones(name, monkeypatch):
    """Checked in float64, where rounding moves no vector into another bucket of LSH attention."""
    config = PADDABLE[name]
    torch.manual_seed(7)
    model = grown(make(config)).double()
    monkeypatch.setattr(electra, "draw", lambda logits, *_, **__: logits[:, 4:].argmax(-1) + 4)
    longest = min(41, models.max_positions(config) or 41)
    n_inputs = 2 if name in READERS or name == "transformer hashed" else 1
    lengths = torch.randint(1, longest, (n_inputs, 4))
    lengths[:, 0] = longest
    lines = [[torch.randint(3, VOCAB - 1, (1, n)) for n in part] for part in lengths.tolist()]
    batch = [torch.cat([F.pad(x, (0, longest - x.size(1))) for x in part]) for part in lines]
    together = said(model, *batch)
    for row, alone in enumerate(zip(*lines, strict=True)):
        for padded, expected in zip(together, said(model, *alone), strict=True):
            real = padded[row : row + 1, : expected.size(1)]
            torch.testing.assert_close(real, expected, rtol=1e-9, atol=1e-9)


@writers
def test_the_future_is_not_seen(name):
    model, (*source, target) = grown(build(name)), CASES[name].inputs(2)
    otherwise = torch.cat([target[:, :4], target[:, 4:] % (VOCAB - 1) + 1], dim=1)
    now, then = model(*source, target), model(*source, otherwise)
    torch.testing.assert_close(now[:, :4], then[:, :4], **close)
    assert not torch.allclose(now[:, 4:], then[:, 4:], **close)


@pytest.mark.slow
@writers
@given(seed=st.integers(0, 99), width=st.integers(1, 4), batch=st.integers(1, 3), data=st.data())
@settings(max_examples=3, deadline=None)
def test_beams_that_are_rearranged_at_will_equal_their_histories_read_at_once(
    name, seed, width, batch, data
):
    """Cached equals uncached decoding for every hypothesis, with reordering and removal."""
    torch.manual_seed(seed)
    model = grown(build(name))
    if name in READERS:
        source, read_at_once = SOURCE[torch.randperm(3)[:batch]], model
    else:
        source = text(batch, data.draw(st.integers(0, 6)))
        read_at_once = partial(after_prompt, model)
    state = model.begin(source, width=width, max_length=8)
    histories = torch.zeros(batch, width, 0, dtype=torch.long)
    for _ in range(8):
        last = torch.randint(1, VOCAB, (len(source), width))
        histories = torch.cat([histories, last[..., None]], dim=-1)
        logits = model.step(last, state)
        sources = source.repeat_interleave(width, dim=0)
        read = read_at_once(sources, histories.flatten(0, 1))[:, -1]
        torch.testing.assert_close(logits.flatten(0, 1), read, **close)
        parents = torch.randint(0, width, (len(source), width))
        state.select(parents)
        histories = histories.take_along_dim(parents[..., None], dim=1)
        if len(source) > 1 and data.draw(st.booleans()):
            stay = torch.randperm(len(source))[: len(source) - 1]
            state.keep(stay)
            source, histories = source[stay], histories[stay]
