"""The table of a comparison as text: one row per system, the paper's figures beside.

`summary.summarize` computes the values. Texts are in words.toml.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files

from polyhead.cost.published import table_2
from polyhead.experiments.configuration import Deviation, ModelSizes
from polyhead.experiments.results import (
    ComparisonTable,
    TableRow,
)
from polyhead.i18n import Words
from polyhead.metrics.named_metrics import METRICS

ERROR_RATES = ("WER", "PER")
HEADLINE = {"bleu": "BLEU lower-cased", "wer": "WER"}
SHOWN = {"bleu": ("BLEU lower-cased", "BLEU cased"), "wer": ("WER", "PER")}
BRIEF = ("p", "p seeds", "steps", "minutes", "parameters", "speed")  # for a terminal, with scores
FEW_STEPS = 500  # with fewer, warm-up and chance decide
UNNAMED = ("own text", "held out", "validation")  # data without a name of its own
WORDS = tomllib.loads(files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))


def in_words(key: str, language: str) -> str:
    """Return the text of a key; a name without translation is returned as it is."""
    return WORDS[key][language] if key in WORDS else key


def headline(table: ComparisonTable) -> str:
    """Return the name of the score that orders the rows."""
    return HEADLINE.get(table.metric, table.metric)


def first_score(table: ComparisonTable, row: TableRow) -> float:
    """Return the score of a row that orders the rows."""
    return next(iter(row.scores.values()))[headline(table)].mean


def best_row(table: ComparisonTable) -> TableRow:
    """Return the row with the best first score, of greedy search for translators."""
    best = min if is_error(headline(table)) else max
    return best(table.rows, key=lambda row: first_score(table, row))


def is_error(name: str) -> bool:
    """Return whether a lower value of a score is better."""
    return name in ERROR_RATES or (name in METRICS and METRICS[name].lower_is_better)


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
    names = dict.fromkeys([headline(table), *next(iter(row.scores.values()))])
    for name in SHOWN.get(table.metric, names):
        for group, of_group in row.scores.items():
            score = of_group[name]
            ends = (score.low, score.high) if len(row.seeds) > 1 else None
            if not scores and table.seeds == 1:  # of the first score only
                ends = row.interval
            form = ".2f" if row.decoding else "#.4g"
            spread = f" ({ends[0]:{form}} – {ends[1]:{form}})" if ends else ""
            heading = f"{score_in_words(name, language)}, {in_words(group, language)}"
            scores[heading] = f"{score.mean:{form}}{spread}"
    others = {
        "p": p_in_words(row.p_value),
        "p seeds": p_in_words(row.p_seeds),
        "flops": power_of_ten(training.flops, 2) if training.flops else "",
        "measured": power_of_ten(training.flops_measured, 2),
        "steps": f"{training.steps:,.0f}",
        "tokens": f"{training.tokens:,.0f}",
        "minutes": f"{training.seconds / 60:.{1 if training.seconds >= 60 else 2}f}",
        "parameters": f"{row.parameters / 1e6:.2f} M",
    }
    if row.decoding:
        speeds, memory = row.decoding.sentences_per_second, row.decoding
        others["speed"] = f"{speeds['greedy']:,.0f} / {speeds['beam']:,.0f}"
        bytes_of = memory.parameter_bytes, memory.remembered_bytes
        others["memory"] = f"{bytes_of[0] / 1e6:.1f} MB + {bytes_of[1] / 1e3:.0f} kB"
    absent = {
        "p": not any(r.p_value is not None for r in table.rows) and not row.decoding,
        "p seeds": not any(r.p_seeds is not None for r in table.rows),
        "flops": not row.decoding,
        "tokens": bool(row.decoding),
    }
    others = {name: text for name, text in others.items() if not absent.get(name)}
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


def p_in_words(p_value: float | None) -> str:
    """Return a p-value as text, "" for none."""
    if p_value is None:
        return ""
    return f"{p_value:.3f}" if p_value >= 0.0005 else "< 0.001"


def brief(table: ComparisonTable, language: str) -> list[list[str]]:
    """Return headings and rows of the most important columns, for a terminal."""
    rows = [(title_of(row, language), cells(table, row, language)) for row in table.rows]
    first, *others = list(rows[0][1])[: 1 + len(table.rows[0].scores)]
    others += [name for key in BRIEF if (name := in_words(key, language)) in rows[0][1]]
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
    n, budget, where = table.seeds, in_words(table.budget, language), table.test.where
    if language == "ko":
        budget = re.sub(" minutes?$", "분", re.sub(" seconds?$", "초", budget))
        budget = re.sub(" steps$", "스텝", budget)
    return in_words("variants lead" if is_general(table) else "lead", language).format(
        budget=budget,
        seeds=Words("one seed" if n == 1 else f"{n} seeds", f"시드 {n}개").in_language(language),
        where=in_words(where, language) if where in UNNAMED else where,
        n=f"{table.test.sentences:,}",
        beam=table.beam,
        alpha=f"{table.length_penalty:g}",
    )


def is_general(table: ComparisonTable) -> bool:
    """Return True if the rows are variants of any task, not translators with one vocabulary."""
    return table.rows[0].decoding is None


def notes(table: ComparisonTable, language: str) -> list[str]:
    """Return explanations of the columns."""
    baselines = [row for row in table.rows if row.system == table.baseline]
    n_tested = sum({row.p_value, row.p_seeds} != {None} for row in table.rows)
    tested = any(row.p_value is not None for row in table.rows)
    general, bounded = is_general(table), any(row.interval for row in table.rows)
    shown = {
        "note interval": table.seeds == 1 and (not general or bounded),
        "note spread": table.seeds > 1 and not general,
        "note t": table.seeds > 1 and general,
        "note validation": table.test.where == "validation",
        "note p": tested and table.seeds == 1 and not general,
        "note p of seeds": tested and table.seeds > 1 and not general,
        "note p of examples": tested and general,
        "note p seeds": any(row.p_seeds is not None for row in table.rows),
        "note holm": n_tested > 1,
        "note teams": tested and any(row.members for row in baselines),
        "note flops": not general,
        "note measured": general,
        "note time": True,
        "note memory": not general,
        "note coverage": bool(table.coverage),
        "note unknown": table.replace_unknown,
        "note paper": bool(table.paper),
        "note training": any(row.deviations for row in table.rows),
        "note tutorial": _has_bars(table),
    }
    baseline = title_of(baselines[0], language) if baselines else table.baseline
    test = in_words(
        f"test {'wer' if table.metric in ('wer', 'WER', 'accuracy') else 'bleu'}", language
    )
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
    if table.diverged:
        texts.append(in_words("note diverged", language).format(runs="; ".join(table.diverged)))
    if table.signatures or not general:
        signatures = "; ".join(f"`{signature}`" for signature in table.signatures)
        texts.append(f"{in_words('signatures', language)}: {signatures}")
    return [*warnings(table, language), *texts]


def warnings(table: ComparisonTable, language: str) -> list[str]:
    """Return reasons why the order of the rows may mean little."""
    steps = min(row.training.steps for row in table.rows)
    if steps >= FEW_STEPS or table.budget == "recipe":
        return []
    return [in_words("note few", language).format(steps=f"{steps:,.0f}")]


def remarks(table: ComparisonTable, language: str) -> list[str]:
    """Return what a terminal shows below the table."""
    deviating = any(row.deviations for row in table.rows)
    lines = [*warnings(table, language), *([in_words("note sizes", language)] if deviating else [])]
    if table.diverged:
        lines.append(in_words("note diverged", language).format(runs="; ".join(table.diverged)))
    return lines
