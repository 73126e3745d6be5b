"""Long inputs and memory: the peak of a training step by depth, and on one very long document.

Every step is taken in a process of its own (`footprint.py`).
"""

import argparse
from dataclasses import replace

import curves
import footprint
import torch
from footprint import Footprint, Step
from measuring import table

DEPTHS, QUICK_DEPTHS = (2, 4, 8, 12, 24), (1, 2)
GROWTH_BAR = 0.10
DOCUMENT = Step(n_layers=6, feed_chunk=4096, update=True, count_kept=False)
BAR, GOAL = 12, 6  # GB
HOW = "in a process of its own; peak of what is resident, beyond what was before the model"

Found = tuple[list[str], list[curves.Panel]]


def memory(words: argparse.Namespace) -> Found:
    """Return the peak of a step by depth, reversible and not."""
    step = Step(threads=torch.get_num_threads())
    if words.quick:
        step = replace(step, length=256, d_model=32)
    results: dict[str, dict[int, Footprint]] = {"reversible": {}, "ordinary": {}}
    for depth in QUICK_DEPTHS if words.quick else DEPTHS:
        for kind, by_depth in results.items():
            item = replace(step, n_layers=depth, reversible=kind == "reversible")
            by_depth[depth] = footprint.measure(item)
            print(f"{depth} layers, {kind}: {by_depth[depth].peak / 1e6:,.0f} MB")
    lines = [
        f"- each {HOW}",
        "",
        f"Forward and back through a language model, {step.length:,} tokens, d_model "
        f"{step.d_model}, {' and '.join(step.attention)} attention in turn. The rest is the peak "
        "without parameters and gradients; kept is what autograd kept of it.",
        "",
        *by_depth_table(results),
        "",
        growth(results["reversible"]),
    ]
    by_kind = {
        kind: [(depth, item.activations / 1e6) for depth, item in by_depth.items()]
        for kind, by_depth in results.items()
    }
    title = "peak without parameters and gradients, MB"
    return lines, [curves.Panel(title, "layers", by_kind, logarithmic=True, logarithmic_x=True)]


def by_depth_table(results: dict[str, dict[int, Footprint]]) -> list[str]:
    """Everything in megabytes, and the seconds."""
    columns = ["layers"]
    for kind in results:
        columns += [f"{kind}: peak, MB", "the rest", "kept", "seconds"]
    rows = []
    for depth in results["reversible"]:
        row = [str(depth)]
        for by_depth in results.values():
            item = by_depth[depth]
            row += [f"{size / 1e6:,.0f}" for size in (item.peak, item.activations, item.kept)]
            row.append(f"{item.seconds:.1f}")
        rows.append(row)
    return table(columns, rows)


def growth(results: dict[int, Footprint]) -> str:
    """Return the ratio of activation memory of the deepest and the shallowest stack."""
    low, high = min(results), max(results)
    grown = results[high].activations / results[low].activations - 1
    verdict = "reached" if grown < GROWTH_BAR else "MISSED"
    return (
        f"- reversible, from {low} to {high} layers: grows {100 * grown:.1f} % beyond parameters "
        f"and gradients (bar: less than {100 * GROWTH_BAR:.0f} %: {verdict})"
    )


def document(words: argparse.Namespace) -> Found:
    """One step on one long document."""
    step = replace(DOCUMENT, length=words.length, threads=torch.get_num_threads())
    if words.quick:
        step = replace(step, length=1000, d_model=32, n_layers=2, feed_chunk=256)
    results = footprint.measure(step)
    size = results.peak / 1e9
    verdicts = [
        f"{name} {most} GB: {'reached' if size <= most else 'MISSED'}"
        for name, most in (("bar", BAR), ("goal", GOAL))
    ]
    return [
        f"- {HOW}",
        "",
        f"One document of {step.length:,} tokens, forward, back and one update by AdamW; d_model "
        f"{step.d_model}, {step.n_layers} layers, {results.parameters / 4e6:.1f} million "
        f"parameters, {' and '.join(step.attention)} attention in turn, reversible, feed-forward "
        f"{step.feed_chunk:,} positions at a time, axial positions, a vocabulary of "
        f"{footprint.VOCAB}.",
        "",
        f"- peak: {size:.2f} GB ({', '.join(verdicts)})",
        f"- time: {results.seconds:,.0f} seconds",
    ], []
