"""`polyhead cost`: parameters, FLOPs and memory of a recipe."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from polyhead.cli.options import Json, Overrides, RecipeName

if TYPE_CHECKING:
    from rich.table import Table

    from polyhead.cost.report import CostReport

UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cost(
    recipe: RecipeName,
    overrides: Overrides = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="Training tokens, source and target (default: the recipe's)."),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(help="Sentence length in tokens (default: 30, or the model's window)."),
    ] = None,
    json_out: Json = False,
) -> None:
    """Count parameters, FLOPs and memory of a recipe before it is trained.

    polyhead cost base
    polyhead cost small model.stack.d_model=512 --tokens 20000000
    """
    from rich.console import Console

    from polyhead.cost.report import cost_report
    from polyhead.training.config import read_run

    report = cost_report(read_run(recipe, overrides or ()), tokens=tokens, length=length)
    if json_out:
        print(json.dumps({"recipe": recipe, **report.to_json()}, indent=2))
        return
    console = Console(soft_wrap=True)
    console.print(part_table(report))
    for line in report.assumed:
        console.print(f"assumed: {line}", markup=False, highlight=False)
    for table in (total_table(report), reference_table(report)):
        console.print()
        console.print(table)
    console.print()


def part_table(report: "CostReport") -> "Table":
    """Return parameters and the cost of one batch, part by part."""
    shape = report.shape
    sides = f"{shape.source} → {shape.length}" if shape.source else str(shape.length)
    title = f"{report.family}, one batch: {shape.batch:,} x {sides} tokens"
    if report.measured and report.total.training is None:
        title += "; too large to be measured: try a smaller --length"
    elif report.measured:
        title += "; measured on one sentence"
    table = new_table(title)
    for name in ("parameters", "forward FLOPs", "training FLOPs", "saved for backward"):
        table.add_column(name, justify="right")
    for name, part in [*report.parts.items(), ("total", report.total)]:
        table.add_row(
            name,
            f"{part.parameters:,}",
            short_number(part.forward),
            short_number(part.training),
            short_size(part.kept),
        )
    return table


def total_table(report: "CostReport") -> "Table":
    """Return the cost of the whole training, its memory, and the cache of decoding."""
    table = new_table("training and decoding")
    table.show_header = False
    table.add_column("", justify="right")
    table.add_column("")
    per_token, memory = report.per_token, report.memory
    if report.shape.source and not report.measured:
        source, target = per_token["source"], per_token["target"]
        table.add_row("FLOPs per source token", short_number(source), "forward and backward")
        table.add_row("FLOPs per target token", short_number(target), "with the output layer")
    table.add_row("FLOPs per token", short_number(per_token["mean"]), "mean over all tokens")
    if report.tokens is None:
        hint = "the recipe counts in epochs: give --tokens N or train.steps=N"
        table.add_row("FLOPs in total", "?", hint)
    else:
        total = "?" if report.flops is None else f"{report.flops:.2e}"
        table.add_row("FLOPs in total", total, f"for {report.tokens:,} tokens, without padding")
    for name, n_bytes, comment in (
        ("memory of a step", memory.total, "sum of the following"),
        ("  parameters", memory.parameters, ""),
        ("  gradients", memory.gradients, ""),
        ("  Adam's averages", memory.moments, ""),
        ("  activations", memory.activations, "saved for backward"),
        ("  logits", memory.logits, "of one chunk"),
    ):
        table.add_row(name, short_size(n_bytes), comment)
    if report.cache is not None:
        comment = f"for one sentence, beam {report.beam}"
        table.add_row("decoding cache", short_size(report.cache), comment)
    return table


def reference_table(report: "CostReport") -> "Table":
    """Return the two models of the paper for comparison."""
    table = new_table("for comparison: Vaswani et al. 2017")
    for name in ("parameters", "FLOPs as published", "FLOPs as counted here", "ratio"):
        table.add_column(name, justify="right")
    for model in report.references:
        table.add_row(
            model.name,
            short_number(model.parameters),
            f"{model.flops:.1e}",
            f"{model.counted:.1e}",
            f"{model.counted / model.flops:.0%}",
        )
    table.caption = "published: time x 8 P100 x 9.5e12; counted: matrix products only"
    return table


def short_number(number: int | float | None) -> str:
    """Return a large number with a unit, such as 2.3 G; ? if it is unknown."""
    if number is None:
        return "?"
    for unit, letter in UNITS:
        if number >= unit:
            return f"{number / unit:.3g} {letter}"
    return f"{number:.3g}"


def short_size(n_bytes: int | None) -> str:
    """Return a number of bytes with a unit, such as 250 MB; ? if it is unknown."""
    number = short_number(n_bytes)
    return number if n_bytes is None else f"{number}B" if " " in number else f"{number} B"


def new_table(title: str) -> "Table":
    """Return an empty table without lines, whose first column has no heading."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.caption_justify = "left"
    table.add_column("")
    return table
