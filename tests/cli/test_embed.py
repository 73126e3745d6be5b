"""The commands classify, embed and evaluate, and HTTP, with pairs, labels, numbers and vectors."""

import base64
import json

import numpy as np
import pytest
from asgi import Running

from polyhead.server.model_registry import load_models


def test_commands_read_pairs_labels_numbers_and_sentences(run, fail, text_heads, tmp_path):
    code, out, _ = run("classify", text_heads["pairs"], stdin="apple\tpear\n")
    assert (code, out.strip() in ("yes", "no")) == (0, True)
    alone = run("classify", text_heads["pairs"], "an apple", "--pair", "pear", "--jsonl")[1]
    assert json.loads(alone)["text"] == "an apple\tpear"
    assert fail("classify", text_heads["pairs"], stdin="apple\n")[1] == "no_pair"
    number = run("classify", text_heads["numbers"], stdin="apple\n")[1]
    assert float(number) == pytest.approx(350, abs=200)
    vectors = tmp_path / "x.npy"
    assert run("embed", text_heads["sentences"], "--output", vectors, stdin="a\nb\n")[0] == 0
    rows = run("embed", text_heads["sentences"], stdin="a\nb\n")[1].splitlines()
    wanted = np.array([json.loads(row)["embedding"] for row in rows])
    assert np.load(vectors) == pytest.approx(wanted, abs=1e-6)
    near = run("embed", text_heads["sentences"], "--similar-to", "b", stdin="a\nb\n")[1]
    assert near.splitlines()[0] == "1.0000\tb"


def test_requests_have_pairs_labels_numbers_and_vectors(text_heads):
    server = Running(load_models(list(text_heads.values()), "cpu", "torch"))
    try:
        pair = {"model": "pairs", "text": ["apple"], "text_pair": ["pear"]}
        assert server.post("/v1/classify", pair).json()["results"][0]["label"] in ("yes", "no")
        assert server.post("/v1/classify", pair | {"text_pair": None}).status == 422
        (number,) = server.post("/v1/classify", {"model": "numbers", "text": "x"}).json()["results"]
        assert (number["label"], number["classes"]) == (f"{number['number']:.4g}", [])
        texts = ["apple", "a pear"]
        rows = server.post("/v1/embed", {"model": "sentences", "text": texts}).json()["embeddings"]
        asked = {"model": "sentences", "input": texts, "encoding_format": "base64"}
        data = server.post("/v1/embeddings", asked).json()["data"]
        decoded = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in data]
        assert np.array(decoded) == pytest.approx(np.array(rows), abs=1e-6)
        entries = {m["name"]: m for m in server.get("/v1/models").json()["models"]}
        assert [entries[n]["pairs"] for n in ("pairs", "labels")] == ["required", "no"]
        assert entries["numbers"]["range"] == [200.5, 500.5]
    finally:
        server.close()
