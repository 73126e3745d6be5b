"""`polyhead compare --processes`: the table of one process, signals and errors."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from expected_errors import raises

from polyhead.atomic_file import write_text
from polyhead.cli.main import main
from polyhead.errors import DataError, PolyheadError, ReportedElsewhere
from polyhead.experiments.worker_pool import Interrupted, run_in_workers
from polyhead.training.callbacks import Callback
from polyhead.training.processes import Processes, handle_signals

SHORT = (
    "text.kind=words", "text.vocab=60", "decode.max_length=6", "decode.beam=2", "model.d_model=8",
    "train.bleu_sentences=2", "train.max_tokens=200", "train.device=cpu",
)  # fmt: skip
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1",
}  # fmt: skip


def wait_for(condition, seconds=120):
    latest = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < latest, "timeout"
        time.sleep(0.01)


def words(folder, run, *more):
    return [str(word) for word in (
        "compare", *SHORT, "--source", folder / "train.ko", "--target", folder / "train.en",
        "--systems", "lstm,gru", "--run", run, "--lang", "en", *more,
    )]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder, dice = tmp_path_factory.mktemp("corpus"), random.Random(1)
    lines = [dice.sample("abcdefghij", dice.randint(2, 5)) for _ in range(60)]
    for name, rows in (("train.ko", lines), ("train.en", [line[::-1] for line in lines])):
        text = "".join(f"{' '.join(row)}\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def timeless(value):
    """Leave out what depends on the speed of the machine."""
    if isinstance(value, dict):
        times = ("seconds", "sentences_per_second")
        return {name: timeless(item) for name, item in value.items() if name not in times}
    return list(map(timeless, value)) if isinstance(value, list) else value


def test_two_processes_make_the_table_of_one(corpus, tmp_path, capsys):
    tables = []
    for n_processes in ("1", "2"):
        run = tmp_path / n_processes
        command = words(corpus, run, "--steps", "4", "--processes", n_processes)
        assert main(command) == 0
        tables.append(timeless(json.loads((run / "table.json").read_text(encoding="utf-8"))))
        for name in ("lstm-1", "gru-1"):
            assert (run / "results" / f"{name}.json").exists()
    assert tables[0] == tables[1]
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.endswith(": finished")]) == 2
    assert main([*command, "--seeds", "1"]) == 0  # nothing is left to run
    assert "reading the data" not in capsys.readouterr().err


def is_training(run):
    path = run / "metrics.jsonl"
    return path.exists() and '"train"' in path.read_text()


def is_importing_torch(pid):
    """Return True if a process that was started by this one has mapped a library of torch."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any("libtorch" in Path(f"/proc/{child}/maps").read_text() for child in children)


def step_of(run):
    return json.loads((run / "last" / "training.json").read_text())["progress"]["step"]


@pytest.mark.parametrize("moment", ["training", "starting"])
def test_ctrl_c_saves_all_runs(corpus, tmp_path, moment):
    run = tmp_path / "compare"
    command = words(corpus, run, "--steps", "100000", "--processes", "2")
    with subprocess.Popen(
        [sys.executable, "-m", "polyhead", *command], env=ENVIRONMENT, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        runs = [run / "runs" / name for name in ("lstm-1", "gru-1")]
        next(line for line in process.stderr if line.startswith("[2/2]"))
        if moment == "training":
            wait_for(lambda: all(map(is_training, runs)))
        else:
            wait_for(lambda: is_importing_torch(process.pid))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stderr == "Saved. Run the same command again to resume.\n"
    if moment == "training":
        assert all(step_of(run) > 0 for run in runs)


# Jobs, which stand for trainings; a worker imports them by the name of this module.


def do(argument, lock):
    kind, folder = argument
    (folder / f"{kind}.started").write_text(str(torch.get_num_threads()))
    if kind.startswith("fails"):
        wait_for(lambda: list(folder.glob("*.trains")))
        raise DataError("the disk is broken", "broken")
    if kind.startswith("dies"):
        wait_for(lambda: list(folder.glob("*.trains")))
        os.kill(os.getpid(), signal.SIGKILL)
    if kind.startswith("trains"):
        processes = Processes()
        with handle_signals(processes):
            write_text(folder / f"{kind}.trains", str(os.getpid()))
            wait_for(lambda: processes.signal)
        with lock:
            (folder / f"{kind}.saved").touch()
        raise Interrupted(processes.signal)


class Lines(Callback):
    def __init__(self):
        self.lines = []

    def on_stage(self, text):
        self.lines.append(text)

    on_notice = on_stage


def pool(folder, *kinds, n_workers=2):
    reporter = Lines()
    arguments = {f"job {kind}": (kind, folder) for kind in kinds}
    run_in_workers(do, arguments, n_workers, 1, reporter)
    return reporter.lines


def test_every_job_is_started_once_and_reported(tmp_path):
    lines = pool(tmp_path, "a", "b", "c")
    assert sorted(lines) == sorted(f"job {n}{end}" for n in "abc" for end in ("", ": finished"))
    assert lines.index("job c") > min(lines.index(f"job {n}: finished") for n in "ab")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1"] * 3


def test_an_error_is_reported_once_and_the_others_save(tmp_path, capfd):
    with pytest.raises(ReportedElsewhere) as caught:
        pool(tmp_path, "trains", "fails", "never")
    assert caught.value.exit_code == DataError.exit_code
    assert capfd.readouterr().err == "polyhead: the disk is broken\n"
    assert (tmp_path / "trains.saved").exists()
    assert not (tmp_path / "never.started").exists()


def test_a_killed_worker_is_an_error(tmp_path):
    with raises(PolyheadError, "worker_lost", "job dies: killed by SIGKILL"):
        pool(tmp_path, "dies", "trains")
    assert (tmp_path / "trains.saved").exists()


@pytest.mark.parametrize("receiver", ["comparison", "worker"])
def test_a_signal_stops_all_after_saving(tmp_path, receiver):
    def interrupt():
        started = [tmp_path / f"trains {number}.trains" for number in (1, 2)]
        wait_for(lambda: all(path.exists() for path in started))  # a draft has another name
        worker = int(started[1].read_text())
        os.kill(worker if receiver == "worker" else os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted) as caught:
        pool(tmp_path, "trains 1", "trains 2", "never")
    thread.join()
    assert caught.value.signal == signal.SIGTERM
    assert len(list(tmp_path.glob("*.saved"))) == 2
    assert not (tmp_path / "never.started").exists()
