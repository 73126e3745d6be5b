"""Sentences that enter a running search and leave it get what they would get alone."""

import random

import pytest
import torch

from polyhead.decoding.batch import Output, decode_all, rectangle
from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.continuous_beam import MAX_STEPS, ContinuousBeamSearch
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig

VOCAB = 23


class Mortal(Transformer):
    """A Transformer that writes as much as it read, so that sentences are of all lengths."""

    def step(self, last, state):
        logits = super().step(last, state)
        real = state.memory.mask.keys
        n_read = state.memory.states.size(1) if real is None else real.sum(1)
        n_written = state.length - (0 if state.start is None else state.start)
        over = torch.as_tensor(n_written >= n_read).expand(len(last))
        logits[..., 2] += torch.where(over, 30.0, -30.0)[:, None]
        return logits


def translator(**changes) -> Transformer:
    torch.manual_seed(4)
    stack = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32, **changes.pop("stack", {})}
    changes |= {"stack": StackConfig(**stack), "tie": "none"}
    return Mortal(TransformerConfig(VOCAB, VOCAB, **changes)).eval()


def sentences(n: int, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [
        [draw.randrange(3, VOCAB) for _ in range(draw.randrange(1, 12))] + [2] for _ in range(n)
    ]


def alone(
    model: Transformer, config: DecodeConfig, source: list[int], prefix: list[int]
) -> list[Output]:
    prefixes = [prefix] if prefix else None
    device = torch.device("cpu")
    return decode_all(model, [source], config, device=device, prefixes=prefixes)[0]


def let_flow(
    flow: ContinuousBeamSearch[int],
    sources: list[list[int]],
    prefixes: list[list[int]],
    draw: random.Random,
) -> dict[int, list[Output]]:
    """Up to three enter before every step, until all have left."""
    found: dict[int, list[Output]] = {}
    waiting = list(range(len(sources)))
    while waiting or len(flow):
        some = [waiting.pop(0) for _ in range(min(len(waiting), draw.randrange(4)))]
        if some:
            prefix = rectangle([prefixes[i] for i in some]) if any(prefixes) else None
            flow.enter(some, rectangle([sources[i] for i in some]), prefix)
        for ticket, outputs in flow.step():
            assert ticket not in found
            found[ticket] = outputs
    return found


def assert_same(found: list[Output], expected: list[Output]) -> None:
    assert [one.ids for one in found] == [one.ids for one in expected]
    for one, right in zip(found, expected, strict=True):
        assert one.score == pytest.approx(right.score, abs=1e-4)
        assert one.log_p == pytest.approx(right.log_p, abs=1e-4)


CHOICES = [
    {},
    {"positions": "rotary"},
    {"positions": "learned", "max_length": 24},
    {"stack": {"norm": "pre", "attention": "local", "window": 3}},
    {"positions": "none", "stack": {"reversible": True, "norm": "pre"}},
]


@pytest.mark.parametrize("changes", CHOICES, ids=str)
@pytest.mark.parametrize("forced", [False, True])
def test_whoever_enters_at_any_time_gets_what_he_would_get_alone(changes, forced):
    model = translator(**dict(changes))
    config = DecodeConfig(beam=3, n_best=3, length_penalty=0.7, max_length=9, max_ratio=1e6)
    sources = sentences(17)
    draw = random.Random(3)
    prefixes = [
        [draw.randrange(3, VOCAB) for _ in range(draw.randrange(3))] if forced else []
        for _ in sources
    ]
    found = let_flow(ContinuousBeamSearch(model, config), sources, prefixes, draw)
    assert sorted(found) == list(range(len(sources)))
    expected = [alone(model, config, s, p) for s, p in zip(sources, prefixes, strict=True)]
    for i, right in enumerate(expected):
        assert_same(found[i], right)
    assert len({len(right[0].ids) for right in expected}) > 3  # they left at different times


def test_who_leaves_early_gets_nothing_and_disturbs_nobody():
    model = translator()
    config = DecodeConfig(beam=2, max_length=12, max_ratio=1e6)
    sources = sentences(6, seed=1)
    flow: ContinuousBeamSearch[int] = ContinuousBeamSearch(model, config)
    flow.enter([0, 1, 2], rectangle(sources[:3]))
    found = dict(flow.step())
    flow.leave({1, 4})
    flow.enter([3, 4, 5], rectangle(sources[3:]))
    found |= dict(flow.step())
    flow.leave({4})
    while len(flow):
        found |= dict(flow.step())
    assert sorted(found) == [0, 2, 3, 5]
    for i in found:
        assert_same(found[i], alone(model, config, sources[i], []))


def test_several_may_enter_before_the_first_step():
    model = translator(positions="rotary")
    config = DecodeConfig(beam=2, max_length=12, max_ratio=1e6)
    sources = sentences(4, seed=2)
    flow: ContinuousBeamSearch[int] = ContinuousBeamSearch(model, config)
    for i, source in enumerate(sources):
        flow.enter([i], rectangle([source]))
    found = {}
    while len(flow):
        found |= dict(flow.step())
    for i, source in enumerate(sources):
        assert_same(found[i], alone(model, config, source, []))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_long_flow_keeps_little_forgets_nothing_needed_and_then_lets_nobody_in(positions):
    """Slots of those who left are given up: what is remembered does not grow with time."""
    model = translator(positions=positions)
    config = DecodeConfig(beam=2, max_length=6, max_ratio=1e6)
    sources = sentences(5, seed=5)
    expected = [alone(model, config, source, []) for source in sources]
    flow: ContinuousBeamSearch[int] = ContinuousBeamSearch(model, config)
    flow.n_steps = MAX_STEPS - 100
    most, number = 0, 0
    while flow.open:
        if len(flow) < 3:
            flow.enter([number], rectangle([sources[number % 5]]))
            number += 1
        for ticket, outputs in flow.step():
            assert_same(outputs, expected[ticket % 5])
        most = max(most, flow._state.used)
    assert flow.n_steps == MAX_STEPS
    assert number > 40
    assert flow._state.dropped > 30
    assert most <= 3 * 2 * config.max_length  # three lives, two beams


def test_only_a_plain_beam_search_flows():
    for wrong in ({"beam": 1}, {"beam": 2, "coverage": 0.2}, {"beam": 2, "sample": True}):
        with pytest.raises(ValueError, match="a flow is a beam search without coverage"):
            ContinuousBeamSearch(translator(), DecodeConfig(**wrong))
