"""FLOPs, memory and depth of running code, as torch counts them.

    count_flops    FLOPs of all matrix products       torch.utils.flop_counter
    saved_bytes    what autograd saves for backward   torch.autograd.graph.saved_tensors_hooks
    graph_depth    longest chain of operations that wait for each other, in the autograd graph
    measure        all of it for a model without a formula, on a batch of one sentence

All work grows with the number of sentences, so that one is enough; some saved tensors exist once
for the whole batch: saved(b) = saved(1) + (b - 1) · (saved(2) - saved(1)).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from polyhead.cost.breakdown import n_masked
from polyhead.cost.formulas import Cost, Shape, output_layer
from polyhead.errors import ConfigError
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.models.registry import FAMILIES, TaskName

TOKEN = 1  # any id that is not padding
FUSED: tuple[TaskName, ...] = ("translation", "language_modeling", "masked_lm")  # with the loss
MAX_PARAMETERS = 200_000_000  # of a model that is built to be measured
MAX_FLOPS = 2e11  # to compute, by the rule of 6 for each parameter and position


def count_flops(work: Callable[[], Any]) -> int:
    """Return the FLOPs of the matrix products in `work`.

    Torch's counter knows neither the CPU's fused attention, nor its fused LSTM, nor products that
    are added in place; the first is replaced by the unfused one, the others are counted here.
    """
    aten = torch.ops.aten
    mapping = {  # of the operands' shapes
        aten.addmm_: lambda _, a, b, **_options: 2 * a[0] * a[1] * b[1],
        aten.baddbmm_: lambda _, a, b, **_options: 2 * a[0] * a[1] * a[2] * b[2],
        aten.mkldnn_rnn_layer: lambda *given, **_options: _lstm_flops(*given[:3]),
        aten.mkldnn_rnn_layer_backward: lambda *given, **_options: 2 * _lstm_flops(*given[:3]),
    }
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    with sdpa_kernel(SDPBackend.MATH), counter:
        work()
    return int(counter.get_total_flops())


def _lstm_flops(x: Sequence[int], w_x: Sequence[int], w_h: Sequence[int]) -> int:
    """Return the FLOPs of W_x x and W_h h at all positions, given the shapes."""
    return 2 * x[0] * x[1] * (w_x[0] * w_x[1] + w_h[0] * w_h[1])


def saved_bytes(work: Callable[[], Any], without: Iterable[Tensor] = ()) -> int:
    """Return the bytes of all storages that autograd saves during `work`, each counted once.

    without: tensors that exist anyway, such as the parameters.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in without}
    sizes: dict[int, int] = {}
    alive = []  # so that no two storages get the same address

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        result = work()
    del result, alive
    return sum(sizes.values())


def graph_depth(output: Tensor) -> int:
    """Return the longest chain of operations, each of which needs the result of the one before."""
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


def is_measurable(n_parameters: int, shape: Shape) -> bool:
    """Return True if measuring takes a few seconds at most."""
    work = 6.0 * n_parameters * (shape.length + shape.source)
    return n_parameters <= MAX_PARAMETERS and work <= MAX_FLOPS


def measure(family: str, config: Any, shape: Shape, *, masked_share: float) -> Cost:
    """Build the model and train it on one sentence; leaves the random state unchanged."""
    task = FAMILIES[family].task
    with torch.random.fork_rng(devices=[]):
        model = FAMILIES[family].model(config).train()
        (compute, single_loss), (_, double_loss) = (
            _training_step(task, model, config, Shape(n, shape.length, shape.source), masked_share)
            for n in (1, 2)
        )
        try:
            forward = count_flops(compute)
            training = count_flops(lambda: single_loss().backward())
            losses = single_loss, double_loss
            saved = [saved_bytes(loss, model.parameters()) for loss in losses]
        except ValueError as error:  # such as a sentence beyond the last position
            raise ConfigError(f"length {shape.length}: {error}", "length_too_long") from None
    fused = 0  # the gradients of its input and weight, which no hook sees
    if task in FUSED:
        vocab, d_model = model.to_logits.weight.shape
        n = n_masked(shape, masked_share) if task == "masked_lm" else shape.positions
        fused = output_layer(n, d_model, vocab).saved
    return Cost(
        forward * shape.batch,
        (training - forward) * shape.batch,
        saved[0] + (saved[1] - saved[0]) * (shape.batch - 1) + fused,
    )


def _training_step(
    task: TaskName, model: Any, config: Any, shape: Shape, masked_share: float
) -> tuple[Callable[[], Any], Callable[[], Tensor]]:
    """Return the forward pass to the logits, and to the loss, for a batch of equal tokens."""
    ids = torch.full((shape.batch, shape.length), TOKEN)
    n = n_masked(shape, masked_share)

    def hidden() -> Tensor:
        if task == "masked_lm":
            return model.transform(model.hidden(ids, only=torch.arange(n)))
        source = [torch.full((shape.batch, shape.source), TOKEN)] if task == "translation" else []
        return model.hidden(*source, ids).flatten(0, 1)

    def fused_loss() -> Tensor:
        h, layer = hidden(), model.to_logits
        return linear_cross_entropy(h, layer.weight, layer.bias, torch.full((len(h),), TOKEN))

    def electra_loss() -> Tensor:
        output = model(*inputs)
        loss: Tensor = output.generated.log_softmax(-1).sum() + output.suspicion.sigmoid().sum()
        return loss

    if task in FUSED:
        return lambda: model.to_logits(hidden()[None]), fused_loss
    inputs = [ids]
    if task == "image_classification":
        inputs = [torch.zeros(shape.batch, config.channels, config.height, config.width)]
    elif task == "replaced_token":
        inputs = [ids, ids, (torch.arange(ids.numel()) < n).view(ids.shape)]
        return lambda: model(*inputs), electra_loss
    return lambda: model(*inputs), lambda: model(*inputs).log_softmax(-1).sum()
