"""Coverage penalty: the formula by hand, and beam search against all sentences."""

from dataclasses import dataclass
from itertools import product
from math import log

import pytest
import torch
from expected_errors import raises
from torch import Tensor

from polyhead.decoding.beam import beam_search
from polyhead.decoding.ensemble import Ensemble
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import (
    AttentionRecordingModel,
    has_cross_attention,
    record_attention,
)
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.bahdanau import Bahdanau, BahdanauConfig
from polyhead.models.baselines.seq2seq import Seq2Seq, Seq2SeqConfig
from polyhead.models.transformer import Transformer, TransformerConfig

PAD, BOS, EOS, A, B = range(5)
SOURCES = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD], [10, EOS, PAD, PAD]])
STACK = StackConfig(n_layers=2, d_model=16, n_heads=2, d_ff=16, dropout=0.0)


@dataclass
class ToyState:
    """The sentence of each row, its history, and the attention of the last step."""

    sentence: Tensor
    history: Tensor
    looked: Tensor

    def select(self, parents):
        self.history = self.history.take_along_dim(parents[..., None], dim=1)

    def keep(self, sentences):
        self.sentence = self.sentence[sentences]
        self.history, self.looked = self.history[sentences], self.looked[sentences]


class Toy:
    """A model whose scores and attention depend on the sentence and the whole history."""

    def begin(self, source, *, width, max_length):
        assert max_length
        none = torch.zeros(len(source), width, 0, dtype=torch.long)
        return ToyState(source[:, 0], none, torch.zeros(len(source), width, source.size(1)))

    def step(self, last, state):
        state.history = torch.cat([state.history, last[..., None]], dim=-1)
        found = [
            [prediction(int(s), tuple(h)) for h in beams]
            for s, beams in zip(state.sentence, state.history.tolist(), strict=True)
        ]
        state.looked = torch.stack([torch.stack([w for _, w in beams]) for beams in found])
        return torch.stack([torch.stack([z for z, _ in beams]) for beams in found])


def prediction(first, history):
    """Return logits and attention after a history, both random but fixed."""
    seed = hash((first, history)) % 2**31
    generator = torch.Generator().manual_seed(seed)
    logits, scores = torch.randn(5, generator=generator), 2 * torch.randn(4, generator=generator)
    logits[[PAD, BOS]] = float("-inf")
    n = int((SOURCES[SOURCES[:, 0] == first][0] != PAD).sum())
    scores[n:] = float("-inf")
    return logits, scores.softmax(0)


def by_hand(first, sentence, alpha, beta):
    """Return log P / lp + cp, in plain sums."""
    total, covered = 0.0, [0.0] * 4
    for n, token in enumerate(sentence):
        logits, weights = prediction(first, (BOS, *sentence[:n]))
        total += float(logits.log_softmax(0)[token])
        covered = [c + float(w) for c, w in zip(covered, weights, strict=True)]
    n_source = int((SOURCES[SOURCES[:, 0] == first][0] != PAD).sum())
    penalty = beta * sum(log(min(c, 1.0)) for c in covered[:n_source])
    return total / ((5 + len(sentence)) / 6) ** alpha + penalty


def all_sentences(longest):
    for n in range(longest):
        yield from ((*words, EOS) for words in product((A, B), repeat=n))
    yield from product((A, B), repeat=longest)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("beta", [0.2, 2.0])
def test_a_beam_as_wide_as_the_language_finds_the_best_sentences_with_coverage(alpha, beta):
    found = beam_search(Toy(), SOURCES, DecodeConfig(32, alpha, beta, max_length=4, max_ratio=99.0))
    everything = list(all_sentences(4))
    changed = 0
    for row, first in enumerate(SOURCES[:, 0].tolist()):
        scores = {s: by_hand(first, s, alpha, beta) for s in everything}
        best = sorted(everything, key=scores.__getitem__, reverse=True)
        outputs = [tuple(t for t in tokens if t != PAD) for tokens in found.tokens[row].tolist()]
        assert outputs[:5] == best[:5]
        for rank in range(5):
            assert float(found.scores[row, rank]) == pytest.approx(scores[best[rank]], abs=1e-4)
        plain = max(everything, key=lambda s, first=first: by_hand(first, s, alpha, 0.0))
        changed += plain != best[0]
    assert changed or beta < 1  # else the penalty had no effect


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("beam", [2, 3])
def test_every_score_is_that_of_its_sentence_in_a_narrow_beam(beam, beta):
    """Coverage must follow its hypothesis when beams are reordered."""
    options = DecodeConfig(beam, 1.0, beta, max_length=20, max_ratio=99.0)
    found = beam_search(Toy(), SOURCES, options)
    for row, first in enumerate(SOURCES[:, 0].tolist()):
        for rank in range(beam):
            output = tuple(t for t in found.tokens[row, rank].tolist() if t != PAD)
            assert output[-1] == EOS or len(output) == 20
            expected = by_hand(first, output, options.length_penalty, beta)
            assert float(found.scores[row, rank]) == pytest.approx(expected, abs=1e-4)


def transformer():
    return Transformer(TransformerConfig(11, 11, stack=STACK)).eval()


def bahdanau():
    return Bahdanau(BahdanauConfig(11, 11, d_model=16, dropout=0.0)).eval()


@pytest.mark.parametrize("make", [transformer, bahdanau])
def test_recorded_attention_equals_that_of_a_forward_pass(make):
    model = make()
    assert has_cross_attention(model)
    recording, plain = AttentionRecordingModel(model), model.begin(SOURCES, width=2, max_length=3)
    state = recording.begin(SOURCES, width=2, max_length=3)
    target = torch.tensor([[[BOS, 5, 6], [BOS, 7, 8]]] * 3)
    for t in range(3):
        logits = recording.step(target[:, :, t], state)
        torch.testing.assert_close(logits, model.step(target[:, :, t], plain))
        for beam in range(2):
            with torch.inference_mode(), record_attention(model, "cross_attention") as maps:
                model.hidden(SOURCES, target[:, beam, : t + 1])
            expected = torch.stack([w.mean(1) for w in maps.values()]).mean(0)[:, -1]
            torch.testing.assert_close(state.looked[:, beam], expected, rtol=0, atol=1e-5)


def test_the_attention_of_an_ensemble_is_the_mean_of_its_members():
    one, other = transformer(), bahdanau()
    recurrent = Seq2Seq(Seq2SeqConfig(11, 11, d_model=8)).eval()
    both = Ensemble([AttentionRecordingModel(one), recurrent, AttentionRecordingModel(other)])
    state = both.begin(SOURCES, width=2, max_length=2)
    both.step(torch.full((3, 2), BOS), state)
    looked = []
    for member in (AttentionRecordingModel(model) for model in (one, other)):
        alone = member.begin(SOURCES, width=2, max_length=2)
        member.step(torch.full((3, 2), BOS), alone)
        looked.append(alone.looked)
    torch.testing.assert_close(state.looked, (looked[0] + looked[1]) / 2)
    found = beam_search(both, SOURCES, DecodeConfig(beam=2, coverage=0.2, max_length=4))
    assert found.scores.isfinite().all()


def test_coverage_requires_cross_attention():
    recurrent = Seq2Seq(Seq2SeqConfig(11, 11, d_model=8)).eval()
    assert not has_cross_attention(recurrent)
    options = DecodeConfig(beam=2, coverage=0.2, max_length=4)
    with raises(ConfigError, "no_cross_attention", "0.2"):
        beam_search(recurrent, SOURCES, options)
    with raises(ConfigError, "no_cross_attention"):
        beam_search(Ensemble([recurrent, recurrent]), SOURCES, options)
