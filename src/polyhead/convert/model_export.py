"""Export of models: write a foreign directory → compare outputs → rename it.

Nothing is written if the outputs differ.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint.model_card import card_title, front_matter
from polyhead.checkpoint.model_dir import SavedModel, load_model, set_weights, weights_of
from polyhead.checkpoint.model_files import CARD, saved_languages
from polyhead.convert.conversion import (
    ConversionReport,
    check_output_is_new,
    parity_failed,
)
from polyhead.convert.parity_report import compare_readers, find_texts
from polyhead.convert.target_types import FLOAT, IDS_ONLY, Target
from polyhead.convert.targets import architecture_at, find_target
from polyhead.errors import ConfigError
from polyhead.models.registry import FAMILIES, find_task, max_positions
from polyhead.models.text_classifier import Classifier, ClassifierConfig

MAX_TEXTS = 1000
MB = 1e6  # bytes
USAGE: dict[str, dict[str, str]] = tomllib.loads(
    (resources.files("polyhead") / "convert" / "usage.toml").read_text(encoding="utf-8")
)
Progress = Callable[[int], None]


@dataclass(frozen=True)
class ReportConfig:
    """Options of the parity report.

    texts: the largest number of texts; 0 for no report.
    file: texts instead of the run's held-out ones.
    """

    texts: int = MAX_TEXTS
    file: Path | None = None


DEFAULT = ReportConfig()


def export_model(
    model: Path,
    output: Path,
    *,
    to: str = "hf",
    compute_type: str | None = None,
    report: ReportConfig = DEFAULT,
    saved: SavedModel | None = None,
    progress: Progress = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> ConversionReport:
    """Write a model for another library.

    to: the name of a target, see `targets.TARGETS`.
    compute_type: of the weights, the target's first one unless given.
    saved: the model of the directory `model`, if it is already loaded.
    progress: called with numbers of texts that were compared.
    say: called with a line before each file that takes several seconds.
    """
    target = find_target(to)
    kind = target.compute_types[0] if compute_type is None else compute_type
    if kind not in target.compute_types:
        raise ConfigError(
            f"--compute-type {kind}: {to} has {', '.join(target.compute_types)}", "invalid_option"
        )
    check_output_is_new(output)
    saved = in_own_units(load_model(model) if saved is None else saved)
    text = None if saved.tokenizers is None else saved.tokenizers.config
    architecture_at(target, saved.family, saved.config, text)
    sizes = [weight.numel() for weight in weights_of(saved.model).values()]
    with store.atomic_dir(output) as draft:
        written = target.write(saved, draft, kind, say)
        result = ConversionReport(
            saved.family, written.architecture, output, len(sizes), sum(sizes), written.parity,
            written.obstacle, written.tokenizer, written.notes,
        )  # fmt: skip
        if report.texts and target.open is not None and written.obstacle is None:
            files = sum(file.stat().st_size for file in draft.rglob("*") if file.is_file())
            megabytes = 4 * sum(sizes) / MB, files / MB
            theirs = target.open(saved, draft, kind)
            longest = min(theirs.longest, max_positions(saved.config) or theirs.longest)
            texts = find_texts(saved, model, longest=longest, file=report.file, most=report.texts)
            figures = compare_readers(saved, theirs, texts, megabytes, progress)
            if kind == FLOAT and not figures.parity.equal:
                raise parity_failed(saved.family, written.architecture, figures.parity)
            result = replace(result, figures=figures)
        card = export_card(saved, target, result)
        (draft / CARD).write_text(card, encoding="utf-8", newline="\n")
    return result


def in_own_units(saved: SavedModel) -> SavedModel:
    """Return a model of numbers with their mean and scale in its last layer."""
    config = saved.config
    if not isinstance(config, ClassifierConfig) or config.problem != "regression":
        return saved
    weights = weights_of(saved.model)
    weights["to_logits.weight"] = config.scale * weights["to_logits.weight"]
    weights["to_logits.bias"] = config.scale * weights["to_logits.bias"] + config.mean
    config = replace(config, mean=0.0, scale=1.0)
    model = Classifier(config).eval()
    set_weights(model, weights)
    return replace(saved, config=config, model=model)


def export_card(saved: SavedModel, target: Target, report: ConversionReport) -> str:
    """Return README.md: front matter, code to use the export, and its figures."""
    name, parity = report.output.name, report.parity
    used = usage(saved, target.name, report)
    rows = list(report.figures.rows()) if report.figures is not None else []
    if parity is not None:
        rows.append(("largest difference on random input", f"{parity.difference:.1e}"))
    elif report.obstacle is not None:
        rows.append(("not compared", report.obstacle))
    table = "".join(f"| {label} | {value} |\n" for label, value in rows)
    notes = "".join(f"- {note}\n" for note in report.notes)
    head = front_matter(saved.family, saved.about, target.library)
    return f"""{head}{card_title(saved.family, saved.about)}

Exported by Polyhead for {target.title}: {report.architecture}, {report.n_parameters:,} parameters.
Tokenizer: {report.tokenizer}. The licence of the training data is not known here; it may restrict
the use of the model.

In the directory that contains `{name}`:

{used}
Compared with the model it was exported from:

| | |
|---|---|
{table}
{notes}"""


def usage(saved: SavedModel, target: str, report: ConversionReport) -> str:
    """Return a block of code that uses an export."""
    table, task = USAGE[target], FAMILIES[saved.family].task
    source, goal = saved_languages(saved.about)
    words = {
        "DIR": report.output.name,
        "SOURCE": source,
        "TARGET": goal,
        "TASK": find_task(task).tag,
    }
    kind = ", two vocabularies" if " and " in report.tokenizer else ""
    if report.tokenizer == IDS_ONLY:
        kind = ", ids"
    code = next(table[key] for key in (task + kind, "any" + kind, task, "any") if key in table)
    for word, value in words.items():
        code = code.replace(word, value)
    return f"```{table.get('language', 'python')}\n{code}```\n"
