"""Residual convolutional network (He et al. 2016, section 4.2), for small images.

    x ← relu(x + norm(W_2 * relu(norm(W_1 * x))))         n blocks for each width
    y = mean over all pixels (x) W

The first convolution of every width but the first halves the image, and its shortcut is a 1 x 1
convolution (option B of the paper). Norms are over groups of channels (Wu & He 2018) instead of
batches, so that an image's output does not depend on the images beside it.
"""

from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.bounds import Few
from polyhead.models.vit import Images, cut

CHANNELS_PER_GROUP = 8


@dataclass(frozen=True)
class ResNetConfig:
    """The defaults are ResNet-20 for the 32 x 32 pixels of CIFAR-10."""

    classes: int = 10
    height: int = 32
    width: int = 32
    channels: int = 3
    widths: tuple[int, ...] = (16, 32, 64)  # channels; each but the first halves the image
    n_blocks: Few = 3  # of each width

    def __post_init__(self) -> None:
        if not self.widths or any(n < 1 or n % CHANNELS_PER_GROUP for n in self.widths):
            raise ValueError(
                f"widths = {list(self.widths)}: expected multiples of {CHANNELS_PER_GROUP}"
            )
        if any(before == width for before, width in pairwise(self.widths)):
            raise ValueError(f"widths = {list(self.widths)}: expected another width each time")
        if self.n_blocks < 1:
            raise ValueError(f"n_blocks = {self.n_blocks}: expected at least 1")
        cut(self.height, self.width, self.patch)

    @property
    def patch(self) -> int:
        """Rows and columns of pixels behind one place of the last feature map."""
        return 2 ** (len(self.widths) - 1)

    @property
    def n_tokens(self) -> int:
        """Number of places of the last feature map."""
        rows, columns = cut(self.height, self.width, self.patch)
        return rows * columns


PUBLISHED = {f"resnet-{6 * n + 2}": ResNetConfig(n_blocks=n) for n in (3, 5, 7, 9)}


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut; the first one halves the image if the width changes."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        stride = 1 if channels == width else 2
        self.first = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm_1 = nn.GroupNorm(width // CHANNELS_PER_GROUP, width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_2 = nn.GroupNorm(width // CHANNELS_PER_GROUP, width)
        self.shortcut = nn.Conv2d(channels, width, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: Images) -> Float[Tensor, "batch wider rows columns"]:
        inner = self.norm_2(self.second(F.relu(self.norm_1(self.first(x)))))
        return F.relu(inner + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """Image classifier. Its output layer is initialized to zero: the first loss is ln(classes)."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        first = config.widths[0]
        self.stem = nn.Conv2d(config.channels, first, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(first // CHANNELS_PER_GROUP, first)
        widths = [first, *(width for width in config.widths for _ in range(config.n_blocks))]
        self.residual_blocks = nn.ModuleList(ResidualBlock(*pair) for pair in pairwise(widths))
        self.to_logits = nn.Linear(config.widths[-1], config.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al. 2015
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.to_logits.weight)
        nn.init.zeros_(self.to_logits.bias)

    def hidden(self, images: Images) -> Float[Tensor, "batch place d_model"]:
        """Return the last feature map, row by row."""
        x = F.relu(self.norm(self.stem(images)))
        for block in self.residual_blocks:
            x = block(x)
        return x.flatten(2).transpose(1, 2)

    def forward(self, images: Images) -> Float[Tensor, "batch classes"]:
        return self.to_logits(self.hidden(images).mean(1))
