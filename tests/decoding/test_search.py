"""Searches of a model so small that all its sentences can be enumerated."""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from expected_errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from polyhead.decoding.batch import batches, decode_all, search
from polyhead.decoding.beam import beam_search
from polyhead.decoding.ensemble import Ensemble
from polyhead.decoding.generate import generate
from polyhead.decoding.hypotheses import make_generator
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import filter_logits, greedy_search, sample
from polyhead.errors import CheckpointError

PAD, BOS, EOS, A, B = range(5)
SOURCES = torch.arange(9)[:, None]
STRATEGIES = [DecodeConfig(), DecodeConfig(beam=1), DecodeConfig(sample=True, n_best=2)]


@dataclass
class TrigramState:
    """The scores of each sentence, and the second-last token of every beam."""

    table: Tensor
    before: Tensor

    def select(self, parents):
        self.before = self.before.take_along_dim(parents, dim=1)

    def keep(self, sentences):
        self.table, self.before = self.table[sentences], self.before[sentences]


class Trigram:
    """P(next | last two) from a random table, another one for every source sentence."""

    def __init__(self, seed=3):
        self.tables = 2 * torch.randn(9, 5, 5, 5, generator=torch.Generator().manual_seed(seed))
        self.tables[..., [PAD, BOS]] = float("-inf")

    def begin(self, source, *, width, max_length):
        assert max_length >= 1
        return TrigramState(self.tables[source[:, 0]], torch.full((len(source), width), PAD))

    def step(self, last, state):
        sentence = torch.arange(len(last))[:, None]
        logits = state.table[sentence, state.before, last]
        state.before = last
        return logits


def options(**changes):
    return DecodeConfig(**{"max_length": 4, "max_ratio": 99.0, "length_penalty": 0.0} | changes)


def token_log_p(source, sentence, seed=3):
    table = Trigram(seed).tables[source].log_softmax(-1)
    history = (PAD, BOS, *sentence)
    return [table[history[i : i + 3]].item() for i in range(len(sentence))]


def log_p(source, sentence, seed=3):
    return sum(token_log_p(source, sentence, seed))


def all_sentences(max_length):
    for length in range(max_length):
        yield from ((*words, EOS) for words in product((A, B), repeat=length))
    yield from product((A, B), repeat=max_length)


def sentences(found):
    return [
        [tuple(t for t in tokens if t != PAD) for tokens in beams]
        for beams in found.tokens.tolist()
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_beam_as_wide_as_the_language_finds_the_best_sentences(alpha):
    everything = list(all_sentences(4))
    found = beam_search(Trigram(), SOURCES, options(beam=32, length_penalty=alpha))
    for source, beams in enumerate(sentences(found)):

        def score(sentence, source=source):
            return log_p(source, sentence) / ((5 + len(sentence)) / 6) ** alpha

        best = sorted(everything, key=score, reverse=True)
        assert beams[:5] == best[:5]


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_every_score_is_that_of_its_sentence(beam):
    """All hypotheses are checked: errors in reordering the state show in the lower ranks."""
    found = beam_search(Trigram(), SOURCES, options(beam=beam, length_penalty=0.6))
    for source, beams in enumerate(sentences(found)):
        for rank, sentence in enumerate(beams):
            expected = log_p(source, sentence)
            assert found.log_p[source, rank].item() == pytest.approx(expected, abs=1e-5)
            each = found.token_log_p[source, rank, : len(sentence)].tolist()
            assert each == pytest.approx(token_log_p(source, sentence), abs=1e-5)
            normalised = expected / ((5 + len(sentence)) / 6) ** 0.6
            assert found.scores[source, rank].item() == pytest.approx(normalised, abs=1e-5)


def test_scores_are_sorted_and_only_padding_follows_eos():
    found = beam_search(Trigram(), SOURCES, options(beam=4))
    assert (found.scores[:, :-1] >= found.scores[:, 1:]).all()
    ended = (found.tokens == EOS).cumsum(-1) - (found.tokens == EOS).long()
    assert (found.tokens[ended > 0] == PAD).all()


def test_a_beam_of_one_equals_greedy_search():
    one = beam_search(Trigram(), SOURCES, options(beam=1, max_length=8))
    other = greedy_search(Trigram(), SOURCES, options(beam=1, max_length=8))
    assert sentences(one) == sentences(other)
    torch.testing.assert_close(one.log_p, other.log_p)


def test_greedy_search_takes_the_likeliest_token_at_every_step():
    found = sentences(greedy_search(Trigram(), SOURCES, options(max_length=8)))
    for source in range(9):
        table, history = Trigram().tables[source], [PAD, BOS]
        while history[-1] != EOS and len(history) < 10:
            history.append(int(table[history[-2], history[-1]].argmax()))
        assert found[source][0] == tuple(history[2:])


def test_a_prefix_is_kept_and_the_rest_is_the_best_after_it():
    prefix = torch.tensor([[A, B]] * 4 + [[B, PAD]] * 5)
    found = beam_search(Trigram(), SOURCES, options(beam=32), prefix)
    for source, beams in enumerate(sentences(found)):
        start = tuple(t for t in prefix[source].tolist() if t != PAD)
        fits = [s for s in all_sentences(4) if s[: len(start)] == start]
        assert beams[0] == max(fits, key=lambda s, i=source: log_p(i, s))
    greedy = sentences(greedy_search(Trigram(), SOURCES, options(), prefix))
    assert all(beams[0][0] == prefix[i, 0] for i, beams in enumerate(greedy))


def test_samples_have_the_models_probabilities():
    """Pearson's chi-squared against the probability of every sentence of a tiny language."""
    n = 20_000
    config = options(sample=True, n_best=n, max_length=3)
    found = sample(Trigram(), SOURCES[:1], config, torch.Generator().manual_seed(0))
    counts = {}
    for sentence in sentences(found)[0]:
        counts[sentence] = counts.get(sentence, 0) + 1
    expected = {s: n * torch.tensor(log_p(0, s)).exp().item() for s in all_sentences(3)}
    chi2 = sum((counts.get(s, 0) - e) ** 2 / e for s, e in expected.items() if e > 5)
    assert chi2 < 40  # 14 degrees of freedom: 40 has probability 0.0003


def test_the_seed_determines_the_samples():
    config = options(sample=True, n_best=3, max_length=8)
    draws = [
        sentences(sample(Trigram(), SOURCES, config, torch.Generator().manual_seed(seed)))
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_top_k_and_top_p_keep_the_likeliest():
    logits = torch.tensor([[[0.5, 0.25, 0.15, 0.1]]]).log()
    for top_k, top_p, expected in ((2, 1.0, [2, 1, 0, 0]), (0, 0.7, [2, 1, 0, 0]), (0, 0.1, [3])):
        kept = 3 * filter_logits(logits, top_k, top_p).softmax(-1)[0, 0]
        assert kept.tolist()[: len(expected)] == pytest.approx(expected)


def test_a_low_temperature_equals_greedy_search():
    config = options(sample=True, temperature=1e-4, max_length=8)
    drawn = sample(Trigram(), SOURCES, config, torch.Generator().manual_seed(0))
    assert sentences(drawn) == sentences(greedy_search(Trigram(), SOURCES, options(max_length=8)))


class Copier:
    """A model that copies its source, which shows the order of the outputs."""

    def begin(self, source, *, width, max_length):
        assert max_length > 0
        return TrigramState(source, torch.zeros(len(source), width, dtype=torch.long))

    def step(self, last, state):
        at = state.before[:, :1]
        state.before = state.before + 1
        copied = state.table.gather(1, at.clamp(max=state.table.size(1) - 1))
        ended = (at >= state.table.size(1)) | (copied == PAD)
        copied = copied.masked_fill(ended, EOS)
        logits = torch.full((*last.shape, 40), -5.0)
        return logits.scatter(-1, copied[..., None].expand(*last.shape, 1), 5.0)


@pytest.mark.parametrize("config", [options(beam=1), options(sample=True, n_best=3, top_k=2)])
def test_every_token_chosen_without_a_beam_has_its_log_probability(config):
    outputs = decode_all(Trigram(), SOURCES.tolist(), config, device=torch.device("cpu"))
    for source, best in enumerate(outputs):
        for output in best:
            ended = len(output.ids) < config.max_length
            sentence = (*output.ids, EOS) if ended else tuple(output.ids)
            assert output.token_log_p == pytest.approx(token_log_p(source, sentence), abs=1e-5)
            assert output.log_p == pytest.approx(sum(output.token_log_p), abs=1e-5)


@pytest.mark.parametrize("config", [options(max_length=99), options(max_length=99, beam=1)])
def test_outputs_have_the_order_of_the_sources(config):
    sources = [torch.randint(4, 40, (int(n),)).tolist() for n in torch.randint(1, 20, (300,))]
    outputs = decode_all(Copier(), sources, config, device=torch.device("cpu"))
    assert [best[0].ids for best in outputs] == sources


@pytest.mark.parametrize("beam", [1, 2, 3])
@given(
    seed=st.integers(0, 99),
    rows=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 12)), min_size=2, max_size=9),
)
@settings(max_examples=30, deadline=None)
def test_an_output_and_its_limit_do_not_depend_on_the_other_rows_of_a_batch(beam, seed, rows):
    """Long outputs gain by the length penalty, so that a pool can improve after it is full."""
    model = Trigram(seed)
    config = DecodeConfig(beam=beam, n_best=beam, length_penalty=2.0, max_ratio=0.5)
    sources = [[number] * length for number, length in rows]
    together = decode_all(model, sources, config, device=torch.device("cpu"))
    for source, outputs in zip(sources, together, strict=True):
        assert decode_all(model, [source], config, device=torch.device("cpu")) == [outputs]


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: f"{config.beam} {config.sample}")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_precision_have_the_same_outputs(config, dtype):
    exact, other = Trigram(), Trigram()
    exact.tables = exact.tables.bfloat16().float()
    other.tables = exact.tables.to(dtype)
    expected, found = search(exact, SOURCES, config), search(other, SOURCES, config)
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.scores, expected.scores)
    ensemble = search(Ensemble([exact, other]), SOURCES, config)
    assert torch.equal(ensemble.tokens, expected.tokens)


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: f"{config.beam} {config.sample}")
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_outputs_that_are_not_finite_are_an_error_of_the_model(config, number):
    model = Trigram()
    model.tables[4, PAD, BOS, A] = number
    with raises(CheckpointError, "not_finite"):
        search(model, SOURCES, config)
    with raises(CheckpointError, "not_finite"):
        next(generate(model, [4, BOS], config, make_generator(0), 9))


def test_batches_have_every_source_once_and_similar_lengths():
    sources = [[5] * (1 + i % 37) for i in range(500)]
    cut = list(batches(sources, options()))
    assert sorted(i for batch in cut for i in batch) == list(range(500))
    assert all(len(batch) <= 64 for batch in cut)
    spread = [max(len(sources[i]) for i in b) - min(len(sources[i]) for i in b) for b in cut]
    assert max(spread) <= 6


@pytest.mark.parametrize(
    ("config", "n_rows"),
    [
        (DecodeConfig(beam=1), 8),
        (DecodeConfig(beam=4), 2),
        (DecodeConfig(sample=True, n_best=2), 4),
        (DecodeConfig(beam=100, n_best=1), 1),
    ],
)
def test_wide_searches_have_small_batches(config, n_rows):
    """512 source tokens of 8 sentences fill a batch, divided by the hypotheses of a sentence."""
    assert {len(batch) for batch in batches([[5] * 512] * 16, config)} == {n_rows}


def test_the_length_limit_depends_on_the_source_and_max_length():
    config = DecodeConfig(max_length=50, max_ratio=2.0)
    assert config.limit(3) == 16
    assert config.limit(100) == 50
    paper = DecodeConfig(max_length=99, max_ratio=1.0, max_extra=50)
    assert [paper.limit(n) for n in (1, 40, 60)] == [51, 90, 99]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 0}, "beam = 0"),
        ({"temperature": 0.0}, "temperature = 0"),
        ({"top_p": 0.0}, "top_p = 0"),
        ({"coverage": -1.0}, "coverage = -1"),
        ({"beam": 2, "n_best": 3}, "n_best = 3"),
    ],
)
def test_impossible_options_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        DecodeConfig(**changes)


def test_the_options_choose_the_strategy():
    source = SOURCES[:2]
    assert search(Trigram(), source, options(beam=3)).tokens.size(1) == 3
    assert search(Trigram(), source, options(beam=1)).tokens.size(1) == 1
    assert search(Trigram(), source, options(sample=True, n_best=2)).tokens.size(1) == 2
