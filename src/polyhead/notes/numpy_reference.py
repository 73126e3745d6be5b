"""Comparison of the library's translators with their NumPy twins."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyhead.decoding.ensemble import Ensemble
from polyhead.notes.claims import ClaimResult
from polyhead.notes.numpy_recurrent import Twin

SOURCE = torch.tensor([[3, 4, 5, 6, 7, 2], [8, 9, 10, 2, 0, 0]])  # 0 is padding
TARGET = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 3, 4, 5]])
WORDS = 11
WITHIN = 1e-7  # of logits in double precision; position codes have the rounding of float32
WITHIN_SINGLE = 1e-5  # of ensembles, whose probabilities are added in single precision


def randomised(model: nn.Module) -> Any:
    """Give every parameter random numbers in double precision; zeros and ones hide mistakes."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


@torch.no_grad()
def stepwise(model: Any) -> Tensor:
    """Return the logits of the target computed word by word, as in decoding."""
    state = model.begin(SOURCE, width=1, max_length=TARGET.size(1))
    return torch.cat([model.step(last, state) for last in TARGET.split(1, dim=1)], dim=1)


def twin_logits(model: nn.Module, twin: Twin) -> Tensor:
    """Return the twin's logits of both sentences, each alone and without padding."""
    pairs = zip(SOURCE.tolist(), TARGET.tolist(), strict=True)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    rows = [twin(weights, [word for word in source if word], target) for source, target in pairs]
    return torch.from_numpy(np.stack(rows))


def twin_gap(model: nn.Module, twin: Twin) -> float:
    """Return the largest difference of logits, of all words at once and word by word."""
    model = randomised(model)
    expected = twin_logits(model, twin)
    with torch.no_grad():
        computed = torch.stack([model(SOURCE, TARGET), stepwise(model)])
    return float((computed - expected).abs().max())


def ensemble_gap(models: Sequence[nn.Module], twin: Twin) -> float:
    """Return the largest difference of an ensemble's log p from the mean of the twins' p."""
    members = [randomised(model) for model in models]
    p = torch.stack([twin_logits(model, twin).softmax(-1) for model in members]).mean(0)
    return float((stepwise(Ensemble(members)) - p.log()).abs().max())


def same_logits(
    gap: float, other: ClaimResult | None = None, *, within: float = WITHIN
) -> ClaimResult:
    """Return the result of a comparison with a twin, after another result of the same claim."""
    expected, got = f"logits within {within:.0e}", f"logits within {gap:.0e}"
    if other is None:
        return ClaimResult(expected, got, gap <= within)
    texts = f"{other.expected}; {expected}", f"{other.got}; {got}"
    return ClaimResult(*texts, other.holds and gap <= within)
