"""CTranslate2 as the engine of a server: the answers of torch, without torch if need be."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from unittest.mock import patch

import openai
import pytest
import requests
from asgi import JSON, call
from served_models import started

from polyhead.engines.ctranslate2_engine import CTranslate2Backend
from polyhead.pipelines.torch_backend import TorchBackend
from polyhead.pipelines.translator import Translator
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


def test_options_that_the_engine_lacks_stay_with_torch(fast, another):
    (served,) = fast.models
    model, about = served.model, served.model.saved.about
    options = {**about["run"].get("decode", {}), "coverage": 0.2, "beam": 2}
    saved = replace(model.saved, about={**about, "run": {**about["run"], "decode": options}})
    torch_only = replace(served, model=Translator.from_saved(saved, model.name, model.device))
    covering = replace(torch_only, model=torch_only.model.with_engine("auto"))
    sent, real = {"text": TEXTS[0]}, TorchBackend.decode
    with patch.object(TorchBackend, "decode", autospec=True, side_effect=real) as spy:
        answers = [another(m).post("/v1/translate", sent).json() for m in (covering, torch_only)]
    assert answers[0] == answers[1]
    assert spy.call_count == 2


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
        for path in ("/v1/attention", "/v1/steps", "/v1/classify"):
            answer = post(path, {"text": TEXTS[0]})
            assert (answer.status_code, "torch" in answer.json()["error"]) == (501, True)
        assert post("/v1/translate", {"text": "가", "alignment": True}).status_code == 501
        (entry,) = requests.get(f"{running.url}/v1/models", timeout=60).json()["models"]
        (same,) = [e for e in server.get("/v1/models").json()["models"] if e["use"] == "translate"]
        changed = {"engine": "ctranslate2 float32", "attention": []}
        assert entry == {**same, **changed}
        assert requests.get(f"{running.url}/openapi.json", timeout=60).status_code == 200


def test_models_that_need_torch_are_refused_without_it(models):
    words = [sys.executable, "-c", WITHOUT_TORCH, str(models["fill"]), "--port", "0"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert result.returncode in (2, 3)
    assert "Traceback" not in result.stderr
    assert "ctranslate2" in result.stderr


GREEDY = {"prompt": "내일 부산에", "greedy": True, "max_tokens": 40}  # beyond the context of 16


@pytest.fixture(scope="module")
def writer(models):
    """Return the served language model with the engine."""
    (served,) = load_models([models["generate"]], "cpu", "auto").models
    assert served.about.engine == "ctranslate2 float32"
    return served


@pytest.fixture
def texts():
    """Record the calls for all texts that the engine generates."""
    real = CTranslate2Backend.generate
    with patch.object(CTranslate2Backend, "generate", autospec=True, side_effect=real) as spy:
        yield spy.call_args_list


def events_of(answer):
    """Return the text and the tokens of a stream."""
    parts = [event.split("data: ")[1] for event in answer.body.decode().strip().split("\n\n")]
    *parts, done = map(json.loads, parts)
    assert "".join(part["text"] for part in parts) == done["text"]
    return done["text"], [token for part in parts for token in part["tokens"]]


@pytest.mark.parametrize("more", [{}, {"stop": ["요", "\n"]}, {"prompt": ""}, {"max_tokens": 1}])
def test_greedy_texts_and_their_probabilities_are_those_of_torch(
    server, another, writer, texts, more
):
    fast, sent = another(writer), {**GREEDY, **more}
    whole = {**sent, "stream": False}
    answers = [running.post("/v1/generate", whole) for running in (server, fast)]
    assert [answer.status for answer in answers] == [200, 200]
    expected, found = (answer.json() for answer in answers)
    assert found["text"] == expected["text"]
    for ours, theirs in zip(found["tokens"], expected["tokens"], strict=True):
        assert ours == {**theirs, "probability": pytest.approx(theirs["probability"], rel=1e-4)}
    assert events_of(fast.post("/v1/generate", sent)) == (found["text"], found["tokens"])
    completion = {"prompt": sent["prompt"], "temperature": 0, "max_tokens": sent["max_tokens"],
                  "stop": sent.get("stop"), "logprobs": 0}  # fmt: skip
    answers = [running.post("/v1/completions", completion) for running in (server, fast)]
    theirs, ours = (answer.json()["choices"][0] for answer in answers)
    log_p = [choice["logprobs"].pop("token_logprobs") for choice in (ours, theirs)]
    assert (ours, log_p[0]) == (theirs, pytest.approx(log_p[1], abs=1e-4))
    assert len(texts) == 3


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/generate", {**GREEDY, "greedy": False, "seed": 3, "stream": False}),
        ("/v1/generate", {**GREEDY, "prefix": [5, 6], "stream": False}),
        ("/v1/completions", {"prompt": "내일", "seed": 5, "n": 2}),
        ("/v1/completions", {"prompt": "내일", "temperature": 0, "logprobs": 2}),
        ("/v1/steps", {"text": "내일"}),
    ],
)
def test_what_the_engine_lacks_stays_with_torch(served, another, writer, texts, path, sent):
    both = another(served("generate")), another(writer)
    answers = [running.post(path, sent).json() for running in both]
    for answer in answers:
        for name in ("model", "seconds", "id", "created"):
            answer.pop(name, None)
    assert answers[0] == answers[1]
    assert texts == []


def test_many_streams_run_beside_each_other(models):
    """Read 16 streams in turn: none waits for another to end, and all are the same text."""
    with started(models["generate"]) as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", timeout=60)
        sent = {"model": "run", "prompt": "내일", "temperature": 0, "max_tokens": 500}
        streams = [client.completions.create(**sent, stream=True) for _ in range(16)]
        first = [next(stream).choices[0].text for stream in streams]
        rest = ["".join(part.choices[0].text for part in stream) for stream in streams]
        written = {a + b for a, b in zip(first, rest, strict=True)}
        assert written == {client.completions.create(**sent).choices[0].text}
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_text_whose_client_has_left_is_no_longer_computed(
    another, writer, monkeypatch, is_streamed
):
    n_tokens, ended, generate = 0, threading.Event(), CTranslate2Backend.generate

    def counted(*words, **more):
        nonlocal n_tokens
        try:
            for step in generate(*words, **more):
                n_tokens += 1
                yield step
        finally:
            ended.set()

    monkeypatch.setattr(CTranslate2Backend, "generate", counted)
    fast = another(writer)
    sent = {"prompt": "내일", "temperature": 0, "max_tokens": 1024, "stream": is_streamed}
    body = json.dumps(sent).encode()

    async def leave():
        left = asyncio.Event()
        request = call(fast.app, "POST", "/v1/completions", body, [JSON], left=left)
        asking = asyncio.ensure_future(request)
        while not n_tokens:
            await asyncio.sleep(0.001)
        left.set()
        await asking

    fast.run(leave())
    assert ended.wait(60)
    assert n_tokens < 1024
    while fast.app.scheduler.worker.streams:
        assert n_tokens < 1024


def test_a_server_without_torch_generates(models, server):
    words = (sys.executable, "-c", WITHOUT_TORCH)
    with started(models["generate"], models["translate"], command=words) as running:

        def post(path, content):
            return requests.post(f"{running.url}{path}", json=content, timeout=60)

        sent = {**GREEDY, "stream": False}
        expected = server.post("/v1/generate", sent).json()["text"]
        assert post("/v1/generate", sent).json()["text"] == expected
        sampled = {"prompt": "내일", "temperature": 1.0, "top_p": 0.9, "seed": 7, "max_tokens": 9}
        answers = [post("/v1/completions", sampled).json()["choices"] for _ in range(2)]
        assert answers[0] == answers[1]
        refused = [{**sampled, "temperature": 0.7}, {**sampled, "logprobs": 3}]
        assert [post("/v1/completions", one).status_code for one in refused] == [400, 400]
        assert post("/v1/generate", {**sent, "prefix": [5]}).status_code == 422
        entries = requests.get(f"{running.url}/v1/models", timeout=60).json()["models"]
        (same,) = [e for e in server.get("/v1/models").json()["models"] if e["use"] == "generate"]
        changed = {"name": "run", "engine": "ctranslate2 float32", "attention": []}
        assert entries[0] == {**same, **changed}
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
