"""ReLU² (So et al. 2021, "Primer"): φ(x) = max(0, x)² in the feed-forward network.

Train a translator with it:

    polyhead train small --plugin relu_squared.py model.stack.activation=relu2
"""

from torch import Tensor, nn

from polyhead.plugins import register_activation


@register_activation("relu2")
class ReLUSquared(nn.Module):
    """The activation between the two linear layers."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()
