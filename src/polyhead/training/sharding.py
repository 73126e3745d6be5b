"""Models that do not fit one device: weights, gradients and moments shared by several processes.

    polyhead train base train.shard=true train.accumulate=4 --processes 4 …

Each of W processes keeps 1/W of the rows of every parameter, of its gradient and of its moments
(FSDP2: `torch.distributed.fsdp.fully_shard`; Rajbhandari et al. 2020, stage 3). A block's weights
are collected before it is computed, forward and backward, and then freed; its gradients are summed
while the block below it is computed. Embeddings, output layer and everything else outside of
blocks are collected for the whole update, and so are models whose blocks are not called one by one:
reversible stacks and recurrent networks.

Every process takes part in every forward pass. All must therefore compute equally many batches,
and none may repeat one (`Processes.in_step`).
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from polyhead.checkpoint.model_dir import weights_of
from polyhead.errors import ConfigError
from polyhead.layers.mixture_of_experts import has_experts
from polyhead.layers.transformer_stack import TransformerStack
from polyhead.training.loop import TrainConfig
from polyhead.training.processes import Processes
from polyhead.training.run_log import RunLog

R = TypeVar("R")


class Collected(nn.Module):
    """A model whose methods are called while the weights outside of its blocks are collected."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[nn.Module], R]) -> R:
        return function(self.model)


def place(
    model: nn.Module, device: torch.device, config: TrainConfig, processes: Processes, log: RunLog
) -> nn.Module:
    """Move a model to a device, sharded if so configured; return the model to be trained."""
    if config.shard and processes.world > 1:
        check_shards(model, config)
        log.notice(
            f"{processes.world} processes share the weights; train.exact does not apply: the last "
            "bits of the result depend on the number of processes"
        )
        return shard(model, device, processes)
    if config.shard:
        log.notice("train.shard has no effect: there is only one process")
    return model.to(device)


def check_shards(model: nn.Module, config: TrainConfig) -> None:
    """Raise ConfigError if processes would compute different numbers of forward passes."""
    name = None
    if has_experts(model):
        name = "a mixture of experts"
    elif config.compile or config.reward.samples:
        name = "train.compile" if config.compile else "train.reward"
    if name is not None:
        raise ConfigError(
            f"train.shard does not support {name}. Leave one of them out.", "no_sharding"
        )


def shard(model: nn.Module, device: torch.device, processes: Processes) -> nn.Module:
    """Keep this process's share of a model on a device, and return the model to be trained.

    The model itself may be used in functions that are given to the returned one.
    """
    mesh = init_device_mesh(device.type, (processes.world,))
    for stack in model.modules():
        if isinstance(stack, TransformerStack) and not stack.reversible:
            for block in stack.blocks:
                fully_shard(block, mesh=mesh)
                register_fsdp_forward_method(block, "project_memory")
    whole: Any = fully_shard(Collected(model), mesh=mesh)
    parts = [module for module in whole.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        part.set_gradient_divide_factor(1.0)  # a sum: the loop divides by the global count
        part.set_force_sum_reduction_for_comms(True)  # gloo has no other

    def collect_once(_: nn.Module) -> None:
        for part in parts[1:]:
            part.unshard()
            part.reshard()

    whole(collect_once)  # if validation made the tensors of weights, they could not be trained
    whole.reshard()
    processes.in_step = True
    return cast(nn.Module, whole)


def call_collected(trained: nn.Module, model: nn.Module, function: Callable[[nn.Module], R]) -> R:
    """Call a function of a model, sharded or not."""
    if not isinstance(trained, FSDPModule):
        return function(model)
    try:
        return trained(function)
    finally:
        trained.reshard()  # a backward pass would have done so


def share_of(tensor: Tensor, parameter: nn.Parameter) -> Tensor:
    """Return this process's share of a tensor, as of a parameter."""
    data: Any = parameter
    if not isinstance(data, DTensor):
        return tensor
    return distribute_tensor(tensor, data.device_mesh, data.placements, src_data_rank=None)


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def collect_weights(model: nn.Module, processes: Processes) -> dict[str, Tensor]:
    """Return all weights in the memory of the first process; in the others one at a time."""
    weights = {}
    for name, weight in weights_of(model).items():
        full = weight.full_tensor() if isinstance(weight, DTensor) else weight
        if processes.is_first:
            weights[name] = full.cpu()
    return weights
