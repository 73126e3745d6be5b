"""`polyhead doctor` advises whether bf16 is faster on this machine."""

import pytest

from polyhead import devices
from polyhead.errors import MissingError


@pytest.mark.parametrize(("gain", "advice"), [(2.2, "train.bf16=true"), (0.5, "train.bf16=false")])
def test_bf16_is_advised_where_it_is_faster(run, monkeypatch, gain, advice):
    monkeypatch.setattr(devices, "check_bf16", lambda _: None)
    monkeypatch.setattr(devices, "bf16_gain", lambda: gain)
    (line,) = (line for line in run("doctor")[1].splitlines() if line.startswith("bf16 "))
    assert f"{gain}x" in line
    assert advice in line


def test_bf16_is_not_timed_where_it_crashes(run, monkeypatch):
    def crash(_):
        raise MissingError("no bf16", "no_bf16")

    monkeypatch.setattr(devices, "check_bf16", crash)
    monkeypatch.setattr(devices, "bf16_gain", None)
    assert "crashes on this processor; keep train.bf16=false" in run("doctor")[1]
