"""CTranslate2 as the engine of a server: the answers of torch, without torch if need be."""

import subprocess
import sys
from dataclasses import replace

import pytest
import requests
from served_models import started

from polyhead.server import torch_batches
from polyhead.server.model_registry import load_models

TEXTS = ["내일 회의가 있어요.", "오늘은 비가 와요. 내일은 가요?\n\n좋아요!", "", "가 나 다 " * 40]
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it raises ModuleNotFoundError
from importlib import util
find = util.find_spec
util.find_spec = lambda name, package=None: None if name == "torch" else find(name, package)
from polyhead.cli.main import main
sys.exit(main(["serve", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def fast(models):
    return load_models([models["translate"]], "cpu", "auto")


@pytest.fixture
def fast_server(another, fast):
    return another(*fast.models)


def without_scores(answer):
    """Return the answer without its numbers, and these."""
    numbers = []

    def walk(value):
        if isinstance(value, dict):
            return {name: walk(item) for name, item in value.items() if name != "model"}
        if isinstance(value, list):
            return list(map(walk, value))
        return numbers.append(value) if isinstance(value, float) else value

    return walk(answer.json()), numbers


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1}, {"beam": 4}, {"n_best": 2, "tokens": True}, {"prefix": "On", "max_length": 9},
        {"beam": 3, "alignment": True, "max_length": 6}, {"split_sentences": False},
    ],
)  # fmt: skip
def test_translations_are_those_of_torch(server, fast_server, fast, options):
    assert fast.models[0].about.engine == "ctranslate2 float32"
    sent = {"text": TEXTS, "max_length": 24, **options}
    answers = [running.post("/v1/translate", sent) for running in (server, fast_server)]
    assert [answer.status for answer in answers] == [200, 200]
    (expected, numbers), (found, others) = map(without_scores, answers)
    assert found == expected
    assert others == pytest.approx(numbers, rel=1e-2, abs=2e-3)  # it searches without PAD and BOS


def test_options_that_the_engine_lacks_stay_with_torch(fast, another, monkeypatch):
    (served,) = fast.models
    keys, make = [], torch_batches.translation_key
    monkeypatch.setattr(
        torch_batches, "translation_key", lambda *words: keys.append(make(*words)) or keys[-1]
    )
    about = served.model.saved.about
    decode = {**about["run"].get("decode", {}), "coverage": 0.2, "beam": 2}
    saved = replace(served.model.saved, about={**about, "run": {**about["run"], "decode": decode}})
    covering = replace(served, model=replace(served.model, saved=saved))
    torch_only = replace(covering, model=replace(covering.model, engine=None))
    answers = [
        another(each).post("/v1/translate", {"text": TEXTS[0]}).json()
        for each in (covering, torch_only)
    ]
    assert answers[0] == answers[1]
    assert len(keys) == 2


def test_views_use_torch_beside_the_engine(server, fast_server):
    for path in ("/v1/steps", "/v1/beam", "/v1/attention"):
        answers = [each.post(path, {"text": TEXTS[0]}) for each in (server, fast_server)]
        assert answers[0].body == answers[1].body


def test_a_server_without_torch_translates(models, server):
    words = (sys.executable, "-c", WITHOUT_TORCH)
    with started(models["translate"], command=words) as running:

        def post(path, content):
            return requests.post(f"{running.url}{path}", json=content, timeout=60)

        sent = {"text": TEXTS, "max_length": 24}
        expected, _ = without_scores(server.post("/v1/translate", sent))
        found, _ = without_scores(post("/v1/translate", sent))
        assert found == expected
        libre = {"q": TEXTS[0], "source": "ko", "target": "en"}
        answers = [post("/translate", libre).json(), server.post("/translate", libre).json()]
        assert answers[0] == answers[1]
        for path in ("/v1/attention", "/v1/steps", "/v1/generate", "/v1/classify"):
            answer = post(path, {"text": TEXTS[0]})
            assert (answer.status_code, "torch" in answer.json()["error"]) == (501, True)
        assert post("/v1/translate", {"text": "가", "alignment": True}).status_code == 501
        (entry,) = requests.get(f"{running.url}/v1/models", timeout=60).json()["models"]
        (same,) = [e for e in server.get("/v1/models").json()["models"] if e["use"] == "translate"]
        changed = {"engine": "ctranslate2 float32", "attention": []}
        assert entry == {**same, **changed}
        assert requests.get(f"{running.url}/openapi.json", timeout=60).status_code == 200


def test_models_that_need_torch_are_refused_without_it(models):
    words = [sys.executable, "-c", WITHOUT_TORCH, str(models["generate"]), "--port", "0"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert result.returncode in (2, 3)
    assert "Traceback" not in result.stderr
    assert "ctranslate2" in result.stderr
