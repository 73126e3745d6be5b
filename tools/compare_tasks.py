"""Record what every task gives, and compare it with an earlier record.

    python tools/compare_tasks.py record FILE [ROW…]
    python tools/compare_tasks.py check FILE [ROW…]    # prints differences, exit code 1

A row is one of tests/support/task_rows.py: tiny runs from files, from memory, from a store, with
`--init` and resumed; commands, `evaluate`, attention and HTTP of the trained model. Records depend
on the processor and on the version of torch: compare on one machine.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import task_rows
import torch
from asgi import PNG, Running
from reporters import Crash, crash_at
from task_rows import ROWS, Row

from polyhead import load
from polyhead.cli import main as program
from polyhead.data import corpus_cache
from polyhead.pipelines.evaluator import evaluate
from polyhead.server.model_registry import load_models
from polyhead.training.entry import train
from polyhead.viz.capture import attention_view

TIMES = re.compile(r'("?(?:\w*seconds|\w*per_second|time|created)"?: ?)[\d.e+-]+')
VARYING = ("environment", "seconds", "created", "version", "tokens_per_second")
SHORT = 400  # characters of text that a record holds as they are


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def plain(text: str) -> str:
    """Return a text without times and without the name of the temporary folder."""
    return TIMES.sub(r"\1…", text.replace(str(Path.cwd()), "FOLDER"))


def lines(text: str) -> dict[str, str]:
    """Return lines by number; a long one as its beginning and digest."""
    return {
        f"{number:02}": line if len(line) < SHORT else f"{line[:80]}… {digest(line.encode())}"
        for number, line in enumerate(plain(text).split("\n"), start=1)
    }


def leaves(value: Any) -> Any:
    """Return JSON without what varies, with long texts and lists replaced by their digests."""
    if isinstance(value, dict):
        return {name: leaves(item) for name, item in value.items() if name not in VARYING}
    if isinstance(value, list):
        if len(text := json.dumps(value)) > SHORT:
            return {"n": len(value), "sha256": digest(text.encode())}
        return [leaves(item) for item in value]
    return lines(value) if isinstance(value, str) and len(value) >= SHORT else value


def run_of(folder: Path) -> dict[str, Any]:
    """Return what a run has written."""
    config = json.loads(plain((folder / "last" / "config.json").read_text(encoding="utf-8")))
    metrics = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    names = sorted(folder.rglob("*.safetensors"))
    return {
        "weights": {str(path.relative_to(folder)): digest(path.read_bytes()) for path in names},
        "config": leaves(config),
        "card": lines((folder / "last" / "README.md").read_text(encoding="utf-8")),
        "metrics": {
            f"{number:02}": leaves(json.loads(line)) for number, line in enumerate(metrics)
        },
        "files": [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))],
        "data": lines((folder / "data.json").read_text(encoding="utf-8")),
        "settings": lines((folder / "config.toml").read_text(encoding="utf-8")),
    }


def command(*words: object, stdin: str = "") -> dict[str, Any]:
    """Call the command line; return exit code, standard output and errors."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            code = program.main([str(word) for word in words])
    finally:
        sys.stdin = before
        torch.set_num_threads(1)
    out, err = (lines(stream.buffer.getvalue().decode()) for stream in streams)
    return {"code": code, "out": out, "err": err}


def trained(name: str, way: str, store: str = "auto", **given: Any) -> None:
    """Train a run in NAME/WAY; `given` has its data and `init`."""
    row = ROWS[name]
    settings = row.overrides(data__store=store)
    options: Any = {"run": f"{name}/{way}", "overrides": settings, "progress": "none"}
    if way == "resumed":
        with contextlib.suppress(Crash):
            train(row.recipe, callbacks=[crash_at(5)], **options, **given)
        corpus_cache._HELD.clear()
    train(row.recipe, **options, **given)


def base_of(name: str) -> tuple[dict[str, str], Path]:
    """Write the data of a row and train a run on it, unless they are there; return both."""
    place = Path(name)
    files = task_rows.write_files(name, place)
    if not (place / "valid_given").exists():
        trained(name, "valid_given", **files)
    return files, place / "valid_given"


def runs(name: str) -> dict[str, Any]:
    """Train in every way; those without `valid` hold out a part of the same data."""
    both, _ = base_of(name)
    option, (_, base) = ROWS[name].option, base_of(ROWS[name].base or name)
    for way, store in (("file", "never"), ("store", "always")):
        trained(name, way, store, **{option: both[option]})
    trained(name, "memory", **{option: task_rows.examples(ROWS[name].data)})
    trained(name, "resumed", **both)
    trained(name, "init", init=str(base), **both)
    ways = ("valid_given", "file", "store", "memory", "resumed", "init")
    return {way: run_of(Path(name, way)) for way in ways}


def commands(row: Row, model: Path, valid: Path) -> dict[str, Any]:
    """Return exit codes and outputs of the task's command and of `evaluate`."""
    stdin = "".join(f"{text}\n" for text in row.use)
    used = [row.verb, model, *sorted(valid.rglob("*.png"))[:3]]
    scored = ["evaluate", model, f"--{row.option}", valid]
    jsonl = [] if row.verb == "embed" else ["--jsonl"]
    other = "tag" if row.verb in ("fill", "detect") else "fill"  # an ELECTRA does both
    return {
        "text": command(*used, stdin=stdin),
        "jsonl": command(*used, *jsonl, stdin=stdin),
        "no input": command(row.verb, model),
        "evaluate": command(*scored),
        "evaluate --json": command(*scored, "--json"),
        "evaluate no effect": command(*scored, "--rounds", 3),
        "evaluate wrong input": command("evaluate", model, "--source", valid, "--target", valid),
        "wrong command": command(other, model, "[MASK]"),
        "help": command(row.verb, "--help"),
        "evaluate help": command("evaluate", "--help"),
    }


def http(row: Row, model: Path, image: bytes) -> dict[str, Any]:
    """Return the answers to valid and refused requests, /v1/models and all schemas."""
    running = Running(load_models([model], "cpu", "torch"))
    answers = {path: running.get(path) for path in ("/v1/models", "/openapi.json")}
    try:
        for number, body in enumerate([row.request, *row.others, *row.refused()]):
            if row.option == "images":
                query = "&".join(f"{name}={value}" for name, value in body.items()).encode()
                answer = running.call("POST", row.route, image, [PNG], query)
            else:
                answer = running.post(row.route, body)
            answers[f"{number} {row.route}"] = answer
    finally:
        running.close()
    return {
        name: {"status": answer.status, "body": leaves(
            answer.json() if "json" in answer.headers["content-type"] else answer.body.decode()
        )}
        for name, answer in answers.items()
    }  # fmt: skip


def python(row: Row, model: Path, valid: Path, image: Path) -> dict[str, Any]:
    """Return what Python gives for the first input, and the attention of it."""
    pipeline: Any = load(model, device="cpu")
    content: list[Any] = [image] if row.option == "images" else [row.use[0]]
    shown = {}
    if row.verb == "answer":
        content = [row.request["question"], row.request["context"]]
        shown = {"target": content[1]}
    result = getattr(pipeline, row.verb)(*content)
    view = json.loads(plain(attention_view(pipeline, content[0], **shown).to_json()))
    return {
        "result": lines(repr(result)),
        "result html": lines(result._repr_html_() if hasattr(result, "_repr_html_") else ""),
        "evaluate": lines(repr(evaluate(pipeline, valid))),
        "pipeline": lines(repr(pipeline)),
        "attention": {"sha256": digest(json.dumps(view).encode()), **leaves(view)},
    }


def record(name: str) -> dict[str, Any]:
    """Return all that a row gives."""
    start, row = time.monotonic(), ROWS[name]
    files, model = base_of(name)
    valid = Path(files[f"valid_{row.option}"])
    image = min(valid.rglob("*.png"), default=valid)
    entry = {
        "runs": runs(name),
        "commands": commands(row, model, valid),
        "http": http(row, model, image.read_bytes()),
        "python": python(row, model, valid, image),
    }
    print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    return entry


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield the places where two records differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in [*before, *(name for name in now if name not in before)]:
            yield from differences(before.get(name), now.get(name), f"{path}/{name}")
    elif before != now:
        yield f"{path}\n  - {before}\n  + {now}"


def main() -> int:
    """Record or compare; see above."""
    action, file, *names = sys.argv[1:]
    if action not in ("record", "check"):
        raise SystemExit(__doc__)
    target, names = Path(file).absolute(), names or [*ROWS]
    torch.set_num_threads(1)
    os.fsync = lambda _: None  # tests need no protection from power failures
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        os.chdir(folder)
        records = {name: record(name) for name in names}
    if action == "record":
        text = json.dumps(records, ensure_ascii=False, indent=1)
        target.write_text(f"{text}\n", encoding="utf-8")
        return 0
    before, now = json.loads(target.read_text(encoding="utf-8")), json.loads(json.dumps(records))
    changed = [line for name in names for line in differences(before[name], now[name], name)]
    print("\n".join(changed) or "equal")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
