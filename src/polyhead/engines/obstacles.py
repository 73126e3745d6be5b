"""Reasons why CTranslate2 cannot run a model; read before anything is converted, without numpy."""

from collections.abc import Mapping
from typing import Any

CONVERTIBLE = ("transformer", "gpt", "bert", "electra", "classifier")
MAX_POSITIONS = 2**16
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}  # theirs
SCORES = ("scaled_dot", "dot", "general")
POSITION_CODES = ("sinusoidal", "learned", "axial", "rotary", "none")


def obstacle(family: str, model: Mapping[str, Any]) -> str | None:
    """Return why CTranslate2 cannot run a model, or None if it can.

    family, model: these entries of config.json.
    """
    if family not in CONVERTIBLE:
        return f"CTranslate2 has no {family} models"
    part = model.get("encoder", model)  # of a classifier
    stack = part.get("stack") if isinstance(part, Mapping) else None
    if not isinstance(stack, Mapping):
        return "its configuration has no stack"
    experts, score, kinds = stack.get("experts"), str(stack.get("score"))[:80], set()
    for kind in (stack.get("attention"), part.get("encoder_attention")):
        kinds |= set(map(str, kind if isinstance(kind, list) else [kind]))
    positions, activation = str(part.get("positions"))[:80], str(stack.get("activation"))[:80]
    rotary, d_embed = positions == "rotary", part.get("d_embed")
    reasons = {
        "it has attention of another kind than full": not kinds <= {"None", "full"},
        "it has experts": isinstance(experts, Mapping) and experts.get("n", 0) != 0,
        "it is reversible, with two residual streams": bool(stack.get("reversible")),
        f"its attention has {score} scores": score not in SCORES,
        f"it has {positions} positions": positions not in POSITION_CODES,
        f"its activation is {activation}": activation not in ACTIVATIONS,
        "it has general scores of rotated queries": rotary and score == "general",
        "its embedding is narrower than its layers": d_embed not in (None, stack.get("d_model")),
        f"it has more than {MAX_POSITIONS} axial positions": positions == "axial"
        and part.get("max_length") not in range(MAX_POSITIONS + 1),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
