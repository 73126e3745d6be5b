"""The report in a browser: offline, in both languages, with the values of the rows."""

import html
import re
from xml.etree import ElementTree

import pytest
import torch
from views import SVG, svg_texts

from polyhead.layers.attention import CAUSAL, attention_weights
from polyhead.notes import figures
from polyhead.notes.claims import CHAPTERS, load_claims
from polyhead.notes.report_page import FIGURES, KINDS, render
from polyhead.notes.verification import run_claims
from polyhead.render.html import write
from polyhead.training.optim import noam

HANGUL = re.compile("[가-힣]")


@pytest.fixture
def show(windows, tmp_path):
    """Open a report in an offline window; a request or an error on the page fails the test."""

    def show(rows, language="en", width=1200, scheme="light"):
        path = tmp_path / "report.html"
        path.write_text(render(rows, language), encoding="utf-8")
        return windows.open(
            path.as_uri(), width=width, height=900, offline=True, color_scheme=scheme
        )

    yield show
    assert set(windows.requested) <= {(tmp_path / "report.html").as_uri()}


@pytest.fixture
def rows(use_sample):
    use_sample(broken=True)
    return list(run_claims(load_claims()))


def test_each_claim_is_a_line_with_its_verdict(rows, show):
    page = show(rows)
    for row in rows:
        line = page.locator(f"#claim-{row.claim.id}")
        assert KINDS[row.verdict][0] in line.get_attribute("class").split()
        assert line.locator(".claim").inner_text() == row.claim.text.en
        assert line.locator(".verdict").inner_text() == row.verdict
    assert page.locator(".squares a").count() == len(rows)


def test_wrong_notes_show_both_values_and_the_reason(rows, show):
    page = show(rows)
    compared = page.locator("#claim-B10 .compare")
    assert compared.locator("s").inner_text() == "<script>alert(1)</script>"
    assert compared.locator(".true").inner_text() == "2"
    assert "Why <b>so</b>: because." in compared.inner_text()
    assert page.locator("#claim-B2 .compare").count() == 0


def test_a_line_opens_and_shows_formula_code_and_script(rows, show):
    page = show(rows)
    more = page.locator("#claim-B2 .more")
    assert not more.is_visible()
    page.locator("#claim-B2 summary").click()
    assert more.is_visible()
    assert more.locator(".formula").inner_text() == "1 + 1 = 2"
    assert "polyhead/layers/attention.py:" in more.inner_text()
    assert more.locator("pre").inner_text().startswith("import torch\n")


def test_the_language_can_be_switched_without_a_script(rows, show):
    page = show(rows, language="ko")
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.locator("#claim-B10 .claim").inner_text() == "틀린 노트"
    page.get_by_text("English", exact=True).click()
    assert page.locator("#claim-B10 .claim").inner_text() == "A wrong note"
    visible = page.locator("main").inner_text()
    assert HANGUL.findall(visible.replace("한국어", "")) == []
    page.keyboard.press("ArrowRight")  # the choice is a pair of radio buttons
    assert page.locator("#claim-B10 .claim").inner_text() == "틀린 노트"


@pytest.mark.parametrize(("locale", "title"), [("ko-KR", "노트의 주장"), ("fr-FR", "The notes'")])
def test_the_page_opens_in_the_language_of_the_browser(rows, windows, tmp_path, locale, title):
    write(render(rows, None), tmp_path / "report.html")
    page = windows.open((tmp_path / "report.html").as_uri(), locale=locale)
    assert page.inner_text("h1").startswith(title)
    page.locator("label[for=in-ko]").click()
    assert page.inner_text("h1").startswith("노트의 주장")


def test_right_notes_can_be_hidden(rows, show):
    page = show(rows)
    page.locator("label[for=only]").click()
    assert not page.locator("#claim-B2").is_visible()
    for id in ("A1", "B10", "Z1", "Z2"):
        assert page.locator(f"#claim-{id}").is_visible()


def test_the_page_has_no_script_and_allows_none(rows):
    page = render(rows)
    assert "<script" not in page
    assert " style=" not in page
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    assert policy.startswith("default-src 'none'; ")
    assert "style-src 'sha256-" in policy
    assert not re.search("script-src|unsafe", policy)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_window(report, show, width, scheme):
    page = show(report.rows, language="ko", width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for figure in page.locator("figure").all():
        box = figure.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert figure.locator("svg:visible").count() == 1
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 380) == (scheme == "light")


def test_the_report_has_every_chapter_and_every_figure(report, show):
    page = show(report.rows)
    assert page.locator("section").count() == len(CHAPTERS)
    assert page.locator("figure").count() == sum(map(len, FIGURES.values()))
    assert page.locator(".claim-row").count() == len(report.rows)


# Figures


@pytest.mark.parametrize(
    "draw", [d for all in FIGURES.values() for d in all], ids=lambda d: d.__name__
)
def test_figures_are_svg_with_a_description(draw):
    torch.manual_seed(0)
    figure = draw()
    for language in ("en", "ko"):
        drawn = ElementTree.fromstring(figure.drawing.in_language(language))
        description = drawn.find(f"{SVG}desc").text
        assert drawn.get("role") == "img"
        assert drawn.get("aria-label") == description
        assert drawn.find(f"{SVG}title").text == figure.title.in_language(language)
        assert len(description) > 40 or HANGUL.search(description)
        assert bool(HANGUL.search(description + figure.caption.in_language(language))) == (
            language == "ko"
        )
        assert drawn.find(".//*[@style]") is None


def test_the_causal_matrix_is_that_of_the_library():
    numbers = [
        float(text) for text in svg_texts(figures.causal_matrix().drawing.en) if text[0] in ".1"
    ]
    weights = attention_weights(torch.zeros(1, 1, 8, 2), torch.zeros(1, 1, 8, 2), CAUSAL)[0, 0]
    visible = weights[weights > 0].tolist()
    assert numbers[: len(visible)] == pytest.approx(visible, abs=0.006)
    assert numbers[len(visible) :] == pytest.approx([1 / 8] * 64, abs=0.006)


def test_figures_change_with_the_library(monkeypatch):
    before = figures.warm_up().drawing.en, figures.position_code().drawing.en
    monkeypatch.setattr(figures, "noam", lambda step, d, warmup: noam(step, d, 2 * warmup))
    code = figures.SinusoidalPositions.forward
    swapped = lambda self, *where: code(self, *where).unflatten(-1, (-1, 2)).flip(-1).flatten(-2)  # noqa: E731
    monkeypatch.setattr(figures.SinusoidalPositions, "forward", swapped)
    assert figures.warm_up().drawing.en != before[0]
    assert figures.position_code().drawing.en != before[1]


def test_the_dot_products_rise_where_the_formula_does():
    rates = [10000 ** (-2 * k / 512) for k in range(256)]
    value = lambda phi: sum(torch.tensor([r * phi for r in rates]).double().cos()).item()  # noqa: E731
    first = next(phi for phi in range(1, 200) if value(phi) > value(phi - 1))
    caption = figures.position_products().caption.en
    assert f"φ = {first} " in caption
    assert "(256) at φ = 0" in caption
