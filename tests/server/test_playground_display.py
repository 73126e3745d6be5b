"""Playground in a browser: high contrast, print, themes, landmarks, reload and the API page."""

import json

import pytest
from browsing import download, until, upload

pytest.importorskip("starlette", reason="the page is served by polyhead[serve]")

from standin import image_view

pytestmark = pytest.mark.browser

TEXT = "저는 내일 친구와 학교에 갑니다."
LOOK = """(node) => {
  const style = getComputedStyle(node);
  return ["backgroundColor", "color", "boxShadow", "outlineStyle"].map((name) => style[name]);
}"""
SELECTED = [  # a state of the page, a selected element, one that is not selected
    (f"#q={TEXT}", "#view-heat + .chip", "#view-lines + .chip"),
    (f"#q={TEXT}", "#special + .track", "#log + .track"),
    (f"#q={TEXT}", "#lang-en + .chip", "#lang-ko + .chip"),
    (f"#q={TEXT}", "#tab-attention + .chip", "#tab-steps + .chip"),
    (f"#q={TEXT}", "label[for=n-1]", "label[for=n-2]"),
    (f"#q={TEXT}&view=lines&off=2&word=r4", "#square-1 + .chip", "#square-2 + .chip"),
    (f"#q={TEXT}&view=lines&off=2&word=r4", "#word-r4", "#word-r5"),
    (f"#q={TEXT}&tab=steps", ".token[aria-current]", "#token-1"),
    (f"#q={TEXT}&tab=steps", "#option-1", "#option-2"),
    (f"#q={TEXT}&tab=beam", ".node.best", ".node.dropped"),
    ("#q=one%0Atwo", "#sentence-1", "#sentence-2"),
    ("#q=one%0Atwo", ".mirror span:first-child", ".mirror span:last-child"),
    ("#model=reviews&q=fine", ".share i", "body"),
]


@pytest.mark.parametrize("media", [{"forced_colors": "active"}, {"media": "print"}])
def test_selected_elements_look_different_in_high_contrast_and_on_paper(play, media):
    page = play(shows="#text")
    page.emulate_media(**media)
    for state, selected, other in SELECTED:
        if "media" in media and selected[1:4] in ("lan", "tab"):
            continue  # not printed
        page.goto(f"{page.url.split('#')[0]}{state}")
        page.locator(selected).first.wait_for(state="attached")
        page.locator(other).first.wait_for(state="attached")
        styles = [page.locator(one).first.evaluate(LOOK) for one in (selected, other)]
        assert styles[0] != styles[1], (state, selected)


def test_paper_has_the_selection_but_no_controls(play):
    page = play(f"#q={TEXT}", shows="#cells")
    page.emulate_media(media="print", color_scheme="dark")
    for hidden in ("#copy", "#clear", ".saving", ".looks-of-page", ".chip >> text=Lines"):
        assert not page.locator(hidden).first.is_visible(), hidden
    for shown in (".chip >> text=Heat-map", ".chip >> text=Cross", "#cells", ".hypothesis"):
        assert page.locator(shown).first.is_visible(), shown
    style = page.locator(".figure").evaluate("(n) => getComputedStyle(n).breakInside")
    assert style == "avoid"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 250)"


def test_the_theme_is_kept_and_redraws_the_page(play):
    page = play("#model=reviews&q=fine", shows="#cells")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.locator("label[for=theme-dark]").click()
    until(page, "document.activeElement.id === 'theme-dark'")
    dark = page.evaluate(paper)
    assert dark != light
    page.reload()
    page.wait_for_selector("#cells")
    assert page.locator("#theme-dark").is_checked()
    assert page.evaluate(paper) == dark
    page.emulate_media(color_scheme="dark")
    page.locator("label[for=theme-light]").click()
    until(page, f"{paper} === '{light}'")
    page.locator("label[for=theme-auto]").click()
    until(page, f"{paper} === '{dark}'")


def test_all_content_is_inside_landmarks(play, refusing):
    for state, shown in ((f"#q={TEXT}", "#cells"), ("#model=digits", ".drop")):
        page = play(state, shows=shown)
        assert page.locator("main").count() == 1
        assert page.locator("main #text, main .drop").count() == 1
        tags = page.locator("#play > *").evaluate_all("(all) => all.map((one) => one.tagName)")
        assert tags == ["HEADER", "MAIN", "FOOTER"]
    refusing.key = "secret"
    assert play(shows="#key").locator("main #key").count() == 1


def test_the_page_language_is_apart_from_the_languages_of_the_model(play):
    page = play()
    assert page.inner_text(".lang legend") == "Page language"
    assert page.locator("#model option").first.inner_text() == "schedules (Korean → English)"


def test_the_largest_weights_are_a_table(play, stand_in):
    page = play(f"#q={TEXT}&kind=cross&layer=2&head=1", shows="#cells")
    assert page.locator(".strongest td").count() == 0  # until it is opened
    page.locator("#strongest").press("Enter")
    page.wait_for_selector(".strongest td")
    attention = stand_in.view.find("cross", 2)
    columns = [token.text for token in stand_in.view.source.tokens]
    for row, weights in zip(page.locator(".strongest tr").all(), attention.weights[0], strict=True):
        largest = weights.argsort()[::-1][:3]
        cells = [cell.rsplit(" ", 1) for cell in row.locator("td").all_inner_texts()]
        assert [text for text, _ in cells] == [columns[i] for i in largest]
        values = [float(value) for _, value in cells]
        assert values == pytest.approx(weights[largest].tolist(), abs=2e-3)
    page.locator("label[for=layer-1]").click()
    page.wait_for_selector(".strongest td")  # stays open


def test_a_page_of_too_many_weights_has_the_kind_and_layer_shown(play, refusing):
    page = play(f"#q={TEXT}&kind=cross&layer=2", shows="#cells")
    refusing.refuse = [(422, "too many", {"code": "too_many_weights"})]
    download(page, "html")
    *_, first, second = refusing.bodies("/v1/attention")
    assert ("kind" in first, second["kind"], second["layer"]) == (False, "cross", 2)
    status = page.inner_text(".saving [role=status]")
    assert status.endswith("saved Cross, layer 2, as shown.")


def test_an_image_is_kept_at_reload(play, stand_in):
    page = play("#model=digits", shows=".drop")
    assert page.inner_text(".drop strong").startswith("Drop an image")
    content = upload(page)
    page.wait_for_selector("#map")
    assert page.inner_text(".drop strong").startswith("Drop another image")
    largest = max(json.loads(image_view().to_json())["rollout"])
    assert float(page.inner_text(".legend").split()[-1]) == pytest.approx(largest, rel=0.05)
    page.reload()
    page.wait_for_selector("#map")
    assert stand_in.bodies("/v1/attention") == [content, content]


def test_the_text_with_masks_has_no_empty_space(play):
    page = play("#model=gaps&q=a [MASK] [MASK] [MASK]", shows=".option", width=1400)
    assert page.locator("#text").bounding_box()["height"] < 120
    assert page.locator(".answer-box h2").first.inner_text() == "[MASK] 1"


@pytest.mark.parametrize("language", ["en-US", "ko-KR"])
def test_the_api_page_lists_all_routes(windows, process, language):
    page = windows.open(f"{process.url}/", locale=language)
    page.locator(".foot a").click()
    page.wait_for_selector(".route")
    paths = page.evaluate("fetch('/openapi.json').then((r) => r.json())")["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert set(page.locator(".route h2").all_inner_texts()) == routes
    fields = page.locator(".route:has(code:text-is('POST /v1/fill')) tr").all_inner_texts()
    assert [row.split("\t") for row in fields][1:] == [
        ["model", "string | null", "null"],
        ["text", "string", {"en-US": "required", "ko-KR": "필수"}[language]],
        ["top", "integer 1–50", "5"],
    ]
    page.locator("a >> nth=0").click()
    page.wait_for_selector("#text")
