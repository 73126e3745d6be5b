"""Generation with a cache equals reading the whole window again for every token."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from polyhead.decoding.generate import generate, last_window
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import draw, sampling_probabilities
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig

VOCAB, CONTEXT = 17, 8


def model(positions, seed=0):
    """A model whose choices are not ties."""
    torch.manual_seed(seed)
    stack = StackConfig(2, 16, 4, 32, dropout=0.0, norm="pre")
    gpt = GPT(GPTConfig(VOCAB, CONTEXT, positions=positions, tie=False, stack=stack)).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return gpt


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def greedy(n):
    return DecodeConfig(max_length=n)


def drawn(n, **changes):
    return DecodeConfig(max_length=n, sample=True, **changes)


def generated(gpt, prompt, options, seed=0, context=CONTEXT):
    steps = generate(gpt, prompt, options, seeded(seed), context)
    return [step.chosen.id for step in steps]


@torch.inference_mode()
def read_again(gpt, prompt, n, context):
    """Generate without a cache: every token is chosen by reading its whole window again."""
    window, written = list(prompt[-context:]), []
    for _ in range(n):
        if len(window) > context:
            window = window[-(context // 2) :]
        logits = gpt(torch.tensor([window]))[0, -1]
        logits[:2] = -torch.inf
        window.append(int(logits.argmax()))
        written.append(window[-1])
    return written


@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
@pytest.mark.parametrize("n_prompt", [1, 5, CONTEXT, CONTEXT + 3])
def test_generation_with_a_cache_equals_that_without(positions, n_prompt):
    different = set()
    for seed in range(3):
        gpt = model(positions, seed)
        prompt = torch.randint(2, VOCAB, (n_prompt,)).tolist()
        found = generated(gpt, prompt, greedy(30))
        assert found == read_again(gpt, prompt, 30, CONTEXT)
        different |= set(found)
    assert len(different) > 4


@pytest.mark.parametrize("context", [1, 2, 3, 7])
def test_generation_works_with_every_context_length(context):
    gpt = model("learned")
    found = generated(gpt, [3, 4, 5], greedy(20), context=context)
    if context > 1:
        assert found == read_again(gpt, [3, 4, 5], 20, context)
    assert len(found) == 20


def test_a_full_window_is_halved_and_read_again(monkeypatch):
    gpt, starts = model("learned"), []
    begin = gpt.begin

    def recorded_begin(prompt, *, width, max_length):
        starts.append((prompt.size(1), max_length))
        return begin(prompt, width=width, max_length=max_length)

    monkeypatch.setattr(gpt, "begin", recorded_begin)
    list(generate(gpt, [3, 4, 5], greedy(14), seeded(), CONTEXT))
    # three tokens leave room for six; then four are kept, which leave room for five
    assert starts == [(2, 6), (3, 5), (3, 3)]


@pytest.mark.parametrize("context", [1, 2, 5, CONTEXT])
def test_the_window_of_a_token_is_that_which_was_read(context):
    gpt, lengths = model("rotary"), []
    begin = gpt.begin
    gpt.begin = lambda ids, **room: (lengths.append(ids.size(1) + 1), begin(ids, **room))[1]
    for n_prompt in (1, 3, CONTEXT + 3):
        steps = generate(gpt, [3] * n_prompt, greedy(20), seeded(), context)
        n_windows = 0
        for n, _step in enumerate(steps, 1):
            if len(lengths) > n_windows:
                n_windows, start = len(lengths), n_prompt + n - 1 - lengths[-1]
            assert last_window(n_prompt, n, context) == (start, start + lengths[-1])


def by_numpy(logits, temperature, top_k, top_p):
    """Return the distribution to sample from, token by token in descending order."""
    z = logits.astype(np.float64)
    z[:2] = -np.inf
    z = z / temperature
    p = np.exp(z - z.max())
    order = np.argsort(-p, kind="stable")[: top_k or None]
    p = p[order] / p[order].sum()
    n_kept = 1 + int((np.cumsum(p)[:-1] < top_p).cumprod().sum())
    result = np.zeros(len(logits))
    result[order[:n_kept]] = p[:n_kept] / p[:n_kept].sum()
    return result


@settings(max_examples=10, deadline=None, phases=[Phase.generate])  # shrinking takes minutes
@given(
    temperature=st.floats(0.3, 3), top_k=st.integers(0, VOCAB), top_p=st.floats(0.05, 1),
    seed=st.integers(0, 2**63 - 1), n_forced=st.integers(0, 14), n_prompt=st.integers(1, 10),
)  # fmt: skip
def test_a_step_has_the_distribution_that_was_sampled_from(
    temperature, top_k, top_p, seed, n_forced, n_prompt
):
    gpt, prompt = model("rotary"), [3 + n % 14 for n in range(n_prompt)]
    options = drawn(14, temperature=temperature, top_k=top_k, top_p=top_p)
    ids = generated(gpt, prompt, options, seed)
    again = generate(gpt, prompt, options, seeded(seed), CONTEXT, forced=ids[:n_forced], top=VOCAB)
    for n, step in enumerate(again):
        assert step.chosen.id == ids[n]
        assert step.forced == (n < n_forced)
        read = [*prompt, *ids[:n]][last_window(n_prompt, n + 1, CONTEXT)[0] :]
        with torch.inference_mode():
            logits = gpt(torch.tensor([read]))[0, -1].numpy()
        own = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        sampling = by_numpy(logits, temperature, top_k, top_p)
        ids_shown = [choice.id for choice in step.likeliest]
        assert sorted(ids_shown) == list(range(2, VOCAB))
        found = np.array([(c.probability, c.sampling_probability) for c in step.likeliest])
        np.testing.assert_allclose(found[:, 0], own[ids_shown], atol=1e-5)
        np.testing.assert_allclose(found[:, 1], sampling[ids_shown], atol=1e-4)
        assert found[:, 1].sum() == pytest.approx(1)
        assert step.chosen == step.likeliest[ids_shown.index(ids[n])]
        assert step.chosen.sampling_probability > 0


def test_eos_does_not_end_the_text():
    gpt = model("rotary")
    gpt.to_logits.weight = torch.nn.Parameter(torch.zeros(VOCAB, 16))
    found = generated(gpt, [3], drawn(400))
    assert len(found) == 400
    assert set(found) == set(range(2, VOCAB))  # uniform, without PAD and BOS


def test_samples_follow_the_probabilities():
    logits = torch.randn(1, 1, VOCAB, generator=seeded(1))
    expected = (logits[0, 0] / 0.7)[2:].softmax(-1)
    logits[..., :2] = -torch.inf
    p = sampling_probabilities(logits.expand(1, 20_000, -1), drawn(1, temperature=0.7))
    tokens = draw(p, seeded())
    found = torch.bincount(tokens[0], minlength=VOCAB)[2:] / 20_000
    torch.testing.assert_close(found, expected, rtol=0, atol=0.015)


def test_the_seed_determines_the_tokens():
    gpt = model("learned")
    texts = [generated(gpt, [3, 4], drawn(40), seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_tokens_are_generated_lazily():
    gpt = model("learned")
    steps = []
    step = gpt.step
    gpt.step = lambda last, state: (steps.append(1), step(last, state))[1]
    assert len(list(islice(generate(gpt, [3], greedy(1000), seeded(), CONTEXT), 3))) == 3
    assert len(steps) == 3


def test_an_empty_prompt_or_context_is_refused():
    with pytest.raises(ValueError, match="prompt"):
        next(generate(model("learned"), [], greedy(3), seeded(), CONTEXT))
    with pytest.raises(ValueError, match="context = 0"):
        next(generate(model("learned"), [3], greedy(3), seeded(), 0))
