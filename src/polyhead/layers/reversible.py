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
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import get_gradient_edge

from polyhead.layers.kv_cache import BlockCache, Memory
from polyhead.layers.lsh.hashing import Tape, recording, replaying
from polyhead.layers.masks import NO_MASK, Mask
from polyhead.layers.transformer_stack import StackConfig, TransformerBlock, TransformerStack, pick


class Branch(NamedTuple):
    """Residual branch of a block without its skip connection, and its parameters."""

    run: Callable[[Tensor, Memory | None], Tensor]
    parameters: list[nn.Parameter]


class ReversibleStack(TransformerStack):
    """`TransformerStack` with the same parameters under the same names, wired in two streams."""

    def __init__(
        self,
        config: StackConfig,
        *,
        cross: bool = False,
        rotary: bool = False,
        n_layers: int | None = None,
    ) -> None:
        if config.norm != "pre":
            raise ValueError(
                f'a reversible stack cannot undo a norm after the sum: norm is "{config.norm}"; '
                'write norm = "pre" (or reversible = false)'
            )
        super().__init__(config, cross=cross, rotary=rotary, n_layers=n_layers)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask = NO_MASK,
        memory: Memory | None = None,
        cache: list[BlockCache] | None = None,
        places: Num[Tensor, "length"] | None = None,
        only: Int[Tensor, "chosen"] | None = None,
    ) -> Float[Tensor, "*positions d_model"]:
        slots = [None] * len(self.blocks) if cache is None else cache
        branches = [
            branch
            for block, slot in zip(self.blocks, slots, strict=True)
            for branch in branches_of(block, mask, slot, places)
        ]
        if cache is None and torch.is_grad_enabled():
            streams = reversibly(x, memory, branches)
        else:  # decoding: no backward pass
            streams = forwards(x, x, memory, branches)
        mean = (streams[0] + streams[1]) / 2
        return self.norm(mean if only is None else pick(mean, only))


def branches_of(
    block: nn.Module, mask: Mask, slot: BlockCache | None, places: Tensor | None
) -> Iterator[Branch]:
    """Return the branches of a block in order; without a slot nothing is cached."""
    assert isinstance(block, TransformerBlock)

    def attend(x: Tensor, _: Memory | None) -> Tensor:
        cache = BlockCache() if slot is None else slot
        return block.self_residual.branch(x, lambda h: block.attend(h, mask, cache, places))

    def recall(x: Tensor, memory: Memory | None) -> Tensor:
        cache = BlockCache() if slot is None else slot
        assert block.cross_residual is not None
        return block.cross_residual.branch(x, lambda h: block.recall(h, memory, cache))

    def feed(x: Tensor, _: Memory | None) -> Tensor:
        return block.feed_residual.branch(x, block.feed_forward)

    yield Branch(attend, _parameters(block.self_residual, block.self_attention))
    if block.cross_attention is not None and block.cross_residual is not None:
        yield Branch(recall, _parameters(block.cross_residual, block.cross_attention))
    yield Branch(feed, _parameters(block.feed_residual, block.feed_forward))


def forwards(
    x_1: Tensor, x_2: Tensor, memory: Memory | None, branches: list[Branch]
) -> tuple[Tensor, Tensor]:
    """Compute the left column with ordinary autograd."""
    for branch in branches:
        # the streams are swapped: the next branch reads the sum
        x_1, x_2 = x_2, x_1 + branch.run(x_2, memory)
    return _in_order(x_1, x_2, branches)


def reversibly(
    x: Float[Tensor, "batch length d_model"], memory: Memory | None, branches: list[Branch]
) -> tuple[Tensor, Tensor]:
    """Compute the left column with a backward pass that keeps no activations."""
    parameters = _unique(p for branch in branches for p in branch.parameters)
    states = None if memory is None else memory.states
    call = _Call(branches, parameters, memory, _Autocast.of(x.device))
    return _Reversible.apply(call, x, states, *parameters)


class _Autocast(NamedTuple):
    """Precision of a forward pass."""

    device: str
    dtype: torch.dtype
    enabled: bool

    @staticmethod
    def of(device: torch.device) -> "_Autocast":
        kind = device.type
        return _Autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    def again(self) -> torch.autocast:
        """Return the autocast context without its weight cache, whose casts have no gradients."""
        return torch.autocast(self.device, self.dtype, self.enabled, cache_enabled=False)


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
    autocast: _Autocast
    starts: list[_Start] = field(default_factory=list)

    def with_states(self, states: Tensor | None) -> Memory | None:
        """Return the memory with these states."""
        if self.memory is None or states is None:
            return None
        return Memory(states.view_as(states), self.memory.mask)


class _Reversible(torch.autograd.Function):
    """Autograd function of both columns."""

    boxed_grads_call = True  # gradients come in a list, to be freed after use

    @staticmethod
    def forward(
        ctx: Any, call: _Call, x: Tensor, states: Tensor | None, *_parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        memory = call.with_states(states)
        x_1, x_2 = x.clone(), x.clone()
        with call.autocast.again():
            for branch in call.branches:
                start = _start(x.device)
                with recording(start.tape):
                    x_1, x_2 = x_2, x_1.add_(branch.run(x_2, memory))
                call.starts.append(start)
        ctx.call = call
        ctx.save_for_backward(x_1, x_2, states)
        return _in_order(x_1, x_2, call.branches)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: list[Tensor]) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        y_1, y_2, states = ctx.saved_tensors
        ctx.maybe_clear_saved_tensors()  # only the last streams are needed
        d_1, d_2 = _in_order(gradients[0], gradients[1], call.branches)
        gradients.clear()
        totals = _Totals(call.parameters, states)
        for branch, start in zip(reversed(call.branches), reversed(call.starts), strict=True):
            # y_1 was read and y_2 was written, in this order: undo the swap and the sum
            moved, push = _again(call, branch, start, y_1, totals)
            y_1, y_2 = _minus(y_2, moved), y_1
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
    trained = [p for p in branch.parameters if p.requires_grad]
    with torch.enable_grad(), _from(start, x.device), call.autocast.again():
        # as views, since hooks such as torch's counters do not accept leaves
        y = branch.run(x.view_as(x), call.with_states(totals.memory))
    wanted = [x, *trained] if totals.memory is None else [x, *trained, totals.memory]
    end, dtype = get_gradient_edge(y), y.dtype  # not y itself, whose memory is reused

    def push(gradient: Tensor) -> Tensor:
        through, *others = torch.autograd.grad(end, wanted, gradient.to(dtype), allow_unused=True)
        totals.add(trained, tuple(others))
        return through

    return y.detach(), push


def _minus(y: Tensor, moved: Tensor) -> Tensor:
    """Subtract, in place of `moved` if its precision allows."""
    return torch.sub(y, moved, out=moved) if moved.dtype == y.dtype else y - moved


def _start(device: torch.device) -> _Start:
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return _Start(torch.get_rng_state(), cuda, Tape())


@contextmanager
def _from(start: _Start, device: torch.device) -> Iterator[None]:
    """Restore the random state of `start` temporarily."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []), replaying(start.tape):
        torch.set_rng_state(start.cpu)
        if start.cuda is not None:
            torch.cuda.set_rng_state(start.cuda, device)
        yield


def _in_order(x_1: Tensor, x_2: Tensor, branches: list[Branch]) -> tuple[Tensor, Tensor]:
    """Return the streams in their original order; an odd number of branches swaps them."""
    return (x_2, x_1) if len(branches) % 2 else (x_1, x_2)


def _parameters(*modules: nn.Module) -> list[nn.Parameter]:
    return _unique(p for module in modules for p in module.parameters())


def _unique(parameters: Iterator[nn.Parameter]) -> list[nn.Parameter]:
    return list({id(p): p for p in parameters}.values())


def make_stack(
    config: StackConfig,
    *,
    cross: bool = False,
    rotary: bool = False,
    n_layers: int | None = None,
) -> TransformerStack:
    """Return the stack of a configuration; parameter names are the same for both kinds."""
    kind = ReversibleStack if config.reversible else TransformerStack
    return kind(config, cross=cross, rotary=rotary, n_layers=n_layers)
