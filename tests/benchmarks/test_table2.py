"""The script for the record: it asks what the commands ask, and writes down what they print."""

import random

import table2


def test_the_table_goes_to_the_results(tmp_path, monkeypatch, capsys):
    dice = random.Random(0)
    (tmp_path / "g2p-ko").mkdir()
    for name, n in (("train", 40), ("dev", 4), ("test", 3)):
        words = ["".join(dice.choices("가나다라마각난달", k=dice.randint(1, 4))) for _ in range(n)]
        rows = "".join(f"{word}\t{' '.join(word)}\n" for word in words)
        (tmp_path / "g2p-ko" / f"{name}.tsv").write_text(rows, encoding="utf-8")
    monkeypatch.setenv("POLYHEAD_DATA", str(tmp_path))
    results = tmp_path / "RESULTS.md"
    monkeypatch.setattr(table2.measuring, "RESULTS", results)
    words = ["g2p", "--steps", "4", "--systems", "gru", "--run", str(tmp_path / "run"),
             "--record", "model.d_model=8", "train.bleu_sentences=1",
             "train.device=cpu"]  # fmt: skip
    assert table2.main(words) == 0
    text = results.read_text(encoding="utf-8")
    assert "## Table 2 on Korean pronunciations" in text
    assert "| **GRU, context everywhere, 1 layer of 8 (Cho et al. 2014)** |" in text
    assert "WER, greedy" in text
    assert "test.tsv, 3 lines" in text
    assert "| **GRU, context everywhere" in capsys.readouterr().out
