"""Four normalisations, written out: what differs is only over which numbers one averages.

    y = (x - mean) / √(variance + ε) · weight + bias        variance = mean of (x - mean)²

    layer      over the features of one position      Ba et al. 2016; every Transformer
    batch      over the batch, feature by feature     Ioffe & Szegedy 2015
    instance   over one sample's positions, feature by feature           Ulyanov et al. 2016
    group      over one sample's positions and a group of its features   Wu & He 2018

Only batch norm looks at other samples. It therefore needs to remember statistics for later, and
says something else about a sentence in other company; for text one takes layer norm.

These modules are here to be read and compared (weights load from torch's and back). The models use
`nn.LayerNorm`, which computes the same in one fused kernel.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def standardise(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """Mean 0 and variance 1 along these axes; the variance is the biased one (divided by n)."""
    mean = x.mean(axes, keepdim=True)
    variance = x.var(axes, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + eps)


class LayerNorm(nn.Module):
    """Every position by itself, over its features: `nn.LayerNorm`."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return standardise(x, (-1,), self.eps) * self.weight + self.bias


class NotesLayerNorm(LayerNorm):
    """EXHIBIT: the layer norm of the study notes, with two slips. Used by nothing.

    It divides by the *unbiased* standard deviation (by n - 1) and adds ε *outside* the root:

        y = (x - mean) / (std + ε) · weight + bias,  ε = 1e-8

    The result is √((n - 1) / n) of the right one: 13 % too small for 4 features.
    """

    def __init__(self, d_model: int, eps: float = 1e-8) -> None:
        super().__init__(d_model, eps)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (x.std(-1, keepdim=True) + self.eps) * self.weight + self.bias


class _FeatureNorm(nn.Module):
    """What the other three share: features stand in the second axis, one weight and bias each."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, n_features: int, eps: float, affine: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(n_features)) if affine else None

    def stretch(self, x: Tensor) -> Tensor:
        """The affine map at the end: per feature, a variance of weight² and a mean of bias."""
        if self.weight is None or self.bias is None:
            return x
        return x * _along_features(self.weight, x) + _along_features(self.bias, x)


class BatchNorm(_FeatureNorm):
    """Every feature over the whole batch: `nn.BatchNorm1d`.

    Training uses the batch's own statistics and keeps a running average of them (of the unbiased
    variance, as in the paper); evaluation uses that average, so that one sample can come alone.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self, n_features: int, eps: float = 1e-5, momentum: float = 0.1, *, affine: bool = True
    ) -> None:
        super().__init__(n_features, eps, affine)
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(n_features))
        self.register_buffer("running_var", torch.ones(n_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(
        self, x: Float[Tensor, "batch feature *length"]
    ) -> Float[Tensor, "batch feature *length"]:
        if self.training:
            axes = (0, *range(2, x.dim()))
            self._remember(x.detach(), axes)
            return self.stretch(standardise(x, axes, self.eps))
        mean, variance = _along_features(self.running_mean, x), _along_features(self.running_var, x)
        return self.stretch((x - mean) / torch.sqrt(variance + self.eps))

    def _remember(self, x: Tensor, axes: tuple[int, ...]) -> None:
        if x.numel() == x.size(1):
            raise ValueError(
                f"batch norm needs two values a feature to train on, got the shape {list(x.shape)}"
            )
        self.running_mean.lerp_(x.mean(axes), self.momentum)
        self.running_var.lerp_(x.var(axes, unbiased=True), self.momentum)
        self.num_batches_tracked += 1


class InstanceNorm(_FeatureNorm):
    """Every feature of every sample over its positions: `nn.InstanceNorm1d(affine=True)`."""

    def __init__(self, n_features: int, eps: float = 1e-5, *, affine: bool = True) -> None:
        super().__init__(n_features, eps, affine)

    def forward(
        self, x: Float[Tensor, "batch feature length"]
    ) -> Float[Tensor, "batch feature length"]:
        return self.stretch(standardise(x, (2,), self.eps))


class GroupNorm(_FeatureNorm):
    """Every group of features of every sample over its positions: `nn.GroupNorm`.

    One group is layer norm over features and positions; as many groups as features, instance norm.
    """

    def __init__(
        self, n_groups: int, n_features: int, eps: float = 1e-5, *, affine: bool = True
    ) -> None:
        super().__init__(n_features, eps, affine)
        if n_features % n_groups:
            raise ValueError(
                f"n_features ({n_features}) must be a multiple of n_groups ({n_groups})"
            )
        self.n_groups = n_groups

    def forward(
        self, x: Float[Tensor, "batch feature *length"]
    ) -> Float[Tensor, "batch feature *length"]:
        groups = x.unflatten(1, (self.n_groups, -1))  # (batch, group, feature, *length)
        return self.stretch(
            standardise(groups, tuple(range(2, groups.dim())), self.eps).flatten(1, 2)
        )


def _along_features(values: Tensor, x: Tensor) -> Tensor:
    """One value per feature, shaped to meet x whose features stand in the second axis."""
    return values.view(1, -1, *(1,) * (x.dim() - 2))
