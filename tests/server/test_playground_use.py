"""Playground in a browser: all panels, keyboard, small screens, errors and both languages."""

import io

import numpy as np
import pytest
from browsing import canvas_pixels, download, eventually, until, upload
from PIL import Image

pytest.importorskip("starlette", reason="the page is served by polyhead[serve]")

from standin import image_view

from polyhead.viz.draw_image import ImageViewOptions, draw_image

pytestmark = pytest.mark.browser

TEXT = "저는 내일 친구와 학교에 갑니다."


# Step by step


def test_the_player_shows_tokens_alternatives_and_attention_step_by_step(play, stand_in):
    page = play(f"#q={TEXT}&tab=steps", shows=".looks")
    page.locator("#step-first").click()
    assert page.locator(".token").count() == 0
    for n in (1, 2):
        page.locator("#step-next").click()
        assert page.locator(".token").count() == n
    assert page.locator(".token bdi").all_inner_texts() == ["Tom", "orrow"]
    assert page.locator(".option bdi").all_inner_texts() == ["orrow", "A", "Our"]
    assert page.locator(".option small").all_inner_texts() == ["60 %", "20 %", "10 %"]
    weights = stand_in.view.find("cross", 3).weights[:, 1].mean(axis=0)
    titles = page.locator(".looks li").evaluate_all("(all) => all.map((one) => one.title)")
    assert [float(title) for title in titles] == pytest.approx(weights.tolist(), abs=2e-3)
    page.locator("#step-play").click()
    until(page, "document.querySelectorAll('.token').length === 10")
    page.wait_for_selector("#step-play[aria-label=Play]")  # stopped at the end
    assert page.locator(".cut").count() == 0


def test_the_player_shows_the_selected_translation(play, stand_in):
    page = play(f"#q={TEXT}&tab=steps", shows=".looks")
    page.locator("label[for=n-3]").click()
    until(page, "document.querySelectorAll('.token').length === 8")
    sent = [body["prefix"] for body in stand_in.bodies("/v1/steps")]
    assert sent == [[*range(10, 19), 2], [*range(10, 17), 2]]
    assert page.locator(".token.forced").count() == 0  # the user forced none


def test_the_player_shows_the_selected_sentence(play, stand_in):
    play("#q=first line%0Asecond line&tab=steps&s=2&n=2", shows=".looks")
    (sent,) = stand_in.bodies("/v1/steps")
    assert (sent["text"], sent["prefix"]) == ("second line", [*range(10, 18), 2])


def test_a_forced_token_changes_what_follows_and_back_restores_it(play, stand_in):
    page = play(f"#q={TEXT}&tab=steps", shows=".looks")
    page.locator("#token-3").click()
    page.locator("#option-2").click()
    page.wait_for_selector(".token.forced")
    stand_in.wait_for("/v1/steps", prefix=[10, 11, 20])
    page.wait_for_selector(".looks")
    eventually(page, page.locator(".token bdi").all_inner_texts, ["Tom", "orrow", "A"])
    assert page.locator(".token.forced bdi").all_inner_texts() == ["A"]  # the only one chosen
    page.locator("#step-last").click()
    assert page.locator(".token").count() == 10
    page.locator("#token-5").click()
    page.locator("#option-3").click()
    until(page, "document.querySelectorAll('.token.forced').length === 2")
    stand_in.wait_for("/v1/steps", prefix=[10, 11, 20, 13, 21])
    eventually(page, page.locator(".token.forced bdi").all_inner_texts, ["A", "Our"])
    page.go_back()
    until(page, "document.querySelectorAll('.token.forced').length === 1")
    page.go_back()
    until(page, "!document.querySelector('.token.forced')")
    stand_in.wait_for("/v1/steps", prefix=[*range(10, 19), 2])
    page.go_forward()
    page.wait_for_selector(".token.forced")
    page.locator("#unforce").click()
    until(page, "!document.querySelector('.token.forced')")


@pytest.mark.parametrize(
    ("language", "message"), [("en-US", "Cut off here"), ("ko-KR", "여기서 잘렸습니다")]
)
def test_a_translation_that_was_cut_off_is_marked(play, stand_in, language, message):
    stand_in.ended = False
    page = play(f"#q={TEXT}&tab=steps", language=language, shows=".looks")
    (sent,) = stand_in.bodies("/v1/steps")
    assert (sent["prefix"], sent["max_tokens"]) == ([*range(10, 19)], 9)
    tokens = page.locator(".token bdi").all_inner_texts()
    assert (len(tokens), "</s>" in tokens) == (9, False)
    assert message in page.inner_text(".written .cut")
    stand_in.wait_for("/v1/attention", target_ids=[*range(10, 19)], ended=False)
    page.locator("#step-back").click()
    assert page.locator(".cut").count() == 0  # only at the end
    page.locator("#step-last").click()
    page.locator("#option-1").click()  # forcing it again continues the text
    until(page, "!document.querySelector('.cut, .busy')")
    page.locator("#step-last").click()
    eventually(page, page.locator(".token bdi").all_inner_texts, [*tokens, "</s>"])
    page.locator("#option-1").click()
    stand_in.wait_for("/v1/steps", prefix=[*range(10, 19), 2])
    eventually(page, page.locator(".token.forced, .cut").count, 0)  # they equal the usual output


def test_a_translator_without_attention_has_steps(play, stand_in):
    stand_in.changes = {"attention": []}
    page = play(f"#q={TEXT}", shows=".token")
    assert page.locator(".tab .chip").all_inner_texts() == ["Step by step", "Beam search"]
    assert page.locator("#tab-steps").is_checked()
    page.wait_for_timeout(300)
    assert stand_in.bodies("/v1/attention") == []
    assert page.locator(".trouble").count() == 0


# Beam search


def test_the_beam_tree_is_navigated_by_keys(play, stand_in):
    page = play(f"#q={TEXT}&tab=beam", shows=".tree")
    states = page.locator(".node").evaluate_all("(all) => all.map((one) => one.className)")
    assert states == [f"node {state}" for state in ("best", "best", "kept", "dropped", "best",
                                                    "kept", "best", "kept")]  # fmt: skip
    page.locator("#node-0").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.id") == "node-5"
    assert "A meeting" in page.inner_text(".readout")
    assert "0.700" in page.inner_text(".readout")
    rows = page.locator(".node").evaluate_all("(all) => all.map((one) => one.style.top)")
    assert rows[1] == rows[4] == rows[6]  # a path stays in its row
    assert len({rows[1], rows[2], rows[3]}) == 3
    page.locator("label[for=beam-8]").click()
    until(page, "location.hash.includes('beam=8')")
    stand_in.wait_for("/v1/beam", beam=8)
    assert [body["beam"] for body in stand_in.bodies("/v1/beam")] == [4, 8]


# The other kinds of models


def test_generated_text_is_streamed_to_the_page(play, stand_in):
    page = play("#model=writer&q=Once", shows="#cells")
    stand_in.streams.clear()
    page.locator("#write").click()
    until(page, "document.querySelector('.new')?.textContent === ' there'")
    assert page.inner_text("#write") == "Stop"
    stand_in.streams.set()
    until(page, "document.querySelector('.new').textContent === ' there was a king'")
    until(page, "document.querySelector('#write').textContent === 'Write'")
    assert page.inner_text(".paper") == "Once there was a king"
    page.wait_for_selector("#cells")
    stand_in.wait_for("/v1/attention", text="Once", target_ids=[10, 11, 12, 13])
    stand_in.streams.clear()
    page.locator("#write").click()
    until(page, "document.querySelector('.new')?.textContent === ' there'")
    page.locator("#write").click()
    until(page, "document.querySelector('#write').textContent === 'Write'")
    stand_in.streams.set()
    page.wait_for_timeout(700)
    assert page.inner_text(".paper") == "Once there"
    assert page.locator(".trouble").count() == 0


def test_the_steps_of_a_generated_text_are_those_of_its_tokens(play, stand_in):
    page = play("#model=writer&q=Once&tab=steps", shows=".empty")
    for name, value in {"temperature": "0.7", "top_k": "9", "top_p": "0.9", "seed": "5"}.items():
        page.locator(f"#{name}").fill(value)
    page.locator("#stop").fill("\\n")
    page.locator("#write").click()
    page.wait_for_selector(".token")
    sampling = {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "seed": 5}
    (sent,) = stand_in.bodies("/v1/generate")
    assert sent == {"model": "writer", "prompt": "Once", "prefix": [], "max_tokens": 80,
                    "stop": ["\n"], **sampling}  # fmt: skip
    walked = {"model": "writer", "text": "Once", "top": 5, "sampling": sampling}
    first = {**walked, "prefix": [10, 11, 12, 13], "max_tokens": 4}
    assert stand_in.bodies("/v1/steps") == [first]
    assert "temperature 0.7, top-k 9, top-p 0.9, seed 5" in page.inner_text(".steps .hint")
    page.locator("#temperature").fill("1.5")  # for the next text
    page.locator("#token-2").click()
    percents = page.locator("#option-1 small").all_inner_texts()
    assert percents == ["75 %", "60 %"]  # that of sampling, and the model's
    page.locator("#option-3").click()
    until(page, "document.querySelector('.paper').textContent === 'Once there Our a king'")
    page.wait_for_selector(".token.forced")
    assert page.locator(".token.forced bdi").all_inner_texts() == ["Our"]
    stand_in.wait_for("/v1/generate", **{**sent, "prefix": [10, 21]})
    stand_in.wait_for("/v1/steps", **{**first, "prefix": [10, 21, 12, 13]})
    page.locator("label[for=tab-attention]").click()
    page.wait_for_selector("#cells")
    stand_in.wait_for("/v1/attention", target_ids=[10, 21, 12, 13])
    page.go_back()
    page.go_back()
    until(page, "document.querySelector('.paper').textContent === 'Once there was a king'")
    page.wait_for_selector("#write:text('Write')")
    page.locator("#write").click()
    page.wait_for_selector(".token")
    stand_in.wait_for("/v1/generate", seed=6, temperature=1.5, prefix=[])


def test_replaced_words_are_marked(play, stand_in):
    page = play("#model=forgeries&q=We drank elephants", shows="#cells")
    assert page.locator(".suspect bdi").all_inner_texts() == ["We", "drank", "elephants"]
    assert page.locator(".suspect.found").all_inner_texts() == ["elephants93%"]
    page.locator("#text").fill("We drank [MASK]")
    page.wait_for_selector(".option")
    assert page.locator(".suspect").count() == 0
    assert [body["text"] for body in stand_in.bodies("/v1/detect")] == ["We drank elephants"]


def test_blanks_are_filled_by_a_click(play, stand_in):
    page = play("#model=gaps")
    page.locator("#text").fill("Time for ")
    page.locator("#text").press("End")
    page.locator("#gap").click()
    page.wait_for_selector(".option")
    stand_in.wait_for("/v1/fill", text="Time for [MASK]")
    assert page.locator(".option bdi").all_inner_texts() == ["lunch", "rain"]
    page.locator("#gap-1-2").click()
    eventually(page, page.locator("#text").input_value, "Time for rain")
    page.wait_for_selector(".option", state="detached")
    page.wait_for_selector("#cells")
    page.go_back()
    page.wait_for_selector(".option")
    eventually(page, page.locator("#text").input_value, "Time for [MASK]")


def test_a_text_is_classified_with_its_attention(play, stand_in):
    page = play("#model=reviews&q=fine", shows="#cells")
    assert "only its start" not in page.inner_text(".answer-box")
    height = page.evaluate("document.querySelector('.answer').clientHeight")
    assert height < 80  # two lines
    stand_in.cut = True
    page.locator("#text").fill("fine " * 9)
    until(page, "document.querySelector('.answer-box').textContent.includes('only its start')")
    assert page.locator(".answer bdi").all_inner_texts() == ["good", "bad"]
    assert page.locator(".answer small").all_inner_texts() == ["90.0 %", "10.0 %"]


def test_an_image_is_classified_and_its_attention_shown(play, stand_in):
    page = play("#model=digits")
    content = upload(page)
    page.wait_for_selector("#map")
    assert stand_in.bodies("/v1/attention") == [content]
    assert page.locator(".answer bdi").all_inner_texts() == ["7", "1"]
    page.locator("label[for=view-all]").click()
    assert page.locator(".thumbnails button").count() == 4
    heads = Image.open(download(page, "png").path()).convert("RGB")
    assert heads.size == (776, 776)  # two layers of two heads
    for layer, head in np.ndindex(2, 2):
        canvas = page.locator(f"#head-{layer + 1}-{head + 1} canvas")
        corner = canvas.evaluate("(one) => [...one.getContext('2d').getImageData(0, 0, 1, 1).data]")
        assert list(heads.getpixel((392 * head, 392 * layer))) == corner[:3]
    page.locator("#head-2-1").click()
    page.go_back()
    page.wait_for_selector(".thumbnails")
    page.go_back()
    page.wait_for_selector("#map")
    assert Image.open(download(page, "png").path()).size == (768, 768)


@pytest.mark.parametrize(
    ("state", "choice"),
    [
        ("", ImageViewOptions("rollout")), ("&layer=2", ImageViewOptions(2, "mean")),
        ("&layer=1&head=2&alone=1", ImageViewOptions(1, [2], True)),
        ("&view=all", ImageViewOptions()),
    ],
)  # fmt: skip
def test_a_saved_image_view_is_the_one_shown(play, state, choice):
    page = play(f"#model=digits{state}")
    upload(page)
    page.wait_for_selector(".figure canvas")
    saved = download(page, "svg").path().read_text(encoding="utf-8")
    assert saved == draw_image(image_view(), choice)


def test_a_saved_image_has_the_pixels_shown(play, windows, tmp_path):
    page = play("#model=digits&layer=2&head=1")
    upload(page)
    page.wait_for_selector("#map")
    shown = canvas_pixels(page, "#map")
    download(page, "svg").save_as(tmp_path / "attention.svg")
    tab = windows.open("about:blank")
    tab.goto((tmp_path / "attention.svg").as_uri())
    _, over = tab.locator("use").all()
    box = over.bounding_box()
    seen = np.asarray(Image.open(io.BytesIO(tab.screenshot(clip=box))).convert("RGB"))
    windows.requested = [url for url in windows.requested if url.startswith("http")]
    for row, column in np.ndindex(8, 8):
        result = seen[int((row + 0.5) * len(seen) / 8), int((column + 0.5) * len(seen[0]) / 8)]
        assert np.abs(result.astype(int) - shown[row, column, :3]).max() <= 2


# Keyboard, screens, languages and errors


def test_everything_can_be_reached_by_keyboard(play):
    page = play()
    reached = []
    page.keyboard.press("Tab")
    for _ in range(30):
        name = page.evaluate("document.activeElement.name || document.activeElement.id")
        reached.append(name)
        if name == "text":
            page.keyboard.type("hello")
            page.wait_for_selector("#cells")
        page.keyboard.press("Tab")
    wanted = ["model", "lang", "text", "clear", "copy", "n", "tab", "view", "kind", "layer", "head",
              "merge", "special", "log", "cells", "save-png", "save-svg", "save-html"]  # fmt: skip
    assert [name for name in dict.fromkeys(reached) if name in wanted] == wanted
    page.locator("#tab-attention").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".looks")
    page.locator("#step-first").focus()
    for key in ("Enter", "Tab", "Tab", "Enter"):  # from "first" to "play"
        page.keyboard.press(key)
    page.wait_for_selector(".token")


def focused(page):
    return page.evaluate("document.activeElement.id")


def test_the_focus_is_kept_when_a_step_is_selected(play):
    page = play(f"#q={TEXT}&tab=steps", shows=".looks")
    page.locator("#token-9").press("Enter")
    page.locator("#step-next").press("Enter")
    assert focused(page) == "step-next"  # at the last step
    page.locator("#step-play").press("Enter")
    until(page, "document.querySelectorAll('.token').length === 2")
    assert focused(page) == "step-play"
    page.keyboard.press("Enter")
    page.locator("#step-last").press("Enter")
    page.locator("#token-3").press("Enter")
    page.locator("#option-2").press("Enter")
    page.wait_for_selector(".token.forced")
    page.wait_for_selector(".looks")
    assert focused(page) == "option-2"
    page.locator("#unforce").press("Enter")
    until(page, "!document.querySelector('.token.forced')")
    assert focused(page) == "token-1"  # the button was removed


def test_the_focus_is_kept_when_an_option_is_selected(play):
    page = play(f"#q={TEXT}", shows="#cells")
    page.locator("#n-1").press("ArrowDown")
    page.wait_for_timeout(300)
    assert focused(page) == "n-2"
    page.locator("#tab-attention").press("ArrowLeft")
    page.wait_for_selector(".tree")
    assert focused(page) == "tab-beam"
    page.locator("#beam-4").press("ArrowRight")
    until(page, "document.querySelector('#beam-8').checked && !document.querySelector('.busy')")
    assert focused(page) == "beam-8"
    page = play("#model=writer&q=Once", shows="#cells")
    page.locator("#tab-attention").press("ArrowRight")
    page.wait_for_selector(".empty")
    assert focused(page) == "tab-steps"


@pytest.mark.parametrize("language", ["ko-KR", "en-US"])
def test_the_page_fits_a_phone(play, language):
    shown = {
        f"#q={TEXT}": "#cells", f"#q={TEXT}&view=lines": ".curves",
        f"#q={TEXT}&view=model": ".thumbnails", f"#q={TEXT}&tab=steps": ".looks",
        f"#q={TEXT}&tab=beam": ".tree", "#model=writer&q=Once": "#cells",
        "#model=gaps&q=a [MASK] b": "#cells", "#model=reviews&q=fine": "#cells",
        "#model=digits": ".drop", "#model=forgeries&q=fine elephants": "#cells",
        "#model=writer&q=Once&tab=steps&forced=10.20": ".token.forced",
    }  # fmt: skip
    for state, figure in shown.items():
        page = play(state, language=language, width=360)
        page.wait_for_selector(figure)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, state


def test_changing_the_language_keeps_the_state(play, stand_in):
    page = play("#model=writer&q=Once")
    page.locator("#write").click()
    until(page, "document.querySelector('.new')?.textContent === ' there was a king'")
    page.locator("#tokens").fill("33")
    page.locator("label[for=lang-ko]").click()
    page.wait_for_selector("#cells")
    assert page.locator("html").get_attribute("lang") == "ko"
    assert page.locator(".tab .chip").all_inner_texts() == ["어텐션", "한 단계씩"]
    assert page.inner_text(".paper") == "Once there was a king"
    assert page.locator("#tokens").input_value() == "33"
    page.locator("#text").fill("Twice")
    until(page, "document.querySelector('.paper').textContent === ''")
    page.locator("#model").select_option("4")
    content = upload(page)
    page.wait_for_selector("#map")
    page.locator("label[for=lang-en]").click()
    until(page, "document.querySelector('.answer-box h2')?.textContent === 'Classes'")
    page.wait_for_selector("#map")
    assert stand_in.bodies("/v1/attention")[-1] == content


@pytest.mark.parametrize(
    ("state", "figure"),
    [("tab=steps&forced=x.-4.0", ".looks"), ("tab=beam&beam=99", ".tree"), ("n=99", "#cells")],
)
def test_invalid_urls_show_a_page(play, stand_in, state, figure):
    page = play(f"#q={TEXT}&{state}", shows=figure)
    assert page.locator(".hypothesis input:checked").count() == 1
    assert all(body["beam"] == 16 for body in stand_in.bodies("/v1/beam"))


@pytest.mark.parametrize("is_secure", [True, False])
def test_the_translation_can_be_copied(play, is_secure):
    page = play(f"#q={TEXT}", shows="#copy")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if not is_secure:  # plain HTTP from another machine
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.locator("#copy").click()
    until(page, "document.querySelector('#copy').textContent === 'Copied'")
    page.locator("#text").fill("")
    page.locator("#text").press("Control+V")
    eventually(page, page.locator("#text").input_value, f"{TEXT} in English, 0")


def test_selecting_a_model_adds_to_the_history(play):
    page = play()
    page.locator("#model").select_option("3")
    page.locator("#text").fill("fine")
    page.wait_for_selector(".answer")
    assert "model=reviews" in page.url
    page.go_back()
    page.wait_for_selector(".choices", state="attached")
    assert page.locator("#model").input_value() == "0"


def test_errors_are_shown_and_busy_servers_retried(play, refusing):
    page = play()
    refusing.refuse = [(422, "the text is too long: 300 tokens of 256")]
    page.locator("#text").fill("a")
    page.wait_for_selector(".trouble")
    assert "300 tokens of 256" in page.inner_text(".trouble")
    assert page.locator("#again").count() == 0  # an invalid text stays invalid
    refusing.refuse = [(429, "busy")]
    page.locator("#text").fill("b")
    page.wait_for_selector("#cells")
    assert page.inner_text(".text") == "b in English, 0"
    refusing.refuse = [(422, "no")]
    page.locator("#text").fill("c")
    page.wait_for_selector(".trouble")
    page.locator("#text").press("Control+Enter")  # retries
    page.wait_for_selector(".text")
    assert page.inner_text(".text") == "c in English, 0"


@pytest.mark.parametrize(
    ("state", "route", "figure"),
    [
        (f"#q={TEXT}", "/v1/translate", ".text"),
        (f"#q={TEXT}", "/v1/attention", "#cells"),
        (f"#q={TEXT}&tab=steps", "/v1/steps", ".looks"),
        (f"#q={TEXT}&tab=beam", "/v1/beam", ".tree"),
        ("#model=gaps&q=a [MASK]", "/v1/fill", ".option"),
        ("#model=reviews&q=fine", "/v1/classify", ".answer"),
    ],
)
def test_failed_requests_can_be_retried(play, refusing, state, route, figure):
    refusing.down[route] = (500, "out of order")
    page = play(state, shows=".trouble")
    assert page.inner_text(".trouble") == "Error. out of order Try again"
    assert page.locator(f".place {figure}, .answer-box {figure}").count() == 0
    page.locator("#again").focus()
    page.evaluate("document.activeElement.dataset.old = 1")
    page.keyboard.press("Enter")
    again = "document.activeElement.id === 'again' && !document.activeElement.dataset.old"
    until(page, again)  # failed again
    refusing.down.clear()
    page.keyboard.press("Enter")
    page.wait_for_selector(figure)
    eventually(page, page.locator(".trouble").count, 0)
    until(page, "document.activeElement !== document.body")


def test_busy_and_unreachable_servers_have_different_messages(play, refusing):
    page = play(f"#q={TEXT}", language="ko-KR", shows="#cells")
    page.context.set_offline(True)
    page.locator("#text").fill("a")
    page.wait_for_selector(".trouble")
    assert "서버에 연결할 수 없습니다." in page.inner_text(".trouble")
    assert page.locator(".hypothesis, #cells").count() == 0  # no old results
    page.context.set_offline(False)
    refusing.down["/v1/translate"] = (429, "too many requests wait")
    page.locator("#again").click()
    until(page, "document.querySelector('.trouble')?.textContent.includes('(too many')")
    assert page.inner_text("#again") == "다시 시도"
    refusing.down.clear()
    page.locator("#text").press("Control+Enter")  # retries too
    page.wait_for_selector("#cells")


def test_failed_maps_can_be_retried(play, refusing):
    refusing.refuse = [None, None, (500, "no maps")]
    page = play(f"#q={'long ' * 200}", shows=".figure .trouble")
    page.locator("#again").click()
    page.wait_for_selector("#cells")


@pytest.mark.parametrize(
    ("status", "more", "korean"),
    [
        (422, {"code": "too_long", "field": "text"}, "글이 너무 깁니다. 더 짧게 써 주세요"),
        (422, {"code": "of tomorrow", "field": "text.1"}, "모델이 다룰 수 없는 글입니다"),
        (422, {"field": "n_best"}, "서버가 처리할 수 없는 요청입니다"),
        (422, {"field": "__proto__"}, "서버가 처리할 수 없는 요청입니다"),
        (404, {"field": "model"}, "서버에 그런 모델이 없습니다"),
        (413, {}, "보낸 내용이 너무 큽니다"),
        (500, {}, "서버에 오류가 생겼습니다"),
        (418, {}, "서버가 요청을 거절했습니다"),
    ],
)
def test_server_errors_are_shown_in_korean_with_the_english_message(
    play, refusing, status, more, korean
):
    refusing.down["/v1/translate"] = (status, "its own line", more)
    page = play("#q=a", language="ko-KR", shows=".trouble")
    assert page.inner_text(".trouble").startswith(f"오류. {korean} (its own line).")
    page.locator("label[for=lang-en]").click()
    until(page, "document.querySelector('.trouble')?.textContent.startsWith('Error')")
    assert page.inner_text(".trouble").removesuffix(" Try again").strip() == ("Error. its own line")


def test_a_failed_download_is_reported_in_korean(play, refusing):
    page = play(f"#q={TEXT}", language="ko-KR", shows="#cells")
    refusing.refuse = [(422, "none chosen", {"code": "cannot_draw"})]
    page.locator("#save-svg").click()
    until(page, "document.querySelector('.saving [role=status]').textContent !== ''")
    message = page.inner_text(".saving [role=status]")
    assert message == "이 설정으로는 그림을 그릴 수 없습니다 (none chosen)."


def test_an_interrupted_stream_is_reported_in_korean(play, stand_in):
    stand_in.breaks = {"error": "no more", "code": "too_long"}
    page = play("#model=writer&q=Once", language="ko-KR")
    page.locator("#write").click()
    page.wait_for_selector(".trouble")
    assert "글이 너무 깁니다. 더 짧게 써 주세요 (no more)." in page.inner_text(".trouble")
    assert page.inner_text(".new") == " there"


def test_a_missing_api_key_is_requested(play, refusing):
    refusing.key = "secret"
    page = play("#lang=ko", shows="#key")
    assert page.locator(".trouble").count() == 0
    page.locator("#key").fill("guess")
    page.keyboard.press("Enter")
    page.wait_for_selector(".trouble")
    assert page.inner_text(".trouble") == "API 키가 맞지 않습니다."
    page.locator("#key").fill("secret")
    page.keyboard.press("Enter")
    page.wait_for_selector("#text")
    page.locator("#text").fill("a")
    page.wait_for_selector("#cells")
    page.reload()
    page.wait_for_selector("#text")
    assert "secret" not in page.url
