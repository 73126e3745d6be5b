"""Training when the machine fails: lost directories, other machines, signals to real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from expected_errors import raises
from reporters import Crash, Recorder, stop_at
from tiny import SMALL, write_corpus

from polyhead import devices
from polyhead.checkpoint.atomic_dir import list_checkpoints, verify
from polyhead.errors import PolyheadError
from polyhead.training import run_dir
from polyhead.training.config import read_run
from polyhead.training.trainer import train

TINY = (*SMALL, "train.bleu_sentences=0", "train.steps=6", "train.save_every=2")


@pytest.fixture
def files(tmp_path):
    return write_corpus(tmp_path, n=60)


@pytest.fixture
def config(files):
    return read_run("small", TINY, files)


@pytest.mark.parametrize("every", [1, 100])  # the log or a checkpoint is the first to be written
@pytest.mark.parametrize("moved", [True, False])
def test_a_run_that_is_moved_or_deleted_ends_in_one_line(files, tmp_path, moved, every):
    config = read_run("small", (*TINY, f"train.log_every={every}"), files)
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def lose():
        run.rename(elsewhere)
        if not moved:
            shutil.rmtree(elsewhere)

    with raises(PolyheadError, "run_moved", str(run)) as caught:
        train(config, run, callbacks=[Recorder(3, lose)])
    assert (caught.value.exit_code, str(caught.value).count("\n")) == (1, 0)
    assert not run.exists()
    if moved:
        verify(elsewhere / "last")
        elsewhere.rename(run)
    assert train(config, run).step == 6


def test_a_full_disk_at_the_lock_is_an_error(config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to("/dev/full")
    with raises(PolyheadError, "io", ".lock"):
        train(config, tmp_path / "run")


def test_a_finished_run_is_tidied_if_it_was_killed_before(config, tmp_path, monkeypatch):
    remove = run_dir.remove_old_checkpoints

    def crash_at_the_end(directory, current, **options):
        if current.name == "step-00000006":
            raise Crash
        remove(directory, current, **options)

    monkeypatch.setattr(run_dir, "remove_old_checkpoints", crash_at_the_end)
    with pytest.raises(Crash):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / ".tmp-99-abcd").mkdir()
    assert len(list_checkpoints(checkpoints)) == 4
    recorder = Recorder()
    train(config, tmp_path / "run", callbacks=[recorder])
    assert recorder.matching("training already complete")
    assert [path.name for path in sorted(checkpoints.iterdir())] == [
        "step-00000002", "step-00000004", "step-00000006"
    ]  # fmt: skip


def test_the_environment_is_saved_and_a_change_is_reported(config, tmp_path, monkeypatch):
    run, recorder = tmp_path / "run", Recorder()
    train(config, run, callbacks=[stop_at(2)])
    saved = json.loads((run / "last" / "training.json").read_text())["environment"]
    assert saved == {
        "torch": torch.__version__, "device": "cpu", "processor": devices.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    train(config, run, callbacks=[stop_at(4)])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    train(config, run, callbacks=[recorder])
    (notice,) = recorder.matching("bits")
    assert f"(threads: {saved['threads']} → 77)" in notice
    finished = Recorder()
    monkeypatch.undo()
    train(config, run, callbacks=[finished])
    assert not finished.matching("bits")


LOOP = """
import os, signal, sys
import polyhead
from polyhead.training.callbacks import Callback
class Stop(Callback):
    def on_step(self, step):
        if step.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
for seed in (1, 2):
    run = f"{sys.argv[1]}/{seed}"
    changes = [*sys.argv[4:], f"train.seed={seed}"]
    polyhead.train(source=sys.argv[2], target=sys.argv[3], run=run, overrides=changes,
                   callbacks=[Stop()])
"""


def test_ctrl_c_ends_a_loop_over_seeds_after_saving(files, tmp_path):
    default = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    again = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"  # tests may ignore SIGINT
    arguments = [str(tmp_path), *files["source"], *files["target"], *TINY]
    done = subprocess.run(
        [sys.executable, "-c", default + again, "-c", LOOP, *arguments],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert list_checkpoints(tmp_path / "1" / "checkpoints")[-1][0] == 3
    assert not (tmp_path / "2").exists()


def test_the_command_saves_at_ctrl_c_and_ignores_the_end_of_a_terminal_under_nohup(files, tmp_path):
    run = tmp_path / "run"
    command = [
        sys.executable, "-m", "polyhead", "train", "--source", *files["source"],
        "--target", *files["target"], "--run", str(run), *TINY, "train.steps=100000",
    ]  # fmt: skip
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=ignore,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    wait_for_step(process, run, 2)
    process.send_signal(signal.SIGHUP)
    wait_for_step(process, run, 6)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130, messages
    assert "Saved at step" in messages
    verify(run / "last")


def wait_for_step(process, run, step):
    """Wait until the run has saved a checkpoint of this step or a later one."""
    while process.poll() is None:
        saved = list_checkpoints(run / "checkpoints")
        if saved and saved[-1][0] >= step:
            return
        time.sleep(0.02)
    raise AssertionError(process.stderr.read())


@pytest.mark.skipif(shutil.which("cc") is None, reason="benchmarks/faults.py needs a C compiler")
def test_failing_and_killed_operations_on_files_leave_whole_runs_and_models():
    """`python benchmarks/faults.py` tries every operation of every command."""
    script = Path(__file__).parents[2] / "benchmarks" / "faults.py"
    command = [sys.executable, script, "--commands", "train,average", "--stride", "71"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
