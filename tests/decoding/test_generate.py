"""Generation with a cache equals reading the whole window again for every token."""

from itertools import islice

import pytest
import torch

from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.generate import generate
from polyhead.decoding.sampling import draw
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
        found = list(generate(gpt, prompt, greedy(30), seeded(), CONTEXT))
        assert found == read_again(gpt, prompt, 30, CONTEXT)
        different |= set(found)
    assert len(different) > 4


@pytest.mark.parametrize("context", [1, 2, 3, 7])
def test_generation_works_with_every_context_length(context):
    gpt = model("learned")
    found = list(generate(gpt, [3, 4, 5], greedy(20), seeded(), context))
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


def test_eos_does_not_end_the_text():
    gpt = model("rotary")
    gpt.to_logits.weight = torch.nn.Parameter(torch.zeros(VOCAB, 16))
    found = list(generate(gpt, [3], drawn(400), seeded(), CONTEXT))
    assert len(found) == 400
    assert set(found) == set(range(2, VOCAB))  # uniform, without PAD and BOS


def test_samples_follow_the_probabilities():
    logits = torch.randn(1, 1, VOCAB, generator=seeded(1))
    expected = (logits[0, 0] / 0.7)[2:].softmax(-1)
    logits[..., :2] = -torch.inf
    tokens = draw(logits.expand(1, 20_000, -1), drawn(1, temperature=0.7), seeded())
    found = torch.bincount(tokens[0], minlength=VOCAB)[2:] / 20_000
    torch.testing.assert_close(found, expected, rtol=0, atol=0.015)


def test_the_seed_determines_the_tokens():
    gpt = model("learned")
    texts = [list(generate(gpt, [3, 4], drawn(40), seeded(seed), CONTEXT)) for seed in (1, 1, 2)]
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
