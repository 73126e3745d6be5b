"""Sparsely gated mixture of experts: each position uses k of n feed-forward networks.

    y      = Σ_i G(x)_i E_i(x)                                            Shazeer et al. 2017, eq. 1
    G(x)   = softmax(KeepTopK(H(x), k))                                   eq. 3
    H(x)_i = (x W_g)_i + ε_i · softplus((x W_noise)_i),   ε_i ~ N(0, 1)   eq. 4

KeepTopK keeps the k largest numbers and sets the others to -∞, so that G is zero for all but k
experts; the others are not computed. The noise is used in training only, for exploration.

Without further losses a gate soon prefers the experts trained most. Two losses balance them:

    importance_i = Σ_x G(x)_i                          L_importance = w · CV(importance)²     eq. 6
    load_i       = Σ_x P(i is chosen for x)            L_load       = w · CV(load)²           eq. 11
    P            = Φ(((x W_g)_i - kth_excluding(H(x), k, i)) / softplus((x W_noise)_i))       eq. 9

CV is standard deviation over mean, Φ the normal distribution function, kth_excluding the k-th
largest number of H(x) without its i-th: P is the probability of the choice for another draw of ε_i,
and unlike a count it has a gradient. Sums are over the positions of one batch.

With many experts a hierarchy keeps the gates small (appendix B): a primary gate chooses k of a
groups, and the gate of each group k of its b experts; X⁽ⁱ⁾ are the rows that group i gets:

    y               = Σ_i Σ_j G_primary(x)_i G_i(x)_j E_ij(x)                                 eq. 12
    importance_ij   = Σ_x G_primary(x)_i G_i(x)_j                                             eq. 13
    load_ij         = load_primary(X)_i load_i(X⁽ⁱ⁾)_j / |X⁽ⁱ⁾|                               eq. 14

Balanced gating (appendix F) needs no such losses: in training every expert gets exactly the
m = k |X| / n rows that it has the largest p for; single rows are compared with thresholds T:

    p = softmax(x W_g),   G(x)_i = p_i M_i / Σ_j p_j M_j                                  eq. 15, 16
    M_i = 1 in training if p_i is one of the m largest of expert i, else if p_i > T_i     eq. 18, 19
    L   = Σ_x Σ_i ([p_i > T_i] - M_i) (p_i - T_i)                                         eq. 20

L is divided by |X| here, and trains T only. A row that no threshold admits goes to its best expert.

Modules hold no state: a gate returns importance and load with its choice (`Routing`), and hooks
record them:

    with record_usage(model) as usages:
        loss = objective(model, batch)
    for usage in usages.values():
        usage.loss                     # the two losses above, with gradients

Axes: batch, length, row (a position that is routed: padding is not), expert, k, d_model.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.bounds import Few, Length
from polyhead.layers.feed_forward import Activation, FeedForward

LEAST_NOISE = 1e-2  # added to softplus, as in the authors' code: eq. 9 divides by it


@dataclass(frozen=True)
class ExpertsConfig:
    """Number of experts `n` (0: one network for all) and of those used per position `k`.

    groups: of a hierarchy with k groups per position and k experts in each; 0 for none.
    """

    n: Length = 0
    k: Few = 2
    importance: float = 0.01  # weights of the balancing losses
    load: float = 0.01
    noise: bool = True  # of noisy_top_k
    groups: Few = 0
    gating: Literal["noisy_top_k", "balanced"] = "noisy_top_k"

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError(f"n = {self.n}: expected a number of experts, or 0 for none")
        if self.n and not 1 <= self.k <= self.n:
            raise ValueError(f"k = {self.k}: of n = {self.n} experts, 1 to {self.n} can be chosen")
        if self.groups and (self.n % self.groups or not self.k <= self.groups <= self.n // self.k):
            raise ValueError(
                f"groups = {self.groups}: expected a divisor of n = {self.n} with at least k = "
                f"{self.k} groups, and {self.k} experts in each"
            )
        for name in ("importance", "load"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: expected 0 or more")
        if self.n and self.load and not self.noise and self.gating == "noisy_top_k":
            raise ValueError(
                f"load = {self.load}: without noise the load has no gradient; write load = 0.0, or "
                "noise = true"
            )


class Routing(NamedTuple):
    """Pairs of a row and an expert with their weights; importance and load per expert.

    threshold_loss: equation 20, or 0 without thresholds.
    """

    rows: Int[Tensor, "pair"]
    chosen: Int[Tensor, "pair"]
    weights: Float[Tensor, "pair"]  # those of a row sum to 1
    importance: Float[Tensor, "expert"]
    load: Float[Tensor, "expert"]
    threshold_loss: Float[Tensor, ""] | float = 0.0


class Gate(nn.Module):
    """Equations 3 and 4. W_g and W_noise are initialized to zero (appendix A)."""

    def __init__(self, d_model: int, config: ExpertsConfig) -> None:
        super().__init__()
        self.config = config
        self.w_g = nn.Parameter(torch.zeros(d_model, config.n))
        self.w_noise = nn.Parameter(torch.zeros(d_model, config.n)) if config.noise else None

    def initialize(self) -> None:
        """Start without a preference."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Float[Tensor, "row d_model"]) -> Routing:
        with torch.autocast(x.device.type, enabled=False):  # full precision for the choice
            x = x.to(self.w_g.dtype)
            clean = x @ self.w_g
            if self.training and self.w_noise is not None:
                scale = F.softplus(x @ self.w_noise) + LEAST_NOISE
                return self.route(clean, clean + torch.randn_like(clean) * scale, scale)
            return self.route(clean, clean, None)

    def route(
        self,
        clean: Float[Tensor, "row expert"],
        noisy: Float[Tensor, "row expert"],
        scale: Float[Tensor, "row expert"] | None,
    ) -> Routing:
        """Choose the k largest of `noisy`; without noise the load is a count."""
        n, k = self.config.n, self.config.k
        top = noisy.topk(min(k + 1, n))
        chosen = top.indices[:, :k]
        weights = top.values[:, :k].softmax(-1)
        importance = weights.new_zeros(n).index_add(0, chosen.flatten(), weights.flatten())
        if scale is None or k == n:
            load = chosen.flatten().bincount(minlength=n).to(weights.dtype)
        else:
            load = chance_of_choice(clean, noisy, scale, top.values).sum(0)
        rows = torch.arange(len(chosen), device=chosen.device)[:, None].expand_as(chosen)
        return Routing(rows.flatten(), chosen.flatten(), weights.flatten(), importance, load)

    def extra_repr(self) -> str:
        return f"{self.config.k} of {self.config.n}"


class BalancedGate(Gate):
    """Equations 15 to 20: in training every expert gets equally many rows."""

    def __init__(self, d_model: int, config: ExpertsConfig) -> None:
        super().__init__(d_model, replace(config, noise=False, load=0.0))
        self.threshold = nn.Parameter(torch.empty(config.n))
        self.initialize()

    def initialize(self) -> None:
        """Start with nearly equal experts: with equal ones all would get the same rows."""
        nn.init.normal_(self.w_g, std=0.01)
        nn.init.constant_(self.threshold, 1 / self.config.n)

    def forward(self, x: Float[Tensor, "row d_model"]) -> Routing:
        with torch.autocast(x.device.type, enabled=False):
            p = (x.to(self.w_g.dtype) @ self.w_g).softmax(-1)
        n, above = self.config.n, p > self.threshold
        if self.training:
            m = min(len(p), max(1, self.config.k * len(p) // n))
            mask = torch.zeros_like(above).scatter(0, p.topk(m, dim=0).indices, True)
        else:
            mask = above.scatter(1, p.argmax(1, keepdim=True), True)
        kept = p * mask
        gates = kept / kept.sum(1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        rows, chosen = mask.nonzero(as_tuple=True)
        mistakes = above.to(p.dtype) - mask.to(p.dtype)
        loss = (mistakes * (p.detach() - self.threshold)).sum() / max(1, len(p))
        load = mask.sum(0).to(p.dtype)
        return Routing(rows, chosen, gates[rows, chosen], gates.sum(0), load, loss)


class HierarchicalGate(nn.Module):
    """Equations 12 to 14: a gate that chooses groups, and one in each group."""

    def __init__(self, d_model: int, config: ExpertsConfig) -> None:
        super().__init__()
        self.config = config
        self.primary = make_gate(d_model, replace(config, n=config.groups, groups=0))
        inner = replace(config, n=config.n // config.groups, groups=0)
        self.secondary = nn.ModuleList(make_gate(d_model, inner) for _ in range(config.groups))

    def forward(self, x: Float[Tensor, "row d_model"]) -> Routing:
        first: Routing = self.primary(x)
        pairs, loads, loss = [], [], first.threshold_loss
        for group, gate in enumerate(self.secondary):
            (places,) = (first.chosen == group).nonzero(as_tuple=True)
            inner: Routing = gate(x.index_select(0, first.rows[places]))
            at = places[inner.rows]
            expert = inner.chosen + group * len(inner.load)
            pairs.append((first.rows[at], expert, first.weights[at] * inner.weights))
            loads.append(first.load[group] * inner.load / max(1, len(places)))
            loss = loss + inner.threshold_loss / len(self.secondary)
        rows, chosen, weights = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        importance = weights.new_zeros(self.config.n).index_add(0, chosen, weights)
        return Routing(rows, chosen, weights, importance, torch.cat(loads), loss)


def make_gate(d_model: int, config: ExpertsConfig) -> Gate | HierarchicalGate:
    """Return the gate of a configuration."""
    if config.groups:
        return HierarchicalGate(d_model, config)
    return (BalancedGate if config.gating == "balanced" else Gate)(d_model, config)


def chance_of_choice(
    clean: Float[Tensor, "row expert"],
    noisy: Float[Tensor, "row expert"],
    scale: Float[Tensor, "row expert"],
    top: Float[Tensor, "row more"],
) -> Float[Tensor, "row expert"]:
    """Compute equation 9, given the k + 1 largest of `noisy`, largest first.

    Without a chosen expert the k-th largest is the (k + 1)-th of all, else it stays the k-th.
    """
    last_in, first_out = top[:, -2:].split(1, dim=1)
    others = torch.where(noisy > first_out, first_out, last_in)
    return torch.special.ndtr((clean - others) / scale)


def unevenness(amounts: Float[Tensor, "expert"]) -> Float[Tensor, ""]:
    """Return CV², the squared coefficient of variation; 0 if all are equal."""
    return amounts.var(correction=0) / (amounts.mean().square() + 1e-10)


class Experts(nn.Module):
    """Equation 1 in place of one feed-forward network; rows are grouped by expert.

    `real` marks the positions to route; the others, which are padding, get zeros.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: Activation, dropout: float, config: ExpertsConfig
    ) -> None:
        super().__init__()
        self.gate = make_gate(d_model, config)
        self.experts = nn.ModuleList(
            FeedForward(d_model, d_ff, activation, dropout) for _ in range(config.n)
        )

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        real: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        rows = x.flatten(0, 1)
        if real is None:
            return self.mix(rows).view(x.shape)
        (places,) = real.flatten().nonzero(as_tuple=True)
        mixed = self.mix(rows.index_select(0, places))
        return mixed.new_zeros(rows.shape).index_copy(0, places, mixed).view(x.shape)

    def mix(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
        """Apply to every row its experts, weighted by the gate."""
        routing: Routing = self.gate(rows)
        order = routing.chosen.argsort(stable=True)
        row_of = routing.rows[order]
        counts = routing.chosen.bincount(minlength=len(self.experts)).tolist()
        pieces = rows.index_select(0, row_of).split(counts)
        outputs = torch.cat(
            [
                expert(piece[None])[0]
                for expert, piece in zip(self.experts, pieces, strict=True)
                if len(piece)
            ]
        )
        weighted = outputs * routing.weights[order].to(outputs.dtype)[:, None]
        mixed: Tensor = SumOfRows.apply(weighted, row_of, len(rows))
        return mixed


class SumOfRows(torch.autograd.Function):
    """Sum of the vectors of each row, as `index_add`, which would save the vectors for backward."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, row_of: Tensor, n_rows: int) -> Tensor:
        ctx.save_for_backward(row_of)
        return vectors.new_zeros(n_rows, vectors.size(1)).index_add_(0, row_of, vectors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (row_of,) = ctx.saved_tensors
        return gradient.index_select(0, row_of), None, None


@dataclass
class ExpertUsage:
    """Importance and load of one gate's experts, summed over its recorded calls."""

    gate: Gate | HierarchicalGate
    importance: Float[Tensor, "expert"]
    load: Float[Tensor, "expert"]
    threshold_loss: Float[Tensor, ""] | float = 0.0

    @property
    def loss(self) -> Float[Tensor, ""] | float:
        """The two balancing losses, weighted; that of the thresholds for balanced gating."""
        config = self.gate.config
        if config.gating == "balanced":
            return self.threshold_loss
        return config.importance * unevenness(self.importance) + config.load * unevenness(self.load)


@contextmanager
def record_usage(model: nn.Module, *, learning: bool = False) -> Iterator[dict[str, ExpertUsage]]:
    """Record the usage of every gate of a model inside the `with` block, by the gate's name."""
    usages: dict[str, ExpertUsage] = {}

    def record(name: str, gate: Any, _inputs: Any, new: Routing) -> None:
        if learning and not new.importance.requires_grad:
            return
        if name not in usages:
            usages[name] = ExpertUsage(gate, new.importance, new.load, new.threshold_loss)
        else:
            usage = usages[name]
            usage.importance = usage.importance + new.importance
            usage.load = usage.load + new.load
            usage.threshold_loss = usage.threshold_loss + new.threshold_loss

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, Experts):
                hook = partial(record, f"{name}.gate".lstrip("."))
                hooks.enter_context(module.gate.register_forward_hook(hook))
        yield usages


def has_experts(model: nn.Module) -> bool:
    """Return True if any layer of a model has experts."""
    return any(isinstance(module, Experts) for module in model.modules())
