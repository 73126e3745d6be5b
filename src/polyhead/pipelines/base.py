"""A model that reads text of one language: what writers, fillers and labellers have in common."""

from dataclasses import dataclass

import torch

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Pipeline:
    """One model with its tokenizer. Whoever loads it has seen that it has one."""

    saved: SavedModel
    name: str
    device: torch.device

    @property
    def tokenizer(self) -> Tokenizer:
        """How text becomes ids."""
        assert self.saved.tokenizers is not None
        return self.saved.tokenizers.source
