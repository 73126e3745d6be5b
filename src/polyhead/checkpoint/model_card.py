"""Model cards: the README.md of a model directory, written with every checkpoint."""

from typing import Any

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.models.registry import command_of


def model_card(saved: SavedModel) -> str:
    """Return the text of README.md."""
    run = saved.about.get("run") or {}
    data: dict[str, Any] = run.get("data", {})
    languages = " to ".join(
        str(name) for name in (data.get("source_language"), data.get("target_language")) if name
    )
    size = sum(p.numel() for p in saved.model.parameters())
    valid = saved.about.get("valid") or {}
    measured = "\n".join(f"| {name} | {_number(value)} |" for name, value in valid.items())
    paths = [data.get(kind) for kind in ("source", "target", "pairs", "text", "labelled", "images")]
    files = ", ".join(str(path) for group in paths if isinstance(group, list) for path in group)
    return f"""# A {saved.family} model{f": {languages}" if languages else ""}

{run.get("description", "")}

{size:,} parameters, step {saved.about.get("step", 0):,}. Trained with Polyhead.

| on the validation set | |
|---|---|
{measured or "| not validated yet | |"}

Trained on: {files or "not recorded"}. The licence of this data may restrict the use of the model.

    {command_of(saved.family)} DIRECTORY

`config.json` has the architecture, `model.safetensors` the weights, `tokenizer/` the tokenizers;
none of them can contain code. `training.*`, if present, is needed only to resume training.
"""


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "not finite"
