"""The page in a real browser: pointer, keys, small screens and hostile texts."""

import pytest
from browsing import eventually, run_inline_script
from views import build, causal, hostile

from polyhead.render.html import iframe, write
from polyhead.viz.page import render

pytestmark = pytest.mark.browser


def address(page):
    """Return the state in the address as a dict."""
    return dict(part.split("=") for part in page.evaluate("location.hash.slice(1)").split("&"))


# Lines


def test_pointer_on_a_word_shows_only_its_lines(view, show):
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


def test_click_selects_a_word_until_the_next_click(view, show):
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


def test_heads_can_be_switched_on_and_off(view, show):
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
    page = show(causal("encoder", n=1), "#view=lines")
    seen = page.evaluate("""() => {
      const canvas = document.querySelector('.curves');
      const [x, y] = [Math.floor(canvas.width / 2), Math.floor(canvas.height / 2)];
      return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data];
    }""")
    assert seen == [0x00, 0x60, 0xC4, 255]


# All heads


def test_every_head_has_a_thumbnail_that_opens_it_by_pointer_or_keys(view, show):
    page = show(view, "#view=model&kind=decoder")
    assert page.locator(".thumbnails button").count() == 3 * 8
    page.locator("#head-2-5").click()
    state = address(page)
    assert (state["view"], state["layer"], state["head"]) == ("heat", "2", "5")
    page.go_back()
    eventually(page, page.locator(".thumbnails button").count, 3 * 8)
    page.locator("#head-1-1").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert (address(page)["layer"], address(page)["head"]) == ("1", "3")


# State


def test_selection_is_kept_in_the_address(view, show):
    page = show(view)
    for choice in ("kind-encoder", "layer-1", "head-max", "merge", "special", "log", "lang-ko"):
        page.locator(f"label[for={choice}]").click()
    state = address(page)
    assert state == {
        "view": "heat", "kind": "encoder", "layer": "1", "head": "max",
        "merge": "1", "special": "0", "log": "1", "lang": "ko",
    }  # fmt: skip
    page.reload()
    assert address(page) == state
    chosen = page.locator("input:checked").evaluate_all("(all) => all.map((one) => one.id)")
    assert chosen == ["lang-ko", "view-heat", "kind-encoder", "layer-1", "head-max", "merge", "log"]


def test_back_returns_to_the_previous_view(view, show):
    page = show(view)
    for choice in ("view-lines", "layer-1", "layer-2", "view-model"):
        page.locator(f"label[for={choice}]").click()
    page.go_back()
    page.wait_for_selector(".curves")
    assert address(page)["layer"] == "2"
    page.go_back()
    page.wait_for_selector("#cells")
    page.go_forward()
    page.wait_for_selector(".curves")


def test_mean_is_not_offered_for_a_single_head(show):
    page = show(build(layers=1, heads=1), "#head=max")
    assert page.locator("input[name=head]").count() == 1
    assert page.locator("#head-1").is_checked()
    assert page.locator("#cells").is_visible()


@pytest.mark.parametrize(
    "state",
    ["#view=none&kind=x&layer=99&head=-1&off=a.77&word=r999", "#%E0%A4%A", "#&&==&", "#word=c0"],
)
def test_invalid_address_falls_back_to_defaults(view, show, state):
    page = show(view, state)
    assert page.locator("#cells").is_visible()
    assert page.locator("#kind-cross").is_checked()
    assert page.locator("#head-mean").is_checked()
    page.locator("label[for=view-lines]").click()
    assert page.locator(".faded").count() == 0


# Keys


def test_page_can_be_used_by_keyboard(view, show):
    page = show(view, "#layer=1&head=mean")
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.id"))
    assert {"lang", "view", "kind", "layer", "head", "merge", "special", "log", "cells"} <= reached
    for choice, keys in (("layer-1", ["Right"] * 2), ("head-mean", ["Right"] * 4 + ["Left"])):
        page.locator(f"#{choice}").focus()
        for key in keys:
            page.keyboard.press(f"Arrow{key}")
    assert (address(page)["layer"], address(page)["head"]) == ("3", "2")


def test_arrows_move_over_the_heat_map(view, show):
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


# Languages, screens and hostile texts


def test_page_is_in_both_languages(view, show):
    page = show(view, language="ko-KR")
    assert page.locator("html").get_attribute("lang") == "ko"
    assert "서브워드를 단어로 합치기" in page.inner_text("main")
    page.locator("label[for=lang-en]").click()
    assert "Merge subwords into words" in page.inner_text("main")


@pytest.mark.parametrize("language", ["ko-KR", "en-US"])
def test_small_screen_does_not_scroll_sideways(view, show, language):
    for one in (view, hostile()):
        page = show(one, width=360, language=language)
        for choice in ("kind-decoder", "view-lines", "view-model"):
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            page.locator(f"label[for={choice}]").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_long_sentences_and_many_heads_scroll_inside_their_figure(show):
    page = show(causal("encoder", n=60, heads=16), width=360)
    for choice in ("view-model", "view-lines", "view-heat"):
        page.locator(f"label[for={choice}]").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.querySelector('.scroll').scrollWidth") > 60 * 12


# Safety


def test_content_security_policy_is_in_force(view, browser, tmp_path):
    page = browser.new_context(offline=True).new_page()
    page.goto(write(render(view), tmp_path / "page.html").as_uri())
    assert not run_inline_script(page)
    assert page.evaluate("fetch('data:,x').then(() => false, () => true)")
    page.context.close()


def test_page_works_in_the_frame_of_a_notebook(view, windows, tmp_path):
    outside = tmp_path / "notebook.html"
    outside.write_text(f"<!DOCTYPE html><h1>notebook</h1>{iframe(render(view))}", encoding="utf-8")
    page = windows.open(outside.as_uri(), offline=True)
    inside, entries = page.frames[1], page.evaluate("history.length")
    inside.locator("label[for=view-lines]").click()
    inside.locator("label[for=layer-1]").click()
    assert inside.locator(".curves").count() == 1
    assert inside.locator("#layer-1").is_checked()
    assert page.url == outside.as_uri()  # the notebook's own address and history are left alone
    assert page.evaluate("history.length") == entries
