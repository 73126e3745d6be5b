"""Sharded models: the losses and gradients of whole ones, and checkpoints for any number."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from expected_errors import raises
from process_runs import ENVIRONMENT, SETTINGS, command, ranks, train, wait_for
from small_models import EXPERTS, RECURRENT, make
from tiny import write_corpus

from polyhead.checkpoint.atomic_dir import verify
from polyhead.checkpoint.model_dir import load_model
from polyhead.checkpoint.train_state import part_name, restore_state, write_state
from polyhead.errors import CheckpointError, ConfigError
from polyhead.pipelines.load import load
from polyhead.tasks.reward import RewardConfig
from polyhead.training.config import read_run
from polyhead.training.loop import TrainConfig, accumulate_sharded
from polyhead.training.processes import Processes, is_lost_connection
from polyhead.training.sharding import check_shards, local_part
from polyhead.training.trainer import train as train_here

SUPPORT = Path(__file__).parents[1] / "support"
SHARDED = "train.shard=true"


def torchrun(n_processes, script, *words):
    paths = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(SUPPORT)])
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    done = subprocess.run(
        [*start, str(n_processes), str(SUPPORT / script), *map(str, words)],
        env=ENVIRONMENT | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_losses_gradients_and_outputs_of_all_families_are_those_of_whole_models():
    lines = torchrun(2, "sharded_families.py").splitlines()
    assert {"equal: transformer", "equal: reformer", "equal: electra", "equal: vit"} <= {*lines}


def test_checkpoints_have_the_same_bits_after_two_four_and_two_processes(tmp_path):
    for step, n_processes in enumerate((2, 4, 2)):
        assert torchrun(n_processes, "sharded_checkpoints.py", tmp_path, step).count("saved") > 1
    folders = sorted((tmp_path / "checkpoints").iterdir())
    states = []
    for folder, n_processes in zip(folders, (2, 4, 2), strict=True):
        names = {path.name for path in folder.iterdir()}
        assert {part_name(n, n_processes) for n in range(n_processes)} <= names
        assert verify(folder).keys() == names - {"manifest.json"}
        for path in folder.iterdir():  # a pickle starts with 80, an archive of torch with PK
            assert not path.read_bytes().startswith((b"\x80", b"PK")), path
        model = load_model(folder).model
        optimizer = torch.optim.Adam(model.parameters())
        restore_state(folder, model, optimizer)
        states.append([t for state in optimizer.state.values() for t in state.values()])
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1] == weights[2]
    assert len(states[0]) == 3 * len(list(model.parameters()))
    for others in states[1:]:
        assert all(map(torch.equal, states[0], others))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def losses(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    return torch.tensor([line["loss"] for line in lines if "loss" in line], dtype=torch.float64)


def test_a_sharded_run_killed_and_resumed_on_2_4_and_1_processes_has_the_losses_of_one(
    corpus, tmp_path
):
    """The model directories that it leaves are ordinary ones."""
    run, alone = tmp_path / "run", tmp_path / "alone"
    train_here(read_run("small", SETTINGS, corpus), alone)
    with subprocess.Popen(
        command(corpus, run, 2, SHARDED), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for((run / "checkpoints" / "step-00000004").exists)
        os.kill(ranks(process.pid)[1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode != 0
    assert "Traceback" not in stderr
    assert "train.exact does not apply" in stderr
    done = train(corpus, run, 4, SHARDED)
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    assert "train.exact does not apply" in done.stderr
    torch.testing.assert_close(losses(run), losses(alone), rtol=1e-5, atol=0)
    translator = load(run / "best")
    assert len(translator.translate(["안녕하세요.", "네."])) == 2
    longer = read_run("small", (*SETTINGS, SHARDED, "train.steps=13"), corpus)
    assert train_here(longer, run, accept_changes=True).step == 13
    log = (run / "train.log").read_text()
    assert "resuming from step 12" in log
    assert "train.shard has no effect" in log


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (make(EXPERTS["moe"]), TrainConfig()),
        (make(RECURRENT["rnn"]), TrainConfig(compile=True)),
        (make(RECURRENT["rnn"]), TrainConfig(reward=RewardConfig(samples=2))),
    ],
)
def test_what_cannot_be_sharded_is_refused(model, options):
    with raises(ConfigError, "no_sharding"):
        check_shards(model, options)
    check_shards(make(RECURRENT["rnn"]), TrainConfig())


def test_missing_parts_of_the_moments_are_found(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    write_state(tmp_path, model, optimizer, {"progress": {}})
    (tmp_path / part_name(0, 1)).rename(tmp_path / part_name(1, 2))
    with raises(CheckpointError, "damaged_state"):
        restore_state(tmp_path, model, optimizer)


class Exhausted(torch.nn.Module):
    """A model that needs more memory than there is."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.calls = 0

    def set_requires_gradient_sync(self, _is_last):
        pass

    def forward(self, _function):
        self.calls += 1
        raise torch.OutOfMemoryError("out of memory")


def test_a_sharded_batch_is_not_repeated_when_memory_runs_out():
    """The other processes would not take part."""
    model = Exhausted()
    with pytest.raises(torch.OutOfMemoryError):
        accumulate_sharded(model, lambda _model, _batch: None, [None], TrainConfig(), [1])
    assert model.calls == 1


@pytest.mark.parametrize("n_items", [0, 1, 4, 5, 7])
def test_processes_of_a_sharded_model_compute_equally_many_items(n_items):
    counts = []
    for rank in range(4):
        processes = Processes()
        processes.rank, processes.world, processes.in_step = rank, 4, True
        processes._gather_or_fail = lambda own, _: [
            [f"{r} {i}" for i in range(len(own))] for r in range(4)
        ]
        computed = []
        found = processes.map(computed.append, list(range(n_items)))
        assert found == [f"{i % 4} {i // 4}" for i in range(n_items)]
        counts.append(len(computed))
        together = processes.map(str, list(range(n_items)), decoding=True)
        assert together == [str(i) for i in range(n_items)]
    assert len(set(counts)) == 1


def test_a_lost_connection_is_not_confused_with_other_errors():
    assert is_lost_connection(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed"))
    assert not is_lost_connection(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_tensor_that_is_not_shared_is_its_own_part():
    tensor = torch.zeros(3)
    assert local_part(tensor) is tensor
