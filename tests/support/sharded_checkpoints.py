"""Restores and saves checkpoints of a sharded model; `torchrun` starts it as a script.

    sharded_checkpoints.py FOLDER STEP

Without a checkpoint of an earlier step the model is trained for two updates.
"""

import math
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from sharded_families import CONFIGS, CPU, SEEDS, make_batch
from small_models import make

from polyhead.checkpoint import train_state
from polyhead.checkpoint.atomic_dir import list_checkpoints
from polyhead.checkpoint.model_dir import SavedModel, first_not_finite, load_weights
from polyhead.training.callbacks import Callback
from polyhead.training.loop import Progress, TrainConfig, accumulate_sharded
from polyhead.training.optim import OptimizerConfig, build_optimizer
from polyhead.training.processes import join_processes
from polyhead.training.run_dir import RunCheckpoints, RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.sharding import local_part, shard, share_of


def forbidden(*_arguments, **_options):
    raise AssertionError("pickled files must not be read or written")


def train(trained, optimizer, processes):
    """Make two updates."""
    batch, objective = make_batch("translation", 7)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    for _ in range(2):
        seeds = SEEDS[: 4 // processes.world]
        batches = [batch] * len(seeds)
        accumulate_sharded(trained, objective, batches, TrainConfig(), seeds)
        optimizer.step()
        optimizer.zero_grad()


def check(checkpoint, model, optimizer):
    """Assert that weights and moments have the bits of the files."""
    stored = load_file(checkpoint / "model.safetensors")
    for name, weight in model.named_parameters():
        assert torch.equal(weight.full_tensor(), stored[name]), name
    parts = [load_file(path) for path in sorted(checkpoint.glob("training-*.safetensors"))]
    for name, moment in train_state.moments_of(model, optimizer).items():
        if moment.dim():
            whole = torch.cat([part[name] for part in parts])
            assert torch.equal(moment.full_tensor(), whole), name
            own = moment.to_local()
            assert own.untyped_storage().nbytes() == own.nbytes, name


def main(folder, step):
    torch.load = torch.save = forbidden
    with join_processes() as processes:
        config = CONFIGS["transformer"]
        torch.manual_seed(step)
        model = make(config)
        trained = shard(model, CPU, processes)
        optimizer = build_optimizer(model, OptimizerConfig())
        earlier = list_checkpoints(folder / "checkpoints")
        if earlier:
            load_weights(earlier[-1][1], model, share_of)
            train_state.restore_state(earlier[-1][1], model, optimizer, share_of)
            check(earlier[-1][1], model, optimizer)
        else:
            train(trained, optimizer, processes)
        run_dir = RunDir(folder)
        run_dir.check_in_place = lambda: None  # without a lock
        log = RunLog(folder, Callback())
        saved = SavedModel("transformer", config, model, None, {"run": {}, "step": step})
        RunCheckpoints(run_dir, log, keep=9).save(
            saved, optimizer, {"progress": {}}, Progress(step), processes
        )
        assert first_not_finite(model) is None
        name, weight = list(model.named_parameters())[-1]
        if processes.rank == 1:
            local_part(weight.data).fill_(math.nan)
        assert name in processes.gather(first_not_finite(model))
        del trained, optimizer, saved, model  # they refer to the processes
        print("saved", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
