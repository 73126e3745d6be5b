"""Several processes: the same bits as one, agreed decisions, and no deadlock."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from expected_errors import raises
from process_runs import (
    ENVIRONMENT,
    children,
    command,
    is_training,
    open_addresses,
    ranks,
    train,
    wait_for,
)
from tiny import write_corpus

from polyhead.errors import ConfigError
from polyhead.training import processes as launcher
from polyhead.training.processes import Processes, Summed, fold, launch, left_size

LOOPBACK = "0100007F"  # 127.0.0.1 in /proc/net/tcp
FILES = ("model.safetensors", "training.safetensors", "config.json")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), n=160)


def state(run):
    """Return everything that must not depend on the number of processes."""
    last = run / "last"
    numbers = json.loads((last / "training.json").read_text())
    del numbers["progress"]["seconds"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    for line in lines:
        line.pop("seconds", None), line.pop("tokens_per_second", None)
    samples = {path.name: path.read_text() for path in run.glob("samples/*")}
    return [(last / name).read_bytes() for name in FILES], numbers, lines, samples


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    done = train(corpus, run, 1)
    assert done.returncode == 0, done.stderr
    return state(run)


@pytest.mark.parametrize("n_processes", [2, 4])
def test_the_result_has_the_same_bits_on_several_processes(corpus, tmp_path, alone, n_processes):
    done = train(corpus, tmp_path / "run", n_processes)
    assert done.returncode == 0, done.stderr
    assert state(tmp_path / "run") == alone
    assert len(re.findall("Finished at step 12", done.stderr)) == 1


def test_two_agents_of_torchrun_give_the_same_bits(corpus, tmp_path, alone):
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    agent = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
             "--rdzv-backend", "c10d", "--rdzv-endpoint", place, "--rdzv-id", "test",
             "--local-addr", "127.0.0.1", "-m", "--"]  # fmt: skip
    words = command(corpus, tmp_path / "run", 1)[2:-2]  # without python -m and --processes
    agents = [subprocess.Popen([sys.executable, *agent, *words], env=ENVIRONMENT) for _ in "ab"]
    try:
        assert [one.wait(timeout=300) for one in agents] == [0, 0]
    finally:
        for one in agents:
            one.kill()
    assert state(tmp_path / "run") == alone


def test_a_run_killed_and_resumed_with_other_numbers_of_processes_ends_equal(
    corpus, tmp_path, alone
):
    """One process, then two, then four; the first two are killed after a checkpoint."""
    run = tmp_path / "run"
    for n_processes, step in ((1, 4), (2, 8)):
        words = command(corpus, run, n_processes)
        with subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
            wait_for((run / "checkpoints" / f"step-{step:08d}").exists)
            victims = ranks(process.pid) or {0: process.pid}
            os.kill(victims[max(victims)], signal.SIGKILL)
            assert process.wait(120) != 0
    done = train(corpus, run, 4)
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    assert state(run) == alone


def test_a_signal_to_one_process_saves_and_ends_all(corpus, tmp_path):
    run = tmp_path / "run"
    words = command(corpus, run, 2, "train.steps=100000", "train.save_every=100000")
    with subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: is_training(run))
        os.kill(ranks(process.pid)[1], signal.SIGTERM)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGTERM, stderr
    assert len(re.findall("Saved at step", stderr)) == 1
    saved = json.loads((run / "last" / "training.json").read_text())["progress"]["step"]
    assert saved > 0
    assert f"Saved at step {saved:,}" in stderr


@pytest.mark.parametrize("shard", [False, True])
def test_a_run_opens_ports_on_the_loopback_interface_only(corpus, tmp_path, shard):
    """Ctrl-C at the launcher reaches all processes, and nothing is left behind."""
    run = tmp_path / "run"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = command(
        corpus, run, 2, "train.steps=100000", "train.save_every=100000",
        f"train.shard={str(shard).lower()}",
    )  # fmt: skip
    other = max((name != "lo", name) for _, name in socket.if_nameindex())[1]
    environment = {**ENVIRONMENT, "TMPDIR": str(temporary), "GLOO_SOCKET_IFNAME": other}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: is_training(run))
        started = [process.pid, *children(process.pid)]
        for pid in started[1:]:
            started += children(pid)
        places = {pid: open_addresses(pid) for pid in started}
        (folder,) = temporary.glob("polyhead-*")
        assert folder.stat().st_mode & 0o777 == 0o700  # others cannot open the store
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert places[process.pid] == set()
    assert set().union(*places.values()) == {LOOPBACK}
    assert process.returncode == 130
    assert len(re.findall("Saved at step", stderr)) == 1
    assert list(temporary.glob("polyhead-*")) == []


def test_starting_processes_changes_nothing_in_this_one(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ), signal.getsignal(signal.SIGTERM)
    assert launch(["--version"], 2) == 0
    assert launch(["--unknown"], 2) == 2
    assert (dict(os.environ), signal.getsignal(signal.SIGTERM)) == before


def test_all_processes_save_and_end_when_the_launcher_is_killed(corpus, tmp_path):
    run = tmp_path / "run"
    words = command(corpus, run, 2, "train.steps=100000", "train.save_every=100000")
    with subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: is_training(run))
        started = ranks(process.pid).values()
        process.kill()
        try:
            _, stderr = process.communicate(timeout=60)  # ends with the last process
        finally:
            for pid in started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert "Saved at step" in stderr
    assert json.loads((run / "last" / "training.json").read_text())["progress"]["step"] > 0


def test_a_process_that_cannot_save_ends_when_the_launcher_has_ended():
    program = (
        "import signal, threading, time; from polyhead.training import processes as x"
        "; x.GRACE = 0.1; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        "; threading.Thread(target=x.end_with_launcher, daemon=True).start(); time.sleep(60)"
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, env=ENVIRONMENT, stdin=subprocess.PIPE) as process:
        process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(("first", "second"), [(143, 143), (1, -signal.SIGTERM)])
def test_a_process_that_saves_after_a_signal_is_not_ended(monkeypatch, first, second):
    monkeypatch.setattr(launcher, "NOTICE", 0.1)
    programs = [f"import os; os._exit({first})", "import sys, time; time.sleep(2); sys.exit(143)"]
    workers = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    assert launcher.wait(workers) == first
    launcher.end(workers)
    assert [worker.returncode for worker in workers] == [first, second]


def test_a_process_that_hangs_ends_the_run_with_an_error(corpus, tmp_path):
    run = tmp_path / "run"
    words = command(corpus, run, 2, "train.steps=100000", "train.timeout=5")
    with subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: is_training(run))
        stopped = ranks(process.pid)[1]
        os.kill(stopped, signal.SIGSTOP)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "process 0: another process of this run ended, or did not answer" in line:
                os.kill(stopped, signal.SIGKILL)  # else torch waits half a minute for its end
        assert process.wait(120) in (1, 128 + signal.SIGKILL)  # of the first that ended
    assert "Traceback" not in "".join(lines)
    assert "did not answer" in "".join(lines)


def test_an_error_of_the_first_process_is_one_line(corpus, tmp_path):
    files = {**corpus, "source": [str(tmp_path / "missing.ko")]}
    done = train(files, tmp_path / "run", 2)
    assert done.returncode == 4
    assert len(re.findall("^polyhead: ", done.stderr, re.MULTILINE)) == 1
    assert "Traceback" not in done.stderr


def test_updates_that_cannot_be_shared_are_refused():
    with raises(ConfigError, "indivisible_update"):
        check(3, 4, exact=False)
    with raises(ConfigError, "inexact_processes"):
        check(3, 6, exact=True)
    check(3, 6, exact=False)
    check(4, 12, exact=True)


def check(world, accumulate, *, exact):
    processes = Processes()
    processes.world = world
    processes.check(accumulate, exact=exact)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
@pytest.mark.parametrize("factor", [1, 2, 3, 5])
def test_the_shares_of_all_processes_are_subtrees(world, factor):
    """The sum of the sums of the shares has the brackets of the sum of all."""
    numbers = np.random.default_rng(world * factor).normal(size=world * factor).tolist()

    def brackets(leaves):
        if len(leaves) == 1:
            return leaves[0]
        middle = left_size(len(leaves))
        return (brackets(leaves[:middle]), brackets(leaves[middle:]))

    shares = []
    for rank in range(world):
        processes = Processes()
        processes.rank, processes.world = rank, world
        shares.append([numbers[i] for i in processes.share_of(len(numbers))])
    assert brackets([brackets(share) for share in shares]) == brackets(numbers)
    assert fold([fold(share) for share in shares]) == fold(numbers)


def test_one_process_needs_no_communication():
    processes = Processes()
    summed = Summed(1.5, 2, 1, 7)
    assert processes.add_up([], summed) == summed
    assert processes.map(lambda x: x + 1, [1, 2, 3]) == [2, 3, 4]
    assert processes.first(lambda: 5) == 5
    assert processes.gather("x") == ["x"]
    processes.signal = 15
    assert processes.agreed_signal == 15


SUMS = """
import sys
import torch
from polyhead.training.processes import Summed, join_processes
with join_processes() as processes:
    torch.manual_seed(processes.rank)
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (1000, 1, 37)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    if processes.rank:
        parameters[1].grad = None
    unused = torch.nn.Parameter(torch.zeros(3))
    before = [p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in parameters]
    exact = sys.argv[1] == "exact"
    processes.signal = 10 * processes.rank
    summed = processes.add_up([*parameters, unused], Summed(0.5, 1, 2, 3), exact=exact)
    assert unused.grad is None
    assert summed == Summed(2.0, 4, 8, 12), summed
    assert processes.agreed_signal == 30
    everyone = processes.gather([p.tolist() for p in before])
    for i, parameter in enumerate(parameters):
        a, b, c, d = (torch.tensor(part[i]) for part in everyone)
        if exact:
            assert torch.equal(parameter.grad, (a + b) + (c + d))
        torch.testing.assert_close(parameter.grad, a + b + c + d)
    items = list(range(11))
    assert processes.map(lambda x: [x, processes.rank], items) == [[x, x % 4] for x in items]
    assert processes.from_first(processes.rank + 3) == 3
    print("equal")
"""


@pytest.mark.parametrize("kind", ["exact", "plain"])
def test_gradients_are_summed_in_the_order_of_the_tree(tmp_path, kind):
    script = tmp_path / "sums.py"
    script.write_text(SUMS)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    done = subprocess.run(
        [*words, str(script), kind], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal") == 4
