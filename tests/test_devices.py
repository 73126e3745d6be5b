"""Devices: what is there, and what would kill the process."""

import subprocess
import sys

import pytest
import torch

from polyhead import devices
from polyhead.errors import ConfigError, MissingError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_the_fastest_device_is_chosen(monkeypatch, cuda, mps, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert devices.choose("auto").type == chosen
    assert devices.choose("cpu") == CPU


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"device = '{name}': this machine has none; use auto"):
        devices.choose(name)


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="device = 'gpu': choose one of auto, cuda, mps, cpu"):
        devices.choose("gpu")


@pytest.mark.parametrize(
    ("probe", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "killed by SIGILL"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("raise SystemExit(3)", "exit code 3"),
    ],
)
def test_a_processor_on_which_bf16_crashes_is_found_out(monkeypatch, probe, told):
    monkeypatch.setattr(devices, "BF16_PROBE", probe)
    with pytest.raises(MissingError) as caught:
        devices.check_bf16(CPU)
    assert str(caught.value) == (
        f"train.bf16 = true: a matrix product in bf16 fails on this processor ({told}); "
        "train with bf16 = false"
    )


def test_a_processor_on_which_it_works_is_not_refused(monkeypatch):
    monkeypatch.setattr(devices, "BF16_PROBE", "pass")
    devices.check_bf16(CPU)


def test_other_devices_are_not_probed(monkeypatch):
    monkeypatch.setattr(subprocess, "run", None)
    devices.check_bf16(torch.device("cuda"))


def test_the_probe_is_a_product_in_bf16():
    """What it asks of the processor must be what training asks of it."""
    compile(devices.BF16_PROBE, "probe", "exec")
    assert "bfloat16" in devices.BF16_PROBE
    assert "linear" in devices.BF16_PROBE


def test_memory_is_kept_only_where_glibc_is(monkeypatch):
    monkeypatch.setattr(devices.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(devices.ctypes, "CDLL", None)
    devices.keep_freed_memory()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_glibc_accepts_the_settings(monkeypatch):
    answers = []
    load = devices.ctypes.CDLL

    class Watched:
        def __init__(self, name):
            self.libc = load(name)

        def mallopt(self, *words):
            answers.append(self.libc.mallopt(*words))

    monkeypatch.setattr(devices.ctypes, "CDLL", Watched)
    devices.keep_freed_memory()
    assert set(answers) <= {1}


def test_the_gain_is_the_ratio_of_the_best_rounds(monkeypatch):
    moments = iter([0, 4, 10, 16, 20, 23, 30, 31])  # float32: 4 and 6 seconds; bf16: 3 and 1
    monkeypatch.setattr(devices.time, "perf_counter", lambda: next(moments))
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *_: None)
    assert devices.bf16_gain(size=1, rounds=2) == 4.0
