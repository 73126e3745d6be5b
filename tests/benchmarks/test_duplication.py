"""The duplication task: what is to be copied, where it counts, and that hashing learns it."""

import duplication
import torch


def test_a_sequence_is_0_w_0_w():
    task = duplication.Task(length=20, symbols=6)
    found = task.sequences(50, torch.Generator().manual_seed(1))
    assert found.shape == (50, 20)
    assert torch.equal(found[:, :10], found[:, 10:])
    assert (found[:, 0] == 0).all()
    assert set(found[:, 1:10].flatten().tolist()) == {1, 2, 3, 4, 5}


def test_hashing_learns_to_copy():
    task = duplication.Task(
        length=16, symbols=8, chunk=4, d_model=32, n_heads=2, batch=32, steps=150, rate=1e-2
    )
    model = task.model(2)
    duplication.train(model, task)
    accuracy = [duplication.judge(model, task, rounds) for rounds in (1, 8)]
    assert accuracy[1] > 0.9
    assert accuracy[1] >= accuracy[0]


def test_the_script_prints_a_table(capsys):
    assert duplication.main(["--quick", "--trained", "0", "1", "--judged", "1", "2"]) == 0
    printed = capsys.readouterr().out
    assert "| trained with | judged with 1 | judged with 2 | seconds |" in printed
    assert printed.count("| dense |") == printed.count("| LSH-1 |") == 1
