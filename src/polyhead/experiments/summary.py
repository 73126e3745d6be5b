"""Values of the table: means over seeds, intervals, significance tests and costs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from polyhead.config import from_dict, read, suggest
from polyhead.cost.published import TABLE_2
from polyhead.data.text_files import read_lines
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError, Diverged
from polyhead.experiments.configuration import deviations, sizes_of
from polyhead.experiments.plan import ComparePlan
from polyhead.experiments.results import (
    DECODINGS,
    SIGNIFICANCE,
    ComparisonTable,
    EvaluationSet,
    ExpertBalance,
    RowDecoding,
    ScoreRange,
    SystemResult,
    TableRow,
    TrainingCost,
    read_json,
    write_json,
)
from polyhead.experiments.systems import System
from polyhead.experiments.table import HEADLINE, title_of
from polyhead.metrics.bleu import compare
from polyhead.metrics.error_rates import compare_errors
from polyhead.metrics.seeds import holm, mean_interval, paired_test
from polyhead.training.config import build
from polyhead.training.run_dir import CONFIG


def summarize(
    plan: ComparePlan, results: Sequence[SystemResult], ensembles: Sequence[SystemResult]
) -> ComparisonTable:
    """Return the table of these results."""
    diverged = [f"{result.system}, seed {result.seed}" for result in results if not result.scores]
    results = [result for result in results if result.scores]
    if not results:
        raise Diverged(f"every run diverged: {'; '.join(diverged)}", "diverged")
    p_values = significance(plan, [*results, *ensembles])
    systems = {system.name: system for system in plan.systems}
    metric = plan.metric if plan.test is not None else headline_of(plan, results)
    rows = [
        make_row(plan, system, own, p_values)
        for system in plan.systems
        if (own := [result for result in results if result.system == system.name])
    ]
    if plan.test is None:
        rows = [with_seeds_test(row, systems[row.system], metric, results) for row in rows]
    for ensemble in ensembles:
        members = [systems[name] for name in ensemble.system.split("+")]
        key = f"{members[0].published} ensemble"  # of seeds: the paper has some of them
        published = key if key in TABLE_2 and len(members) == 1 else None
        together = System(ensemble.system, "", published=published)
        names = [member.title_at(plan.request.scale) for member in members]
        row = make_row(plan, together, [ensemble], p_values)
        row = replace(row, members=ensemble.members, names=names)
        rows.append(replace(row, title=title_of(row, "en")))
    for name in ("p_value", "p_seeds"):  # every row is a test
        tested = [n for n, row in enumerate(rows) if vars(row)[name] is not None]
        for n, p in zip(tested, holm([vars(rows[n])[name] for n in tested]), strict=True):
            values: dict[str, Any] = {name: p}
            rows[n] = replace(rows[n], **values)
    request, first, contest = plan.request, results[0], plan.request.contest
    search = from_dict(DecodeConfig, plan.base.get("decode", {}), "decode.")
    signatures = {score.signature for score in next(iter(first.scores.values())).values()}
    data = Path(request.recipe or "own text").stem if contest.translates else contest.title
    return ComparisonTable(
        contest=contest.name if contest.translates else "variants",
        data=data,
        test=evaluation_set(plan, first),
        budget=str(request.budget),
        seeds=request.seeds,
        baseline=contest.baseline or plan.systems[0].name,
        metric=metric,
        at_home=plan.home,
        beam=first.decoding.beam if first.decoding else 0,
        length_penalty=first.decoding.length_penalty if first.decoding else 0.0,
        coverage=search.coverage,
        replace_unknown=search.replace_unknown,
        signatures=sorted(signatures - {""}),
        rows=rows,
        paper=dict(TABLE_2) if contest.name == "compare" else {},
        diverged=diverged,
        paired="wer" if first.exact else plan.metric,
    )


def evaluation_set(plan: ComparePlan, result: SystemResult) -> EvaluationSet:
    """Return the set that was scored: of translators, given test files, or the validation set."""
    if plan.test is not None:
        return EvaluationSet(plan.test.where, len(plan.test.sources))
    files = [Path(path).name for paths in plan.request.tests.values() for path in paths]
    return EvaluationSet(", ".join(files) or "validation", result.examples)


def headline_of(plan: ComparePlan, results: Sequence[SystemResult]) -> str:
    """Return the score that orders the rows: as requested, as in training, or the first of use."""
    (scores,) = results[0].scores.values()
    requested = HEADLINE.get(plan.request.metric or "", plan.request.metric)
    if requested is not None:
        if requested not in scores:
            raise ConfigError(
                f"--metric {requested}: no such score{suggest(requested, scores)}", "unknown_metric"
            )
        return requested
    run = build(read(plan.folder / "runs" / results[0].key / CONFIG), any_size=True)
    texts = [name for name in HEADLINE.values() if name in scores]
    others = [name for name in scores if name not in ("loss", "perplexity")]
    judged = [run.train.judge_by] if run.train.judge_by in others else []
    return next(iter([*judged, *texts, *others]), "loss")


def with_seeds_test(
    row: TableRow, system: System, metric: str, results: Sequence[SystemResult]
) -> TableRow:
    """Return a row with the p-value of the paired t-test over seeds against its baseline."""
    values = {
        name: {
            r.seed: s[metric].value for r in results if r.system == name for s in r.scores.values()
        }
        for name in (row.system, system.baseline)
    }
    seeds = [seed for seed in values[row.system] if seed in values[system.baseline]]
    if row.system == system.baseline:
        return row
    return replace(
        row, p_seeds=paired_test(*([of[seed] for seed in seeds] for of in values.values()))
    )


def make_row(
    plan: ComparePlan, system: System, results: Sequence[SystemResult], p_values: dict[str, float]
) -> TableRow:
    """Return the row of one system: means over its seeds, smallest and largest score.

    With a preset also the sizes of its run, and the deviations from the paper's.
    """
    first, run = results[0], None
    if system.preset is not None:
        run = build(read(plan.folder / "runs" / first.key / CONFIG), any_size=True)
    scores: dict[str, dict[str, ScoreRange]] = {}
    for decoding, named in first.scores.items():
        values = {
            name: [r.scores[decoding][name].value for r in results]
            for name in named
            if all(name in result.scores[decoding] for result in results)
        }
        scores[decoding] = {
            name: ScoreRange(mean(list_), min(list_), max(list_))
            if plan.test is not None
            else ScoreRange(*mean_interval(list_))
            for name, list_ in values.items()
        }
    first_scores = next(iter(first.scores.values())).values()
    ends = [(s.low, s.high) for s in first_scores if s.low is not None and s.high is not None]
    chances = [p_values[result.key] for result in results if result.key in p_values]
    balances = [result.experts for result in results if result.experts]
    costs = zip(*(vars(result.training).values() for result in results), strict=True)
    decoding_costs = [result.decoding for result in results if result.decoding is not None]
    speeds = {
        decoding: mean(cost.sentences_per_second[decoding] for cost in decoding_costs)
        for decoding in (DECODINGS if decoding_costs else ())
    }
    return TableRow(
        system=system.name,
        title=system.title_at(plan.request.scale),
        paper=system.paper,
        published=system.published,
        bar=system.bar,
        seeds=[result.seed for result in results],
        scores=scores,
        interval=ends[0] if ends and len(results) == 1 else None,
        p_value=median(chances) if chances else None,
        parameters=first.parameters,
        training=TrainingCost(*map(mean, costs)),
        decoding=RowDecoding(first.decoding.remembered_bytes, 4 * first.parameters, speeds)
        if first.decoding
        else None,
        curves=[result.curve for result in results],
        experts=ExpertBalance(mean(b.used for b in balances), max(b.most for b in balances))
        if balances
        else None,
        sizes=None if run is None else sizes_of(run.model),
        preset=system.preset,
        deviations=[] if run is None else deviations(system, run),
        changes=list(system.variation),
    )


def significance(plan: ComparePlan, results: Sequence[SystemResult]) -> dict[str, float]:
    """Return the p-value of every result against the baseline of the same seed; cached."""
    path = plan.folder / SIGNIFICANCE
    known = read_json(path, dict) if path.exists() else {}
    baselines = {system.name: system.baseline for system in plan.systems}
    keys, p_values = {result.key for result in results}, dict[str, float]()
    for result in results:
        baseline = baselines.get(result.system) or plan.request.contest.baseline
        key = f"{baseline}-{result.seed}"
        if plan.test is not None and key not in keys:  # an ensemble of several systems
            key = f"{baseline}-1"
        name = result.key if plan.test is not None else f"{result.key} / {key}"
        if name not in known and result.key != key and key in keys:
            known[name] = paired_p_value(plan, key, result)
            write_json(path, known)
        if known.get(name) is not None:
            p_values[result.key] = known[name]
    return p_values


def paired_p_value(plan: ComparePlan, baseline: str, result: SystemResult) -> float | None:
    """Return the p-value of the outputs of two runs; None if they have none for equal examples."""
    folder, kind, metric = plan.folder / "outputs", "greedy", plan.metric
    if plan.test is not None:
        references = plan.test.references
    else:
        kind, metric = "outputs", "wer" if result.exact else plan.metric
        paths = [folder / f"{run}.references.txt" for run in (baseline, result.key)]
        if not all(path.exists() for path in paths):
            return None
        references, others = map(read_lines, paths)
        if references != others:
            return None
    theirs, ours = (read_lines(folder / f"{run}.{kind}.txt") for run in (baseline, result.key))
    if metric == "wer":
        test, *_ = compare_errors(theirs, ours, references)
    else:
        test, *_ = compare(theirs, ours, references, lowercase=True)
    return test.p_value
