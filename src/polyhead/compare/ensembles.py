"""Ensembles of what was trained: of all seeds of a system, or of several systems.

They cost what their members cost together, in training and in memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from polyhead.checkpoint import atomic_dir as store
from polyhead.compare import scoring as judging
from polyhead.compare.plan import SEEDS, ComparePlan, read_json
from polyhead.compare.runner import (
    Counting,
    Progress,
    output_file,
    result_file,
    write_json,
)
from polyhead.pipelines.translator import load
from polyhead.training.run_log import ProgressReporter

TRAINING = ("steps", "tokens", "seconds", "flops", "flops_measured")


def members(plan: ComparePlan) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Every ensemble that was asked for: its name, and who is in it."""
    if plan.ensembles_of_seeds:
        for system in plan.systems:
            yield system.name, [(system.name, seed) for seed in range(1, plan.seeds + 1)]
    for team in plan.ensembles:
        yield "+".join(team), [(name, 1) for name in team]


def run_teams(
    plan: ComparePlan,
    results: Sequence[dict[str, Any]],
    watcher: ProgressReporter,
    counting: Counting,
) -> list[dict[str, Any]]:
    """The results of all ensembles, in the form of those of single systems."""
    by_name = {(one["system"], one["seed"]): one for one in results}
    found = []
    for name, team in members(plan):
        seed = SEEDS if len({member for member, _ in team}) == 1 else "team"
        count = f"{len(team)}" if seed == SEEDS else ""
        path = result_file(plan, name, f"{seed}{count}")
        if not path.exists():
            watcher.stage(f"examining the ensemble {name} ({len(team)} members)")
            with counting("examining", judging.n_examined(plan.material.sources)) as progress:
                found_here = judge_team(plan, name, [by_name[one] for one in team], progress)
            write_json(path, found_here)
        found.append(read_json(path))
    return found


def judge_team(
    plan: ComparePlan, name: str, team: Sequence[dict[str, Any]], progress: Progress
) -> dict[str, Any]:
    """Examine an ensemble like a system."""
    folders = [plan.folder / "runs" / f"{one['system']}-{one['seed']}" for one in team]
    material = plan.material
    examined = judging.examine(
        load(*folders), material.sources, material.references, plan.metric, progress
    )
    for way, one in examined.items():
        lines = "".join(f"{line}\n" for line in one.outputs)
        store.write_text(output_file(plan, name, f"ensemble{len(team)}", way), lines)
    speeds = {way: len(material.sources) / max(one.seconds, 1e-9) for way, one in examined.items()}
    decoding = team[0]["decoding"] | {
        "remembered_bytes": sum(one["decoding"]["remembered_bytes"] for one in team),
        "sentences_per_second": speeds,
    }
    return {
        "system": name,
        "seed": f"ensemble{len(team)}",
        "members": [f"{one['system']}-{one['seed']}" for one in team],
        "parameters": sum(one["parameters"] for one in team),
        "training": {key: sum(one["training"][key] for one in team) for key in TRAINING},
        "decoding": decoding,
        "scores": {way: one.scores for way, one in examined.items()},
        "curve": [],
    }
