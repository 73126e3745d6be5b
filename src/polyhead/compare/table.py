"""The table of a comparison: one row per system, means over its seeds, the paper's figures beside.

`summarize` computes the values; `markdown` and `page.render` show them. Texts are in words.toml.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import mean, median

from polyhead.compare.configuration import Deviation, ModelSizes, deviations, sizes_of
from polyhead.compare.plan import ComparePlan
from polyhead.compare.results import (
    DECODINGS,
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
from polyhead.compare.systems import System
from polyhead.config import from_dict, read
from polyhead.cost.published import TABLE_2, table_2
from polyhead.data.text_files import read_lines
from polyhead.decoding.options import DecodeConfig
from polyhead.i18n import Words
from polyhead.metrics.bleu import compare
from polyhead.metrics.error_rates import compare_errors
from polyhead.training.config import build
from polyhead.training.run_dir import CONFIG

BETTER = {"bleu": max, "wer": min}
HEADLINE = {"bleu": "BLEU lower-cased", "wer": "WER"}
SHOWN = {"bleu": ("BLEU lower-cased", "BLEU cased"), "wer": ("WER", "PER")}
BRIEF = ("p", "steps", "minutes", "parameters", "speed")  # columns for a terminal, besides scores
FEW_STEPS = 500  # with fewer, warm-up and chance decide
UNNAMED = ("own text", "held out")  # data without a name of its own
WORDS = tomllib.loads(files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))


def in_words(key: str, language: str) -> str:
    """Return the text of a key; a name without translation is returned as it is."""
    return WORDS[key][language] if key in WORDS else key


# Values


def summarize(
    plan: ComparePlan, results: Sequence[SystemResult], ensembles: Sequence[SystemResult]
) -> ComparisonTable:
    """Return the table of these results."""
    p_values = significance(plan, [*results, *ensembles])
    systems = {system.name: system for system in plan.systems}
    rows = [
        make_row(plan, system, own, p_values)
        for system in plan.systems
        if (own := [result for result in results if result.system == system.name])
    ]
    for ensemble in ensembles:
        members = [systems[name] for name in ensemble.system.split("+")]
        key = f"{members[0].published} ensemble"  # of seeds: the paper has some of them
        published = key if key in TABLE_2 and len(members) == 1 else None
        together = System(ensemble.system, "", published=published)
        names = [member.title_at(plan.request.scale) for member in members]
        row = make_row(plan, together, [ensemble], p_values)
        row = replace(row, members=ensemble.members, names=names)
        rows.append(replace(row, title=title_of(row, "en")))
    request, first = plan.request, results[0]
    search = from_dict(DecodeConfig, plan.base.get("decode", {}), "decode.")
    return ComparisonTable(
        contest=request.contest.name,
        data=Path(request.recipe or "own text").stem,
        test=EvaluationSet(plan.test.where, len(plan.test.sources)),
        budget=str(request.budget),
        seeds=request.seeds,
        baseline=request.contest.baseline,
        metric=plan.metric,
        at_home=plan.home,
        beam=first.decoding.beam,
        length_penalty=first.decoding.length_penalty,
        coverage=search.coverage,
        replace_unknown=search.replace_unknown,
        signatures=sorted({score.signature for score in first.scores["greedy"].values()}),
        rows=rows,
        paper=dict(TABLE_2) if request.contest.name == "compare" else {},
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
        values = {name: [r.scores[decoding][name].value for r in results] for name in named}
        scores[decoding] = {
            name: ScoreRange(mean(list_), min(list_), max(list_)) for name, list_ in values.items()
        }
    headline = next(iter(first.scores["greedy"].values()))
    known = len(results) == 1 and headline.low is not None and headline.high is not None
    chances = [p_values[result.key] for result in results if result.key in p_values]
    balances = [result.experts for result in results if result.experts]
    costs = zip(*(vars(result.training).values() for result in results), strict=True)
    speeds = {
        decoding: mean(r.decoding.sentences_per_second[decoding] for r in results)
        for decoding in DECODINGS
    }
    return TableRow(
        system=system.name,
        title=system.title_at(plan.request.scale),
        paper=system.paper,
        published=system.published,
        bar=system.bar,
        seeds=[result.seed for result in results],
        scores=scores,
        interval=(headline.low or 0.0, headline.high or 0.0) if known else None,
        p_value=median(chances) if chances else None,
        parameters=first.parameters,
        training=TrainingCost(*map(mean, costs)),
        decoding=RowDecoding(first.decoding.remembered_bytes, 4 * first.parameters, speeds),
        curves=[result.curve for result in results],
        experts=ExpertBalance(mean(b.used for b in balances), max(b.most for b in balances))
        if balances
        else None,
        sizes=None if run is None else sizes_of(run.model),
        preset=system.preset,
        deviations=[] if run is None else deviations(system, run),
    )


def significance(plan: ComparePlan, results: Sequence[SystemResult]) -> dict[str, float]:
    """Return the p-value of every result against the baseline of the same seed; cached."""
    path = plan.folder / "significance.json"
    known = read_json(path, dict) if path.exists() else {}
    baseline = plan.request.contest.baseline
    baseline_seeds = {result.seed for result in results if result.system == baseline}
    for result in results:
        seed = result.seed if result.seed in baseline_seeds else 1
        key = f"{baseline}-{seed}"
        if result.key in known or result.key == key or seed not in baseline_seeds:
            continue
        theirs, ours = (
            read_lines(plan.folder / "outputs" / f"{run}.greedy.txt") for run in (key, result.key)
        )
        if plan.metric == "wer":
            test, *_ = compare_errors(theirs, ours, plan.test.references)
        else:
            test, *_ = compare(theirs, ours, plan.test.references, lowercase=True)
        known[result.key] = test.p_value
        write_json(path, known)
    return known


def best_row(table: ComparisonTable) -> TableRow:
    """Return the row with the best first score of greedy search."""
    name = HEADLINE[table.metric]
    return BETTER[table.metric](table.rows, key=lambda row: row.scores["greedy"][name].mean)


# Cells


def title_of(row: TableRow, language: str) -> str:
    """Return the title of a row with its sizes; that of an ensemble names its members."""
    if row.members is None or row.names is None:
        return sized_title(row.title, row.sizes, language)
    names = " + ".join(in_words(name, language) for name in row.names)
    return in_words("ensemble", language).format(names=names, n=len(row.members))


def sized_title(title: str, sizes: ModelSizes | None, language: str) -> str:
    """Return a title and sizes: `Transformer, 3 layers of 256, pre-norm`."""
    parts = [in_words(title, language)]
    if sizes is not None:
        key = "layer" if sizes.layers == (1,) else "layers"
        layers = " + ".join(map(str, sizes.layers))
        parts.append(in_words(key, language).format(layers=layers, width=sizes.width))
        if sizes.norm == "pre":
            parts.append("pre-norm")
        if sizes.experts:
            parts.append(in_words("experts", language).format(n=sizes.experts))
    return ", ".join(parts)


def listed(items: Sequence[Deviation]) -> str:
    """Return deviations as text, the paper's values in brackets."""
    return ", ".join(f"{item.name} {item.value} ({item.published})" for item in items)


def score_in_words(name: str, language: str) -> str:
    """Translate the name of a score word by word."""
    return " ".join(in_words(word, language) for word in name.split(" "))


def cells(table: ComparisonTable, row: TableRow, language: str) -> dict[str, str]:
    """Return one row as text, by the headings of the columns."""
    title, training = title_of(row, language), row.training
    scores: dict[str, str] = {}
    for name in SHOWN[table.metric]:
        for decoding in DECODINGS:
            score = row.scores[decoding][name]
            ends = (score.low, score.high) if len(row.seeds) > 1 else None
            if not scores and table.seeds == 1:  # of the first score only
                ends = row.interval
            spread = f" ({ends[0]:.2f} – {ends[1]:.2f})" if ends else ""
            heading = f"{score_in_words(name, language)}, {in_words(decoding, language)}"
            scores[heading] = f"{score.mean:.2f}{spread}"
    chance = "" if row.p_value is None else f"{row.p_value:.3f}"
    speeds, memory = row.decoding.sentences_per_second, row.decoding
    others = {
        "p": chance if row.p_value is None or row.p_value >= 0.0005 else "< 0.001",
        "flops": power_of_ten(training.flops, 2),
        "measured": power_of_ten(training.flops_measured, 2),
        "steps": f"{training.steps:,.0f}",
        "minutes": f"{training.seconds / 60:.{1 if training.seconds >= 60 else 2}f}",
        "parameters": f"{row.parameters / 1e6:.2f} M",
        "speed": f"{speeds['greedy']:,.0f} / {speeds['beam']:,.0f}",
        "memory": f"{memory.parameter_bytes / 1e6:.1f} MB + {memory.remembered_bytes / 1e3:.0f} kB",
    }
    if _has_bars(table):
        others = {"tutorial": f"{row.bar:g}" if row.bar else "", **others}
    if table.paper:
        paper = table.paper.get(row.published or "")
        bleu = (paper.en_de, paper.en_fr) if paper else ()
        costs = (paper.cost_en_de, paper.cost_en_fr) if paper else ()
        others["paper BLEU"] = " / ".join("–" if b is None else f"{b:g}" for b in bleu)
        spent = " / ".join("–" if cost is None else power_of_ten(cost, 1) for cost in costs)
        others["paper FLOPs"] = spent if any(costs) else ""
    return {
        in_words("system", language): f"{title} ({row.paper})" if row.paper else title,
        **scores,
        **{in_words(name, language): text for name, text in others.items()},
    }


def brief(table: ComparisonTable, language: str) -> list[list[str]]:
    """Return headings and rows of the most important columns, for a terminal."""
    rows = [(title_of(row, language), cells(table, row, language)) for row in table.rows]
    first, *others = list(rows[0][1])[: 1 + len(DECODINGS)]
    others += [in_words(name, language) for name in BRIEF]
    return [[first, *others], *([title, *(row[name] for name in others)] for title, row in rows)]


def _has_bars(table: ComparisonTable) -> bool:
    """Return True if the tutorials' figures are shown: only on their own data."""
    return table.at_home and any(row.bar for row in table.rows)


def power_of_ten(number: float, digits: int) -> str:
    """Write a number like 3.3e18."""
    figure, _, power = f"{number:.{digits}e}".partition("e")
    return f"{figure}e{int(power)}"


# Text


def markdown(table: ComparisonTable, language: str = "en") -> str:
    """Return the table with its notes, and the paper's own below it."""

    def line(texts: Iterable[str]) -> str:
        return f"| {' | '.join(texts)} |"

    heads, top = list(cells(table, table.rows[0], language)), best_row(table)
    lines = [f"# {heading(table, language)}", "", lead(table, language), ""]
    lines += [line(heads), "|" + "---|" * len(heads)]
    for row in table.rows:
        shown = cells(table, row, language).values()
        first, *rest = (cell.replace("|", "\\|") for cell in shown)
        lines.append(line([f"**{first}**" if row is top else first, *rest]))
    lines += ["", *(f"* {note}" for note in notes(table, language))]
    if table.paper:
        lines += ["", f"## {in_words('paper heading', language)}", ""]
        lines.append(table_2().replace("model", in_words("system", language), 1))
    return "\n".join(lines) + "\n"


def heading(table: ComparisonTable, language: str) -> str:
    """Return the title of the table."""
    data = in_words(table.data, language) if table.data in UNNAMED else table.data
    return in_words(f"{table.contest} heading", language).format(data=data)


def lead(table: ComparisonTable, language: str) -> str:
    """Return a paragraph about the conditions of the comparison."""
    n, budget, where = table.seeds, table.budget, table.test.where
    if language == "ko":
        budget = re.sub(" minutes?$", "분", re.sub(" seconds?$", "초", budget))
    return in_words("lead", language).format(
        budget=budget,
        seeds=Words("one seed" if n == 1 else f"{n} seeds", f"시드 {n}개").in_language(language),
        where=in_words(where, language) if where in UNNAMED else where,
        n=f"{table.test.sentences:,}",
        beam=table.beam,
        alpha=f"{table.length_penalty:g}",
    )


def notes(table: ComparisonTable, language: str) -> list[str]:
    """Return explanations of the columns."""
    baselines = [row for row in table.rows if row.system == table.baseline]
    tested = any(row.p_value is not None for row in table.rows)
    shown = {
        "note interval": table.seeds == 1,
        "note spread": table.seeds > 1,
        "note p": tested and table.seeds == 1,
        "note p of seeds": tested and table.seeds > 1,
        "note teams": tested and any(row.members for row in baselines),
        "note flops": True,
        "note time": True,
        "note memory": True,
        "note coverage": bool(table.coverage),
        "note unknown": table.replace_unknown,
        "note paper": bool(table.paper),
        "note training": any(row.deviations for row in table.rows),
        "note tutorial": _has_bars(table),
    }
    baseline = title_of(baselines[0], language) if baselines else table.baseline
    test = in_words(f"test {table.metric}", language)
    texts = [
        in_words(key, language).format(baseline=baseline, test=test, coverage=table.coverage)
        for key, is_shown in shown.items()
        if is_shown
    ]
    titled = [(title_of(row, language), row) for row in table.rows]
    for title, row in titled:
        if row.experts:
            shares = {name: f"{100 * share:.3g}" for name, share in vars(row.experts).items()}
            texts.append(in_words("note experts", language).format(system=title, **shares))
    differing = in_words("note deviations", language)
    texts += [
        differing.format(system=title, preset=row.preset, list=listed(row.deviations))
        for title, row in titled
        if row.deviations
    ]
    signatures = "; ".join(f"`{signature}`" for signature in table.signatures)
    return [*warnings(table, language), *texts, f"{in_words('signatures', language)}: {signatures}"]


def warnings(table: ComparisonTable, language: str) -> list[str]:
    """Return reasons why the order of the rows may mean little."""
    steps = min(row.training.steps for row in table.rows)
    if steps >= FEW_STEPS:
        return []
    return [in_words("note few", language).format(steps=f"{steps:,.0f}")]


def remarks(table: ComparisonTable, language: str) -> list[str]:
    """Return what a terminal shows below the table."""
    deviating = any(row.deviations for row in table.rows)
    return [*warnings(table, language), *([in_words("note sizes", language)] if deviating else [])]
