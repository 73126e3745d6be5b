"""A task of a plug-in, one file, has all that a built-in one has."""

import io
import json
from importlib import resources
from pathlib import Path

import pytest
from asgi import Running
from reporters import Crash, crash_at
from served_models import started

import polyhead
from polyhead.cli.main import main
from polyhead.server.model_registry import load_models
from polyhead.viz.capture import attention_view

PLUGIN = Path(__file__).parents[1] / "examples" / "plugins" / "ordering.py"
WORDS = ["cab", "dab", "bad", "cad", "abc", "bca", "dac", "cbd", "adb", "bdc", "acd", "dca"]
SETTINGS = {
    "train.judge_by": "accuracy", "data.max_length": 8,
    "text.kind": "words", "text.vocab": 40, "train.max_tokens": 60, "train.steps": 60,
    "train.validate_every": 30, "train.save_every": 30, "train.schedule.rate": 1e-2,
    "train.schedule.warmup": 5,
    "model.encoder.stack.n_layers": 1, "model.encoder.stack.d_model": 16,
    "model.encoder.stack.n_heads": 2, "model.encoder.stack.d_ff": 32,
}  # fmt: skip


@pytest.fixture
def trained(tmp_path, plugins, monkeypatch):  # noqa: ARG001
    """Return a run on a file, and the file."""
    assert len(PLUGIN.read_text(encoding="utf-8").splitlines()) <= 120
    polyhead.load_plugin(PLUGIN)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "words.tsv"
    rows = "".join(f"{word}\t{''.join(sorted(word))}\n" for word in WORDS)
    path.write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    recipe = (resources.files("polyhead") / "recipes" / "tagger-small.toml").read_text("utf-8")
    Path("orderer.toml").write_text(recipe.replace('"tagger"', '"orderer"'), encoding="utf-8")
    train(tmp_path / "run", str(path))
    return tmp_path / "run", path


def train(run, data, **more):
    valid = {"valid_data": data} if isinstance(data, str) else {}
    return polyhead.train(
        "orderer.toml", data=data, **valid, run=run, overrides=SETTINGS, progress="none", **more
    )


def test_it_trains_resumes_and_reads_data_from_memory_alike(trained, tmp_path):
    run, path = trained
    weights = (run / "last" / "model.safetensors").read_bytes()
    with pytest.raises(Crash):
        train(tmp_path / "parts", str(path), callbacks=[crash_at(40)])
    train(tmp_path / "parts", str(path))
    assert (tmp_path / "parts" / "last" / "model.safetensors").read_bytes() == weights
    pairs = [(word, "".join(sorted(word))) for word in WORDS]
    polyhead.train(
        "orderer.toml", data=pairs, valid_data=pairs, run=tmp_path / "memory",
        overrides=SETTINGS | {"data.store": "always"}, progress="none",
    )  # fmt: skip
    assert (tmp_path / "memory" / "last" / "model.safetensors").read_bytes() == weights


def test_python_command_request_card_and_attention_agree(trained, monkeypatch, capfd):
    run, path = trained
    model = polyhead.load(run)
    (expected,) = model(["cab"])
    assert sorted(expected.ordered) == list("abc")
    assert "polyhead order DIRECTORY" in (run / "last" / "README.md").read_text(encoding="utf-8")
    for words, row in ([], expected.ordered), (["--jsonl"], json.dumps(vars(expected))):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"cab\n")))
        assert main(["order", str(run), *words]) == 0
        assert capfd.readouterr().out == f"{row}\n"
    assert main(["order", "--help"]) == 0
    assert "Put the characters" in capfd.readouterr().out
    assert main(["evaluate", str(run), "--data", str(path), "--json"]) == 0
    scores = json.loads(capfd.readouterr().out)
    assert scores["scores"] == model.evaluate(path).scores
    assert scores["scores"]["accuracy"] == model.saved.about["valid"]["accuracy"]
    assert attention_view(model, "cab").title == f"cab → {expected.ordered}"
    server = Running(load_models([run], "cpu"))
    try:
        answer = server.post("/v1/order", {"text": ["cab", "a"]}).json()
        assert answer["results"][0] == vars(expected)
        assert server.post("/v1/order", {"text": "cab", "top": 1}).status == 422
        listed = server.get("/v1/models").json()["models"][0]
        assert (listed["use"], listed["attention"]) == ("order", ["encoder"])
        assert "/v1/order" in server.get("/openapi.json").json()["paths"]
    finally:
        server.close()


def test_compare_trains_it_over_seeds(trained, tmp_path):
    _, path = trained
    set_by_compare = ("train.steps", "train.validate_every", "train.save_every")
    words = [f"{k}={v}" for k, v in SETTINGS.items() if k not in set_by_compare]
    vary = ["--vary", "model.encoder.stack.norm=pre,post", "--seeds", "2", "--steps", "20"]
    data = ["--data", str(path), "--valid-data", str(path), "--run", str(tmp_path / "compare")]
    assert main(["compare", "orderer.toml", *words, *vary, *data]) == 0
    (table,) = (tmp_path / "compare").rglob("table.md")
    assert "accuracy" in table.read_text(encoding="utf-8")


@pytest.mark.browser
def test_the_page_shows_its_result_and_attention(trained, windows, monkeypatch):
    run, _ = trained
    monkeypatch.setenv("POLYHEAD_PLUGINS", str(PLUGIN))
    with started(run, "--threads", "1") as process:
        page = windows.open(f"{process.url}/#q=cab", locale="en-US")
        page.wait_for_selector("#cells, #map")
        assert page.inner_text(".answer-box").splitlines()[-1] == polyhead.load(run)("cab").ordered
