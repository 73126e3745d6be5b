"""Stand-in for `polyhead serve` with constant responses, for tests of its page.

The page's files, its content policy and the binary format of attention are the real server's; only
the results of models are invented. `requests` has every request with a body.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import numpy as np
from views import TARGET, build, image, one_map, plausible, words

from polyhead.server.security import HEADERS
from polyhead.server.static_files import read_files
from polyhead.viz.binary import to_binary
from polyhead.viz.draw_image import ImageViewOptions
from polyhead.viz.page import render
from polyhead.viz.select import ViewOptions
from polyhead.viz.writer import draw

LONG = 512
USES = {"schedules": "translate", "writer": "generate", "gaps": "fill", "reviews": "classify",
        "digits": "classify-image", "forgeries": "detect"}  # fmt: skip
LIMITS = {"max_characters": 10000, "max_texts": 64, "max_n_best": 10, "max_beam": 16,
          "max_tokens": 1024, "max_body": 2**20, "max_image": 2**23}  # fmt: skip
USUAL = [*range(10, 10 + len(TARGET)), 2]  # output without a prefix
NEXT = {10 + i: text for i, (text, _) in enumerate(TARGET)} | {2: "</s>", 20: "A", 21: "Our"}

WRITTEN = {10: " there", 11: " was", 12: " a", 13: " king", 20: " A", 21: " Our"}


def about(name, use):
    ways = ["encoder", "decoder", "cross"] if use == "translate" else ["encoder"]
    return {
        "name": name, "family": "transformer", "use": use, "parameters": 1_234_567,
        "source_language": "ko" if use == "translate" else None,
        "target_language": "en" if use == "translate" else None, "max_length": 256,
        "attention": ways,
        "defaults": {"beam": 4, "length_penalty": 0.6, "max_length": 256, "temperature": 1.0,
                     "top_k": 0, "top_p": 1.0, "sample": False},
        "classes": None, "image": None,
    }  # fmt: skip


def long_view():
    """Return the view of a text of 512 tokens in one layer of eight heads."""
    weights = plausible(np.random.default_rng(5), 8, LONG, LONG, causal=False)
    return one_map(words(*([f"w{i}"] for i in range(LONG))), weights, title="long")


def translation(line, n, ended):
    """Return the n-th best translation of a sentence: its first word is unsure."""
    text = f"{line} in English, {n}"
    first, *more = re.findall(r"\s*\S+", text)
    words = [{"text": first, "probabilities": [0.9, 0.09]}]
    words += [{"text": word, "probabilities": [0.8]} for word in more]
    ids = list(range(10, 10 + len(TARGET) - n))
    return {
        "text": text, "confidence": 0.8 - n / 4, "ids": ids, "ended": ended, "words": words
    }  # fmt: skip


def translations(body, ended):
    sentences = [line.strip() for line in body["text"].split("\n") if line.strip()]
    hypotheses = []
    for n in range(min(3, body.get("n_best", 1))):
        parts = [translation(line, n, ended) for line in sentences]
        hypotheses.append(
            {"text": "\n".join(part["text"] for part in parts), "score": -0.4 - n / 4,
             "log_p": -3.0 - n, "confidence": 0.8 - n / 4, "sentences": parts}
        )  # fmt: skip
    one = {
        "text": body["text"], "sentences": sentences, "pieces": len(sentences),
        "hypotheses": hypotheses,
    }  # fmt: skip
    return {"model": "schedules", "translations": [one]}


def steps(body):
    ids = list(body["prefix"])
    ids += [] if ids[-1:] == [2] else USUAL[len(ids) :]
    ids = ids[: body.get("max_tokens")]
    found = []
    for place, id in enumerate(ids):
        usual = USUAL[place]
        sampled = 1.25 if body.get("sampling") else None
        others = [{"id": other, "text": NEXT[other], "probability": share,
                   "sampling_probability": sampled and share * sampled}
                  for other, share in ((usual, 0.6), (20, 0.2), (21, 0.1))]  # fmt: skip
        chosen = next(other for other in others if other["id"] == id or other["id"] == 20)
        found.append({**chosen, "id": id, "text": NEXT[id], "forced": place < len(body["prefix"]),
                      "alternatives": others})  # fmt: skip
    tokens = [{"id": id, "text": NEXT[id], "word": i, "special": False}
              for i, id in enumerate(ids) if id != 2]  # fmt: skip
    return {
        "model": "schedules",
        "source": {"text": body["text"], "tokens": []},
        "steps": found,
        "text": " ".join(NEXT[id] for id in ids if id != 2),
        "ended": ids[-1:] == [2],
        "tokens": tokens,
    }


def beam(body):
    # <s> -> The -> meeting -> </s>  wins;  <s> -> A -> meeting -> </s>  is kept;  Our is dropped
    rows = [(None, 0, "<s>", 0.0, 1.0), (0, 1, "The", -0.5, 0.6), (0, 1, "A", -1.6, 0.2),
            (0, 1, "Our", -2.3, 0.1), (1, 2, "meeting", -0.7, 0.8), (2, 2, "meeting", -1.9, 0.7),
            (4, 3, "</s>", -0.8, 0.9), (5, 3, "</s>", -2.1, 0.8)]  # fmt: skip
    nodes = [{"node": i, "parent": parent, "step": step, "id": i, "text": text, "log_p": log_p,
              "probability": p, "ended": text == "</s>"}
             for i, (parent, step, text, log_p, p) in enumerate(rows)]  # fmt: skip
    ends = [{"node": 6, "text": "The meeting", "score": -0.4, "log_p": -0.8},
            {"node": 7, "text": "A meeting", "score": -1.1, "log_p": -2.1}]  # fmt: skip
    return {
        "model": "schedules",
        "source": {"text": body["text"], "tokens": []},
        "beam": body["beam"],
        "length_penalty": 0.6,
        "nodes": nodes,
        "hypotheses": ends,
    }


def fill(body):
    guesses = [{"text": "lunch", "probability": 0.7}, {"text": "rain", "probability": 0.2}]
    whole = [{"text": body["text"].replace("[MASK]", "lunch"), "words": ["lunch"], "log_p": -0.4}]
    return {"model": "gaps", "text": body["text"], "together": whole,
            "blanks": [guesses] * body["text"].count("[MASK]")}  # fmt: skip


def detect(body):
    words = [{"text": word, "probability": 0.93 if word == "elephants" else 0.04}
             for word in body["text"].split()]  # fmt: skip
    return {"model": "forgeries", "text": body["text"], "words": words, "tokens": words}


def classes(cut):
    found = [{"label": "good", "probability": 0.9}, {"label": "bad", "probability": 0.1}]
    return {"model": "reviews", "results": [{**found[0], "cut": cut, "classes": found}]}


def image_view():
    return image("digit → 7", (("7", 0.8), ("1", 0.2)), heads=2, columns=2)


class StandIn:
    """Server on a free port.

    refuse: errors of the next requests (None: no error); down: errors by route. An error is a
    status, a message, and optionally the other fields.
    """

    def __init__(self):
        self.requests, self.refuse, self.key, self.slow = [], [], None, 0.0
        self.down, self.cut, self.ended = {}, False, True
        self.breaks = None  # error in the middle of a stream
        self.streams = threading.Event()  # unset: a stream waits after its first part
        self.streams.set()
        self.changes = {}  # of the first model
        self.view, self.long = build(), None
        self.files = read_files()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.stand_in = self
        self.server.handle_error = lambda *_: None  # the page disconnected
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.streams.set()
        self.server.shutdown()
        self.server.server_close()

    def bodies(self, path):
        """Return the bodies of all requests to a route."""
        return [body for route, body in self.requests if route == path]

    def wait_for(self, path, **values):
        """Wait until the newest body of a route has these values, and return it."""
        for _ in range(1200):
            newest = (self.bodies(path) or [{}])[-1]
            if all(newest.get(name) == value for name, value in values.items()):
                return newest
            time.sleep(0.05)
        raise AssertionError(f"{path}: expected {values} in the newest of {self.bodies(path)}")

    def attention(self, body):
        view = self.view
        if body["text"].startswith("long"):
            view = self.long = self.long or long_view()
        form = body.get("format", "binary")
        if form == "html":
            return render(view).encode(), "text/html"
        if form == "svg":
            names = ("kind", "layer", "heads", "word", "column", "merge", "log", "special")
            style = "lines" if body.get("lines") else "heatmap"
            chosen = {name: body[name] for name in names if name in body}
            return draw(view, ViewOptions(style=style, **chosen)).encode(), "image/svg+xml"
        maps = body.get("maps")
        wanted = None if maps is None else [(one["kind"], one["layer"]) for one in maps]
        return to_binary(view, requested=wanted, size=body.get("size")), "application/octet-stream"

    def image_attention(self, query):
        if query["format"] != "svg":
            return image_view().to_json().encode(), "application/json"
        layer, head = (
            int(value) if value and value.isdigit() else value
            for value in (query.get("layer"), query.get("head"))
        )
        heads = [head] if isinstance(head, int) else head
        choice = ImageViewOptions(layer, heads, query.get("alone") == "true")
        return draw(image_view(), choice).encode(), "image/svg+xml"

    def answer(self, path, body, query):
        """Return the content and its type."""
        if path == "/v1/attention" and isinstance(body, bytes):
            return self.image_attention(query)
        if path == "/v1/attention":
            return self.attention(body)
        if path == "/v1/models":
            models = [about(name, use) for name, use in USES.items()]
            models[0] |= self.changes
            reply = {"version": "1", "limits": LIMITS, "models": models}
            return json.dumps(reply).encode(), "application/json"
        known = {"/v1/steps": steps, "/v1/beam": beam, "/v1/fill": fill,
                 "/v1/detect": detect,
                 "/v1/translate": lambda asked: translations(asked, self.ended),
                 "/v1/classify": lambda _: classes(self.cut)}  # fmt: skip
        return json.dumps(known[path](body)).encode(), "application/json"


class Handler(BaseHTTPRequestHandler):
    """Handler of one request."""

    def log_message(self, *_):
        pass

    def reply(self, status, content, kind, **extra):
        self.send_response(status)
        for name, value in {**HEADERS, **extra, "Content-Type": kind,
                            "Content-Length": str(len(content))}.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path in self.server.stand_in.files:
            file = self.server.stand_in.files[path]
            return self.reply(200 if file.content else 204, file.content, file.media_type)
        return self.work(path, None)

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.split("?")[0]
        is_image = self.headers["Content-Type"].startswith("image/")
        body = content if is_image else json.loads(content)
        self.server.stand_in.requests.append((path, body))
        return self.work(path, body)

    def work(self, path, body):
        wanted = self.server.stand_in.key and f"Bearer {self.server.stand_in.key}"
        if wanted and self.headers.get("Authorization") != wanted:
            return self.reply(401, b'{"error": {"message": "a key is needed"}}', "application/json")
        refused = self.server.stand_in.down.get(path)
        if self.server.stand_in.refuse and body is not None:
            refused = self.server.stand_in.refuse.pop(0)
        if refused:
            status, line, *more = refused
            said = json.dumps({"error": line, **(more[0] if more else {})}).encode()
            return self.reply(status, said, "application/json", **{"Retry-After": "0"})
        time.sleep(self.server.stand_in.slow)
        if path == "/v1/generate":
            return self.stream(body["prefix"])
        query = dict(parse_qsl(self.path.partition("?")[2]))
        return self.reply(200, *self.server.stand_in.answer(path, body, query))

    def stream(self, prefix):
        self.send_response(200)
        for name, value in {**HEADERS, "Content-Type": "text/event-stream"}.items():
            self.send_header(name, value)
        self.end_headers()
        for id in [*prefix, *range(10 + len(prefix), 14)]:
            part = {"text": WRITTEN[id], "tokens": [{"id": id}]}
            self.wfile.write(f"event: text\ndata: {json.dumps(part)}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.15)
            self.server.stand_in.streams.wait(60)
            if (error := self.server.stand_in.breaks) is not None:
                self.wfile.write(f"event: error\ndata: {json.dumps(error)}\n\n".encode())
                return
        self.wfile.write(b'event: done\ndata: {"text": "", "seconds": 1.0}\n\n')
