"""The cost model of several processes, and the words of its table."""

import parallel


def test_the_estimates_are_the_formula_of_the_docstring():
    """0.1 s for a batch, 10 MB, 1 Gbit/s: 8 processes send 17.5 MB, in 140 ms and 0.6 ms."""
    _, _, first, *_ = parallel.estimates(compute=0.1, n_bytes=10**7)
    assert first.split("|")[1:3] == [" 8 ", f" {8 * 0.1 / (0.1 + 0.14 + 0.0006):.1f} "]


def test_a_worker_trains_and_answers(capsys, monkeypatch):
    lines = iter(["train\n", "weights\n", "exchange\n", ""])
    monkeypatch.setattr(parallel, "read_word", lambda _: next(lines).strip())
    parallel.work_on_demand(parallel.REFERENCE, steps=1)
    tokens, weights, seconds = capsys.readouterr().out.split()
    assert int(tokens) > 1000
    assert len(weights) == 64
    assert float(seconds) > 0
