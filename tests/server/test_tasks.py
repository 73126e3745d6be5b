"""Attention, steps, beam search, generation, mask filling and classification over HTTP."""

import asyncio
import io
import json
import struct
import threading
import time
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from asgi import JSON, PNG, call
from PIL import Image
from saved_models import build_electra, save_model
from torch.nn import LayerNorm

from polyhead.layers.attention_hooks import record_attention
from polyhead.server.model_registry import load_models
from polyhead.server.routes import attention_routes as attention_route
from polyhead.server.routes import classification_routes as classify
from polyhead.server.schemas import Code
from polyhead.special_tokens import BOS, EOS
from polyhead.viz.capture import attention_view
from polyhead.viz.draw_image import ImageViewOptions, draw_image
from polyhead.viz.views import AttentionView

TEXT = "내일 회의가 있어요."


def unpacked(body):
    """Parse the binary format."""
    assert body[:8] == b"PHATTN1\n"
    (length,) = struct.unpack("<I", body[8:12])
    header = json.loads(body[12 : 12 + length])
    payload = body[12 + length :]
    assert (12 + length) % 8 == 0
    kinds = {"float32": "<f4", "float16": "<f2", "uint8": "u1"}
    maps = {}
    for one in header["maps"]:
        if one["offset"] is not None:
            assert one["offset"] % 8 == 0
            part = payload[one["offset"] : one["offset"] + one["bytes"]]
            numbers = np.frombuffer(part, kinds[header["precision"]]).reshape(one["stored"])
            unit = 255 if header["precision"] == "uint8" else 1
            maps[one["kind"], one["layer"]] = numbers.astype(float) / unit
    return header, maps


@pytest.fixture(scope="module")
def view(served):
    return attention_view(served("translate").model, TEXT)


@pytest.mark.parametrize(
    ("precision", "error"), [("float32", 0), ("float16", 5e-4), ("uint8", 0.5 / 255 + 1e-6)]
)
def test_the_binary_format_has_the_weights(server, view, precision, error):
    answer = server.post("/v1/attention", {"text": TEXT, "precision": precision})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    header, maps = unpacked(answer.body)
    assert set(maps) == {(one.kind, one.layer) for one in view.maps}
    for one, reported in zip(view.maps, header["maps"], strict=True):
        assert np.abs(maps[one.kind, one.layer] - one.weights).max() <= error
        assert tuple(reported["shape"]) == one.weights.shape
        assert reported["entropy"] == pytest.approx(list(one.entropy()), abs=1e-4)
    assert header["source"]["text"] == TEXT
    assert header["predictions"] == list(view.predictions)


def test_single_maps_can_be_requested(server, view):
    wanted = [{"kind": "cross", "layer": 2}]
    header, maps = unpacked(server.post("/v1/attention", {"text": TEXT, "maps": wanted}).body)
    assert list(maps) == [("cross", 2)]
    assert len(header["maps"]) == len(view.maps)
    header, maps = unpacked(server.post("/v1/attention", {"text": TEXT, "maps": []}).body)
    assert maps == {}


@pytest.mark.parametrize("form", ["binary", "json"])
def test_kinds_layers_and_heads_can_be_selected(server, view, form):
    def ask(**chosen):
        sent = {"text": TEXT, "format": form, "kind": "cross", "layer": 2, **chosen}
        if form == "binary":
            sent["precision"] = "float32"
        content = server.post("/v1/attention", sent).body
        if form == "binary":
            return unpacked(content)[1]
        return {(one.kind, one.layer): one.weights for one in AttentionView.from_json(content).maps}

    full = view.find("cross", 2).weights
    assert list(ask()) == [("cross", 2)]
    assert np.array_equal(ask(heads=[2, 1])["cross", 2], full[[1, 0]])
    assert ask(heads="mean")["cross", 2] == pytest.approx(full.mean(0, keepdims=True), abs=1e-6)
    assert set(ask(kind=None, heads=[1])) == {(kind, 2) for kind in view.kinds}
    words = view.merged().find("cross", 2).weights
    assert ask(merge=True)["cross", 2] == pytest.approx(words, abs=1e-6)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"maps": [{"kind": "cross", "layer": 9}]}, "layer 9: "),
        ({"kind": "cross", "layer": 9}, "layer 9: "),
        ({"heads": [77]}, "head 77: "),
        ({"maps": [], "layer": 1}, "maps: give either maps, or kind and layer"),
        ({"format": "html", "heads": [1]}, 'heads: only with "format": "binary" or'),
        ({"format": "json", "precision": "uint8"}, 'precision: only with "format": "binary"'),
        ({"word": "a"}, 'word: only with "format": "svg"'),
        ({"log": True}, 'log: only with "format": "svg"'),
        ({"format": "svg", "size": 4}, 'size: only with "format": "binary"'),
    ],
)  # fmt: skip
def test_unsupported_options_are_rejected(server, sent, error):
    answer = server.post("/v1/attention", {"text": TEXT, **sent})
    assert answer.status == 422
    assert answer.json()["error"].startswith(error)


def test_small_maps_are_max_pooled(server, view):
    sent = {"text": TEXT, "size": 4, "precision": "float32"}
    _, maps = unpacked(server.post("/v1/attention", sent).body)
    full = view.find("encoder", 1).weights
    length = full.shape[1]
    edges = [n * length // 4 for n in range(5)]
    for i, j in np.ndindex(4, 4):
        block = full[:, edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
        assert np.array_equal(maps["encoder", 1][:, i, j], block.max((1, 2)))


def test_other_formats_equal_those_of_the_command(server, view, served):
    content = server.post("/v1/attention", {"text": TEXT, "format": "json"}).body
    assert AttentionView.from_json(content).maps == view.maps
    assert json.loads(content)["model"] == served("translate").name
    page = server.post("/v1/attention", {"text": TEXT, "format": "html"})
    assert page.headers["content-type"].startswith("text/html")
    assert "attachment" in page.headers["content-disposition"]
    assert b"polyhead-attention-1" in page.body
    assert str(served("translate").model.name).encode() not in page.body
    picture = {"text": TEXT, "format": "svg", "kind": "cross", "layer": 1, "lines": True}
    assert server.post("/v1/attention", picture).body.startswith(b"<svg")


def test_a_target_may_be_text_or_ids(server, served):
    translator = served("translate").model
    ids = translator.tokenizers.target.encode("one two")[:-1]
    sent = {"text": TEXT, "format": "json"}
    one = server.post("/v1/attention", {**sent, "target": "one two"}).body
    two = server.post("/v1/attention", {**sent, "target_ids": ids}).body
    assert AttentionView.from_json(one) == AttentionView.from_json(two)
    bad = server.post("/v1/attention", {**sent, "target_ids": [10**6]})
    assert bad.status == 422


def test_steps_equal_greedy_search_and_follow_the_prefix(server):
    greedy = server.post("/v1/translate", {"text": TEXT, "beam": 1, "max_length": 8}).json()
    expected = greedy["translations"][0]["hypotheses"][0]
    walk = server.post("/v1/steps", {"text": TEXT, "max_tokens": 8}).json()
    assert [token["id"] for token in walk["tokens"]] == expected["ids"]
    assert walk["text"] == expected["text"]
    for step in walk["steps"]:
        shares = [one["probability"] for one in step["alternatives"]]
        assert len(shares) == 5
        assert shares == sorted(shares, reverse=True)
        assert step["alternatives"][0]["id"] == step["id"]
        assert step["probability"] == shares[0]
    other = walk["steps"][1]["alternatives"][3]["id"]
    forced = [walk["steps"][0]["id"], other]
    again = server.post("/v1/steps", {"text": TEXT, "prefix": forced, "max_tokens": 8}).json()
    assert [step["id"] for step in again["steps"][:2]] == forced
    assert [step["forced"] for step in again["steps"]] == [True, True] + [False] * 6
    assert again["steps"][0]["alternatives"] == walk["steps"][0]["alternatives"]
    ended = server.post("/v1/steps", {"text": TEXT, "prefix": [*forced, 2]}).json()
    assert ended["ended"]
    assert len(ended["steps"]) == 3


def test_steps_of_a_language_model_equal_its_greedy_text(server, served):
    name = served("generate").name
    walk = server.post("/v1/steps", {"model": name, "text": "오늘", "max_tokens": 6}).json()
    sent = {"model": name, "prompt": "오늘", "max_tokens": 6, "greedy": True, "stream": False}
    assert walk["text"] == server.post("/v1/generate", sent).json()["text"]


def test_the_beam_tree_leads_to_the_translations(server):
    sent = {"text": TEXT, "beam": 3, "max_length": 8}
    tree = server.post("/v1/beam", sent).json()
    result = server.post("/v1/translate", {**sent, "n_best": 3}).json()["translations"][0]
    texts = [[one["text"] for one in answer["hypotheses"]] for answer in (tree, result)]
    assert texts[0] == texts[1]
    nodes = tree["nodes"]
    assert [node["node"] for node in nodes] == list(range(len(nodes)))
    for node in nodes[1:]:
        above = nodes[node["parent"]]
        assert node["step"] == above["step"] + 1
        log_p = above["log_p"] + np.log(node["probability"])
        assert node["log_p"] == pytest.approx(log_p, abs=1e-3)
    best = tree["hypotheses"][0]
    path, at = [], best["node"]
    while at:
        path.append(nodes[at]["id"])
        at = nodes[at]["parent"]
    assert path[::-1][:8] == result["hypotheses"][0]["ids"]


def test_streamed_text_equals_the_whole_text(server, served):
    sent = {"prompt": "오늘", "max_tokens": 9, "seed": 3}
    answer = server.post("/v1/generate", sent)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [
        dict(line.split(": ", 1) for line in event.splitlines())
        for event in answer.body.decode().strip().split("\n\n")
    ]
    assert [event["event"] for event in events[-1:]] == ["done"]
    parts = [json.loads(event["data"]) for event in events[:-1]]
    assert len(parts) > 1
    whole = server.post("/v1/generate", {**sent, "stream": False}).json()
    text = "".join(part["text"] for part in parts)
    assert text == json.loads(events[-1]["data"])["text"] == whole["text"]
    assert [token for part in parts for token in part["tokens"]] == whole["tokens"]
    writer = served("generate").model
    options = writer.defaults.with_options({"max_length": 9, "sample": True})
    assert whole["text"] == writer.generate("오늘", options=options, seed=3)


def test_attention_and_steps_of_a_generated_text_are_those_of_its_tokens(server, served):
    """The requests of the page: the prompt, and the ids that /v1/generate returned."""
    writer = served("generate").model
    model = {"model": served("generate").name}
    prompt, seed = "오늘은 비가\n내일", {"seed": 5}
    options = {"temperature": 1.3, "top_k": 50, "top_p": 0.95}
    sent = {**model, "prompt": prompt, "max_tokens": 40, "stream": False, **seed, **options}
    written = server.post("/v1/generate", sent).json()
    ids = [token["id"] for token in written["tokens"]]
    assert len(ids) == 40 > writer.max_length
    walked = {**model, "text": prompt, "max_tokens": 40, "sampling": {**seed, **options}}
    for prefix in ([], ids[:7], ids):
        walk = server.post("/v1/steps", {**walked, "prefix": prefix}).json()
        assert walk["text"] == written["text"]
        for step, token in zip(walk["steps"], written["tokens"], strict=True):
            assert {name: step[name] for name in token} == token
            assert token["sampling_probability"] > 0
    forced = [*ids[:7], walk["steps"][7]["alternatives"][-1]["id"]]
    again = server.post("/v1/generate", {**sent, "prefix": forced}).json()
    assert [token["id"] for token in again["tokens"]][:8] == forced
    walk = server.post("/v1/steps", {**walked, "prefix": forced}).json()
    assert walk["text"] == again["text"]
    looked = {**model, "text": prompt, "target_ids": ids, "format": "json"}
    view = AttentionView.from_json(server.post("/v1/attention", looked).body)
    read = [*writer.encode(prompt), *ids][-1 - len(view.source.tokens) : -1]
    with torch.inference_mode(), record_attention(writer.saved.model) as expected:
        logits = writer.saved.model(torch.tensor([read]))[0, -1]
    for one, weights in zip(view.maps, expected.values(), strict=True):
        np.testing.assert_allclose(one.weights, weights[0].numpy(), atol=1e-6)
    last = float(logits.softmax(-1)[ids[-1]])
    assert written["tokens"][-1]["probability"] == pytest.approx(last, abs=1e-5)
    refused = server.post("/v1/attention", {**looked, "model": served("classify").name})
    assert refused.status == 422


def test_n_best_of_the_model_is_ignored_by_generation(served, another):
    written = served("generate")
    saved = written.model.saved
    decode = {"sample": True, "n_best": 3, "beam": 1}
    about = {**saved.about, "run": {**saved.about["run"], "decode": decode}}
    saved = replace(saved, about=about)
    model = written.model.from_saved(saved, "run", written.model.device)
    assert model.defaults.n_best == 3
    running = another(replace(written, model=model))
    sent = {"prompt": "오늘", "max_tokens": 3, "stream": False}
    for greedy in (True, False):
        assert running.post("/v1/generate", {**sent, "greedy": greedy}).status == 200


@pytest.mark.parametrize(
    ("use", "path", "sent"),
    [
        ("translate", "/v1/steps", {"text": TEXT, "max_tokens": 300}),
        ("generate", "/v1/steps", {"text": TEXT, "max_tokens": 300}),
        ("translate", "/v1/beam", {"text": TEXT, "beam": 8, "max_length": 300}),
        ("translate", "/v1/attention", {"text": "가 나 다 라 " * 15}),
        ("fill", "/v1/fill", {"text": "[MASK] " * 20, "top": 50}),
        ("classify", "/v1/classify", {"text": ["가 나 다 라 " * 20] * 40}),
    ],
)
def test_the_model_stops_when_the_client_disconnects(server, served, use, path, sent):
    model = served(use).model
    saved = model.models[0] if use == "translate" else model.saved
    layers = []

    def slow(layer, _inputs):
        layers.append(layer)
        time.sleep(0.002)

    async def leave():
        left = asyncio.Event()
        body = json.dumps({**sent, "model": served(use).name}).encode()
        asking = asyncio.ensure_future(call(server.app, "POST", path, body, [JSON], left=left))
        while len(layers) < 10 and not asking.done():
            await asyncio.sleep(0.001)
        left.set()
        assert await asking is None
        seen = len(layers)
        after = server.app.scheduler.run(lambda _: None, asyncio.Event().wait())
        await after  # runs after the cancelled one
        return len(layers) - seen

    hooks = [layer.register_forward_pre_hook(slow) for layer in saved.model.modules()]
    try:
        assert server.run(leave()) <= 5
    finally:
        for hook in hooks:
            hook.remove()
    assert not any(layer._forward_pre_hooks for layer in saved.model.modules())


def test_texts_that_cannot_be_filled_or_searched_are_refused(server, another, served, tmp_path):
    text = "오늘은 비가 와요."
    folder = save_model(build_electra([text]), tmp_path / "electra")
    running = another(*load_models([folder], "cpu").models)
    for wrong in ("오늘은 [MASK]", " ", "가 " * 30):
        refused = running.post("/v1/detect", {"text": wrong})
        assert (refused.status, refused.json()["field"]) == (422, "text")
    assert running.post("/v1/fill", {"text": "오늘은 [MASK]"}).status == 200
    assert server.post("/v1/detect", {"text": text}).status == 404
    longest = served("fill").model.saved.config.max_length
    everything = "".join(map(chr, range(0xE000, 0xF900)))  # every private-use character
    for wrong, mention in (
        ("오늘은", "[MASK]"),
        ("가 " * longest + "[MASK]", str(longest)),
        (f"{everything}[MASK]", ""),
    ):
        refused = server.post("/v1/fill", {"text": wrong})
        assert (refused.status, refused.json()["field"]) == (422, "text")
        assert mention in refused.json()["error"]


def test_truncation_is_reported(server):
    result = server.post("/v1/classify", {"text": ["오늘은 있어요", "가 " * 200]}).json()["results"]
    assert [one["cut"] for one in result] == [False, True]


def test_an_image_may_be_a_body_or_a_part_of_a_form(server, picture):
    content = picture.read_bytes()
    form, kind = multipart(image=content, top=b"2")
    for path, query in (("/v1/classify", b"top=2"), ("/v1/attention", b"top=2")):
        body = server.call("POST", path, content, [PNG], query)
        assert body.status == 200
        assert server.call("POST", path, form, [kind]).json() == body.json()
    page = server.call("POST", "/v1/attention", multipart(image=content)[0], [kind], b"format=html")
    assert b"polyhead-image-attention-1" in page.body


def test_attention_of_an_image_is_drawn(server, served, picture):
    content = picture.read_bytes()
    seen = attention_view(served("classify-image").model, picture)
    for query, choice in {
        b"": ImageViewOptions(), b"&layer=rollout": ImageViewOptions("rollout"),
        b"&layer=2&head=1&alone=true": ImageViewOptions(2, [1], True),
        b"&layer=1&head=max": ImageViewOptions(1, "max"),
    }.items():  # fmt: skip
        answer = server.call("POST", "/v1/attention", content, [PNG], b"format=svg" + query)
        assert answer.headers["content-type"].startswith("image/svg+xml")
        assert 'filename="attention.svg"' in answer.headers["content-disposition"]
        title = seen.title.removeprefix(f"{picture.name} → ")
        assert answer.body.decode() == draw_image(replace(seen, title=title), choice)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("format=svg&layer=9", "layer 9: "),
        ("format=svg&layer=all", "layer: "),
        ("format=svg&layer=rollout&head=1", ""),
        ("layer=1", 'layer: only with "format": "svg"'),
        ("format=html&head=mean", 'head: only with "format": "svg"'),
        ("format=json&alone=true", 'alone: only with "format": "svg"'),
        ("format=png", "format: "),
    ],
)
def test_invalid_image_options_are_rejected(server, picture, query, error):
    answer = server.call("POST", "/v1/attention", picture.read_bytes(), [PNG], query.encode())
    assert answer.status == 422
    assert answer.json()["error"].startswith(error)


def test_common_errors_have_stable_codes(server, served, monkeypatch):
    def code(path, body, headers=(JSON,)):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = server.call("POST", path, content, headers)
        assert answer.status == 422
        return answer.json()["code"]

    long, writer = "가 나 다 라 " * 300, served("generate").name
    assert code("/v1/translate", {"text": "x" * 10_001}) == "too_long"
    assert code("/v1/translate", {"text": ["x" * 6_000] * 2}) == "too_long"
    for path in ("/v1/attention", "/v1/steps", "/v1/beam"):
        assert code(path, {"text": long}) == "too_long"
        assert code(path, {"text": " "}) == "empty"
    assert code("/v1/steps", {"text": long, "model": writer, "prefix": [1]}) == "bad_token"
    assert code("/v1/attention", {"text": "가", "model": writer, "target_ids": [1]}) == "bad_token"
    sent = {"prompt": "가", "model": writer, "prefix": [5] * 9, "max_tokens": 3, "stream": False}
    assert code("/v1/generate", sent) == "bad_token"
    assert code("/v1/steps", {"text": TEXT, "prefix": [10**6]}) == "bad_token"
    assert code("/v1/steps", {"text": TEXT, "prefix": [2, 2]}) == "bad_token"
    assert code("/v1/steps", {"text": TEXT, "prefix": [5, 5], "max_tokens": 1}) == "bad_token"
    assert code("/v1/fill", {"text": "[MASK] " * 33}) == "too_many_blanks"
    assert code("/v1/classify", b"x", [PNG]) == "bad_image"
    assert code("/v1/attention", b"x", [PNG]) == "bad_image"
    assert code("/v1/attention", {"text": TEXT, "format": "svg", "heads": []}) == "cannot_draw"
    assert server.post("/v1/attention", {"text": TEXT, "target": "a b " * 2500}).status == 422
    monkeypatch.setattr(attention_route, "MAX_WEIGHTS", 10)
    for form in ("html", "json"):
        assert code("/v1/attention", {"text": TEXT, "format": form}) == "too_many_weights"
    assert server.post("/v1/attention", {"text": TEXT}).status == 200
    described = server.get("/openapi.json").json()["components"]["schemas"]["ErrorResponse"]
    assert set(described["properties"]["code"]["anyOf"][0]["enum"]) == set(get_args(Code))


def test_ended_is_false_at_the_maximum_length(server, served, monkeypatch):
    kind = type(served("translate").model.model)
    real = kind.step

    def step(self, last, state):
        logits = real(self, last, state)
        logits[..., EOS] += 1e4 * (last != BOS)  # translations have one token
        return logits

    monkeypatch.setattr(kind, "step", step)

    def best(**words):
        sent = {"text": TEXT, **words}
        return server.post("/v1/translate", sent).json()["translations"][0]["hypotheses"][0]

    for beam in (1, 4):
        result = [best(beam=beam, max_length=room) for room in (1, 2, 3)]
        assert [len(one["ids"]) for one in result] == [1, 1, 1]
        assert [one["ended"] for one in result] == [False, True, True]
    for room, ended in ((1, False), (2, True)):
        walk = server.post("/v1/steps", {"text": TEXT, "max_tokens": room}).json()
        assert walk["ended"] is ended
    assert best(text=f"{TEXT}\n{TEXT}")["ended"] is None
    assert best(text="")["ended"] is None


def test_at_most_two_images_are_decoded_at_once(server, picture, monkeypatch):
    now, most, real, lock = [0], [0], classify.decode, threading.Lock()

    def slow(*words):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return real(*words)

    async def send_all():
        content = picture.read_bytes()
        paths = ["/v1/classify", "/v1/attention"] * 3
        sent = [call(server.app, "POST", path, content, [PNG]) for path in paths]
        return await asyncio.gather(*sent)

    monkeypatch.setattr(classify, "decode", slow)
    assert [answer.status for answer in server.run(send_all())] == [200] * 6
    assert most == [2]


def test_invalid_images_are_rejected(server):
    large = io.BytesIO()
    Image.new("1", (6000, 6000)).save(large, "PNG")
    assert len(large.getvalue()) < 100_000  # it must not be decoded
    broken = dict.fromkeys((b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"x" * 999), "image")
    for content, mention in (broken | {large.getvalue(): "6,000 x 6,000 pixels"}).items():
        answer = server.call("POST", "/v1/classify", content, [PNG])
        assert answer.status == 422
        assert mention in answer.json()["error"]


@pytest.mark.parametrize(
    ("use", "path", "content"),
    [
        ("translate", "/v1/translate", {"text": TEXT}),
        ("translate", "/v1/translate", {"text": TEXT, "beam": 1}),
        ("translate", "/v1/steps", {"text": TEXT}),
        ("translate", "/v1/beam", {"text": TEXT}),
        ("generate", "/v1/generate", {"prompt": "오늘", "stream": False}),
        ("generate", "/v1/generate", {"prompt": "오늘", "greedy": True}),
        ("fill", "/v1/fill", {"text": "오늘은 [MASK]"}),
        ("classify", "/v1/classify", {"text": TEXT}),
        ("classify-image", "/v1/classify", None),
    ],
)
def test_outputs_that_are_not_finite_are_one_error_and_the_next_request_is_answered(
    server, served, picture, use, path, content
):
    def ask():
        if content is None:
            return server.call("POST", path, picture.read_bytes(), [PNG])
        return server.post(path, content)

    norms = [m.bias for m in served(use).model.model.modules() if isinstance(m, LayerNorm)]
    before = [bias.data.clone() for bias in norms]
    for bias in norms:
        bias.data += 1e38  # finite, unlike the sums computed with it
    try:
        answer = ask()
    finally:
        for bias, values in zip(norms, before, strict=True):
            bias.data = values
    assert b"not finite" in answer.body
    assert answer.status == (200 if "text/event-stream" in answer.headers["content-type"] else 503)
    assert ask().status == 200


def multipart(**parts):
    """Return a multipart form whose `image` is a file."""
    body = b""
    for name, content in parts.items():
        file = b'; filename="x.png"\r\nContent-Type: image/png' if name == "image" else b""
        head = b'--cut\r\nContent-Disposition: form-data; name="' + name.encode() + b'"'
        body += head + file + b"\r\n\r\n" + content + b"\r\n"
    return body + b"--cut--\r\n", ("content-type", "multipart/form-data; boundary=cut")


def test_models_are_listed_with_their_tasks(server, models, served):
    reported = server.get("/v1/models").json()
    assert [one["use"] for one in reported["models"]] == list(models)
    by_use = {one["use"]: one for one in reported["models"]}
    assert by_use["translate"]["source_language"] == "ko"
    assert by_use["translate"]["target_language"] == "en"
    assert by_use["translate"]["attention"] == ["encoder", "decoder", "cross"]
    assert by_use["classify"]["classes"] == list(served("classify").model.classes)
    assert by_use["classify-image"]["image"] == {
        "height": 8, "width": 8, "channels": 3, "patch": 4,
    }  # fmt: skip
    assert str(models["translate"].parent) not in json.dumps(reported)
