"""`polyhead cost`: what a recipe will cost, before anything is trained."""

import json

from rich.console import Console
from rich.table import Table

from polyhead.cost.report import CostReport, cost_report
from polyhead.training.config import read_run

UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def run_cost(
    recipe: str,
    overrides: tuple[str, ...],
    *,
    tokens: int | None = None,
    length: int | None = None,
    as_json: bool = False,
) -> None:
    """Count, and print tables or JSON."""
    run = read_run(recipe, overrides)
    report = cost_report(run, tokens=tokens, length=length)
    if as_json:
        print(json.dumps({"recipe": recipe, **report.to_json()}, indent=2))
        return
    console = Console(soft_wrap=True)
    console.print(parts(report))
    for line in report.assumed:
        console.print(f"assumed: {line}", markup=False, highlight=False)
    for table in (totals(report), beside(report)):
        console.print()
        console.print(table)
    console.print()


def parts(report: CostReport) -> Table:
    """Parameters and one batch, part by part."""
    shape = report.shape
    sides = f"{shape.source} → {shape.length}" if shape.source else str(shape.length)
    batch = f"one batch: {shape.batch:,} x {sides} tokens"
    table = _table(f"{report.family}, {batch}{_how(report)}")
    for name in ("parameters", "forward FLOPs", "training FLOPs", "saved for backward"):
        table.add_column(name, justify="right")
    for name, part in [*report.parts.items(), ("together", report.total)]:
        table.add_row(
            name,
            f"{part.parameters:,}",
            flops(part.forward),
            flops(part.training),
            size(part.kept),
        )
    return table


def _how(report: CostReport) -> str:
    """What a title adds where there are no formulas."""
    if not report.measured:
        return ""
    if report.total.training is None:
        return "; no formulas, and too large to be measured: try a smaller --length"
    return "; measured on one sentence of a model built for it, not computed"


def totals(report: CostReport) -> Table:
    """The whole training, its memory, and what decoding remembers."""
    table = _table("training and decoding")
    table.show_header = False
    table.add_column("", justify="right")
    table.add_column("")
    mean = report.per_token
    if report.shape.source and not report.measured:
        table.add_row("FLOPs of a source token", flops(mean["source"]), "forward and backward")
        table.add_row("FLOPs of a target token", flops(mean["target"]), "with the output layer")
    table.add_row("FLOPs of a token", flops(mean["mean"]), "the mean over all")
    if report.tokens is None:
        unknown = "the recipe counts in epochs: give --tokens N or train.steps=N"
        table.add_row("FLOPs in all", "?", unknown)
    else:
        words = f"of {report.tokens:,} tokens, as if none were padding"
        in_all = "?" if report.flops is None else f"{report.flops:.2e}"
        table.add_row("FLOPs in all", in_all, words)
    memory = report.memory
    table.add_row("memory of a step", size(memory.total), "the sum of the following")
    table.add_row("  parameters", size(memory.parameters), "")
    table.add_row("  gradients", size(memory.gradients), "")
    table.add_row("  Adam's averages", size(memory.moments), "")
    table.add_row("  activations", size(memory.activations), "saved for backward")
    table.add_row("  logits", size(memory.logits), "a chunk of them at a time")
    if report.cache is not None:
        words = f"for a sentence, with a beam of {report.beam}"
        table.add_row("decoding cache", size(report.cache), words)
    return table


def beside(report: CostReport) -> Table:
    """The paper's two models."""
    table = _table("beside it: Vaswani et al. 2017")
    for name in ("parameters", "FLOPs as estimated there", "products alone", "ratio"):
        table.add_column(name, justify="right")
    for model in report.references:
        table.add_row(
            model.name,
            flops(model.parameters),
            f"{model.flops:.1e}",
            f"{model.counted:.1e}",
            f"{model.counted / model.flops:.0%}",
        )
    table.caption = "estimated as time x 8 P100 x 9.5e12; products counted as above"
    return table


def flops(number: int | float | None) -> str:
    """A large number in short, such as 2.3 G; ? if nobody knows it."""
    if number is None:
        return "?"
    for unit, letter in UNITS:
        if number >= unit:
            return f"{number / unit:.3g} {letter}"
    return f"{number:.3g}"


def size(n_bytes: int | None) -> str:
    """Bytes in short, such as 250 MB; ? if nobody knows."""
    if n_bytes is None:
        return "?"
    short = flops(n_bytes)
    return f"{short}B" if " " in short else f"{short} B"


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.caption_justify = "left"
    table.add_column("")
    return table
