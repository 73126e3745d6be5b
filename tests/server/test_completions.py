"""OpenAI's routes, used through the `openai` package from PyPI."""

import json
from functools import partial

import openai
import pytest
import torch
from served_models import started

from polyhead.server.routes.completion_routes import DEFAULT_TOKENS
from polyhead.server.settings import MAX_STREAMS

KEY = "correct-horse"
PROMPT = "오늘은 회의가"


def connect(running, key="none"):
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture
def client(process):
    return connect(process)


@pytest.fixture
def ask(client, served):
    """Ask for a completion of the served language model."""

    def ask(prompt=PROMPT, **options):
        return client.completions.create(model=served("generate").name, prompt=prompt, **options)

    return ask


@pytest.fixture
def write(served):
    """Generate with the pipeline itself; return the text and its tokens."""
    generator = served("generate").model

    def write(prompt=PROMPT, seed=0, stop=(), **changes):
        options = generator.defaults.with_options({"max_length": 8, "sample": True, **changes})
        return generator.generate_tokens(prompt, options=options, seed=seed, stop=stop)

    return write


def test_completions_are_those_of_the_model(ask, write, served):
    prompts = [PROMPT, "내일 비가"]
    result = ask(prompts, max_tokens=8, n=2, seed=5, temperature=0.7, top_p=0.9)
    expected = [
        write(prompt, seed, temperature=0.7, top_p=0.9) for prompt in prompts for seed in (5, 6)
    ]
    assert [choice.text for choice in result.choices] == [one.text for one in expected]
    assert [choice.index for choice in result.choices] == [0, 1, 2, 3]
    assert (result.object, result.model) == ("text_completion", served("generate").name)
    n_read = sum(len(served("generate").model.encode(prompt)) for prompt in prompts)
    n_written = sum(len(one.tokens) for one in expected)
    usage = result.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (n_read, n_written)
    assert usage.total_tokens == n_read + n_written
    greedy = ask(temperature=0, max_tokens=8)
    assert greedy.choices[0].text == write(sample=False).text


def test_length_and_seed_have_the_defaults_of_openai(ask):
    texts = {ask(temperature=2.0).choices[0].text for _ in range(4)}
    assert len(texts) > 1
    assert ask().usage.completion_tokens == DEFAULT_TOKENS


def test_streams_are_the_same_text_in_parts(ask):
    options = {"max_tokens": 8, "n": 2, "seed": 3, "logprobs": 2}
    whole = ask(**options)
    *parts, last = ask(stream=True, stream_options={"include_usage": True}, **options)
    assert len(parts) > 4
    assert (last.choices, last.usage) == ([], whole.usage)
    for choice in whole.choices:
        own = [p.choices[0] for p in parts if p.choices[0].index == choice.index]
        assert "".join(part.text for part in own) == choice.text
        assert [p.finish_reason for p in own if p.finish_reason] == [choice.finish_reason]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [value for part in own for value in getattr(part.logprobs, name)]
            assert joined == getattr(choice.logprobs, name)


def test_logprobs_are_those_of_torch(ask, write, served):
    generator = served("generate").model
    choice = ask(max_tokens=6, seed=2, logprobs=3).choices[0]
    ids = [token.id for token in write(seed=2, max_length=6).tokens]
    read = generator.encode(PROMPT)
    with torch.inference_mode():
        logits = generator.model(torch.tensor([[*read, *ids]]))[0].double()
    log_p = logits.log_softmax(-1)[len(read) - 1 : -1]
    expected = log_p[range(len(ids)), ids].tolist()
    logprobs = choice.logprobs
    assert logprobs.token_logprobs == pytest.approx(expected, abs=1e-4)
    for top, row in zip(logprobs.top_logprobs, log_p, strict=True):
        best = row[2:].topk(3).values.tolist()  # PAD and BOS are never written
        assert sorted(top.values(), reverse=True) == pytest.approx(best, abs=1e-4)
    written = [token.strip() or token for token in logprobs.tokens]
    places = [choice.text[offset:].lstrip(" ") for offset in logprobs.text_offset]
    assert all(place.startswith(token) for place, token in zip(places, written, strict=True))
    assert ask(max_tokens=2, logprobs=0).choices[0].logprobs.top_logprobs == []
    assert ask(max_tokens=2).choices[0].logprobs is None


def test_finish_reasons_and_echo(ask, write):
    text = write(sample=False).text
    cut = ask(max_tokens=8, temperature=0, echo=True).choices[0]
    assert (cut.text, cut.finish_reason) == (PROMPT + text, "length")
    stop = text[-2:]  # the last of the tokens completes it
    ended = ask(max_tokens=8, temperature=0, stop=stop).choices[0]
    assert (ended.text, ended.finish_reason) == (text[: text.index(stop)], "stop")


def test_models_are_listed_for_both_kinds_of_clients(client, server):
    listed = list(client.models.list())
    own = server.get("/v1/models").json()
    assert [model.id for model in listed] == [entry["name"] for entry in own["models"]]
    assert {(model.object, model.owned_by) for model in listed} == {("model", "polyhead")}
    assert {"limits", "version"} <= set(own)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"best_of": 2}, "best_of"), ({"suffix": "x"}, "suffix"), ({"user": 5}, "user"),
        ({"logit_bias": {"50": 1}}, "logit_bias"), ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 1}, "frequency_penalty"), ({"extra_body": {"x": 1}}, "x"),
        ({"echo": True, "logprobs": 1}, "echo"), ({"n": 65}, "n"), ({"logprobs": 21}, "logprobs"),
        ({"prompt": ["a", "b"], "n": 33}, "n"), ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"), ({"stop": [""]}, "stop.0"),
    ],
)  # fmt: skip
def test_unsupported_options_are_rejected_in_their_shape(ask, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(**options)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    assert isinstance(caught.value.body["message"], str)


def test_neutral_values_of_unsupported_options_are_ignored(ask):
    neutral = {"best_of": 1, "suffix": None, "logit_bias": {}, "presence_penalty": 0.0}
    assert ask(max_tokens=1, user="me", **neutral).usage.completion_tokens == 1


def test_an_error_ends_a_stream_in_their_shape(another, served):
    running = another(served("generate"), stream_seconds=1e-9)
    answer = running.post("/v1/completions", {"prompt": "a", "stream": True})
    (event,) = answer.body.decode().strip().split("\n\n")
    error = json.loads(event.removeprefix("data: "))["error"]
    assert (answer.status, error["type"]) == (200, "server_error")


def test_unknown_and_unsuitable_models_are_rejected(client, served):
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-5", prompt="a")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=served("translate").name, prompt="a")
    assert refused.value.param == "model"


def test_one_model_is_found_by_its_name(client, served):
    listed = {model.id: model for model in client.models.list()}
    assert client.models.retrieve(served("fill").name) == listed[served("fill").name]
    for name in ("gpt-5", "org/model", "업", "a?b"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve(name)
        assert caught.value.code == "model_not_found"


def test_requests_without_the_key_and_beyond_the_limit_are_rejected(models):
    with started(models["generate"], "--api-key", KEY) as running:
        sent, stranger = {"model": "run", "prompt": "a", "max_tokens": 1}, connect(running, "wrong")
        for call in (stranger.models.list, partial(stranger.models.retrieve, "run"),
                     partial(stranger.completions.create, **sent)):  # fmt: skip
            with pytest.raises(openai.AuthenticationError) as refused:
                call()
            assert (refused.value.code, refused.value.type) == (
                "invalid_api_key", "invalid_request_error",
            )  # fmt: skip
        client = connect(running, KEY)
        assert client.completions.create(**sent).usage.completion_tokens == 1
        long = {**sent, "max_tokens": 1024, "n": 60, "stream": True}
        streams = [client.completions.create(**long) for _ in range(MAX_STREAMS)]
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(**sent)
        assert caught.value.code == "rate_limit_exceeded"
        assert int(caught.value.response.headers["retry-after"]) > 0
        for stream in streams:
            stream.close()
