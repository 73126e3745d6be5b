"""Few sentence pairs: a warning, fitting defaults, and an error for hardly any."""

import pytest
from expected_errors import raises
from reporters import Recorder
from tiny import SMALL, write_corpus

from polyhead.data.line_spool import Examples
from polyhead.errors import DataError
from polyhead.training.config import read_run
from polyhead.training.run_log import RunLog
from polyhead.training.small_data import adapt, warn_if_few
from polyhead.training.trainer import train


def pairs(n, characters="abc"):
    return Examples([characters] * n, [f"{k % 10}" for k in range(n)])


def adapted(n, *overrides, characters="abc", recipe="small", tmp_path):
    recorder = Recorder()
    config = read_run(recipe, overrides, {"pairs": ["x.tsv"]})
    log = RunLog(tmp_path, recorder)
    warn_if_few(config, n, log)
    changed = adapt(config, pairs(n, characters), log)
    return changed.text.vocab, recorder.notices


HANGUL = "".join(map(chr, range(0xAC00, 0xAC00 + 2_000)))


@pytest.mark.parametrize(
    ("n", "overrides", "expected", "n_notices"),
    [
        (200, (), 2_000, 2),
        (15_000, (), 4_000, 2),
        (30_000, (), 6_000, 0),
        (200, ("data.adapt=false",), 6_000, 1),
        (200, ("text.vocab=5000",), 5_000, 1),
        (200, ("model.stack.dropout=0.05",), 6_000, 2),
        (200, ("text.vocab=5000", "data.adapt=true"), 2_000, 2),
        (200, ("train.epochs=3",), 2_000, 2),
    ],
)
def test_defaults_follow_the_number_of_pairs_and_given_values_win(
    n, overrides, expected, n_notices, tmp_path
):
    vocab, notices = adapted(n, *overrides, tmp_path=tmp_path)
    assert vocab == expected
    assert len(notices) == n_notices
    assert not notices or f"{n:,} pairs" in notices[0]


def test_the_vocabulary_has_room_for_all_characters(tmp_path):
    vocab, _ = adapted(200, characters=HANGUL, tmp_path=tmp_path)
    assert 2_000 + 4 + 256 < vocab <= 6_000


def test_recipes_with_values_of_their_own_are_not_adapted(tmp_path):
    vocab, _ = adapted(200, recipe="multi30k-de-en", tmp_path=tmp_path)
    recipe = read_run("multi30k-de-en")
    assert vocab == recipe.text.vocab


def test_the_embedded_corpus_is_not_called_small(tmp_path):
    recorder = Recorder()
    warn_if_few(read_run("schedules-ko-en"), 12_000, RunLog(tmp_path, recorder))
    assert recorder.notices == []


def test_hardly_any_pairs_are_an_error_that_writes_nothing(tmp_path):
    files = write_corpus(tmp_path, n=9)
    with raises(DataError, "too_few_examples", "only 8 pairs"):
        train(read_run("small", SMALL, files), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_ten_pairs_are_enough_to_train(tmp_path):
    train(
        read_run("small", [*SMALL, "train.steps=1"], write_corpus(tmp_path, n=10)), tmp_path / "run"
    )
    assert (tmp_path / "run").exists()
