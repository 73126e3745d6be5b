"""The script for the record: it asks what the commands ask, and writes down what they print."""

import importlib
import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _scripts_find_each_other(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def table2():
    return importlib.import_module("table2")


def test_it_asks_for_twenty_minutes_unless_told_otherwise(table2):
    asked = table2.asked_by(table2.read_words(["multi30k"]))
    assert (asked.contest.name, asked.recipe, asked.budget.seconds) == (
        "compare",
        "multi30k-de-en",
        1200.0,
    )
    words = [
        "ladder",
        "--flops",
        "5e14",
        "--systems",
        "none,dot",
        "--seeds",
        "3",
        "model.d_model=8",
    ]
    asked = table2.asked_by(table2.read_words(words))
    assert (asked.contest.name, asked.budget.flops, asked.seeds) == ("ladder", 5e14, 3)
    assert (asked.systems, asked.changes) == (("none", "dot"), ("model.d_model=8",))
    assert table2.asked_by(table2.read_words(["g2p"])).recipe == "g2p-ko"


def test_the_table_goes_to_the_results(table2, tmp_path, monkeypatch, capsys):
    dice = random.Random(0)
    (tmp_path / "g2p-ko").mkdir()
    for name, n in (("train", 40), ("dev", 4), ("test", 3)):
        words = ["".join(dice.choices("가나다라마각난달", k=dice.randint(1, 4))) for _ in range(n)]
        rows = "".join(f"{word}\t{' '.join(word)}\n" for word in words)
        (tmp_path / "g2p-ko" / f"{name}.tsv").write_text(rows, encoding="utf-8")
    monkeypatch.setenv("POLYHEAD_DATA", str(tmp_path))
    results = tmp_path / "RESULTS.md"
    monkeypatch.setattr(table2.measuring, "RESULTS", results)
    words = ["g2p", "--flops", "1e6", "--systems", "gru", "--run", str(tmp_path / "run"),
             "--record", "model.d_model=8", "train.bleu_sentences=1",
             "train.device=cpu"]  # fmt: skip
    assert table2.main(words) == 0
    text = results.read_text(encoding="utf-8")
    assert "## Table 2 on Korean pronunciations" in text
    assert "| **GRU, context everywhere (Cho et al. 2014)** |" in text
    assert "WER, greedy" in text
    assert "test.tsv, 3 lines" in text
    assert "| **GRU, context everywhere" in capsys.readouterr().out
