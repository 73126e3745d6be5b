"""Playground in a browser, with a real server and tiny models of all tasks."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
import requests
from browsing import canvas_pixels, download
from views import colours

from polyhead.viz.views import AttentionView

pytestmark = pytest.mark.browser

TEXT = "민준 씨는 내일 부산에 가요."


@pytest.fixture
def open_page(windows, process):
    """Open the page of the real server; requests to other hosts fail the test."""

    def open_page(state=""):
        page = windows.open(f"{process.url}/{state}", locale="en-US")
        page.wait_for_selector(".panel")
        return page

    yield open_page
    assert all(url.startswith((process.url, "blob:")) for url in windows.requested)


def test_cells_have_the_colours_of_the_servers_weights(open_page, process):
    page = open_page(f"#q={TEXT}&kind=cross&layer=2&head=1")
    page.wait_for_selector("#cells")
    sent = {"text": TEXT, "tokens": True}
    (result,) = requests.post(f"{process.url}/v1/translate", json=sent).json()["translations"]
    best = result["hypotheses"][0]
    assert page.inner_text(".text") == best["text"]
    ids = [token["id"] for token in best["tokens"] if not token["special"]]
    ended = best["sentences"][0]["ended"]
    look = {"text": TEXT, "target_ids": ids, "ended": ended, "format": "json"}
    view = AttentionView.from_json(requests.post(f"{process.url}/v1/attention", json=look).content)
    weights = view.find("cross", 2).weights
    seen = canvas_pixels(page)[..., :3]
    assert seen.shape[:2] == weights.shape[1:]
    assert np.abs(seen - colours(weights[0])).max() <= 1


def test_steps_and_the_beam_tree_are_shown(open_page):
    page = open_page(f"#q={TEXT}&tab=steps")
    page.wait_for_selector(".looks")
    page.locator("#token-1").click()
    page.locator("#option-3").click()
    page.wait_for_selector(".token.forced")
    page.locator("label[for=tab-beam]").click()
    page.wait_for_selector(".tree")
    assert page.locator(".node.best").count() > 1


def test_attention_of_a_long_generated_text_is_shown(open_page, served):
    name, context = served("generate").name, served("generate").model.max_length
    page = open_page(f"#model={name}&q={'내일 ' * context}")
    page.wait_for_selector("#cells")
    assert page.evaluate("document.querySelector('#cells').width") == context
    with page.expect_response("**/v1/attention") as answer:
        page.locator("#write").click()
    assert page.inner_text(".new").strip()
    assert answer.value.status == 200


def test_an_image_is_classified_and_its_view_saved(open_page, picture):
    page = open_page("#model=colours&layer=2&head=1")
    page.locator("#file").set_input_files(picture)
    page.wait_for_selector("#map")
    assert page.locator(".answer bdi").count() >= 2
    saved = download(page, "svg").path().read_text(encoding="utf-8")
    assert "layer 2, head 1 · 0 to" in saved
    assert saved.count('class="cells"') == 1


def test_errors_are_shown_in_korean(open_page, windows):
    page = open_page(f"#q={TEXT}&tab=steps&forced=999999&lang=ko")
    page.wait_for_selector(".trouble")
    message = page.inner_text(".trouble")
    assert "고른 토큰으로는" in message
    assert "id 999999: expected 2 to" in message
    assert all("Failed to load resource" in problem for problem in windows.problems)
    windows.problems.clear()


FOREIGN = """<!doctype html><body><script>
const url = "SERVER/translate", send = (body, type) =>
  fetch(url, {method: "POST", mode: "no-cors", headers: {"Content-Type": type}, body});
Promise.allSettled([
  send("q=a&source=ko&target=en", "application/x-www-form-urlencoded"),
  new Promise((done) => { window.onmessage = done; document.body.append(Object.assign(
    document.createElement("iframe"), {sandbox: "allow-scripts", srcdoc: `<script>
      fetch("SERVER/translate", {method: "POST", mode: "no-cors", body: new URLSearchParams(
        {q: "a", source: "ko", target: "en"})}).finally(() => parent.postMessage("", "*"));
      <\\/script>`})); }),
]).then(() => document.body.append(Object.assign(document.createElement("p"), {id: "sent"})));
</script>"""


def test_a_page_of_another_site_cannot_use_the_server_by_script(process, browser):
    """Neither by its own requests nor by those of a sandboxed frame, whose Origin is null."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FOREIGN.replace("SERVER", process.url).encode())

        def log_message(self, *_):
            pass

    def counted(status):
        metrics = requests.get(f"{process.url}/metrics", timeout=30).text
        name = f'polyhead_requests_total{{route="/translate",status="{status}"}} '
        return float(metrics.split(name)[1].split()[0]) if name in metrics else 0.0

    before = counted(200), counted(403)
    with HTTPServer(("127.0.0.1", 0), Handler) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{site.server_port}/")
        page.wait_for_selector("#sent", state="attached")
        page.close()
        site.shutdown()
    deadline = time.monotonic() + 60  # a request is counted after its response
    while counted(403) < before[1] + 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (counted(200), counted(403)) == (before[0], before[1] + 2)
