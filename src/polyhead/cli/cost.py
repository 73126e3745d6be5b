"""`polyhead cost`: parameters, FLOPs and memory of a recipe."""

import json
from typing import TYPE_CHECKING

from typer import Option

from polyhead.cli.options import Json, Overrides, RecipeName

if TYPE_CHECKING:
    from rich.table import Table

    from polyhead.cost.report import CostReport

UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cost(
    recipe: RecipeName,
    overrides: Overrides = None,
    tokens: int | None = Option(
        None, help="Training tokens, source and target (default: the recipe's)."
    ),
    length: int | None = Option(
        None, help="Sentence length in tokens (default: 30, or the model's window)."
    ),
    json_out: Json = False,
) -> None:
    """Count parameters, FLOPs and memory before training.

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
    headings = ("parameters", "forward FLOPs", "training FLOPs", "saved for backward")
    table = new_table(title, *headings)
    for name, part in [*report.parts.items(), ("total", report.total)]:
        flops = (short_number(part.forward), short_number(part.training))
        table.add_row(name, f"{part.parameters:,}", *flops, short_size(part.kept))
    return table


def total_table(report: "CostReport") -> "Table":
    """Return the cost of the whole training, its memory, and the cache of decoding."""
    per_token, memory = report.per_token, report.memory
    rows = [("FLOPs per token", short_number(per_token["mean"]), "mean over all tokens")]
    if report.shape.source and not report.measured:
        source, target = short_number(per_token["source"]), short_number(per_token["target"])
        rows.insert(0, ("FLOPs per source token", source, "forward and backward"))
        rows.insert(1, ("FLOPs per target token", target, "with the output layer"))
    total = "?" if report.flops is None or report.tokens is None else f"{report.flops:.2e}"
    comment = "the recipe counts in epochs: give --tokens N or train.steps=N"
    if report.tokens is not None:
        comment = f"for {report.tokens:,} tokens, without padding"
    rows += [
        ("FLOPs in total", total, comment),
        ("memory of a step", short_size(memory.total), "sum of the following"),
        ("  parameters", short_size(memory.parameters), ""),
        ("  gradients", short_size(memory.gradients), ""),
        ("  Adam's averages", short_size(memory.moments), ""),
        ("  activations", short_size(memory.activations), "saved for backward"),
        ("  logits", short_size(memory.logits), "of one chunk"),
    ]
    if report.cache is not None:
        cache = short_size(report.cache)
        rows.append(("decoding cache", cache, f"for one sentence, beam {report.beam}"))
    table = new_table("training and decoding", "")
    table.show_header = False
    table.add_column("")
    for row in rows:
        table.add_row(*row)
    return table


def reference_table(report: "CostReport") -> "Table":
    """Return the two models of the paper for comparison."""
    headings = ("parameters", "FLOPs as published", "FLOPs as counted here", "ratio")
    table = new_table("for comparison: Vaswani et al. 2017", *headings)
    for model in report.references:
        flops = (f"{model.flops:.1e}", f"{model.counted:.1e}", f"{model.counted / model.flops:.0%}")
        table.add_row(model.name, short_number(model.parameters), *flops)
    table.caption = "published: time x 8 P100 x 9.5e12; counted: matrix products only"
    return table


def short_number(number: int | float | None) -> str:
    """Return a large number with a unit, such as 2.3 G; ? if it is unknown."""
    if number is None:
        return "?"
    unit, letter = next(((size, name) for size, name in UNITS if number >= size), (1, ""))
    return f"{number / unit:.3g} {letter}".rstrip()


def short_size(n_bytes: int | None) -> str:
    """Return a number of bytes with a unit, such as 250 MB; ? if it is unknown."""
    number = short_number(n_bytes)
    return number if n_bytes is None else f"{number}B" if " " in number else f"{number} B"


def new_table(title: str, *headings: str) -> "Table":
    """Return an empty table without lines, whose first column has no heading."""
    from rich.table import Column, Table

    columns = [Column(""), *(Column(heading, justify="right") for heading in headings)]
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    table.caption_justify = "left"
    return table
