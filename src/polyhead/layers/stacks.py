"""Choice between the ordinary and the reversible stack."""

from polyhead.layers.reversible import ReversibleStack
from polyhead.layers.transformer_stack import StackConfig, TransformerStack


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
