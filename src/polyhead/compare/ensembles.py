"""Ensembles of trained systems: of all seeds of one system, or of several systems.

An ensemble costs what its members cost together, in training and in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace

from polyhead.compare.plan import SEEDS, ComparePlan
from polyhead.compare.results import (
    SystemResult,
    TrainingCost,
    read_result,
    result_file,
    to_json,
    write_json,
)
from polyhead.compare.scoring import n_translations, translate_test_set
from polyhead.pipelines.translator import Translator
from polyhead.training.run_log import ProgressReporter


def members(plan: ComparePlan) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield the name of every requested ensemble, and the systems and seeds of its members."""
    if plan.ensembles_of_seeds:
        for system in plan.systems:
            yield system.name, [(system.name, seed) for seed in range(1, plan.seeds + 1)]
    for names in plan.ensembles:
        yield "+".join(names), [(name, 1) for name in names]


def run_ensembles(
    plan: ComparePlan,
    results: Sequence[SystemResult],
    reporter: ProgressReporter,
    counting: Callable[[str, int], AbstractContextManager[Callable[[int], None]]],
) -> list[SystemResult]:
    """Return the results of all ensembles."""
    by_run = {(result.system, result.seed): result for result in results}
    scored = []
    for name, runs in members(plan):
        of_seeds = len({member for member, _ in runs}) == 1
        path = result_file(plan.folder, name, f"{SEEDS}{len(runs)}" if of_seeds else "team")
        if not path.exists():
            reporter.stage(f"evaluating the ensemble {name} ({len(runs)} members)")
            with counting("evaluating", n_translations(plan.test.sources)) as progress:
                result = score_ensemble(plan, name, [by_run[run] for run in runs], progress)
            write_json(path, to_json(result))
        scored.append(read_result(path))
    return scored


def score_ensemble(
    plan: ComparePlan,
    name: str,
    results: Sequence[SystemResult],
    progress: Callable[[int], None],
) -> SystemResult:
    """Translate and score the test set with an ensemble of these systems."""
    translator = Translator.from_dir(*(plan.folder / "runs" / result.key for result in results))
    seed = f"ensemble{len(results)}"
    scores, speeds = translate_test_set(plan, translator, (name, seed), progress)
    costs = {
        field.name: sum(getattr(result.training, field.name) for result in results)
        for field in fields(TrainingCost)
    }
    decoding = replace(
        results[0].decoding,
        remembered_bytes=sum(result.decoding.remembered_bytes for result in results),
        sentences_per_second=speeds,
    )
    return SystemResult(
        system=name,
        seed=seed,
        parameters=sum(result.parameters for result in results),
        training=TrainingCost(**costs),
        decoding=decoding,
        scores=scores,
        curve=[],
        members=[result.key for result in results],
    )
