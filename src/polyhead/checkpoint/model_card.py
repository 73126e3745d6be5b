"""Model cards: what a folder holds, in words, written with every checkpoint."""

from typing import Any

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.models.registry import command_of


def model_card(saved: SavedModel) -> str:
    """README.md of a model folder."""
    run = saved.about.get("run") or {}
    data: dict[str, Any] = run.get("data", {})
    languages = " to ".join(
        str(name) for name in (data.get("source_language"), data.get("target_language")) if name
    )
    size = sum(p.numel() for p in saved.model.parameters())
    valid = saved.about.get("valid") or {}
    measured = "\n".join(f"| {name} | {_number(value)} |" for name, value in valid.items())
    named = [data.get(kind) for kind in ("source", "target", "pairs", "text", "labelled", "images")]
    files = ", ".join(str(name) for names in named if isinstance(names, list) for name in names)
    return f"""# A {saved.family} model{f": {languages}" if languages else ""}

{run.get("description", "")}

{size:,} parameters, step {saved.about.get("step", 0):,}. Trained with Polyhead.

| on the validation set | |
|---|---|
{measured or "| not measured yet | |"}

Trained on: {files or "not recorded"}. The licence of these data may bind what you do with it.

    {command_of(saved.family)} FOLDER

`config.json` describes the model, `model.safetensors` holds its weights, `tokenizer/` turns text
into ids; none of them can run code. `training.*`, if present, are needed only to train on.
"""


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "not finite"
