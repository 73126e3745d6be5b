import pytest

from polyhead.experiments.table import is_error


@pytest.mark.parametrize("metric", ["loss", "mae", "rmse", "perplexity", "WER"])
def test_the_best_row_has_the_smallest_error(metric):
    assert is_error(metric)


@pytest.mark.parametrize("metric", ["accuracy", "bleu", "pearson", "BLEU lower-cased"])
def test_the_best_row_has_the_largest_score(metric):
    assert not is_error(metric)
