"""The worked examples of the notes run and print what they show."""

import doctest
from importlib.resources import files

import pytest

from polyhead.layers.attention import Mask
from polyhead.training import optim as schedule

TEXT = files("polyhead.notes").joinpath("examples.md").read_text(encoding="utf-8")
SECTIONS = dict(section.split("\n", 1) for section in TEXT.split("\n## ")[1:])
NUMBERS = {  # that each example must print
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


def example(name):
    return doctest.DocTestParser().get_doctest(SECTIONS[name], {}, name, None, None)


def failures(name):
    return doctest.DocTestRunner(verbose=False).run(example(name), out=lambda _: None).failed


def test_no_example_of_the_notes_is_missing():
    assert set(SECTIONS) == set(NUMBERS)


@pytest.mark.parametrize("name", NUMBERS)
def test_an_example_prints_its_output(name):
    assert failures(name) == 0
    printed = "".join(line.want for line in example(name).examples)
    for numbers in NUMBERS[name]:
        assert numbers in printed


def test_an_example_fails_when_the_library_is_wrong(monkeypatch):
    monkeypatch.setattr(schedule, "noam", lambda step, d_model, warmup: warmup / d_model / step)
    monkeypatch.setattr(Mask, "dense", lambda *_: None)
    assert failures("warm-up") == 1
    assert failures("causal softmax") == 1
