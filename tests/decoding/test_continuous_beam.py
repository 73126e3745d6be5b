"""Continuous beam search: outputs equal those of a search of each sentence alone."""

import random

import pytest
import torch

from polyhead.decoding.batch import decode_all, pad_right
from polyhead.decoding.continuous_beam import MAX_STEPS, ContinuousBeamSearch
from polyhead.decoding.options import DecodeConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig

VOCAB = 23


class LengthCopier(Transformer):
    """A Transformer whose outputs are as long as their sources, so that lengths vary."""

    def step(self, last, state):
        logits = super().step(last, state)
        real = state.memory.mask.keys
        n_read = state.memory.states.size(1) if real is None else real.sum(1)
        n_written = state.length - (0 if state.start is None else state.start)
        over = torch.as_tensor(n_written >= n_read).expand(len(last))
        logits[..., 2] += torch.where(over, 30.0, -30.0)[:, None]
        return logits


def translator(**changes):
    torch.manual_seed(4)
    stack = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32, **changes.pop("stack", {})}
    changes |= {"stack": StackConfig(**stack), "tie": "none"}
    return LengthCopier(TransformerConfig(VOCAB, VOCAB, **changes)).eval()


def sentences(n, seed=0):
    draw = random.Random(seed)
    return [
        [draw.randrange(3, VOCAB) for _ in range(draw.randrange(1, 12))] + [2] for _ in range(n)
    ]


def alone(model, config, source, prefix=()):
    prefixes = [prefix] if prefix else None
    return decode_all(model, [source], config, device=torch.device("cpu"), prefixes=prefixes)[0]


def run_all(search, sources, prefixes, draw):
    """Add up to three sentences before every step, until all are finished."""
    found = {}
    waiting = list(range(len(sources)))
    while waiting or len(search):
        new = [waiting.pop(0) for _ in range(min(len(waiting), draw.randrange(4)))]
        if new:
            prefix = pad_right([prefixes[i] for i in new]) if any(prefixes) else None
            search.add(new, pad_right([sources[i] for i in new]), prefix)
        for request_id, outputs in search.step():
            assert request_id not in found
            found[request_id] = outputs
    return found


def assert_same(found, expected):
    assert [output.ids for output in found] == [output.ids for output in expected]
    for output, right in zip(found, expected, strict=True):
        assert output.score == pytest.approx(right.score, abs=1e-4)
        assert output.log_p == pytest.approx(right.log_p, abs=1e-4)
        assert output.token_log_p == pytest.approx(right.token_log_p, abs=1e-4)


CHOICES = [
    {},
    {"positions": "rotary"},
    {"positions": "learned", "max_length": 24},
    {"stack": {"norm": "pre", "attention": "local", "window": 3}},
    {"positions": "none", "stack": {"reversible": True, "norm": "pre"}},
]


@pytest.mark.parametrize("changes", CHOICES, ids=str)
@pytest.mark.parametrize("forced", [False, True])
def test_a_sentence_added_at_any_time_has_the_outputs_of_a_search_alone(changes, forced):
    model = translator(**dict(changes))
    config = DecodeConfig(beam=3, n_best=3, length_penalty=0.7, max_length=9, max_ratio=1e6)
    sources = sentences(17)
    draw = random.Random(3)
    prefixes = [
        [draw.randrange(3, VOCAB) for _ in range(draw.randrange(3))] if forced else []
        for _ in sources
    ]
    found = run_all(ContinuousBeamSearch(model, config), sources, prefixes, draw)
    assert sorted(found) == list(range(len(sources)))
    expected = [alone(model, config, s, p) for s, p in zip(sources, prefixes, strict=True)]
    for i, right in enumerate(expected):
        assert_same(found[i], right)
    assert len({len(right[0].ids) for right in expected}) > 3  # they finished at different times


def test_cancelled_sentences_do_not_affect_the_others():
    model = translator()
    config = DecodeConfig(beam=2, max_length=12, max_ratio=1e6)
    sources = sentences(6, seed=1)
    search = ContinuousBeamSearch(model, config)
    search.add([0, 1, 2], pad_right(sources[:3]))
    found = dict(search.step())
    search.cancel({1, 4})
    search.add([3, 4, 5], pad_right(sources[3:]))
    found |= dict(search.step())
    search.cancel({4})
    while len(search):
        found |= dict(search.step())
    assert sorted(found) == [0, 2, 3, 5]
    for i in found:
        assert_same(found[i], alone(model, config, sources[i]))


def test_sentences_may_be_added_several_times_before_the_first_step():
    model = translator(positions="rotary")
    config = DecodeConfig(beam=2, max_length=12, max_ratio=1e6)
    sources = sentences(4, seed=2)
    search = ContinuousBeamSearch(model, config)
    for i, source in enumerate(sources):
        search.add([i], pad_right([source]))
    found = {}
    while len(search):
        found |= dict(search.step())
    for i, source in enumerate(sources):
        assert_same(found[i], alone(model, config, source))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_long_search_uses_bounded_memory_and_then_accepts_no_more(positions):
    """Slots of finished sentences are freed: the cache does not grow with time."""
    model = translator(positions=positions)
    config = DecodeConfig(beam=2, max_length=6, max_ratio=1e6)
    sources = sentences(5, seed=5)
    expected = [alone(model, config, source) for source in sources]
    search = ContinuousBeamSearch(model, config)
    search.n_steps = MAX_STEPS - 100
    most, number = 0, 0
    while search.open:
        if len(search) < 3:
            search.add([number], pad_right([sources[number % 5]]))
            number += 1
        for request_id, outputs in search.step():
            assert_same(outputs, expected[request_id % 5])
        most = max(most, search._state.cache[0].used)
    assert search.n_steps == MAX_STEPS
    assert number > 40
    assert search._state.dropped > 30
    assert most <= 3 * 2 * config.max_length  # three sentences, two beams


def test_only_a_plain_beam_search_can_be_continuous():
    for wrong in ({"beam": 1}, {"beam": 2, "coverage": 0.2}, {"beam": 2, "sample": True}):
        with pytest.raises(ValueError, match="beam search without coverage"):
            ContinuousBeamSearch(translator(), DecodeConfig(**wrong))
