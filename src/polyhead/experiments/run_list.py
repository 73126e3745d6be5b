"""Runs below a directory, from their JSON and TOML files: without torch, and without their weights.

A run is a directory with config.toml, or with checkpoints. Damaged files make a damaged row.
"""

import csv
import html
import io
import json
import math
import operator
import os
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from polyhead.atomic_file import lock
from polyhead.checkpoint.atomic_dir import CHECKPOINTS, follow
from polyhead.checkpoint.model_files import tensor_header
from polyhead.config import setting_keys, suggest
from polyhead.errors import ConfigError
from polyhead.render.html import page

COLUMNS = (
    "path", "task", "family", "parameters", "steps", "score", "time", "state", "date",
)  # fmt: skip
State = Literal["finished", "interrupted", "running", "diverged", "damaged"]
CONDITION = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|=|<|>)(.*)", re.DOTALL)
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge,
}  # fmt: skip
TAIL = 4096  # bytes of metrics.jsonl in which the last line ends
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True)
class RunInfo:
    """A run: its state, size, progress and the best validation score, named `metric`."""

    path: Path
    state: State
    task: str = ""
    family: str = ""
    parameters: int = 0
    step: int = 0
    all_steps: int = 0
    score: float | None = None
    metric: str = ""
    seconds: float = 0.0
    modified: float = 0.0  # seconds since 1970
    metrics: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)

    def value(self, key: str) -> Any:
        """Return a column, or a setting such as model.stack.n_layers; None if it has none."""
        columns = {"steps": self.step, "time": self.seconds, "date": self.modified}
        if key in columns or "." not in key:
            return columns.get(key, vars(self).get(key))
        value: Any = self.settings
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def cells(self, folder: Path | None = None) -> dict[str, str]:
        """Return the columns as text, with the path below a directory."""
        is_below = folder is not None and self.path.is_relative_to(folder)
        return {
            "path": str(self.path.relative_to(folder)) if folder and is_below else str(self.path),
            "task": self.task.replace("_", " "),
            "family": self.family,
            "parameters": f"{self.parameters:,}" if self.parameters else "",
            "steps": f"{self.step:,}/{self.all_steps:,}" if self.all_steps else "",
            "score": "" if self.score is None else f"{self.metric} {self.score:#.4g}",
            "time": f"{self.seconds / 60:,.1f} min" if self.seconds else "",
            "state": self.state,
            "date": time.strftime("%Y-%m-%d %H:%M", time.localtime(self.modified)),
        }


class RunList(list[RunInfo]):
    """Runs as a table; in a notebook it shows itself."""

    def _repr_html_(self) -> str:
        return html_table([COLUMNS, *(tuple(run.cells().values()) for run in self)])

    def csv(self) -> str:
        """Return the columns as CSV, with numbers as they are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [item.name for item in fields(RunInfo)][:-2]
        writer.writerow(names)
        writer.writerows([vars(run)[name] for name in names] for run in self)
        return text.getvalue()

    def json(self) -> str:
        """Return all fields, settings included, as JSON."""
        runs = [asdict(run) | {"path": str(run.path)} for run in self]
        return json.dumps(runs, indent=1, ensure_ascii=False, default=str) + "\n"


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows, the first of them headings, as an HTML table."""
    head, *body = ([html.escape(cell) for cell in row] for row in rows)
    heads = "".join(f"<th scope='col'>{cell}</th>" for cell in head)
    lines = (
        f"<tr><th scope='row'>{first}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for first, *cells in body
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def html_page(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of them headings, as a whole page."""
    style = files(__package__).joinpath("table.css").read_text(encoding="utf-8")
    body = f"<main><h1>{len(rows) - 1} runs</h1><div class='wide'>{html_table(rows)}</div></main>"
    return page(body, title="polyhead runs", style=style)


def list_runs(
    folder: str | Path = "runs", *, sort: str = "path", filters: Iterable[str] = ()
) -> RunList:
    """Return the runs below a directory.

    sort: a column such as "score", or a setting; with - before it from the largest.
    filters: conditions such as "task=translation", "state!=finished", "model.stack.n_layers>=4".

    Example: `polyhead.list_runs("runs", sort="-score", filters=["task=text_classification"])`
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"{folder}: no such directory", "no_directory")
    conditions = [read_condition(text) for text in filters]
    runs = [run for run in map(read_run_info, run_dirs(Path(folder))) if _meets(run, conditions)]
    key = sort.removeprefix("-")
    if "." not in key and key not in COLUMNS:
        raise ConfigError(f"--sort {key}: no such column{suggest(key, COLUMNS)}", "unknown_column")
    known = [run for run in runs if run.value(key) is not None]
    others = [run for run in runs if run.value(key) is None]
    is_text = any(isinstance(run.value(key), str | Path | list | dict) for run in known)
    known.sort(key=lambda run: str(run.value(key)) if is_text else run.value(key))
    return RunList([*(reversed(known) if sort.startswith("-") else known), *others])


def run_dirs(folder: Path) -> Iterator[Path]:
    """Yield the run directories below a directory, also those of comparisons."""
    for place, names, file_names in os.walk(folder):
        if "config.toml" in file_names or CHECKPOINTS in names:
            names.clear()
            yield Path(place)
        names[:] = sorted(name for name in names if not name.startswith("."))


def read_run_info(folder: Path) -> RunInfo:
    """Read the files of a run."""
    modified = folder.stat().st_mtime
    try:
        last = follow(folder / "last")
        if not last.is_dir():  # before the first checkpoint
            settings = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
            state: State = "running" if is_locked(folder) else "interrupted"
            return RunInfo(
                folder, state, family=settings["model"]["family"], settings=settings,
                all_steps=settings["train"]["steps"], modified=modified,
            )  # fmt: skip
        saved = json.loads((last / "config.json").read_text(encoding="utf-8"))
        numbers = json.loads((last / "training.json").read_text(encoding="utf-8"))
        modified = (last / "training.json").stat().st_mtime
        progress, settings, about = numbers["progress"], saved["about"]["run"], saved["about"]
        train = settings["train"]
        best = follow(folder / "best")
        if best.is_dir() and best.resolve() != last.resolve():
            about = json.loads((best / "config.json").read_text(encoding="utf-8"))["about"]
        metrics = about.get("valid") or {}
        name = train["judge_by"]
        if name == "loss":  # translators and ELECTRA are known by other scores
            name = next((score for score in ("bleu", "auc") if score in metrics), name)
        return RunInfo(
            folder,
            state_of(folder, train, progress),
            task=about.get("task", ""),
            family=saved["family"],
            parameters=count_weights(last / "model.safetensors"),
            step=progress["step"],
            all_steps=train["steps"],
            score=metrics.get(name),
            metric=name if metrics else "",
            seconds=progress["seconds"],
            modified=modified,
            metrics=metrics,
            settings=settings,
        )
    except UNREADABLE:
        return RunInfo(folder, "damaged", modified=modified)


def state_of(folder: Path, train: Mapping[str, Any], progress: Mapping[str, Any]) -> State:
    """Return the state of a run with checkpoints."""
    if progress["step"] >= train["steps"] or 0 < train["patience"] <= progress["since_best"]:
        return "finished"
    if is_locked(folder):
        return "running"
    with suppress(*UNREADABLE), (folder / "metrics.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        if json.loads(file.read().splitlines()[-1])["kind"] == "diverged":
            return "diverged"
    return "interrupted"


def is_locked(folder: Path) -> bool:
    """Return True if a training process holds the lock of a run."""
    try:
        with (folder / ".lock").open() as file:
            return not lock(file, shared=True)
    except OSError:
        return False


def count_weights(path: Path) -> int:
    """Return the number of weights in a safetensors file, from its header."""
    tensors = json.loads(tensor_header(path))
    return sum(math.prod(t["shape"]) for name, t in tensors.items() if name != "__metadata__")


def read_condition(text: str) -> tuple[str, str, Any]:
    """Parse a condition such as model.stack.n_layers>=4."""
    parsed = CONDITION.fullmatch(text)
    if parsed is None or ("." not in parsed[1] and parsed[1] not in COLUMNS):
        raise ConfigError(
            f"--filter {text}: expected a condition on a column or a setting, such as "
            "state=finished or model.stack.n_layers>=4",
            "invalid_filter",
        )
    value = parsed[3].strip()
    try:
        return parsed[1], parsed[2], tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        return parsed[1], parsed[2], value.replace(" ", "_") if parsed[1] == "task" else value


def _meets(run: RunInfo, conditions: Sequence[tuple[str, str, Any]]) -> bool:
    for key, sign, wanted in conditions:
        value = run.value(key)
        value = str(value) if isinstance(value, Path) else value
        try:
            if not OPERATORS[sign](value, wanted):
                return False
        except TypeError:  # a text and a number are not ordered
            return False
    return True


def compare_runs(first: str | Path, second: str | Path) -> list[tuple[str, str, str]]:
    """Return the settings and scores that differ between two runs, after their names."""
    runs = [read_run_info(Path(path)) for path in (first, second)]
    for run in runs:
        if run.state == "damaged":
            raise ConfigError(f"{run.path} is not a run, or is damaged", "not_a_run")
    keys = dict.fromkeys(key for run in runs for key in setting_keys(run.settings))
    rows = [("", str(runs[0].path), str(runs[1].path))]
    for key in [*keys, *dict.fromkeys(name for run in runs for name in run.metrics), "parameters"]:
        values = [run.metrics.get(key, run.value(key)) for run in runs]
        if values[0] != values[1]:
            rows.append((key, _shown(values[0]), _shown(values[1])))
    return rows


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
