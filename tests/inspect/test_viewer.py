"""The page in a real browser: what it shows is true, what it is told stays text, keys are enough."""

import io

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import sync_playwright

from polyhead.inspect.drawing import viridis
from polyhead.inspect.maps import AttentionMap, AttentionView, Sentence, Token
from polyhead.inspect.page import frame, write

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-first-run"]  # fmt: skip
CELLS = """() => {
  const canvas = document.querySelector("#cells");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return { width: canvas.width, height: canvas.height, data: [...data] };
}"""


@pytest.fixture(scope="module")
def browser(chromium):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a view in an offline window; any request or error on the page fails the test."""
    contexts, problems, requested = [], [], []

    def show(view, state="", width=1200, language="en-US", scheme="light"):
        path = write(view, tmp_path / "page.html")
        context = browser.new_context(
            offline=True,
            viewport={"width": width, "height": 1200},
            locale=language,
            color_scheme=scheme,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: requested.append(request.url.split("#")[0]))
        page.goto(path.as_uri() + state)
        return page

    yield show
    for context in contexts:
        context.close()
    assert problems == []
    assert set(requested) <= {(tmp_path / "page.html").as_uri()}


def one_text(kind, n=3):
    """A model that reads one text and has one kind of attention, all looking back evenly."""
    tokens = tuple(Token(f"t{i}", i) for i in range(n))
    weights = np.tri(n, dtype=np.float32) / np.arange(1, n + 1, dtype=np.float32)[:, None]
    one = AttentionMap(kind, 1, weights[None], "source", "source")
    predictions = tuple(f"p{i}" for i in range(n)) if kind == "decoder" else ()
    return AttentionView("one", "", Sentence("t0 t1 t2", tokens), None, predictions, (one,))


def shown_colours(page):
    """All cells as the canvas has them: (row, column, rgb) and whether they are painted."""
    cells = page.evaluate(CELLS)
    rgba = np.array(cells["data"]).reshape(cells["height"], cells["width"], 4)
    return rgba[..., :3], rgba[..., 3] == 255


def expected_colours(weights):
    hexes = [[viridis(float(w)) for w in row] for row in weights]
    return np.array([[[int(h[i : i + 2], 16) for i in (1, 3, 5)] for h in row] for row in hexes])


def on_screen(page, x, y):
    """The colour of one pixel of the window, as a screenshot sees it."""
    shot = page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
    return Image.open(io.BytesIO(shot)).convert("RGB").getpixel((0, 0))


def address(page):
    """The state in the address as a dict."""
    return dict(part.split("=") for part in page.evaluate("location.hash.slice(1)").split("&"))


# The heat-map tells the truth


def test_a_pixel_on_the_screen_has_the_colour_of_its_weight(view, show):
    page = show(view, "#kind=cross&layer=2&head=3")
    weights = view.find("cross", 2).weights[2]
    box = page.locator("#cells").bounding_box()
    height, width = box["height"] / weights.shape[0], box["width"] / weights.shape[1]
    for row, column in ((0, 0), (3, 7), (9, 9), tuple(np.argwhere(weights == weights.max())[0])):
        seen = on_screen(
            page, box["x"] + (column + 0.5) * width, box["y"] + (row + 0.5) * height
        )
        assert seen == tuple(expected_colours([[weights[row, column]]])[0, 0])


@pytest.mark.parametrize(("head", "combine"), [("mean", np.mean), ("max", np.max)])
def test_heads_are_put_together_by_mean_or_max(view, show, head, combine):
    page = show(view, f"#kind=cross&layer=1&head={head}")
    expected = combine(view.find("cross", 1).weights.astype(np.float64), axis=0)
    colours, painted = shown_colours(page)
    assert painted.all()
    assert np.abs(colours - expected_colours(expected)).max() <= 1


def test_merged_words_are_the_same_as_in_python(view, show):
    for kind in view.kinds:
        page = show(view, f"#kind={kind}&layer=2&head=5&merge=1")
        weights = view.merged().find(kind, 2).weights[4]
        colours, painted = shown_colours(page)
        assert colours.shape[:2] == weights.shape
        difference = np.abs(colours - expected_colours(weights)).max(axis=2)
        assert difference[painted].max() <= 1
        assert (weights[~painted] == 0).all()


def test_the_logarithmic_scale_begins_at_one_ten_thousandth(show):
    text = one_text("encoder")
    weights = np.array([[[0.0, 1e-5, 1 - 1e-5], [1e-4, 1e-2, 0.9899], [0.1, 0, 0.9]]])
    one = AttentionMap("encoder", 1, weights.astype(np.float32), "source", "source")
    view = AttentionView("log", "", text.source, None, (), (one,))
    colours, _ = shown_colours(show(view, "#log=1"))
    expected = expected_colours([[0, 0, 1], [0, 0.5, 0.9989], [0.75, 0, 0.98856]])
    assert np.abs(colours - expected).max() <= 1


def test_hidden_special_tokens_leave_the_other_weights_alone(view, show):
    page = show(view, "#kind=cross&layer=1&head=1")
    everything, _ = shown_colours(page)
    page.locator("label[for=special]").click()
    rest, _ = shown_colours(page)
    assert (rest == everything[:-1, :-1]).all()  # </s> is the last row and the last column
    assert "not scaled up" in page.locator("footer").inner_text()


def test_what_a_decoder_may_not_see_is_left_empty(view, show):
    page = show(view, "#kind=decoder&layer=1&head=1")
    _, painted = shown_colours(page)
    assert (painted == np.tri(len(painted), dtype=bool)).all()
    cell = page.locator("#cells").bounding_box()["width"] / len(painted)
    page.locator("#cells").hover(position={"x": 3.5 * cell, "y": 0.5 * cell})
    assert "may not look ahead" in page.locator(".readout").inner_text()


def test_pointing_at_a_cell_says_what_it_is(view, show):
    page = show(view, "#kind=cross&layer=2&head=3")
    weight = view.find("cross", 2).weights[2, 6, 4]
    cell = page.locator("#cells").bounding_box()["width"] / len(view.source.tokens)
    page.locator("#cells").hover(position={"x": 4.5 * cell, "y": 6.5 * cell})
    told = page.locator(".readout").inner_text()
    assert "‘학교’ → ‘sch’" in told
    assert f"{weight:.3f}" in told
    assert "layer 2 · head 3 · after reading ‘to’" in told
    assert page.locator(".name.on").all_inner_texts() == ["학교", "sch"]
    band, post = (page.locator(part).bounding_box() for part in (".band", ".post"))
    box = page.locator("#cells").bounding_box()
    assert band["y"] - box["y"] == pytest.approx(6 * cell, abs=1)
    assert post["x"] - box["x"] == pytest.approx(4 * cell, abs=1)
    page.mouse.move(5, 5)
    assert page.locator(".name.on").count() == 0


def test_the_entropy_of_each_head_is_shown(view, show):
    page = show(view, "#kind=encoder&layer=3")
    expected = [f"{bits:.1f}" for bits in view.entropy("encoder", 3)]
    assert page.locator(".head .chip small").all_inner_texts() == expected
    page.locator("label[for=view-model]").click()
    assert page.locator(".thumbnails small").all_inner_texts()[16:] == expected


# Lines


def test_pointing_at_a_word_shows_its_lines_alone(view, show):
    page = show(view, "#view=lines&kind=cross&layer=2")
    ink = "() => document.querySelector('.curves').getContext('2d')\
        .getImageData(0, 0, 800, 800).data.filter((byte, i) => byte && i % 4 === 3).length"
    before = page.evaluate(ink)
    page.locator("#word-r7").hover()
    mean = view.find("cross", 2).weights[:, 6].mean(axis=0)
    texts = page.locator(".right small").all_inner_texts()
    assert texts == [f"{w:.2f}" if w >= 0.005 else "" for w in mean]
    assert page.locator(".left .faded").count() == len(view.predictions) - 1
    assert 1000 < page.evaluate(ink) < before / 2
    page.mouse.move(5, 5)
    assert page.locator(".faded").count() == 0


def test_a_clicked_word_stays_alone_until_it_is_clicked_again(view, show):
    page = show(view, "#view=lines&kind=cross&layer=2")
    page.locator("#word-c5").click()
    page.mouse.move(5, 5)
    assert address(page)["word"] == "c5"
    assert page.locator("#word-c5").get_attribute("aria-pressed") == "true"
    assert "‘학교’ →" in page.locator(".readout").inner_text()
    page.reload()
    assert page.locator(".right .faded").count() == len(view.source.tokens) - 1
    page.locator("#word-c5").click()
    assert "word" not in address(page)


def test_heads_are_switched_on_and_off(view, show):
    page = show(view, "#view=lines&kind=cross&layer=2")
    blank = "() => !document.querySelector('.curves').getContext('2d')\
        .getImageData(0, 0, 800, 800).data.some((byte) => byte)"
    assert not page.evaluate(blank)
    page.locator("label[for=square-3]").click()
    assert address(page)["off"] == "3"
    page.locator("label[for=square-3]").click()
    assert "off" not in address(page)
    page.locator("#all-heads").click()
    assert page.evaluate(blank)
    page.locator("#all-heads").click()
    page.locator("label[for=square-2]").dblclick()
    assert address(page)["off"] == "1.3.4.5.6.7.8"


def test_a_line_has_the_colour_of_its_head(show):
    page = show(one_text("encoder", n=1), "#view=lines")
    seen = page.evaluate("""() => {
      const canvas = document.querySelector('.curves');
      const [x, y] = [Math.floor(canvas.width / 2), Math.floor(canvas.height / 2)];
      return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data];
    }""")
    assert seen == [0x00, 0x60, 0xC4, 255]


# All heads


def test_every_head_has_a_thumbnail_and_opens(view, show):
    page = show(view, "#view=model&kind=decoder")
    assert page.locator(".thumbnails button").count() == 3 * 8
    page.locator("#head-2-5").click()
    state = address(page)
    assert (state["view"], state["layer"], state["head"]) == ("heat", "2", "5")
    page.go_back()
    assert page.locator(".thumbnails button").count() == 3 * 8


# State


def test_choices_are_kept_in_the_address(view, show):
    page = show(view)
    for choice in ("kind-encoder", "layer-1", "head-max", "merge", "special", "log", "lang-ko"):
        page.locator(f"label[for={choice}]").click()
    state = address(page)
    assert state == {
        "view": "heat", "kind": "encoder", "layer": "1", "head": "max",
        "merge": "1", "special": "0", "log": "1", "lang": "ko",
    }  # fmt: skip
    before, _ = shown_colours(page)
    page.reload()
    assert address(page) == state
    assert (shown_colours(page)[0] == before).all()
    assert page.locator("#merge").is_checked()


def test_back_returns_to_the_last_view(view, show):
    page = show(view)
    for choice in ("view-lines", "layer-1", "layer-2", "view-model"):
        page.locator(f"label[for={choice}]").click()
    page.go_back()
    assert page.locator(".curves").count() == 1
    assert address(page)["layer"] == "2"
    page.go_back()
    assert page.locator("#cells").count() == 1
    page.go_forward()
    assert page.locator(".curves").count() == 1


@pytest.mark.parametrize(
    "state",
    ["#view=none&kind=x&layer=99&head=-1&off=a.77&word=r999", "#%E0%A4%A", "#&&==&", "#word=c0"],
)
def test_an_address_that_makes_no_sense_shows_something_sensible(view, show, state):
    page = show(view, state)
    assert shown_colours(page)[1].all()
    page.locator("label[for=view-lines]").click()
    assert page.locator(".faded").count() == 0


# Keys


def test_the_keyboard_is_enough(view, show):
    page = show(view)
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.id"))
    assert {"lang", "view", "kind", "layer", "head", "merge", "special", "log", "cells"} <= reached


def test_arrows_change_layer_and_head(view, show):
    page = show(view, "#layer=1&head=mean")
    page.locator("#layer-1").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert address(page)["layer"] == "3"
    page.locator("#head-mean").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert address(page)["head"] == "3"
    page.keyboard.press("ArrowLeft")
    assert address(page)["head"] == "2"


def test_arrows_walk_over_the_heat_map(view, show):
    page = show(view, "#kind=cross&layer=2&head=3")
    page.locator("#cells").focus()
    begin, walk = ["Up"], ["Right"] * 4 + ["Left"] + ["Down"] * 3 + ["Up"]
    for key in begin + walk:
        page.keyboard.press(f"Arrow{key}")
    told = page.locator(".readout").inner_text()
    assert "‘와’ → ‘I’" in told
    assert f"{view.find('cross', 2).weights[2, 2, 3]:.3f}" in told
    for key in ["Left"] * 9 + ["Up"] * 9:  # no further than the corner
        page.keyboard.press(f"Arrow{key}")
    assert "‘저는’ → ‘Tom’" in page.locator(".readout").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".name.on").count() == 0


def test_arrows_walk_over_the_thumbnails(view, show):
    page = show(view, "#view=model")
    page.locator("#head-1-1").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert (address(page)["layer"], address(page)["head"]) == ("1", "3")


# Whoever looks, with whatever


def test_everything_can_be_read_in_both_languages(view, show):
    page = show(view, language="ko-KR")
    assert page.locator("html").get_attribute("lang") == "ko"
    assert "서브워드를 단어로 합치기" in page.inner_text("main")
    assert "설명이 아니라 단서" in page.inner_text("footer")
    page.locator("label[for=lang-en]").click()
    assert "Merge subwords into words" in page.inner_text("main")
    assert "not why the model chose a word" in page.inner_text("footer")


@pytest.mark.parametrize("language", ["ko-KR", "en-US"])
def test_a_phone_need_not_scroll_sideways(view, hostile, show, language):
    for one in (view, hostile):
        page = show(one, width=360, language=language)
        for choice in ("kind-decoder", "view-lines", "view-model"):
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            page.locator(f"label[for={choice}]").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_long_sentence_scrolls_inside_its_figure(show):
    page = show(one_text("encoder", n=60), width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    inside = page.evaluate("document.querySelector('.scroll').scrollWidth")
    assert inside > 60 * 12


def test_the_page_is_dark_in_the_dark(view, show):
    sums = []
    for scheme in ("light", "dark"):
        page = show(view, scheme=scheme)
        sums.append(sum(on_screen(page, 3, 3)))
    assert sums[0] > 700
    assert sums[1] < 100


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_model_with_one_kind_of_attention_is_shown_in_all_views(show, kind):
    page = show(one_text(kind))
    for choice in ("view-lines", "view-model", "view-heat"):
        page.locator(f"label[for={choice}]").click()
        assert page.locator(".figure canvas").count() >= 1
    assert page.locator(".kind .chip").count() == 1
    expected = ["p0", "p1", "p2"] if kind == "decoder" else ["t0", "t1", "t2"]
    assert page.locator(".beside-names .name").all_inner_texts() == expected


def test_a_view_without_maps_says_so(view, show):
    page = show(AttentionView("none", "", view.source, None, (), ()))
    assert page.inner_text("#attention") == "This file holds no attention maps."


# Safety


def test_hostile_tokens_are_shown_and_do_nothing(hostile, show):
    attack = hostile.title
    page = show(hostile)
    for choice in ("view-lines", "view-model", "view-heat"):
        page.locator(f"label[for={choice}]").click()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
    assert page.inner_text("h1") == attack
    assert page.title() == attack
    assert page.locator(".beside-names .name").first.text_content() == attack


def test_the_policy_is_in_force(view, show, browser, tmp_path):
    page = browser.new_context(offline=True).new_page()
    page.goto(write(view, tmp_path / "page.html").as_uri())
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.hacked = 1";
      document.body.append(script);
    }""")
    assert page.evaluate("window.hacked") is None
    refused = page.evaluate("fetch('data:,x').then(() => false, () => true)")
    assert refused
    page.context.close()


def test_the_frame_of_a_notebook_works(view, browser, tmp_path):
    outside = tmp_path / "notebook.html"
    outside.write_text(f"<!DOCTYPE html><h1>notebook</h1>{frame(view)}", encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(outside.as_uri())
    inside, entries = page.frames[1], page.evaluate("history.length")
    inside.locator("label[for=view-lines]").click()
    inside.locator("label[for=layer-1]").click()
    assert inside.locator(".curves").count() == 1
    assert inside.locator("#layer-1").is_checked()
    assert page.url == outside.as_uri()  # the notebook's own address and history are left alone
    assert page.evaluate("history.length") == entries
    assert problems == []
    page.context.close()
