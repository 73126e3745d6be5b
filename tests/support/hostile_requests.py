"""Random requests: nearly valid, invalid or garbage."""

import json

ROUTES = (
    "/v1/translate", "/translate", "/v1/attention", "/v1/steps", "/v1/beam", "/v1/generate",
    "/v1/fill", "/v1/classify", "/v1/models", "/languages", "/frontend/settings", "/health",
    "/metrics", "/openapi.json", "/", "/page/", "/viewer/attention.js", "/v1/", "//", "/%00",
    "/v1/completions",
)  # fmt: skip
FIELDS = (
    "text", "q", "model", "source", "target", "n_best", "beam", "length_penalty", "max_length",
    "prefix", "alignment", "tokens", "maps", "precision", "size", "format", "kind", "layer",
    "heads", "word", "lines", "merge", "target_ids", "top", "max_tokens", "prompt", "temperature",
    "top_k", "top_p", "greedy", "seed", "stop", "stream", "alternatives", "api_key", "x", "n",
    "logprobs", "echo", "suffix",
)  # fmt: skip
VALUES = (
    "", "a", "가", "\ud800", "\x00", "ko", "en", "auto", "[MASK]", "cross", "svg", "binary", "html",
    "text", "float16", "../x", "http://x/", "<script>", 0, 1, 2, 3, -1, 10**30, 1.5, 1e308, True,
    False, None, [], ["a"], ["a", 1], [2], [3, 4], [[]], {}, {"kind": "cross", "layer": 1},
    [{"kind": "cross", "layer": 1}], float("nan"), float("inf"),
)  # fmt: skip
GOOD = {
    "/v1/translate": {"text": "가"}, "/translate": {"q": "가", "source": "ko", "target": "en"},
    "/v1/attention": {"text": "가"}, "/v1/steps": {"text": "가"}, "/v1/beam": {"text": "가"},
    "/v1/generate": {"prompt": "가"}, "/v1/fill": {"text": "가 [MASK]"},
    "/v1/classify": {"text": "가"}, "/v1/completions": {"prompt": "가"},
}  # fmt: skip
TYPES = (
    "application/json", "application/json", "application/json", "application/json",
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "multipart/form-data",
    "image/png", "text/plain", "", "application/json; charset=utf-16",
    "multipart/form-data; boundary=",
)  # fmt: skip
PARTS = (
    b"--x\r\n", b"--x--\r\n", b'Content-Disposition: form-data; name="q"\r\n\r\n', b"\r\n", b"a",
    b'Content-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n', b"\x89PNG\r\n\x1a\n",
    b"Content-Disposition: form-data\r\n\r\n", b"Content-Disposition:", b": x\r\n", b"\xff\x00",
)  # fmt: skip


def any_request(draw):
    """Return a random request: nearly valid, invalid or garbage, but always cheap."""
    method = draw.choice(("POST",) * 12 + ("GET", "PUT", "HEAD", "OPTIONS", "DELETE", "\u00e9"))
    path = draw.choice(tuple(GOOD) if draw.random() < 0.5 else ROUTES)
    kind = draw.choice(TYPES)
    fields = {draw.choice(FIELDS): draw.choice(VALUES) for _ in range(draw.randrange(5))}
    if path in GOOD and draw.random() < 0.12:  # at most one field is wrong
        fields = {**GOOD[path], **dict(list(fields.items())[:1])}
    if path in ("/v1/generate", "/v1/steps", "/v1/completions"):
        fields["max_tokens"] = 2
    elif path in ("/v1/translate", "/v1/beam"):
        fields["max_length"] = 2
    if kind.startswith("application/json"):
        body = json.dumps(fields).encode()
        if draw.random() < 0.3:  # with some bytes changed, dropped or doubled
            mutable = bytearray(body)
            for _ in range(draw.randint(1, 4)):
                at = draw.randrange(len(mutable) + 1)
                mutable[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
            body = bytes(mutable)
    elif kind.startswith("multipart"):
        body = b"".join(draw.choices(PARTS, k=draw.randrange(12)))
    elif "urlencoded" in kind:
        words = (f"{n}={v}" for n, v in fields.items())
        body = "&".join(words).encode("utf-8", "surrogatepass")
    else:
        body = draw.randbytes(draw.randrange(60))
    query = draw.choice((b"", b"", b"model=x", b"top=2", b"format=html", b"%ff", b"a&b=&=c"))
    headers = [("content-type", kind)]
    if draw.random() < 0.05:
        headers.append(draw.choice((
            ("content-length", "x"), ("content-length", "9" * 400), ("content-length", "\u00b2"),
            ("origin", "http://x"), ("host", "x"), ("authorization", "Bearer \u00e9"),
            ("if-none-match", '"' * 99),
        )))  # fmt: skip
    return method, path, body, headers, query
