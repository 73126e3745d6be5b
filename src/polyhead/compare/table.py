"""The table: one row a system, the mean over its seeds, the paper's own figures beside ours.

`summarise` makes plain values of everything (table.json); `markdown` and `page.render` show them.
"""

import re
from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import Any

from polyhead.compare import scoring as judging
from polyhead.compare.plan import ComparePlan, read_json
from polyhead.compare.runner import output_file, write_json
from polyhead.compare.systems import System
from polyhead.compare.words import in_words
from polyhead.config import from_dict
from polyhead.cost.published import TABLE_2
from polyhead.data.text_files import read_lines
from polyhead.decoding.config import DecodeConfig
from polyhead.i18n import Words

BETTER = {"bleu": max, "wer": min}
HEADLINE = {"bleu": "BLEU lower-cased", "wer": "WER"}
SHOWN = {"bleu": ("BLEU lower-cased", "BLEU cased"), "wer": ("WER", "PER")}
FEW_STEPS = 500  # with fewer, warm-up and luck decide
OURS = ("own text", "held out")  # what we call things that have no name of their own


def summarise(
    plan: ComparePlan, results: Sequence[dict[str, Any]], teams: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Everything that a table shows, as JSON knows it."""
    p_values = significance(plan, [*results, *teams])
    rows = [
        row(system, [one for one in results if one["system"] == system.name], p_values)
        for system in plan.systems
    ]
    titles = {system.name: system for system in plan.systems}
    for team in teams:
        kind = titles.get(team["system"])
        names = [titles[name].title for name in team["system"].split("+")]
        told = {"members": team["members"], "names": names}
        own = System(team["system"], "", "", "", published=_published_team(kind))
        one = row(own, [team], p_values) | told
        rows.append(one | {"title": title_of(one, "en")})
    first = results[0]
    search = from_dict(DecodeConfig, plan.base.get("decode", {}), "decode.")
    return {
        "contest": plan.contest.name,
        "data": plan.name,
        "test": {"where": plan.material.where, "sentences": len(plan.material.sources)},
        "budget": str(plan.budget),
        "seeds": plan.seeds,
        "baseline": plan.contest.baseline,
        "metric": plan.metric,
        "at_home": plan.home,
        "beam": first["decoding"]["beam"],
        "length_penalty": first["decoding"]["length_penalty"],
        "coverage": search.coverage,
        "replace_unknown": search.replace_unknown,
        "signatures": sorted({s["signature"] for s in first["scores"]["greedy"].values()}),
        "rows": rows,
        "paper": {key: one._asdict() for key, one in TABLE_2.items()}
        if plan.contest.name == "compare"
        else {},
    }


def _published_team(system: System | None) -> str | None:
    """The paper's row for an ensemble of one system, if it has one."""
    key = f"{system.published} ensemble" if system is not None else ""
    return key if key in TABLE_2 else None


def row(
    system: System, results: Sequence[dict[str, Any]], p_values: dict[str, float]
) -> dict[str, Any]:
    """One system: means over its seeds, and the smallest and largest score."""
    first = results[0]
    scores: dict[str, dict[str, Any]] = {}
    for way, named in first["scores"].items():
        scores[way] = {}
        for name in named:
            values = [one["scores"][way][name]["value"] for one in results]
            scores[way][name] = {"mean": mean(values), "low": min(values), "high": max(values)}
    found = [p_values[key] for key in map(_key, results) if key in p_values]
    decoding = first["decoding"]
    return {
        "system": system.name,
        "title": system.title,
        "paper": system.paper,
        "published": system.published,
        "bar": system.bar,
        "seeds": [one["seed"] for one in results],
        "scores": scores,
        "interval": _interval(first) if len(results) == 1 else None,
        "p_value": median(found) if found else None,
        "parameters": first["parameters"],
        "training": {
            name: mean(one["training"][name] for one in results) for name in first["training"]
        },
        "decoding": {
            "remembered_bytes": decoding["remembered_bytes"],
            "parameter_bytes": 4 * first["parameters"],
            "sentences_per_second": {
                way: mean(one["decoding"]["sentences_per_second"][way] for one in results)
                for way in decoding["sentences_per_second"]
            },
        },
        "curves": [one["curve"] for one in results],
        "experts": _experts([one["experts"] for one in results if one.get("experts")]),
    }


def _experts(found: Sequence[dict[str, float]]) -> dict[str, float] | None:
    """The balance of all seeds: how many are used on average, the busiest of all."""
    if not found:
        return None
    return {"used": mean(one["used"] for one in found), "most": max(one["most"] for one in found)}


def _interval(result: dict[str, Any]) -> list[float] | None:
    """The bootstrap's, of the first score of greedy search."""
    score = next(iter(result["scores"]["greedy"].values()))
    return None if score["low"] is None else [score["low"], score["high"]]


def significance(plan: ComparePlan, results: Iterable[dict[str, Any]]) -> dict[str, float]:
    """P of every result against the baseline's of the same seed; computed once, then kept."""
    path = plan.folder / "significance.json"
    known: dict[str, float] = read_json(path) if path.exists() else {}
    entries = list(results)
    baseline = plan.contest.baseline
    there = {one["seed"] for one in entries if one["system"] == baseline}
    for one in entries:
        key = _key(one)
        seed = one["seed"] if one["seed"] in there else 1
        if key in known or key == f"{baseline}-{seed}" or seed not in there:
            continue
        theirs = read_lines(output_file(plan, baseline, seed, "greedy"))
        ours = read_lines(output_file(plan, one["system"], one["seed"], "greedy"))
        test = judging.tested(theirs, ours, plan.material.references, plan.metric)
        known[key] = test.p_value
        write_json(path, known)
    return known


def _key(result: dict[str, Any]) -> str:
    return f"{result['system']}-{result['seed']}"


# Cells


def columns(table: dict[str, Any], language: str) -> list[str]:
    """The headings of `cells`."""
    shown = SHOWN[table["metric"]]
    scores = [
        f"{score_in_words(name, language)}, {in_words(way, language)}"
        for name in shown
        for way in judging.WAYS
    ]
    names = ["system", *(["tutorial"] if _has_bars(table) else []), "p", "flops", "measured",
             "steps", "minutes", "parameters", "speed", "memory"]  # fmt: skip
    system, *rest = (in_words(name, language) for name in names)
    paper = [in_words(name, language) for name in ("paper BLEU", "paper FLOPs")]
    return [system, *scores, *rest, *(paper if table["paper"] else [])]


def title_of(one: dict[str, Any], language: str) -> str:
    """What a row is called; an ensemble says so."""
    if "members" not in one:
        return in_words(one["title"], language)
    names = " + ".join(in_words(name, language) for name in one["names"])
    return in_words("ensemble", language).format(names=names, n=len(one["members"]))


def score_in_words(name: str, language: str) -> str:
    """`BLEU lower-cased` is BLEU in every language, but lower-cased in its own words."""
    return " ".join(in_words(word, language) for word in name.split(" "))


def cells(table: dict[str, Any], one: dict[str, Any], language: str) -> list[str]:
    """One row, as text."""
    scores = [
        spread(one["scores"][way][name], len(one["seeds"]))
        for name in SHOWN[table["metric"]]
        for way in judging.WAYS
    ]
    if one["interval"] is not None and table["seeds"] == 1:  # of the first score alone
        scores[0] += _range(*one["interval"])
    training, decoding = one["training"], one["decoding"]
    speeds = decoding["sentences_per_second"]
    paper = table["paper"].get(one["published"]) if one["published"] else None
    title = title_of(one, language)
    return [
        f"{title} ({one['paper']})" if one["paper"] else title,
        *scores,
        *([f"{one['bar']:g}" if one["bar"] else ""] if _has_bars(table) else []),
        _chance(one["p_value"]),
        power_of_ten(training["flops"], 2),
        power_of_ten(training["flops_measured"], 2),
        f"{training['steps']:,.0f}",
        _minutes(training["seconds"]),
        f"{one['parameters'] / 1e6:.2f} M",
        f"{speeds['greedy']:,.0f} / {speeds['beam']:,.0f}",
        f"{decoding['parameter_bytes'] / 1e6:.1f} MB + {decoding['remembered_bytes'] / 1e3:.0f} kB",
        *(_paper_cells(paper) if table["paper"] else []),
    ]


BRIEF = ("p", "steps", "minutes", "parameters", "speed")  # besides scores, what fits a terminal


def brief(table: dict[str, Any], language: str) -> list[list[str]]:
    """The headings and the rows of what matters most, for screens that are not wide."""
    heads = columns(table, language)
    first = [heads[0], *heads[1 : 1 + len(judging.WAYS)]]
    wanted = [*first, *(in_words(name, language) for name in BRIEF)]
    places = [heads.index(name) for name in wanted]
    rows = [cells(table, one, language) for one in table["rows"]]
    titles = [title_of(one, language) for one in table["rows"]]
    return [wanted, *([t, *(r[p] for p in places[1:])] for t, r in zip(titles, rows, strict=True))]


def _has_bars(table: dict[str, Any]) -> bool:
    """The tutorials' figures belong beside ours only on their own data."""
    return table["at_home"] and any(one["bar"] for one in table["rows"])


def _minutes(seconds: float) -> str:
    """With one digit behind the point; less than a minute with two."""
    minutes = seconds / 60
    return f"{minutes:.1f}" if minutes >= 1 else f"{minutes:.2f}"


def power_of_ten(number: float, digits: int) -> str:
    """3.3e18, as the paper's figures are written here."""
    figure, _, power = f"{number:.{digits}e}".partition("e")
    return f"{figure}e{int(power)}"


def _chance(p_value: float | None) -> str:
    """A p-value with three digits; none is ever nothing."""
    if p_value is None:
        return ""
    return f"{p_value:.3f}" if p_value >= 0.0005 else "< 0.001"


def _paper_cells(paper: dict[str, Any] | None) -> list[str]:
    if paper is None:
        return ["", ""]
    figures = ["–" if one is None else f"{one:g}" for one in (paper["en_de"], paper["en_fr"])]
    costs = [paper["cost_en_de"], paper["cost_en_fr"]]
    spent = ["–" if one is None else power_of_ten(one, 1) for one in costs]
    return [" / ".join(figures), " / ".join(spent) if any(costs) else ""]


def spread(found: dict[str, float], n_seeds: int) -> str:
    """A mean, and its range if there are several seeds."""
    if n_seeds == 1:
        return f"{found['mean']:.2f}"
    return f"{found['mean']:.2f}{_range(found['low'], found['high'])}"


def _range(low: float, high: float) -> str:
    return f" ({low:.2f} – {high:.2f})"


def best(table: dict[str, Any]) -> dict[str, Any]:
    """The row with the best first score of greedy search."""
    name, choose = HEADLINE[table["metric"]], BETTER[table["metric"]]
    found: dict[str, Any] = choose(
        table["rows"], key=lambda one: one["scores"]["greedy"][name]["mean"]
    )
    return found


def _twins(table: dict[str, Any]) -> bool:
    """Whether there is an ensemble of the baseline's seeds, against which the others are tested."""
    return any("members" in one and one["system"] == table["baseline"] for one in table["rows"])


def _balance(one: dict[str, Any], language: str) -> str:
    """How evenly the experts of a row are asked."""
    used, most = (f"{100 * one['experts'][name]:.3g}" for name in ("used", "most"))
    told = in_words("note experts", language)
    return told.format(system=title_of(one, language), used=used, most=most)


# Markdown


def markdown(table: dict[str, Any], language: str = "en") -> str:
    """The table, what it means, and the paper's own below it."""
    heads = columns(table, language)
    top = best(table)
    lines = [f"# {heading(table, language)}", "", lead(table, language), ""]
    lines += [_line(heads), "|" + "---|" * len(heads)]
    for one in table["rows"]:
        first, *rest = (cell.replace("|", "\\|") for cell in cells(table, one, language))
        lines.append(_line([f"**{first}**" if one is top else first, *rest]))
    lines += ["", *(f"* {note}" for note in notes(table, language))]
    if table["paper"]:
        lines += ["", f"## {in_words('paper heading', language)}", ""]
        lines += [_line([in_words("system", language), "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE",
                         "FLOPs EN-FR"]), "|" + "---|" * 5]  # fmt: skip
        lines += [_line(_published(one)) for one in table["paper"].values()]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _published(one: dict[str, Any]) -> list[str]:
    figures = (one["en_de"], one["en_fr"])
    costs = (one["cost_en_de"], one["cost_en_fr"])
    return [
        one["name"],
        *("" if figure is None else f"{figure:g}" for figure in figures),
        *("" if cost is None else power_of_ten(cost, 1) for cost in costs),
    ]


def heading(table: dict[str, Any], language: str) -> str:
    """What was compared on what."""
    data = _named(table["data"], language)
    return in_words(f"{table['contest']} heading", language).format(data=data)


def _named(what: str, language: str) -> str:
    """A file's or a recipe's name as it is, what has none in words."""
    return in_words(what, language) if what in OURS else what


def lead(table: dict[str, Any], language: str) -> str:
    """Under which conditions."""
    n = table["seeds"]
    budget = re.sub(" minutes?$", "분", re.sub(" seconds?$", "초", table["budget"]))
    seeds = Words("one seed" if n == 1 else f"{n} seeds", f"시드 {n}개").in_language(language)
    return in_words("lead", language).format(
        budget=budget if language == "ko" else table["budget"],
        seeds=seeds,
        where=_named(table["test"]["where"], language),
        n=f"{table['test']['sentences']:,}",
        beam=table["beam"],
        alpha=f"{table['length_penalty']:g}",
    )


def notes(table: dict[str, Any], language: str) -> list[str]:
    """What the columns mean."""
    tested = any(one["p_value"] is not None for one in table["rows"])
    one_seed = table["seeds"] == 1
    keys = ["note interval" if one_seed else "note spread"]
    keys += ["note p" if one_seed else "note p of seeds"] if tested else []
    keys += ["note teams"] if tested and _twins(table) else []
    keys += ["note flops", "note time", "note memory"]
    keys += ["note coverage"] if table["coverage"] else []
    keys += ["note unknown"] if table["replace_unknown"] else []
    keys += ["note paper"] if table["paper"] else []
    keys += ["note tutorial"] if _has_bars(table) else []
    baseline = next(
        (title_of(one, language) for one in table["rows"] if one["system"] == table["baseline"]),
        table["baseline"],
    )
    test = Words("the paired bootstrap", "짝지은 부트스트랩 검정")
    if table["metric"] == "wer":
        test = Words("McNemar's exact test", "맥니마 정확 검정")
    told = [
        in_words(key, language).format(
            baseline=baseline, test=test.in_language(language), coverage=table["coverage"]
        )
        for key in keys
    ]
    told += [_balance(one, language) for one in table["rows"] if one["experts"]]
    signatures = "; ".join(f"`{signature}`" for signature in table["signatures"])
    return [*warnings(table, language), *told, f"{in_words('signatures', language)}: {signatures}"]


def warnings(table: dict[str, Any], language: str) -> list[str]:
    """Why the order of the rows may mean nothing."""
    steps = min(one["training"]["steps"] for one in table["rows"])
    if steps >= FEW_STEPS:
        return []
    return [in_words("note few", language).format(steps=f"{steps:,.0f}")]
