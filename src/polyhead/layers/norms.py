"""Four normalisations, which differ in the axes they average over.

    y = (x - mean) / √(variance + ε) · weight + bias        variance = mean of (x - mean)²

    layer      over the features of one position      Ba et al. 2016; every Transformer
    batch      over the batch, feature by feature     Ioffe & Szegedy 2015
    instance   over one sample's positions, feature by feature           Ulyanov et al. 2016
    group      over one sample's positions and a group of its features   Wu & He 2018

Only batch norm depends on other samples: it keeps running statistics, and its output for a sentence
depends on the batch; text models use layer norm.

These modules are for reading and comparison (weights are interchangeable with torch's). The models
use `nn.LayerNorm`, which computes the same in one fused kernel.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def standardise(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """Return x with mean 0 and (biased) variance 1 along these axes."""
    mean = x.mean(axes, keepdim=True)
    variance = x.var(axes, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + eps)


class LayerNorm(nn.Module):
    """Normalisation of each position over its features, as `nn.LayerNorm`."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return standardise(x, (-1,), self.eps) * self.weight + self.bias


class NotesLayerNorm(LayerNorm):
    """The layer norm of the study notes with its two errors, for comparison only.

    It divides by the *unbiased* standard deviation (by n - 1) and adds ε *outside* the root:

        y = (x - mean) / (std + ε) · weight + bias,  ε = 1e-8

    The result is √((n - 1) / n) of the correct one: 13 % too small for 4 features.
    """

    def __init__(self, d_model: int, eps: float = 1e-8) -> None:
        super().__init__(d_model, eps)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (x.std(-1, keepdim=True) + self.eps) * self.weight + self.bias


class _FeatureNorm(nn.Module):
    """Base of norms whose features are in the second axis, with a weight and a bias each."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, n_features: int, eps: float = 1e-5, *, affine: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(n_features)) if affine else None

    def affine_map(self, x: Tensor) -> Tensor:
        if self.weight is None or self.bias is None:
            return x
        return x * _along_features(self.weight, x) + _along_features(self.bias, x)


class BatchNorm(_FeatureNorm):
    """Normalisation of each feature over the batch, as `nn.BatchNorm1d`.

    Training uses the batch's own statistics and keeps a running average of them (of the unbiased
    variance, as in the paper); evaluation uses that average.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self, n_features: int, eps: float = 1e-5, momentum: float = 0.1, *, affine: bool = True
    ) -> None:
        super().__init__(n_features, eps, affine=affine)
        self.momentum = momentum
        self.register_buffer("running_mean", torch.zeros(n_features))
        self.register_buffer("running_var", torch.ones(n_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(
        self, x: Float[Tensor, "batch feature *length"]
    ) -> Float[Tensor, "batch feature *length"]:
        if self.training:
            axes = (0, *range(2, x.dim()))
            if x.numel() == x.size(1):
                shape = f"the shape {list(x.shape)}"
                raise ValueError(f"batch norm needs two values a feature to train on, got {shape}")
            self.running_mean.lerp_(x.detach().mean(axes), self.momentum)
            self.running_var.lerp_(x.detach().var(axes, unbiased=True), self.momentum)
            self.num_batches_tracked += 1
            return self.affine_map(standardise(x, axes, self.eps))
        mean, variance = _along_features(self.running_mean, x), _along_features(self.running_var, x)
        return self.affine_map((x - mean) / torch.sqrt(variance + self.eps))


class InstanceNorm(_FeatureNorm):
    """Normalisation of each feature over a sample's positions, as `nn.InstanceNorm1d`."""

    def forward(
        self, x: Float[Tensor, "batch feature length"]
    ) -> Float[Tensor, "batch feature length"]:
        return self.affine_map(standardise(x, (2,), self.eps))


class GroupNorm(_FeatureNorm):
    """Normalisation of groups of features over a sample's positions, as `nn.GroupNorm`.

    One group is layer norm over features and positions; as many groups as features, instance norm.
    """

    def __init__(
        self, n_groups: int, n_features: int, eps: float = 1e-5, *, affine: bool = True
    ) -> None:
        super().__init__(n_features, eps, affine=affine)
        if n_features % n_groups:
            raise ValueError(
                f"n_features ({n_features}) must be a multiple of n_groups ({n_groups})"
            )
        self.n_groups = n_groups

    def forward(
        self, x: Float[Tensor, "batch feature *length"]
    ) -> Float[Tensor, "batch feature *length"]:
        groups = x.unflatten(1, (self.n_groups, -1))  # (batch, group, feature, *length)
        return self.affine_map(
            standardise(groups, tuple(range(2, groups.dim())), self.eps).flatten(1, 2)
        )


def _along_features(values: Tensor, x: Tensor) -> Tensor:
    """Reshape one value per feature to broadcast along the second axis of x."""
    return values.view(1, -1, *(1,) * (x.dim() - 2))
