"""Views with random weights: a Korean sentence and its translation, hashed text, an image."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np

from polyhead.render.svg import viridis
from polyhead.viz.tokens import Token
from polyhead.viz.views import AttentionMap, AttentionView, ImageView, TokenizedText

SOURCE = [("저는", 0), ("내일", 1), ("친구", 2), ("와", 2), ("학교", 3), ("에", 3),
          ("갑", 4), ("니다", 4), (".", 5)]  # fmt: skip
TARGET = [("Tom", 1), ("orrow", 1), ("I", 2), ("will", 3), ("go", 4), ("to", 5), ("sch", 6),
          ("ool", 6), (".", 7)]  # fmt: skip
ATTACK = "</script><img src=x onerror='window.hacked=1'><!--{{data}}"


SVG = "{http://www.w3.org/2000/svg}"
PAIR = r'^  (\w+): \[\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)",?\s*\],$'


def colours(weights):
    """Return the viridis colours of weights as an array of red, green and blue."""
    weights = np.asarray(weights, dtype=float)
    rgb = [list(bytes.fromhex(viridis(weight)[1:])) for weight in weights.ravel().tolist()]
    return np.array(rgb).reshape(*weights.shape, 3)


def svg_texts(picture):
    return [text.text for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def svg_groups(picture, kind):
    """Return the groups of a class in a drawing."""
    groups = ElementTree.fromstring(picture).iter(f"{SVG}g")
    return [group for group in groups if group.get("class") == kind]


def read_messages(script):
    """Return the English and Korean texts of a script, which must have the same fields."""
    messages = {key: pair for key, *pair in re.findall(PAIR, script, re.M)}
    assert len(messages) == len(re.findall(r"^  \w+: \[", script, re.M))  # unique, in two languages
    for english, korean in messages.values():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", korean))
    return messages


def softmax(scores):
    exponents = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (exponents / exponents.sum(axis=-1, keepdims=True)).astype(np.float32)


def plausible(random, heads, queries, keys, *, causal):
    """Draw weights: some heads attend to one place, some to neighbours, some everywhere."""
    distance = np.abs(np.arange(queries)[:, None] * keys / queries - np.arange(keys)[None, :])
    sharpness = random.uniform(0, 1.6, size=(heads, 1, 1))
    scores = random.normal(size=(heads, queries, keys)) * 1.5 - sharpness * distance
    if causal:
        scores = np.where(np.tri(queries, keys, dtype=bool), scores, -np.inf)
    return softmax(scores)


def sentence(text, pieces, *, start=False, end=False):
    tokens = [Token(piece, word) for piece, word in pieces]
    first = [Token("<s>", 0, special=True)] if start else []
    last = [Token("</s>", pieces[-1][1] + 1, special=True)] if end else []
    return TokenizedText(text, (*first, *tokens, *last))


def words(*pieces):
    """Build a text of words, each a list of pieces."""
    tokens = [Token(piece, word) for word, group in enumerate(pieces) for piece in group]
    return TokenizedText(" ".join("".join(group) for group in pieces), tuple(tokens))


def one_map(text, weights, kind="encoder", *, layer=1, predictions=(), title="", model=""):
    """Build a view of one text with one map."""
    weights = np.asarray(weights, dtype=np.float32)
    one = AttentionMap(kind, layer, weights, "source", "source")
    return AttentionView(title, model, text, None, predictions, (one,))


def causal(kind, n=3, heads=1):
    """Build a view of one text with even, causal attention."""
    weights = np.tile(np.tri(n) / np.arange(1, n + 1)[:, None], (heads, 1, 1))
    predictions = tuple(f"p{i}" for i in range(n)) if kind == "decoder" else ()
    return one_map(words(*([f"t{i}"] for i in range(n))), weights, kind, predictions=predictions)


def build(layers=3, heads=8, seed=1):
    random = np.random.default_rng(seed)
    source = sentence("저는 내일 친구와 학교에 갑니다.", SOURCE, end=True)
    target = sentence("Tomorrow I will go to school.", TARGET, start=True)
    n, m = len(target.tokens), len(source.tokens)
    maps = [
        AttentionMap(kind, layer, plausible(random, heads, q, k, causal=causal), queries, keys)
        for kind, queries, keys, q, k, causal in (
            ("encoder", "source", "source", m, m, False),
            ("decoder", "target", "target", n, n, True),
            ("cross", "target", "source", n, m, False),
        )
        for layer in range(1, layers + 1)
    ]
    predictions = (*(piece for piece, _ in TARGET), "</s>")
    return AttentionView(
        "저는 내일 친구와 학교에 갑니다", "demo, 3 layers", source, target, predictions, tuple(maps)
    )


def hostile():
    """Build the view with an attack in every text."""
    view = build()
    source = TokenizedText(ATTACK, tuple(Token(ATTACK, token.word) for token in view.source.tokens))
    predictions = tuple(ATTACK for _ in view.predictions)
    return AttentionView(ATTACK, ATTACK, source, view.target, predictions, view.maps)


def hashed():
    """Build a view of LSH attention: positions that share a bucket in any round see each other."""
    random = np.random.default_rng(7)
    buckets = random.integers(0, 4, (2, 2, 8)).astype(np.int16)  # rounds, heads, positions
    seen = (buckets[..., :, None] == buckets[..., None, :]).any(axis=0)
    scores = np.where(seen, random.normal(size=(2, 8, 8)), -np.inf)
    text = words(["a", "bc"], ["d", "ef"], ["g", "hi"], ["j", "k"])
    one = AttentionMap("encoder", 1, softmax(scores), "source", "source", seen, buckets)
    return AttentionView("hashed", "", text, None, (), (one,))


def image(title="cat.png → cat", labels=(("cat", 0.75), ("dog", 0.2)), heads=3, columns=3):
    """Build a view of an image of two rows of patches of 4 x 4 pixels, with two layers."""
    draw = np.random.default_rng(0)
    picture = draw.integers(0, 256, (8, 4 * columns, 3), dtype=np.uint8)
    layers = draw.random((2, heads, 2, columns)).astype(np.float32) / 6
    rollout = draw.random((2, columns)).astype(np.float32) / 6
    return ImageView(title, "runs/pets", picture, labels, "class", layers, rollout)
