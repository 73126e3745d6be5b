"""BLEU and chrF equal those of sacreBLEU; significance tests."""

import random
import tracemalloc

import pytest
import sacrebleu
from expected_errors import raises
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from polyhead.errors import DataError
from polyhead.metrics.bleu import compare, quick_bleu, score

SENTENCE = "a small dog runs over the green hill while two children watch it from far away"
WORDS = SENTENCE.split()


def corpus(n, noise, seed):
    rng = random.Random(seed)
    references = [" ".join(rng.choices(WORDS, k=12)) for _ in range(n)]
    outputs = [
        " ".join(w if rng.random() > noise else rng.choice(WORDS) for w in line.split())
        for line in references
    ]
    return outputs, references


def test_values_are_those_of_sacrebleu():
    outputs, references = corpus(60, 0.2, 0)
    bleu, chrf = score(outputs, references)
    assert bleu.value == sacrebleu.corpus_bleu(outputs, [references]).score
    assert chrf.value == sacrebleu.corpus_chrf(outputs, [references]).score
    assert bleu.low < bleu.value < bleu.high
    assert "tok:13a" in bleu.signature
    assert "bs:1000" in bleu.signature
    assert quick_bleu(outputs, references) == bleu.value


def test_intervals_stay_between_0_and_100():
    outputs, references = corpus(5, 0.0, 3)
    for lines in ([*outputs[:4], "dog"], ["zzz", "a small", *["zzz"] * 3]):
        for metric in score(lines, references):
            assert 0 <= metric.low <= metric.high <= 100
    assert score([*outputs[:4], "dog"], references)[1].high == 100


def test_intervals_and_paired_tests_are_those_of_sacrebleu_in_little_memory():
    outputs, references = corpus(400, 0.2, 0)
    others = corpus(400, 0.25, 0)[0]
    tracemalloc.start()
    scores, tests = score(outputs, references), compare(others, outputs, references)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 14_000_000  # a table of the samples of chrF alone has 29 MB
    kinds = {"BLEU": BLEU(), "chrF2": CHRF()}
    for found, metric in zip(scores, kinds.values(), strict=True):
        expected = metric.corpus_score(outputs, [references], n_bootstrap=1000)
        assert (found.low + found.high) / 2 == pytest.approx(expected._mean)
        assert (found.high - found.low) / 2 == pytest.approx(expected._ci)
        assert found.signature == metric.get_signature().format(short=False)
    systems = [("a", others), ("b", outputs)]
    _, expected = PairedTest(systems, kinds, [references], test_type="bs", n_samples=1000)()
    for found, (_, theirs) in zip(tests, list(expected.values())[1:], strict=True):
        assert found.p_value == pytest.approx(theirs.p_value)


def test_case_matters_unless_lowercase_is_set():
    outputs, references = corpus(20, 0.0, 1)
    upper = [line.upper() for line in outputs]
    assert score(upper, references, bootstrap=1)[0].value < 5
    assert score(upper, references, lowercase=True, bootstrap=1)[0].value == pytest.approx(100)


def test_a_better_system_is_significantly_better_and_equal_ones_are_not():
    good, references = corpus(80, 0.1, 2)
    rng = random.Random(9)
    bad = [" ".join(w if rng.random() > 0.3 else "dog" for w in line.split()) for line in good]
    better = compare(bad, good, references, samples=300)
    assert [test.name for test in better] == ["BLEU", "chrF2"]
    assert better[0].system > better[0].baseline
    assert better[0].p_value < 0.01
    assert compare(good, list(good), references, samples=300)[0].p_value == 1.0
    other = [good[1], good[0], *good[2:]]
    assert compare(good, other, references, samples=300)[0].p_value > 0.05


def test_unequal_or_empty_sets_are_refused():
    with raises(DataError, "different_lengths", "2", "1"):
        score(["a", "b"], ["a"])
    for sides in ((["a"], ["a", "b"]), (["a", "b"], ["a"])):
        with raises(DataError, "different_lengths", "2", "1"):
            compare(*sides, ["a", "b"])
    with raises(DataError, "no_examples"):
        score([], [])


def test_a_system_with_few_matches_has_an_interval():
    """With so few matches some bootstrap samples have none at all."""
    outputs, references = ["zzz"] * 7 + ["green hill"], ["a small dog"] * 7 + ["green hill"]
    _, chrf = score(outputs, references)
    assert 0 <= chrf.low < chrf.high
