"""The table of a comparison: one row per system, means over its seeds, the paper's figures beside.

`summarize` computes the values; `markdown` and `page.render` show them. Texts are in words.toml.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from statistics import mean, median

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
    output_file,
    read_json,
    write_json,
)
from polyhead.compare.scoring import significance_test
from polyhead.compare.systems import System
from polyhead.config import from_dict
from polyhead.cost.published import TABLE_2, PublishedSystem
from polyhead.data.text_files import read_lines
from polyhead.decoding.config import DecodeConfig
from polyhead.i18n import Words

BETTER = {"bleu": max, "wer": min}
HEADLINE = {"bleu": "BLEU lower-cased", "wer": "WER"}
SHOWN = {"bleu": ("BLEU lower-cased", "BLEU cased"), "wer": ("WER", "PER")}
BRIEF = ("p", "steps", "minutes", "parameters", "speed")  # columns for a terminal, besides scores
FEW_STEPS = 500  # with fewer, warm-up and chance decide
UNNAMED = ("own text", "held out")  # data without a name of its own


@cache
def _texts() -> dict[str, Words]:
    text = files("polyhead.compare").joinpath("words.toml").read_text(encoding="utf-8")
    return {key: Words(**words) for key, words in tomllib.loads(text).items()}


def in_words(key: str, language: str) -> str:
    """Return the text of a key; a name without translation is returned as it is."""
    return _texts()[key].in_language(language) if key in _texts() else key


# Values


def summarize(
    plan: ComparePlan, results: Sequence[SystemResult], ensembles: Sequence[SystemResult]
) -> ComparisonTable:
    """Return the table of these results."""
    p_values = significance(plan, [*results, *ensembles])
    systems = {system.name: system for system in plan.systems}
    rows = [
        make_row(system, [r for r in results if r.system == system.name], p_values)
        for system in plan.systems
    ]
    for ensemble in ensembles:
        own = System(
            ensemble.system, "", "", "", published=_published(systems.get(ensemble.system))
        )
        row = replace(
            make_row(own, [ensemble], p_values),
            members=ensemble.members,
            names=[systems[name].title for name in ensemble.system.split("+")],
        )
        rows.append(replace(row, title=title_of(row, "en")))
    search = from_dict(DecodeConfig, plan.base.get("decode", {}), "decode.")
    first = results[0]
    return ComparisonTable(
        contest=plan.contest.name,
        data=plan.name,
        test=EvaluationSet(plan.test.where, len(plan.test.sources)),
        budget=str(plan.budget),
        seeds=plan.seeds,
        baseline=plan.contest.baseline,
        metric=plan.metric,
        at_home=plan.home,
        beam=first.decoding.beam,
        length_penalty=first.decoding.length_penalty,
        coverage=search.coverage,
        replace_unknown=search.replace_unknown,
        signatures=sorted({score.signature for score in first.scores["greedy"].values()}),
        rows=rows,
        paper=dict(TABLE_2) if plan.contest.name == "compare" else {},
    )


def _published(system: System | None) -> str | None:
    """Return the paper's row for an ensemble of one system, if it has one."""
    key = f"{system.published} ensemble" if system is not None else ""
    return key if key in TABLE_2 else None


def make_row(
    system: System, results: Sequence[SystemResult], p_values: dict[str, float]
) -> TableRow:
    """Return the row of one system: means over its seeds, smallest and largest score."""
    first = results[0]
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
    costs = {
        f.name: mean(getattr(result.training, f.name) for result in results)
        for f in fields(TrainingCost)
    }
    return TableRow(
        system=system.name,
        title=system.title,
        paper=system.paper,
        published=system.published,
        bar=system.bar,
        seeds=[result.seed for result in results],
        scores=scores,
        interval=(headline.low or 0.0, headline.high or 0.0) if known else None,
        p_value=median(chances) if chances else None,
        parameters=first.parameters,
        training=TrainingCost(**costs),
        decoding=RowDecoding(
            first.decoding.remembered_bytes,
            4 * first.parameters,
            {
                decoding: mean(r.decoding.sentences_per_second[decoding] for r in results)
                for decoding in first.decoding.sentences_per_second
            },
        ),
        curves=[result.curve for result in results],
        experts=ExpertBalance(mean(b.used for b in balances), max(b.most for b in balances))
        if balances
        else None,
    )


def significance(plan: ComparePlan, results: Iterable[SystemResult]) -> dict[str, float]:
    """Return the p-value of every result against the baseline of the same seed; cached."""
    path = plan.folder / "significance.json"
    known: dict[str, float] = read_json(path) if path.exists() else {}
    entries, baseline = list(results), plan.contest.baseline
    baseline_seeds = {result.seed for result in entries if result.system == baseline}
    for result in entries:
        seed = result.seed if result.seed in baseline_seeds else 1
        is_baseline = result.key == f"{baseline}-{seed}"
        if result.key in known or is_baseline or seed not in baseline_seeds:
            continue
        theirs = read_lines(output_file(plan.folder, baseline, seed, "greedy"))
        ours = read_lines(output_file(plan.folder, result.system, result.seed, "greedy"))
        test = significance_test(theirs, ours, plan.test.references, plan.metric)
        known[result.key] = test.p_value
        write_json(path, known)
    return known


def best_row(table: ComparisonTable) -> TableRow:
    """Return the row with the best first score of greedy search."""
    name = HEADLINE[table.metric]
    return BETTER[table.metric](table.rows, key=lambda row: row.scores["greedy"][name].mean)


# Cells


def columns(table: ComparisonTable, language: str) -> list[str]:
    """Return the headings of `cells`."""
    scores = [
        f"{score_in_words(name, language)}, {in_words(decoding, language)}"
        for name in SHOWN[table.metric]
        for decoding in DECODINGS
    ]
    names = ["system", *(["tutorial"] if _has_bars(table) else []), "p", "flops", "measured",
             "steps", "minutes", "parameters", "speed", "memory"]  # fmt: skip
    system, *rest = (in_words(name, language) for name in names)
    paper = [in_words(name, language) for name in ("paper BLEU", "paper FLOPs")]
    return [system, *scores, *rest, *(paper if table.paper else [])]


def title_of(row: TableRow, language: str) -> str:
    """Return the title of a row; that of an ensemble names its members."""
    if row.members is None or row.names is None:
        return in_words(row.title, language)
    names = " + ".join(in_words(name, language) for name in row.names)
    return in_words("ensemble", language).format(names=names, n=len(row.members))


def score_in_words(name: str, language: str) -> str:
    """Translate the name of a score word by word."""
    return " ".join(in_words(word, language) for word in name.split(" "))


def cells(table: ComparisonTable, row: TableRow, language: str) -> list[str]:
    """Return one row as text."""
    scores = [
        _spread(row.scores[decoding][name], len(row.seeds))
        for name in SHOWN[table.metric]
        for decoding in DECODINGS
    ]
    if row.interval is not None and table.seeds == 1:  # of the first score only
        scores[0] += _range(*row.interval)
    training, decoding_cost = row.training, row.decoding
    speeds, title = decoding_cost.sentences_per_second, title_of(row, language)
    return [
        f"{title} ({row.paper})" if row.paper else title,
        *scores,
        *([f"{row.bar:g}" if row.bar else ""] if _has_bars(table) else []),
        _p_value(row.p_value),
        power_of_ten(training.flops, 2),
        power_of_ten(training.flops_measured, 2),
        f"{training.steps:,.0f}",
        f"{training.seconds / 60:.{1 if training.seconds >= 60 else 2}f}",
        f"{row.parameters / 1e6:.2f} M",
        f"{speeds['greedy']:,.0f} / {speeds['beam']:,.0f}",
        f"{decoding_cost.parameter_bytes / 1e6:.1f} MB + "
        f"{decoding_cost.remembered_bytes / 1e3:.0f} kB",
        *(_paper_cells(table.paper.get(row.published or "")) if table.paper else []),
    ]


def brief(table: ComparisonTable, language: str) -> list[list[str]]:
    """Return headings and rows of the most important columns, for a terminal."""
    heads = columns(table, language)
    shown = [*heads[: 1 + len(DECODINGS)], *(in_words(name, language) for name in BRIEF)]
    places = [heads.index(name) for name in shown[1:]]
    rows = [(title_of(row, language), cells(table, row, language)) for row in table.rows]
    return [shown, *([title, *(row[place] for place in places)] for title, row in rows)]


def _has_bars(table: ComparisonTable) -> bool:
    """Return True if the tutorials' figures are shown: only on their own data."""
    return table.at_home and any(row.bar for row in table.rows)


def power_of_ten(number: float, digits: int) -> str:
    """Write a number like 3.3e18."""
    figure, _, power = f"{number:.{digits}e}".partition("e")
    return f"{figure}e{int(power)}"


def _p_value(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return f"{p_value:.3f}" if p_value >= 0.0005 else "< 0.001"


def _paper_cells(paper: PublishedSystem | None) -> list[str]:
    if paper is None:
        return ["", ""]
    figures = ["–" if bleu is None else f"{bleu:g}" for bleu in (paper.en_de, paper.en_fr)]
    costs = [paper.cost_en_de, paper.cost_en_fr]
    spent = ["–" if cost is None else power_of_ten(cost, 1) for cost in costs]
    return [" / ".join(figures), " / ".join(spent) if any(costs) else ""]


def _spread(score: ScoreRange, n_seeds: int) -> str:
    """Return a mean, and its range if there are several seeds."""
    return f"{score.mean:.2f}{_range(score.low, score.high) if n_seeds > 1 else ''}"


def _range(low: float, high: float) -> str:
    return f" ({low:.2f} – {high:.2f})"


# Text


def markdown(table: ComparisonTable, language: str = "en") -> str:
    """Return the table with its notes, and the paper's own below it."""
    heads, top = columns(table, language), best_row(table)
    lines = [f"# {heading(table, language)}", "", lead(table, language), ""]
    lines += [_line(heads), "|" + "---|" * len(heads)]
    for row in table.rows:
        first, *rest = (cell.replace("|", "\\|") for cell in cells(table, row, language))
        lines.append(_line([f"**{first}**" if row is top else first, *rest]))
    lines += ["", *(f"* {note}" for note in notes(table, language))]
    if table.paper:
        lines += ["", f"## {in_words('paper heading', language)}", ""]
        lines += [_line([in_words("system", language), "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE",
                         "FLOPs EN-FR"]), "|" + "---|" * 5]  # fmt: skip
        for name, *figures in table.paper.values():
            bleu = ["" if figure is None else f"{figure:g}" for figure in figures[:2]]
            costs = ["" if figure is None else power_of_ten(figure, 1) for figure in figures[2:]]
            lines.append(_line([name, *bleu, *costs]))
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def heading(table: ComparisonTable, language: str) -> str:
    """Return the title of the table."""
    return in_words(f"{table.contest} heading", language).format(data=_named(table.data, language))


def _named(name: str, language: str) -> str:
    """Translate the words for data without a name; a file's or recipe's name is kept."""
    return in_words(name, language) if name in UNNAMED else name


def lead(table: ComparisonTable, language: str) -> str:
    """Return a paragraph about the conditions of the comparison."""
    n, budget = table.seeds, table.budget
    if language == "ko":
        budget = re.sub(" minutes?$", "분", re.sub(" seconds?$", "초", budget))
    seeds = Words("one seed" if n == 1 else f"{n} seeds", f"시드 {n}개").in_language(language)
    return in_words("lead", language).format(
        budget=budget,
        seeds=seeds,
        where=_named(table.test.where, language),
        n=f"{table.test.sentences:,}",
        beam=table.beam,
        alpha=f"{table.length_penalty:g}",
    )


def notes(table: ComparisonTable, language: str) -> list[str]:
    """Return explanations of the columns."""
    tested = any(row.p_value is not None for row in table.rows)
    baselines = [row for row in table.rows if row.system == table.baseline]
    keys = ["note interval" if table.seeds == 1 else "note spread"]
    if tested:
        keys.append("note p" if table.seeds == 1 else "note p of seeds")
        keys += ["note teams"] if any(row.members for row in baselines) else []
    keys += ["note flops", "note time", "note memory"]
    keys += ["note coverage"] if table.coverage else []
    keys += ["note unknown"] if table.replace_unknown else []
    keys += ["note paper"] if table.paper else []
    keys += ["note tutorial"] if _has_bars(table) else []
    baseline = title_of(baselines[0], language) if baselines else table.baseline
    test = in_words(f"test {table.metric}", language)
    texts = [
        in_words(key, language).format(baseline=baseline, test=test, coverage=table.coverage)
        for key in keys
    ]
    for row in table.rows:
        if row.experts:
            used, most = f"{100 * row.experts.used:.3g}", f"{100 * row.experts.most:.3g}"
            title = title_of(row, language)
            texts.append(
                in_words("note experts", language).format(system=title, used=used, most=most)
            )
    signatures = "; ".join(f"`{signature}`" for signature in table.signatures)
    return [*warnings(table, language), *texts, f"{in_words('signatures', language)}: {signatures}"]


def warnings(table: ComparisonTable, language: str) -> list[str]:
    """Return reasons why the order of the rows may mean little."""
    steps = min(row.training.steps for row in table.rows)
    if steps >= FEW_STEPS:
        return []
    return [in_words("note few", language).format(steps=f"{steps:,.0f}")]
