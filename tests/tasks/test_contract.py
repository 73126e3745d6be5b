"""Contract of all tasks, at every level: training, Python, commands, HTTP, attention and page."""

import json
import os
import re
from dataclasses import asdict, is_dataclass
from urllib.parse import quote

import pytest
from asgi import PNG, Running
from expected_errors import raises
from served_models import started
from task_rows import ROWS

import polyhead
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.registry import TASKS, find_task
from polyhead.server.model_registry import load_models
from polyhead.training.config import read_run
from polyhead.viz.capture import attention_view
from polyhead.viz.views import AttentionView

SHOWN = ("text", "prompt", "text_pair", "question", "context")  # on the page
FIGURE = re.compile(r"(?m)^([\w ]+?) +(-?[\d.]+)\b")


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def server(trained):
    """Serve the models of all rows; their names are those of the rows."""
    running = Running(load_models([trained(name).run for name in ROWS], "cpu", "torch"))
    yield running
    running.close()


def ask(server, one, route=None, **fields):
    """Send the request of a row, with the name of its model."""
    body = {**one.row.request, "model": one.name, **fields}
    if one.row.use:
        return server.post(route or one.row.route, body)
    query = "&".join(f"{name}={value}" for name, value in body.items() if name != "text")
    image = one.given.read_bytes()
    return server.call("POST", route or one.row.route, image, [PNG], query.encode())


def alike(found, expected):
    """Return True if JSON values are equal; numbers may differ in the last bits of a batch."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            alike(found[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(expected, float):
        return found == pytest.approx(expected, rel=1e-4, abs=1e-5, nan_ok=True)
    return found == expected


def numbers(value, name=""):
    """Yield all numbers in JSON with the names of their fields."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, key)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item, name)
    elif isinstance(value, int | float):
        yield name, value


def test_every_task_has_a_row():
    assert {row.task for row in ROWS.values()} == set(TASKS)


# Training; resuming and the kinds of data are tested in training/test_combinations.py


def test_a_model_is_trained_until_its_loss_has_fallen(one):
    lines = (one.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [entry["loss"] for entry in map(json.loads, lines) if entry["kind"] == "train"]
    assert sum(losses[-3:]) / 3 < 0.97 * losses[0]


def test_the_card_names_task_command_and_metrics(one):
    card = (one.run / "last" / "README.md").read_text(encoding="utf-8")
    task = find_task(one.row.task)
    assert f"pipeline_tag: {task.tag}\n" in card
    assert f"polyhead {one.row.verb} DIRECTORY" in card
    table = next(line for line in card.splitlines() if line.startswith("| step |"))
    valid = one.pipeline.saved.about["valid"]
    assert table.strip("| ").split(" | ") == ["step", *valid]
    assert set(valid) <= set(task.metrics)


# Use


def test_python_command_and_request_give_the_same(one, run, server):
    expected = as_json(one.row.record(one.given, one.row.call(one.pipeline, one.given)))
    options = [] if one.row.verb == "embed" else ["--jsonl"]
    words = (one.row.verb, one.run, *([] if one.row.use else [one.given]), *one.row.words)
    code, out, err = run(*words, *options, stdin=f"{one.given}\n")
    assert (code, err) == (0, "")
    assert alike(json.loads(out), expected)
    code, out, err = run(*words, stdin=f"{one.given}\n")  # as text
    assert (code, err, bool(out.strip())) == (0, "", True)
    answer = ask(server, one)
    assert answer.status == 200, answer.body
    served = one.row.served(answer.json())
    assert alike(served, {name: expected[name] for name in served})


def as_json(value):
    """Return a result as it is after it was written and read."""
    return json.loads(json.dumps(asdict(value) if is_dataclass(value) else value))


def test_evaluation_in_python_in_the_command_and_in_training_gives_the_same(one, run):
    data = [one.valid]
    if one.row.verb == "translate":
        pairs = one.pipeline.read_pairs(data)
        data = [pairs.sources, pairs.targets]
    of_python = list(numbers(as_json(polyhead.evaluate(one.pipeline, *data))))
    words = ("evaluate", one.run, f"--{one.row.option}", one.valid)
    code, out, _ = run(*words, "--json")
    assert code == 0
    of_command = list(numbers({**json.loads(out), "decoding": {}}))
    assert len(of_command) > 1
    for name, value in of_command:
        assert any(alike(other, value) for kind, other in of_python if kind == name), name
    scores = dict(reversed(of_command))  # the first of each name
    valid = {k: v for k, v in one.pipeline.saved.about["valid"].items() if k in scores}
    assert alike({name: scores[name] for name in valid}, valid)
    assert valid or one.row.verb == "translate"  # which searches greedily in training
    code, out, _ = run(*words)
    assert code == 0
    shown = {name.replace(" ", "_"): float(value) for name, value in FIGURE.findall(out)}
    assert shown
    for name in valid.keys() & shown.keys():
        assert shown[name] == pytest.approx(valid[name], abs=1e-3)


def test_attention_shows_the_words_of_the_input(one, server):
    if not one.row.use:
        expected = json.loads(attention_view(one.pipeline, one.given).to_json())
        answer = ask(server, one, "/v1/attention", format="json").json()
        assert (expected["rows"], expected["columns"]) == (2, 2)
        for name in ("rows", "columns", "layers", "rollout", "picture", "labels"):
            assert answer[name] == expected[name]
        return
    text = one.row.request.get("question", one.given)
    more = {"target": one.row.request["context"]} if one.row.verb == "answer" else {}
    view = attention_view(one.pipeline, text, **more)
    words = " ".join([text, *more.values()]).split()
    assert view.source.text.split() == words
    tokens = [token for token in view.source.tokens if not token.special or token.text == "[MASK]"]
    assert len({token.word for token in tokens}) == len(words)
    for one_map in view.maps:
        assert one_map.weights.shape[2] in (len(view.source.tokens), len(view.predictions))
        assert one_map.weights.sum(2) == pytest.approx(1, abs=1e-5)
    sent = {"model": one.name, "text": text, "format": "json", **more}
    answer = server.post("/v1/attention", sent)
    if one.row.verb == "embed":
        assert (answer.status, answer.json()["field"]) == (422, "model")
    else:
        assert AttentionView.from_json(answer.body).maps == view.maps


# Refusals


def test_unknown_options_are_refused_everywhere(one, fail, server):
    answer = ask(server, one, unknown_option=1)
    assert (answer.status, answer.json()["field"]) == (422, "unknown_option")
    fail(one.row.verb, one.run, "--unknown-option", code=2, error="bad_usage")
    words = ("evaluate", one.run, f"--{one.row.option}", one.valid)
    fail(*words, "--unknown-option", code=2, error="bad_usage")
    if one.row.option != "pairs":
        fail(*words, "--tokenize", "char", code=2, error="no_effect")
    with raises(ConfigError, "unknown_key"):
        read_run(one.row.recipe, ["train.unknown_option=1"])


def test_requests_out_of_bounds_are_refused(one, server):
    for fields in one.row.refused():
        answer = ask(server, one, **{"model": one.name, **fields})
        assert answer.status in (404, 422), fields
        assert answer.json()["field"] in fields, fields


def test_a_model_of_another_task_is_refused_and_its_command_named(one, fail, server, trained):
    other = trained("language_modeling" if one.row.option == "text" else "masked_lm")
    if other.name == one.name:
        other = trained("masked_lm")
    words, stdin = () if one.row.use else (one.given,), f"{one.given}\n"
    _, _, line = fail(one.row.verb, other.run, *words, stdin=stdin, code=5, error="wrong_task")
    assert f"polyhead {other.row.verb} {other.run}" in line
    with raises(CheckpointError, "wrong_task", f"polyhead {other.row.verb}"):
        type(one.pipeline).from_dir(other.run)
    answer = ask(server, one, model=other.name)
    assert (answer.status, answer.json()["field"]) == (422, "model")
    if other.row.option != one.row.option:
        given = (f"--{other.row.option}", other.valid)
        fail("evaluate", one.run, *given, code=5, error="wrong_task")


def test_models_are_listed_with_their_use(server):
    listed = {entry["name"]: entry for entry in server.get("/v1/models").json()["models"]}
    uses = {name: row.verb if row.use else "classify-image" for name, row in ROWS.items()}
    assert {name: entry["use"] for name, entry in listed.items()} == uses


# Page


@pytest.fixture(scope="module")
def process(trained):
    with started(*(trained(name).run for name in ROWS), "--threads", "1") as running:
        yield running


@pytest.mark.browser
def test_the_page_shows_a_result_of_every_model(process, windows, trained):
    page = windows.open(process.url, locale="en-US")
    page.wait_for_selector(".panel")
    for name, row in ROWS.items():
        fields = (str(value) for key, value in row.request.items() if key in SHOWN)
        text = quote("\t".join(fields))
        page.goto(f"{process.url}/#model={name}&q={text}")
        page.reload()
        if not row.use:
            page.locator("#file").set_input_files(trained(name).given)
        page.wait_for_selector(row.panel)
        if row.verb != "embed":
            page.wait_for_selector("#cells, #map")
        page.wait_for_selector(".busy", state="detached")
    assert all(url.startswith((process.url, "blob:")) for url in windows.requested)
