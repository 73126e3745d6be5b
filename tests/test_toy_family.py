"""A family is one file: everything above `models` follows from its task."""

import io
import json

import pytest
from asgi import Running
from pretrained import write_labelled
from tiny import write_corpus

import polyhead
from polyhead.cli.main import main
from polyhead.config import to_toml
from polyhead.server.model_registry import load_models

TEXT = "내일 회의가 있어요."
TRAIN = {"max_tokens": 300, "validate_every": 4, "save_every": 4, "log_every": 2,
         "bleu_sentences": 2}  # fmt: skip
STACK = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 24}
TRANSLATOR = {"data": {"hold_out": 20}, "model": {"family": "toy_translator", "d_model": 16}}
CLASSIFIER = {
    "data": {"max_length": 64},
    "model": {"family": "toy_classifier", "encoder": {"max_length": 64, "stack": STACK}},
}


PLUGIN = """
from dataclasses import dataclass
from polyhead.models.baselines.bahdanau import Bahdanau, BahdanauConfig
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.plugins import register_family

@dataclass(frozen=True)
class ToyTranslatorConfig(BahdanauConfig):
    pass

@register_family("toy_translator", config=ToyTranslatorConfig, task="translation")
class ToyTranslator(Bahdanau):
    pass

@dataclass(frozen=True)
class ToyClassifierConfig(ClassifierConfig):
    pass

@register_family("toy_classifier", config=ToyClassifierConfig, task="text_classification")
class ToyClassifier(Classifier):
    pass
"""


@pytest.fixture(params=["toy_translator", "toy_classifier"])
def toy(request, tmp_path, plugins):  # noqa: ARG001
    """Return the name of a toy family, its plug-in, its recipe and the arguments for its data."""
    plugin = tmp_path / "toys.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    if request.param == "toy_translator":
        recipe, files = TRANSLATOR, write_corpus(tmp_path)
        data = ["--source", files["source"][0], "--target", files["target"][0]]
    else:
        recipe, files = CLASSIFIER, write_labelled(tmp_path)
        data = ["--data", files["labelled"][0], "--valid-data", files["valid_labelled"][0]]
    path = tmp_path / "toy.toml"
    path.write_text(to_toml({**recipe, "text": {"vocab": 700}, "train": TRAIN}))
    return request.param, plugin, path, data


@pytest.mark.slow
def test_one_file_is_enough(toy, tmp_path, monkeypatch, capsys):
    name, plugin, recipe, data = toy
    run, page = tmp_path / "run", tmp_path / "page.html"
    train = ["train", str(recipe), *data, "--run", str(run), "--accept-changes"]
    assert main(["--plugin", str(plugin), *train, "train.steps=4"]) == 0
    assert main([*train, "train.steps=8"]) == 0
    assert max(run.glob("checkpoints/step-*")).name == "step-00000008"
    capsys.readouterr()

    pipeline = polyhead.load(run)
    assert type(pipeline.model).__name__.startswith("Toy")
    command = "translate" if name == "toy_translator" else "classify"
    expected = polyhead.Translator if command == "translate" else polyhead.TextClassifier
    assert isinstance(pipeline, expected)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n".encode())))
    assert main([command, str(run)]) == 0
    assert capsys.readouterr().out.count("\n") == 1

    assert main(["attention", str(run), TEXT, "--output", str(page)]) == 0
    assert "polyhead-attention-1" in page.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["cost", str(recipe), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert sum(part["parameters"] for part in parts.values()) > 0

    server = Running(load_models([run], "cpu"))
    try:
        answer = server.post(f"/v1/{command}", {"text": TEXT})
        assert answer.status == 200, answer.body
    finally:
        server.close()
