"""Access control, security headers, static files, metrics and health."""

import asyncio
import gzip
import json
from urllib.parse import urlencode

import pytest
from asgi import JSON, call
from expected_errors import raises
from prometheus_client.parser import text_string_to_metric_families

from polyhead.errors import ConfigError
from polyhead.server.settings import MAX_BODY, Settings

KEY = "correct horse battery"
POST = {"text": "a", "max_length": 3}


@pytest.mark.parametrize(
    ("hosts", "status"),
    [(["localhost", "localhost:8000", "127.0.0.1", "[::1]:8000"], 200),
     (["a.example", "127.0.0.1.a.example", "", "[::1", "localhost@a.example", "a:b"], 400)],
)  # fmt: skip
def test_only_local_host_names_are_accepted(server, hosts, status):
    for host in hosts:
        answer = server.get("/v1/models", ("host", host))
        assert answer.status == status
        assert status == 200 or "Host" in answer.json()["error"]["message"]


def test_cross_origin_requests_are_rejected(server):
    own = server.post("/v1/translate", POST, ("origin", "http://127.0.0.1:8000"))
    other = server.post("/v1/translate", POST, ("origin", "http://evil.example"))
    extension = server.post("/v1/translate", POST, ("origin", "moz-extension://1234"))
    assert [own.status, other.status, extension.status] == [200, 403, 200]
    assert "access-control-allow-origin" not in own.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "null"}, 403),  # a sandboxed frame, a local file
        ({"origin": ""}, 403),
        ({"origin": "file://"}, 403),
        ({"origin": "http://127.0.0.1:3000"}, 403),  # another port
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),  # another port
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),  # a form
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8000"}, 200),
        ({"sec-fetch-site": "cross-site", "origin": "chrome-extension://abc"}, 200),
    ],
)
def test_pages_of_other_sites_and_sandboxed_frames_are_rejected(server, headers, status):
    assert server.post("/v1/translate", POST, *headers.items()).status == status


def test_links_from_other_sites_open_the_page_but_load_no_files(server):
    link = (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"))
    assert server.get("/", *link).status == 200
    assert server.get("/viewer/attention.js", link[0], ("sec-fetch-mode", "no-cors")).status == 403


def test_named_sites_are_allowed(another):
    server = another(allowed_origins=("https://app.example",), api_key=KEY)
    key, app = ("authorization", f"Bearer {KEY}"), ("origin", "https://app.example")
    asked = server.call("OPTIONS", "/v1/translate", b"", (
        app, ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization, content-type"),
    ))  # fmt: skip
    assert asked.status == 200
    for answer, status in (
        (asked, 200), (server.post("/v1/translate", POST, key, app), 200),
        (server.post("/v1/translate", {}, key, app), 422),
        (server.post("/v1/translate", POST, app), 401),
    ):  # fmt: skip
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
    other = ("origin", "https://app.example.evil.example")
    answer = server.post("/v1/translate", POST, key, other)
    assert (answer.status, answer.headers.get("access-control-allow-origin")) == (403, None)
    for wrong in ("*", "null", "app.example", "https://app.example/", "https://App.example"):
        with raises(ConfigError, "bad_origin", wrong):
            Settings(allowed_origins=(wrong,))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 200), ("GET", "/nothing", 404), ("POST", "/v1/translate", 415),
     ("DELETE", "/v1/models", 405), ("GET", "/../etc/passwd", 404), ("GET", "/page/..", 404),
     ("GET", "/page/../app.py", 404), ("GET", "/viewer/page.html", 404)],
)  # fmt: skip
def test_every_response_has_security_headers(server, method, path, status):
    answer = server.call(method, path)
    assert answer.status == status
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    if status >= 400:
        assert set(answer.json()) == {"error"}


def test_static_files_have_entity_tags(server):
    page = server.get("/")
    script = server.get("/viewer/attention.js")
    assert page.headers["content-type"].startswith("text/html")
    assert script.headers["content-type"].startswith("text/javascript")
    assert b"export function mount" in script.body
    again = server.get("/viewer/attention.js", ("if-none-match", script.headers["etag"]))
    assert (again.status, again.body) == (304, b"")
    head = server.call("HEAD", "/")
    assert head.status == 200  # the HTTP server drops the body


def test_another_loopback_address_is_its_own_host_name(another):
    server = another(host="127.0.0.2")
    assert server.get("/health", ("host", "127.0.0.2:8000")).status == 200
    assert server.get("/health", ("host", "127.0.0.3:8000")).status == 400
    with raises(ConfigError, "bad_value", "threads"):
        Settings(threads=-1)


def test_a_public_address_requires_an_api_key():
    with raises(ConfigError, "missing_api_key", "0.0.0.0", "--api-key"):
        Settings(host="0.0.0.0")
    with raises(ConfigError, "bad_api_key"):
        Settings(api_key="short")
    assert Settings(host="0.0.0.0", api_key=KEY).is_local is False
    assert Settings(host="::1").is_local
    assert Settings(host="127.0.0.2").is_local


def test_requests_without_the_api_key_get_the_page_only(another):
    server = another(api_key=KEY)
    bearer = ("authorization", f"Bearer {KEY}")
    for path in ("/", "/viewer/attention.js", "/health"):
        assert server.get(path).status == 200
    for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
        assert server.get(path).status == 401
    assert server.get("/v1/models").headers["www-authenticate"] == "Bearer"
    wrong = ("authorization", "Bearer wrong")
    assert server.get("/v1/models", wrong).status == 401
    assert server.post("/v1/translate", POST, wrong).status == 403
    assert server.get("/v1/models", ("authorization", f"Basic {KEY}")).status == 401
    assert server.get("/v1/models", bearer).status == 200
    assert server.post("/v1/translate", POST).status == 401
    assert server.post("/v1/translate", POST, bearer).status == 200
    libre = {"q": "a", "source": "ko", "target": "en"}
    assert server.post("/translate", libre).status == 401
    assert server.post("/translate", {**libre, "api_key": "wrong"}).status == 403
    assert server.post("/translate", {**libre, "api_key": KEY}).status == 200
    assert server.post("/translate", libre, bearer).status == 200
    sent = [{"q": "a"}, {"q": "a", "api_key": "wrong"}, {"q": "a", "api_key": KEY}]
    assert [server.post("/detect", one).status for one in sent] == [401, 403, 200]


@pytest.mark.parametrize("path", ["/translate", "/detect"])
def test_the_api_key_is_requested_before_a_request_is_validated(another, path):
    server = another(api_key=KEY)
    form = [("content-type", "application/x-www-form-urlencoded")]
    for field, status in (("", 401), ("wrong", 403), (KEY, 422)):
        invalid = {"q": 1, "x": ["y"], **({"api_key": field} if field else {})}
        assert server.post(path, invalid).status == status
        body = urlencode({"x": "y", "api_key": field}).encode()
        assert server.call("POST", path, body, form).status == status
    assert server.post(path, {"q": 1}, ("authorization", f"Bearer {KEY}")).status == 422


def test_large_bodies_are_rejected_before_they_are_read(server):
    read = []

    async def send_much():
        async def receive():
            read.append(1)
            return {"type": "http.request", "body": b" " * 2**16, "more_body": True}

        sent = []

        async def send(message):
            sent.append(message)

        def scope(*headers):
            head = [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers]
            return {
                "type": "http", "method": "POST", "path": "/v1/translate", "headers": head,
                "query_string": b"",
            }  # fmt: skip

        await server.app(scope((b"content-length", b"5000000")), receive, send)
        assert (sent[0]["status"], read) == (413, [])
        sent.clear()
        await server.app(scope(), receive, send)  # without Content-Length: counted while it is read
        assert sent[0]["status"] == 413
        sent.clear()
        await server.app(scope((b"content-length", b"-1")), receive, send)
        assert sent[0]["status"] == 400

    server.run(send_much())
    assert len(read) == MAX_BODY // 2**16 + 1


def test_metrics_can_be_parsed_by_prometheus(server):
    server.post("/v1/translate", POST)
    server.get("/no/such/place/1")
    server.get("/no/such/place/2")
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = {one.name: one for one in text_string_to_metric_families(answer.body.decode())}
    routes = {sample.labels["route"] for sample in families["polyhead_requests"].samples}
    assert {"/v1/translate", "other"} <= routes
    assert not any("such" in route for route in routes)
    names = {"polyhead_queue_depth", "polyhead_batch_rows", "polyhead_request_seconds"}
    assert names <= families.keys()


def test_the_access_log_has_a_line_for_each_response_without_contents(another, server):
    lines, body = [], b'{"text": "secret", "x": 1}'
    logged = another(access_log=lines.append)
    answer = logged.call("POST", "/v1/translate", body, [JSON], b"q=secret")
    logged.get("/nothing%0a" + "x" * 500)
    first, second = (line.split(" ") for line in lines)
    assert first[1:4] == ["POST", "/v1/translate", "422"]
    assert (first[5:], int(first[4]) >= 0) == (["ms", str(len(answer.body)), "bytes"], True)
    assert (second[1], second[3], len(second[2])) == ("GET", "404", 200)
    assert "secret" not in "".join(lines)
    assert server.app.context.settings.access_log is None


def test_a_draining_server_is_not_ready(another):
    server = another()
    assert server.get("/health/ready").json() == {"status": "ok"}
    server.app.security.is_draining = True
    assert server.get("/health/live").status == 200
    for answer in (server.get("/health/ready"), server.post("/v1/translate", POST)):
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "stopping" in answer.json()["error"]


def test_a_server_without_its_worker_is_not_ready(another):
    server = another()
    assert server.get("/health/ready").status == 200
    server.app.scheduler.worker.close(timeout=10.0)
    for path in ("/health", "/health/ready"):
        answer = server.get(path)
        assert answer.status == 503
        assert "restart" in answer.json()["error"]
    assert server.get("/health/live").status == 200
    assert server.post("/v1/translate", POST).status == 503


def test_allowed_host_names_are_accepted(another, server):
    name, page = ("host", "polyhead.example"), ("origin", "https://polyhead.example")
    proxied = another(allowed_hosts=("polyhead.example", "second.example"))
    for host in ("polyhead.example", "Polyhead.Example:443", "second.example", "localhost:8000"):
        assert proxied.get("/v1/models", ("host", host)).status == 200
    for host in ("evil.example", "polyhead.example.evil.example", "polyhead.example@evil.example"):
        assert proxied.get("/v1/models", ("host", host)).status == 400
    assert proxied.post("/v1/translate", POST, name, page).status == 200
    assert proxied.post("/v1/translate", POST, page).status == 200  # a proxy may replace Host
    assert proxied.post("/v1/translate", POST, name, ("origin", "https://a.example")).status == 403
    refused = server.get("/v1/models", name)
    assert refused.status == 400
    assert "--allow-host" in refused.json()["error"]["message"]
    assert server.post("/v1/translate", POST, page).status == 403
    for wrong in ("https://polyhead.example", "polyhead.example:443", "Polyhead.example", "", "*"):
        with raises(ConfigError, "bad_host", wrong):
            Settings(allowed_hosts=(wrong,))
    public = another(host="0.0.0.0", api_key=KEY, allowed_hosts=("polyhead.example",))
    assert public.get("/health", name).status == 200
    assert public.get("/health", ("host", "evil.example")).status == 400


def test_static_files_are_compressed_to_less_than_80_kb(server):
    accept = ("accept-encoding", "br, gzip")
    sizes = {}
    for path in server.app.files:
        plain, packed = server.get(path), server.get(path, accept)
        sizes[path] = len(packed.body)
        if packed.headers.get("content-encoding") == "gzip":
            assert gzip.decompress(packed.body) == plain.body
            assert packed.headers["vary"] == "Accept-Encoding"
            assert packed.headers["etag"] != plain.headers["etag"]
        else:
            assert len(plain.body) <= 500
        assert "content-encoding" not in plain.headers
    assert len(sizes) > 20
    assert sum(sizes.values()) < 80_000, sizes
    sent = {"prompt": "a", "max_tokens": 3}
    assert "content-encoding" not in server.post("/v1/generate", sent, accept).headers


def test_a_disconnected_client_gets_no_response(server):
    async def leave():
        left = asyncio.Event()
        body = json.dumps({"text": "가 나 다 라 " * 40, "beam": 16, "max_length": 900}).encode()
        request = call(server.app, "POST", "/v1/translate", body, [JSON], left=left)
        sent = asyncio.ensure_future(request)
        await asyncio.sleep(0.05)
        left.set()
        return await asyncio.wait_for(sent, 30)

    assert server.run(leave()) is None
    assert len(server.app.scheduler.worker.queue) == 0
    assert server.post("/v1/translate", POST).status == 200


def test_an_internal_error_does_not_reveal_its_cause(server, served, monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(type(served("fill").model), "results", fail)
    answer = server.post("/v1/fill", {"text": "[MASK]"})
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert "ZeroDivisionError" in caplog.text


def test_health_checks_do_not_wait_behind_requests_that_came_together(server):
    done = []

    async def send(path, body):
        answer = await call(server.app, "POST" if body else "GET", path, body, [JSON])
        done.append((path, answer.status))

    async def send_all():
        requests = [send("/v1/translate", b'{"text": 1}') for _ in range(200)]
        await asyncio.gather(*requests, send("/health/live", b""))

    server.run(send_all())
    assert ("/health/live", 200) in done[:5]
    assert done.count(("/v1/translate", 422)) == 200
