"""The whole comparison, from what was asked to three files: table.md, table.html, table.json."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.checkpoint import atomic_dir as store
from polyhead.compare.ensembles import run_teams
from polyhead.compare.page import render
from polyhead.compare.plan import CompareRequest, make_plan
from polyhead.compare.runner import Counting, in_silence, run, write_json
from polyhead.compare.table import markdown, summarise
from polyhead.training.run_log import NullReporter, ProgressReporter


@dataclass(frozen=True)
class Outcome:
    """The table as plain values and as text, and where its files lie."""

    table: dict[str, Any]
    text: str
    files: tuple[Path, ...]


def compete(
    asked: CompareRequest,
    *,
    language: str = "en",
    watcher: ProgressReporter | None = None,
    counting: Counting = in_silence,
) -> Outcome:
    """Train, examine, test, write. What is finished is not done again."""
    watching = NullReporter() if watcher is None else watcher
    plan = make_plan(asked)
    results = run(plan, watching, counting)
    teams = run_teams(plan, results, watching, counting)
    watching.stage("testing for significance")
    table = summarise(plan, results, teams)
    text = markdown(table, language)
    page, data, plain = (plan.folder / f"table.{kind}" for kind in ("html", "json", "md"))
    store.write_text(plain, text)
    store.write_text(page, render(table, language))
    write_json(data, table)
    return Outcome(table, text, (plain, page, data))
