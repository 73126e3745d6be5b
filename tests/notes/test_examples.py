"""The worked examples of the notes run and print what they show."""

import doctest

import pytest

from polyhead.layers.attention import Mask
from polyhead.notes import examples
from polyhead.training import optim as schedule

NAMED = {  # and the numbers that each must print
    "residual": ["[ 3., -1.]"],
    "weighted sum": ["[0.7000, 0.2000, 0.1000]", "[0.9000, 0.7000]"],
    "causal softmax": ["0.3333, 0.3333, 0.3333, 0.0000", "[0.1250, 0.1250"],
    "binary positions": ["[1.0000, 1.4142, 1.0000]"],
    "one-hot": ["True"],
    "eight heads": ["(torch.Size([1, 8, 5, 64]), True)"],
    "variance of q·k": ["4: 1.0", "64: 1.0", "512: 1.0", "1.0 after it"],
    "warm-up": ["1.74693e-07", "6.98771e-04", "1.39754e-04"],
    "teacher forcing": ["1.0 False", "0.0 True"],
}


def found():
    tests = doctest.DocTestFinder(exclude_empty=True).find(examples)
    return {test.name.partition("__test__.")[2]: test for test in tests if test.examples}


def failures(name):
    return doctest.DocTestRunner(verbose=False).run(found()[name], out=lambda _: None).failed


def test_no_example_of_the_notes_is_missing():
    assert set(found()) == set(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_an_example_prints_its_output(name):
    assert failures(name) == 0
    printed = "".join(example.want for example in found()[name].examples)
    for numbers in NAMED[name]:
        assert numbers in printed


def test_an_example_fails_when_the_library_is_wrong(monkeypatch):
    monkeypatch.setattr(schedule, "noam", lambda step, d_model, warmup: warmup / d_model / step)
    monkeypatch.setattr(Mask, "dense", lambda *_: None)
    assert failures("warm-up") == 1
    assert failures("causal softmax") == 1
