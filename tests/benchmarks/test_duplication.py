"""The duplication task: what is to be copied, where it counts, and that hashing learns it."""

from dataclasses import replace

import duplication
import pytest
import torch
from torch import nn


def test_a_sequence_is_0_w_0_w():
    task = duplication.Task(length=20, symbols=6)
    found = task.sequences(50, torch.Generator().manual_seed(1))
    assert found.shape == (50, 20)
    assert torch.equal(found[:, :10], found[:, 10:])
    assert (found[:, 0] == 0).all()
    assert set(found[:, 1:10].flatten().tolist()) == {1, 2, 3, 4, 5}


def test_a_curriculum_begins_with_short_sequences():
    task = duplication.Task(length=64, steps=100, stages=3)
    lengths = [task.length_at(step) for step in range(100)]
    assert lengths == [8] * 10 + [16] * 10 + [32] * 10 + [64] * 70
    assert {replace(task, stages=0).length_at(step) for step in range(100)} == {64}
    dice = torch.Generator().manual_seed(1)
    assert task.sequences(2, dice, 8).shape == (2, 8)


class Copyist(nn.Module):
    """Looks half the length back, and so is right about everything in the second half."""

    def __init__(self, symbols, back):
        super().__init__()
        self.back = back
        self.to_logits = nn.Linear(symbols, symbols, bias=False)
        self.to_logits.weight.data = torch.eye(symbols)

    def hidden(self, ids):
        symbols = self.to_logits.weight.size(0)
        return nn.functional.one_hot(ids.roll(self.back - 1, dims=1), symbols).float()


@pytest.mark.parametrize(("back", "right"), [(10, 1.0), (9, 0.2)])
def test_only_the_second_w_counts_and_all_of_it(monkeypatch, back, right):
    monkeypatch.setattr(duplication, "set_eval_rounds", lambda *_: None)
    task = duplication.Task(length=20, symbols=6, judged=200, batch=50)
    found = duplication.judge(Copyist(6, back), task, 1)
    assert found == pytest.approx(right, abs=0.05 if back == 9 else 0)


def test_hashing_learns_to_copy():
    task = duplication.Task(
        length=16, symbols=8, chunk=4, d_model=32, n_heads=2, batch=32, steps=150, rate=1e-2
    )
    model = task.model(2)
    duplication.train(model, task)
    accuracy = [duplication.judge(model, task, rounds) for rounds in (1, 8)]
    assert accuracy[1] > 0.9
    assert accuracy[1] >= accuracy[0]


def test_dense_is_a_chunk_as_long_as_the_sequence():
    task = replace(duplication.QUICK, length=12)
    (block,) = task.model(duplication.DENSE).stack.blocks
    assert block.self_attention.kernel.chunk == 12
    (block,) = task.model(4).stack.blocks
    assert (block.self_attention.kernel.chunk, block.self_attention.kernel.n_rounds) == (4, 4)


def test_the_script_prints_a_table(capsys):
    assert duplication.main(["--quick", "--trained", "0", "1", "--judged", "1", "2"]) == 0
    printed = capsys.readouterr().out
    assert "| trained with | judged with 1 | judged with 2 | seconds |" in printed
    assert printed.count("| dense |") == printed.count("| LSH-1 |") == 1
