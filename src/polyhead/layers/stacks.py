"""The stack that a configuration asks for: ordinary, or reversible (to save memory)."""

from polyhead.layers.reversible import ReversibleStack
from polyhead.layers.transformer_stack import StackConfig, TransformerStack


def make_stack(
    config: StackConfig,
    *,
    cross: bool = False,
    rotary: bool = False,
    n_layers: int | None = None,
) -> TransformerStack:
    """Blocks with the same parameters under the same names either way."""
    kind = ReversibleStack if config.reversible else TransformerStack
    return kind(config, cross=cross, rotary=rotary, n_layers=n_layers)
