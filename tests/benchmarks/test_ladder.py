"""The comparison by distance: its task, its counting and its pictures."""

import xml.etree.ElementTree as ET

import ladder
import torch

from polyhead.special_tokens import BOS, EOS


def test_the_task_is_to_write_different_letters_backwards():
    task = ladder.QUICK
    batches = task.sequences(1)
    lengths = set()
    for source, target, labels in (next(batches) for _ in range(20)):
        lengths.add(source.size(1) - 1)
        assert torch.equal(labels[:, :-1], source[:, :-1].flip(1))
        assert (source[:, -1] == EOS).all()
        assert (target[:, 0] == BOS).all()
        assert all(len(set(row.tolist())) == source.size(1) for row in source)
    assert lengths == {3, 4, 5, 6}


def test_a_quick_run_prints_both_tables_and_draws(tmp_path, capsys):
    picture = tmp_path / "ladder.svg"
    assert ladder.main(["--quick", "--picture", str(picture)]) == 0
    printed = capsys.readouterr().out
    for name in (*ladder.RUNGS.values(), "Transformer"):
        assert f"| {name} |" in printed
        assert name in picture.read_text(encoding="utf-8")
    assert "| Transformer, untrained | 1 |" in printed
    tree = ET.fromstring(picture.read_text(encoding="utf-8"))
    assert len(tree.findall(".//{*}polyline")) == 6 + 6
