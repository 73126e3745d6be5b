"""Model cards: README.md of a model directory, with front matter for the Hugging Face Hub."""

import json
from collections.abc import Sequence
from typing import Any

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.models.registry import FAMILIES, command_of, find_task

BARS = "▁▂▃▄▅▆▇█"
N_ROWS, MAX_BARS, SAMPLE_LINES = 8, 60, 9


def front_matter(family: str, about: dict[str, Any], library: str = "polyhead") -> str:
    """Return the YAML block at the start of a card, with the languages if they are known."""
    lines = ["---", f"library_name: {library}"]
    lines.append(f"pipeline_tag: {find_task(FAMILIES[family].task).tag}")
    if languages := _languages(about):  # JSON strings are YAML strings
        lines += ["language:", *(f"- {json.dumps(name)}" for name in languages)]
    return "\n".join([*lines, "tags:", f"- {family}", "---", "", ""])


def card_title(family: str, about: dict[str, Any]) -> str:
    """Return the title of the model card, with the languages if they are known."""
    languages = " to ".join(_languages(about))
    return f"# A {family} model{f': {languages}' if languages else ''}"


def _languages(about: dict[str, Any]) -> list[str]:
    return [str(name) for name in about.get("languages") or () if name]


def model_card(
    saved: SavedModel, validations: Sequence[dict[str, Any]] = (), sample: str = ""
) -> str:
    """Return the card of a trained model.

    validations: the metrics of all validations with their steps, as in metrics.jsonl.
    sample: outputs of the model on validation data.
    """
    family, about = saved.family, saved.about
    run = about.get("run") or {}
    data: dict[str, Any] = run.get("data", {})
    valid = about.get("valid")
    if valid and not validations:
        validations = [{"step": about.get("step", 0), **valid}]
    size = sum(weight.numel() for weight in saved.model.parameters())
    paths = [data.get(kind) for kind in ("source", "target", "pairs", "text", "labelled", "images")]
    files = ", ".join(str(path) for group in paths if isinstance(group, list) for path in group)
    return f"""{front_matter(family, about)}{card_title(family, about)}

{run.get("description", "")}

{size:,} parameters, step {about.get("step", 0):,}. Trained with Polyhead.

{_table(validations)}
{_examples(sample)}Trained on: {files or "not recorded"}. The licence of this data may restrict
the use of the model.

    {command_of(family)} DIRECTORY

`config.json` has the architecture, `model.safetensors` the weights, `tokenizer/` the tokenizers;
none of them can contain code. `training.*`, if present, is needed only to resume training.
"""


def _table(validations: Sequence[dict[str, Any]]) -> str:
    """Return the metrics of some validations, the last among them, and a curve of all losses."""
    if not validations:
        return "This model is not validated yet.\n"
    n = len(validations)
    places = sorted({round(i * (n - 1) / (N_ROWS - 1)) for i in range(N_ROWS)})
    names = list(validations[-1])
    rows = [names, ["---"] * len(names)]
    rows += [[_number(validations[i].get(name)) for name in names] for i in places]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    losses = [entry.get("loss") for entry in validations]
    known = [loss for loss in losses if isinstance(loss, float)]
    if len(known) < 2:
        return f"On the validation set:\n\n{table}\n"
    low, span = min(known), max(known) - min(known) or 1.0
    bars = [BARS[int((len(BARS) - 1) * (loss - low) / span + 0.5)] for loss in known]
    return f"On the validation set (loss: {''.join(bars[-MAX_BARS:])}):\n\n{table}\n"


def _number(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else "not finite"


def _examples(sample: str) -> str:
    """Return the first outputs as a block of code, in which no text is markup."""
    if not sample:
        return ""
    lines = "\n".join(f"    {line}" for line in sample.splitlines()[:SAMPLE_LINES])
    return f"Source, reference (=) and output (>) of validation data:\n\n{lines}\n\n"
