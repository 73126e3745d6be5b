"""The model families. A configuration names one; this table is all the registry there is."""

from polyhead.models.transformer import Transformer, TransformerConfig

FAMILIES = {
    "transformer": (Transformer, TransformerConfig),
}

__all__ = ["FAMILIES", "Transformer", "TransformerConfig"]
