"""What torch itself says that something costs, to hold the formulas to.

products      FLOPs of all matrix products        torch.utils.flop_counter
kept_bytes    what autograd keeps                 torch.autograd.graph.saved_tensors_hooks
graph_depth   operations that must wait for each other: the longest chain of the autograd graph
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def products(work: Callable[[], Any]) -> int:
    """FLOPs of the matrix products in `work`.

    Torch's counter knows neither the CPU's fused attention, nor its fused LSTM, nor products that
    are added in place; so the first is computed as printed, and the others are counted by their
    shapes.
    """

    def added_in_place(_: Any, a: Any, b: Any, *, out_shape: Any = None) -> int:  # noqa: ARG001
        return 2 * a[0] * a[1] * b[1]

    def many_added_in_place(
        _: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, out_shape: Any = None
    ) -> int:
        del beta, alpha, out_shape
        return 2 * a[0] * a[1] * a[2] * b[2]

    def read(x: Any, w_x: Any, w_h: Any, *_: Any, out_shape: Any = None) -> int:  # noqa: ARG001
        return lstm_products(x[0] * x[1], w_x, w_h)

    def read_back(x: Any, w_x: Any, w_h: Any, *_: Any, out_shape: Any = None) -> int:  # noqa: ARG001
        return 2 * lstm_products(x[0] * x[1], w_x, w_h)

    mapping = {
        torch.ops.aten.addmm_: added_in_place,
        torch.ops.aten.baddbmm_: many_added_in_place,
        torch.ops.aten.mkldnn_rnn_layer: read,
        torch.ops.aten.mkldnn_rnn_layer_backward: read_back,
    }
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    with sdpa_kernel(SDPBackend.MATH), counter:
        work()
    return int(counter.get_total_flops())


def lstm_products(n: int, w_x: Sequence[int], w_h: Sequence[int]) -> int:
    """Of one layer and direction at n positions: W_x x and W_h h, given the matrices' shapes."""
    return 2 * n * (w_x[0] * w_x[1] + w_h[0] * w_h[1])


def kept_bytes(work: Callable[[], Any], without: Iterable[Tensor] = ()) -> int:
    """Bytes of all storages that autograd keeps when `work` is done, each counted once.

    `without` are tensors that are there anyway, such as the parameters.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in without}
    kept: dict[int, int] = {}
    alive = []  # so that no two storages get the same address

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        result = work()
    del result, alive
    return sum(kept.values())


def graph_depth(output: Tensor) -> int:
    """The longest chain of operations, each of which needs the result of the one before."""
    root = output.grad_fn
    assert root is not None, "an output without a graph has no depth"
    depth: dict[Any, int] = {}
    waiting = [root]
    while waiting:
        node = waiting[-1]
        before = [other for other, _ in node.next_functions if other is not None]
        missing = [other for other in before if other not in depth]
        if missing:
            waiting.extend(missing)
            continue
        depth[node] = 1 + max((depth[other] for other in before), default=0)
        waiting.pop()
    return depth[root]
