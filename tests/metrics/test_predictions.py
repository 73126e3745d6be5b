"""Scores of several labels, numbers and embeddings against scikit-learn and SciPy."""

import numpy as np
import pytest

from polyhead.metrics.classification import class_scores
from polyhead.metrics.predictions import (
    label_scores,
    number_scores,
    partner_ranks,
    retrieval_scores,
    score_report,
)


def test_scores_of_several_labels_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    expected, predicted = rng.random((40, 5)) > 0.6, rng.random((40, 5)) > 0.5
    expected[:, 4] = predicted[:, 4] = False  # 0 / 0
    found = label_scores(expected, predicted)
    for average in ("micro", "macro"):
        f1 = metrics.f1_score(expected, predicted, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(f1)
    assert found["exact_match"] == metrics.accuracy_score(expected, predicted)
    counts = (expected & predicted).sum(0), expected.sum(0), predicted.sum(0)
    rows = metrics.precision_recall_fscore_support(expected, predicted, zero_division=0)
    for label, *row in zip(class_scores(*counts, "abcde"), *rows, strict=True):
        assert (label.precision, label.recall, label.f1, label.count) == pytest.approx(tuple(row))


def test_scores_of_numbers_are_those_of_scipy():
    stats, metrics = pytest.importorskip("scipy.stats"), pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(2)
    expected = rng.integers(0, 9, 50).astype(float)  # with equal ones
    predicted = expected + rng.normal(size=50).round(1)
    found = number_scores(expected, predicted)
    assert found["pearson"] == pytest.approx(stats.pearsonr(expected, predicted).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(expected, predicted).statistic)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(expected, predicted))
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(expected, predicted))
    assert np.isnan(number_scores(np.ones(3), np.arange(3.0))["pearson"])
    report = score_report(number_scores, expected, predicted)
    for name, value in report.scores.items():
        low, high = report.intervals[name]
        assert low <= value <= high
    pearson = stats.bootstrap(
        (expected, predicted), lambda x, y: stats.pearsonr(x, y).statistic, paired=True,
        vectorized=False, n_resamples=1000, method="percentile", random_state=0,
    ).confidence_interval  # fmt: skip
    assert report.intervals["pearson"] == pytest.approx(tuple(pearson), abs=0.02)
    assert f"{report.scores['mae']:.4f}" in str(report)


def test_intervals_of_reports_hold_95_percent():
    """The mean of n numbers has the standard error σ/√n."""
    values = np.random.default_rng(4).normal(size=500)
    report = score_report(lambda rows: {"mean": float(rows.mean())}, values)
    low, high = report.intervals["mean"]
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(500), rel=0.08)
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=0.01)


def test_partners_are_ranked_by_the_number_of_nearer_texts():
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, 30, 4))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    by_hand = [
        1 + sum(first[i] @ other > first[i] @ second[i] for other in second) for i in range(30)
    ]
    ranks = partner_ranks(first, second)
    assert ranks.tolist() == by_hand
    assert retrieval_scores(ranks) == {
        "accuracy": sum(rank == 1 for rank in by_hand) / 30,
        "mrr": pytest.approx(sum(1 / rank for rank in by_hand) / 30),
    }
    assert partner_ranks(first, first).tolist() == [1] * 30


def test_partners_among_more_than_a_thousand_texts_are_ranked_as_among_few():
    first, second = np.random.default_rng(5).normal(size=(2, 1003, 3))
    similarity = first @ second.T
    by_hand = 1 + (similarity > similarity.diagonal()[:, None] + 1e-6).sum(1)
    assert partner_ranks(first, second).tolist() == by_hand.tolist()
