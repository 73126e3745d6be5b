"""Reversible stack, which recomputes its activations (Gomez et al. 2017; Kitaev et al. 2020, 3).

Two streams run through the blocks that every other family uses:

    y_1 = x_1 + Attention(x_2)        x_2 = y_2 - FeedForward(y_1)
    y_2 = x_2 + FeedForward(y_1)      x_1 = y_1 - Attention(x_2)

The right column inverts the left one: the backward pass computes every block's input from its
output, so that memory does not grow with depth, but each branch is computed twice. A block with
cross-attention has three branches; they add to the streams in turn.

The second computation repeats the first exactly: each branch starts from the same random state
(dropout), on the CPU and on x's device, under the same autocast, with the same buckets (LSH). This
is stored per call, not in the modules, so that calls may overlap and gradients accumulate.

Both streams start as x, and the output is their mean, so that any family can use the stack. (The
authors concatenate them, and their output layer is twice as wide.)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import get_gradient_edge

from polyhead.layers.kv_cache import Memory
from polyhead.layers.lsh.hashing import Tape, recording, replaying


class Branch(NamedTuple):
    """Residual branch of a block without its skip connection, and its modules."""

    run: Callable[[Tensor, Memory | None], Tensor]
    modules: list[nn.Module]


def mean_of_streams(
    x: Float[Tensor, "batch length d_model"],
    memory: Memory | None,
    branches: list[Branch],
    *,
    recompute: bool,
) -> Float[Tensor, "batch length d_model"]:
    """Compute the left column; with `recompute`, no activations are saved for backward."""
    if not recompute:
        x_1 = x_2 = x
        for branch in branches:
            # the streams are swapped: the next branch reads the sum
            x_1, x_2 = x_2, x_1 + branch.run(x_2, memory)
    else:
        parameters = _parameters([module for branch in branches for module in branch.modules])
        kind, states = x.device.type, None if memory is None else memory.states
        autocast = partial(  # without its weight cache, whose casts have no gradients
            torch.autocast, kind, torch.get_autocast_dtype(kind),
            torch.is_autocast_enabled(kind), cache_enabled=False,
        )  # fmt: skip
        call = _Call(branches, parameters, memory, autocast)
        x_1, x_2 = _Reversible.apply(call, x, states, *parameters)
    return (x_1 + x_2) / 2


def _parameters(modules: list[nn.Module]) -> list[nn.Parameter]:
    """Return the parameters of all modules, each one once."""
    return list(nn.ModuleList(modules).parameters())


class _Start(NamedTuple):
    """State at the start of a branch, enough to repeat it exactly."""

    cpu: Tensor
    cuda: Tensor | None
    tape: Tape


@dataclass
class _Call:
    """One forward pass, kept until its backward pass."""

    branches: list[Branch]
    parameters: list[nn.Parameter]
    memory: Memory | None
    autocast: Callable[[], torch.autocast]
    starts: list[_Start] = field(default_factory=list)

    def with_states(self, states: Tensor | None) -> Memory | None:
        if self.memory is None or states is None:
            return None
        return Memory(states.view_as(states), self.memory.mask)


class _Reversible(torch.autograd.Function):
    """Autograd function of both columns."""

    boxed_grads_call = True  # gradients come in a list, to be freed; not in torch 2.10

    @staticmethod
    def forward(
        ctx: Any, call: _Call, x: Tensor, states: Tensor | None, *_parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        memory = call.with_states(states)
        x_1, x_2 = x.clone(), x.clone()
        with call.autocast():
            for branch in call.branches:
                cuda = torch.cuda.get_rng_state(x.device) if x.is_cuda else None
                start = _Start(torch.get_rng_state(), cuda, Tape())
                with recording(start.tape):
                    x_1, x_2 = x_2, x_1.add_(branch.run(x_2, memory))
                call.starts.append(start)
        ctx.call = call
        ctx.save_for_backward(x_1, x_2, states)
        return x_1, x_2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *boxed: Any) -> tuple[Tensor | None, ...]:
        gradients = boxed[0] if isinstance(boxed[0], list) else list(boxed)
        call: _Call = ctx.call
        y_1, y_2, states = ctx.saved_tensors
        ctx.maybe_clear_saved_tensors()  # only the last streams are needed
        d_1, d_2 = gradients
        gradients.clear()
        totals = _Totals(call.parameters, states)
        for branch, start in zip(reversed(call.branches), reversed(call.starts), strict=True):
            # y_1 was read and y_2 was written, in this order: undo the swap and the sum
            moved, push = _again(call, branch, start, y_1, totals)
            # in place of `moved` if its precision allows
            x_1 = torch.sub(y_2, moved, out=moved) if moved.dtype == y_2.dtype else y_2 - moved
            y_1, y_2 = x_1, y_1
            d_1, d_2 = d_2, push(d_2).add_(d_1)
        return None, d_1 + d_2, totals.states, *totals.parameters


class _Totals:
    """Sums of gradients of parameters and memory.

    There is room for all of them from the start: what stays must not lie scattered among what
    comes and goes, or the heap can never be given back, and grows with depth after all.
    """

    def __init__(self, parameters: list[nn.Parameter], states: Tensor | None) -> None:
        self.index = {id(p): i for i, p in enumerate(parameters)}
        self.parameters = [torch.zeros_like(p) if p.requires_grad else None for p in parameters]
        self.memory = None if states is None else states.detach().requires_grad_()
        self.states = None if states is None else torch.zeros_like(states)

    def add(self, parameters: list[nn.Parameter], gradients: tuple[Tensor | None, ...]) -> None:
        """Add gradients of these parameters and, if there is a memory, of its states."""
        totals = [self.parameters[self.index[id(p)]] for p in parameters]
        if self.memory is not None:
            totals.append(self.states)
        for total, new in zip(totals, gradients, strict=True):
            if total is not None and new is not None:
                total += new


def _again(
    call: _Call, branch: Branch, start: _Start, x: Tensor, totals: _Totals
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Recompute branch(x); return it and a function that backpropagates through it."""
    x = x.detach().requires_grad_()
    trained = [p for p in _parameters(branch.modules) if p.requires_grad]
    with torch.enable_grad(), _from(start, x.device), call.autocast():
        # as views, since hooks such as torch's counters do not accept leaves
        y = branch.run(x.view_as(x), call.with_states(totals.memory))
    wanted = [x, *trained] if totals.memory is None else [x, *trained, totals.memory]
    end, dtype = get_gradient_edge(y), y.dtype  # not y itself, whose memory is reused

    def push(gradient: Tensor) -> Tensor:
        through, *others = torch.autograd.grad(end, wanted, gradient.to(dtype), allow_unused=True)
        totals.add(trained, tuple(others))
        return through

    return y.detach(), push


@contextmanager
def _from(start: _Start, device: torch.device) -> Iterator[None]:
    """Restore the random state of `start` temporarily."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []), replaying(start.tape):
        torch.set_rng_state(start.cpu)
        if start.cuda is not None:
            torch.cuda.set_rng_state(start.cuda, device)
        yield
