"""Limits of CTranslate2, checked before anything is converted, without numpy."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from polyhead.errors import install_command

PACKAGE = "ctranslate2"
OLDEST = (4, 8, 1)  # earlier ones have a heap overflow on damaged files
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


def missing() -> str | None:
    """Return why the engine cannot be used here, or None if it can."""
    try:
        installed = import_module(PACKAGE).__version__
    except ImportError:
        return f"{PACKAGE} is not installed; install it with: {install_command('fast')}"
    if tuple(map(int, installed.split(".")[:3])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return f"{PACKAGE} {installed} is too old; expected {oldest} or newer"
    return None


def torch_notice(reason: str) -> str | None:
    """Return what to tell a user who could have CTranslate2, which is not used for a reason."""
    return None if missing() else f"decoding with torch instead of ctranslate2: {reason}"


def device_obstacle(device: str) -> str | None:
    """Return why torch should compute on a device, or None if the engine can."""
    if device not in ("auto", "cpu"):
        return f"it computes on a CPU, not on {device}"
    is_free = device == "auto" and missing() is None
    if is_free and import_module(PACKAGE).get_cuda_device_count():
        return "torch can use the GPU"
    return None
