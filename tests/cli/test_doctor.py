"""`polyhead doctor` says what pays on this machine."""

import pytest

from polyhead.cli import doctor
from polyhead.errors import MissingError


def refuse(_):
    raise MissingError("no")


@pytest.mark.parametrize(("gain", "advice"), [(2.2, "saves time"), (0.5, "saves none")])
def test_it_advises_bf16_where_the_processor_gains_by_it(monkeypatch, capsys, gain, advice):
    monkeypatch.setattr(doctor, "check_bf16", lambda _: None)
    monkeypatch.setattr(doctor, "bf16_gain", lambda: gain)
    doctor.examine()
    told = f"works; products are {gain} times as fast as in float32: train.bf16 = true {advice}"
    assert f"bf16         {told}\n" in capsys.readouterr().out


def test_where_bf16_crashes_nothing_is_timed(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "check_bf16", refuse)
    monkeypatch.setattr(doctor, "bf16_gain", None)
    doctor.examine()
    assert "crashes on this processor; keep train.bf16 = false" in capsys.readouterr().out
