"""Devices: the choice of one, and the test for bf16."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from expected_errors import raises

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


@pytest.mark.parametrize(
    ("name", "code"), [("cuda", "no_device"), ("mps", "no_device"), ("gpu", "unknown_device")]
)
def test_missing_and_unknown_devices_are_refused(monkeypatch, name, code):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with raises(ConfigError, code, f"device = '{name}'"):
        devices.choose(name)


@pytest.mark.parametrize(
    ("probe", "description"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "killed by SIGILL"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("raise SystemExit(3)", "exit code 3"),
    ],
)
def test_bf16_is_refused_where_it_crashes(monkeypatch, probe, description):
    monkeypatch.setattr(devices, "BF16_PROBE", probe)
    with raises(MissingError, "no_bf16", description):
        devices.check_bf16(CPU)


def test_bf16_is_accepted_where_it_works_and_not_probed_on_other_devices(monkeypatch):
    monkeypatch.setattr(devices, "BF16_PROBE", "pass")
    devices.check_bf16(CPU)
    monkeypatch.setattr(subprocess, "run", None)
    devices.check_bf16(torch.device("cuda"))


def test_memory_is_kept_only_with_glibc(monkeypatch):
    monkeypatch.setattr(devices.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(devices.ctypes, "CDLL", None)
    devices.keep_freed_memory()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_glibc_accepts_the_settings(monkeypatch):
    answers = []
    load = devices.ctypes.CDLL

    class RecordingLibrary:
        def __init__(self, name):
            self.libc = load(name)

        def mallopt(self, *arguments):
            answers.append(self.libc.mallopt(*arguments))

    monkeypatch.setattr(devices.ctypes, "CDLL", RecordingLibrary)
    devices.keep_freed_memory()
    assert set(answers) <= {1}


def test_the_bf16_gain_is_the_ratio_of_the_fastest_rounds(monkeypatch):
    moments = iter([0, 4, 10, 16, 20, 23, 30, 31])  # float32: 4 and 6 seconds; bf16: 3 and 1
    monkeypatch.setattr(devices.time, "perf_counter", lambda: next(moments))
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *_: None)
    assert devices.bf16_gain(size=1, rounds=2) == 4.0


@pytest.mark.parametrize(("given", "expected"), [({}, "3000"), ({"GOMP_SPINCOUNT": "77"}, "77")])
def test_waiting_threads_sleep_soon_unless_the_user_chose(given, expected):
    """The value that torch's OpenMP has read."""
    library = Path(torch.__file__).parent / "lib" / "libgomp.so.1"
    if not library.exists():
        pytest.skip("torch was built with another OpenMP")
    code = f"import ctypes, polyhead; ctypes.CDLL({str(library)!r})"
    kept = {n: v for n, v in os.environ.items() if n not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment = kept | given | {"OMP_DISPLAY_ENV": "verbose"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert f"GOMP_SPINCOUNT = '{expected}'" in done.stderr
