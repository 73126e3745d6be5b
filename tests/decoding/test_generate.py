"""Writing on and on: what the cache remembers is what reading everything again would tell."""

from itertools import islice

import pytest
import torch

from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.generate import choose, write
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig

VOCAB, CONTEXT = 17, 8


def model(positions, seed=0):
    """Opinionated enough that its choices are no ties."""
    torch.manual_seed(seed)
    stack = StackConfig(2, 16, 4, 32, dropout=0.0, norm="pre")
    gpt = GPT(GPTConfig(VOCAB, CONTEXT, positions=positions, tie=False, stack=stack)).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return gpt


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


def greedy(n):
    return DecodeConfig(max_length=n)


def drawn(n, **changes):
    return DecodeConfig(max_length=n, sample=True, **changes)


@torch.inference_mode()
def read_again(gpt, prompt, n, context):
    """The same without a cache: every token is chosen by reading its whole window anew."""
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
def test_cached_writing_equals_reading_everything_again(positions, n_prompt):
    different = set()
    for seed in range(3):
        gpt = model(positions, seed)
        prompt = torch.randint(2, VOCAB, (n_prompt,)).tolist()
        found = list(write(gpt, prompt, greedy(30), dice(), CONTEXT))
        assert found == read_again(gpt, prompt, 30, CONTEXT)
        different |= set(found)
    assert len(different) > 4


@pytest.mark.parametrize("context", [1, 2, 3, 7])
def test_every_context_has_room_to_go_on(context):
    gpt = model("learned")
    found = list(write(gpt, [3, 4, 5], greedy(20), dice(), context))
    if context > 1:
        assert found == read_again(gpt, [3, 4, 5], 20, context)
    assert len(found) == 20


def test_a_full_window_is_halved_and_read_again(monkeypatch):
    gpt, begun = model("learned"), []
    begin = gpt.begin

    def watched(prompt, *, width, max_length):
        begun.append((prompt.size(1), max_length))
        return begin(prompt, width=width, max_length=max_length)

    monkeypatch.setattr(gpt, "begin", watched)
    list(write(gpt, [3, 4, 5], greedy(14), dice(), CONTEXT))
    # three tokens leave room for six; then four are kept, which leave room for five
    assert begun == [(2, 6), (3, 5), (3, 3)]


def test_an_end_of_line_does_not_end_the_text():
    gpt = model("rotary")
    gpt.to_logits.weight = torch.nn.Parameter(torch.zeros(VOCAB, 16))
    found = list(write(gpt, [3], drawn(400), dice(), CONTEXT))
    assert len(found) == 400
    assert set(found) == set(range(2, VOCAB))  # all alike; PAD and BOS never


def test_drawing_follows_the_probabilities():
    logits = torch.randn(1, 1, VOCAB, generator=dice(1))
    expected = (logits[0, 0] / 0.7)[2:].softmax(-1)
    generator, n = dice(), 20_000
    options = drawn(1, temperature=0.7)
    tokens = torch.tensor([choose(logits.clone(), options, generator) for _ in range(n)])
    found = torch.bincount(tokens, minlength=VOCAB)[2:] / n
    torch.testing.assert_close(found, expected, rtol=0, atol=0.015)


def test_few_choices_leave_only_the_likeliest():
    logits = torch.randn(1, 1, VOCAB, generator=dice(1))
    logits[..., :2] = 100.0  # PAD and BOS do not count
    best = logits[0, 0, 2:].argsort(descending=True) + 2
    for _ in range(30):
        assert choose(logits.clone(), drawn(1, top_k=2), dice()) in best[:2]
        assert choose(logits.clone(), drawn(1, top_p=1e-6), dice()) == best[0]
    assert choose(logits.clone(), greedy(1), dice()) == best[0]


def test_the_seed_decides_and_nothing_else():
    gpt = model("learned")
    texts = [list(write(gpt, [3, 4], drawn(40), dice(seed), CONTEXT)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_tokens_come_one_by_one():
    gpt = model("learned")
    steps = []
    step = gpt.step
    gpt.step = lambda last, state: (steps.append(1), step(last, state))[1]
    assert len(list(islice(write(gpt, [3], greedy(1000), dice(), CONTEXT), 3))) == 3
    assert len(steps) == 3


def test_nothing_to_begin_with_is_refused():
    with pytest.raises(ValueError, match="an empty prompt: expected at least one token"):
        next(write(model("learned"), [], greedy(3), dice(), CONTEXT))
    with pytest.raises(ValueError, match="context = 0: expected at least 1"):
        next(write(model("learned"), [3], greedy(3), dice(), 0))
