"""LibreTranslate's API."""

import html
import urllib.error
from dataclasses import replace

import pytest
from cpu_time import cpu_time
from libretranslatepy import LibreTranslateAPI

from polyhead.server.routes import translation_routes
from polyhead.server.routes.libretranslate import detect_language, insert_texts, parse_document

PLAIN = {
    "de": ["Wo ist der nächste Bahnhof?", "Wir treffen uns morgen um drei.", "Ich habe Hunger."],
    "fr": ["Où est la gare la plus proche ?", "On se voit demain à trois heures.", "J'ai faim."],
    "cs": ["Kde je nejbližší nádraží?", "Sejdeme se zítra ve tři hodiny.", "Mám velký hlad."],
    "en": ["Where is the nearest station?", "We will meet tomorrow at three.", "I am hungry."],
}
FORM = ("content-type", "application/x-www-form-urlencoded")


def best(server, text, **changes):
    sent = {"text": text, **changes}
    (result,) = server.post("/v1/translate", sent).json()["translations"]
    return [one["text"] for one in result["hypotheses"]]


def test_the_official_client_translates_lists_and_detects_languages(process, server):
    client = LibreTranslateAPI(process.url)
    text = "내일 회의가 있어요."
    assert client.translate(text, "ko", "en") == best(server, text)[0]
    assert client.languages() == [
        {"code": "ko", "name": "Korean", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.translate("a", "ko", "xx")
    assert refused.value.code == 400
    korean, english = ({"confidence": 100.0, "language": code} for code in ("ko", "en"))
    assert client.detect("내일 만나요.") == [korean]
    assert client.detect("See you.") == [english]
    assert client.detect("3시에 OK") == [{**one, "confidence": 50.0} for one in (korean, english)]
    assert client.detect("12:30?") == [{**korean, "confidence": 0.0}]


def test_a_text_gets_a_text_and_a_list_gets_a_list(server):
    sent = {"q": "가", "source": "ko", "target": "en"}
    first, *others = best(server, "가", n_best=3)
    assert server.post("/translate", sent).json() == {"translatedText": first}
    many = server.post("/translate", {**sent, "q": ["가", "나"], "alternatives": 2}).json()
    assert many["translatedText"] == [first, best(server, "나", n_best=3)[0]]
    assert many["alternatives"][0] == others
    assert server.post("/translate", {**sent, "q": []}).json() == {"translatedText": []}
    auto = server.post("/translate", {**sent, "source": "auto"}).json()
    assert auto == {
        "translatedText": first,
        "detectedLanguage": {"confidence": 100.0, "language": "ko"},
    }
    half = server.post("/translate", {**sent, "q": ["가", "a"], "source": "auto"}).json()
    shares = [one["confidence"] for one in half["detectedLanguage"]]
    assert shares == [100.0, 0.0]  # every text of a list has its own


@pytest.mark.parametrize(
    ("text", "codes", "result"),
    [
        ("가나 家", ["en", "ko"], [("ko", 100.0), ("en", 0.0)]),
        ("\u1100\u1161\u11a8", ["ko"], [("ko", 100.0)]),  # decomposed, as in macOS file names
        ("東京へ行く", ["zh", "en"], [("zh", 60.0), ("en", 0.0)]),
        ("トーキョー", ["ko", "ja"], [("ja", 100.0), ("ko", 0.0)]),
        ("OK", ["en", "de", "ru"], [("en", 50.0), ("de", 50.0), ("ru", 0.0)]),
        ("Привет", ["en", "uk"], [("uk", 100.0), ("en", 0.0)]),
        ("ＡＢ漢", ["en", "zh-TW"], [("en", 66.7), ("zh-TW", 33.3)]),
        ("hi", ["source", "target"], [("source", 0.0), ("target", 0.0)]),
        ("hi", ["sr-Latn", "sr"], [("sr-Latn", 100.0), ("sr", 0.0)]),
        ("", ["ko", "en", "ko"], [("ko", 0.0), ("en", 0.0)]),
    ],
)
def test_languages_are_detected_by_script(text, codes, result):
    assert detect_language(text, codes) == result


@pytest.mark.parametrize("code", PLAIN)
def test_languages_of_one_script_are_distinguished(code):
    for codes in (list(PLAIN), list(PLAIN)[::-1]):
        for text in (*PLAIN[code], PLAIN[code][0].upper(), " ".join(PLAIN[code] * 20)):
            (first, share), (_, second), *_ = detect_language(text, [*codes, "xx", "ko"])
            assert (first, share > 2 * second) == (code, True)
    assert detect_language(PLAIN[code][0], ["source", "gsw", code])[0] == (code, 100.0)


def test_every_text_is_translated_by_the_model_of_its_language(served, another, monkeypatch):
    korean = served("translate")
    german, french = (
        replace(korean, name=code, about=replace(korean.about, source_language=code))
        for code in ("de", "fr")
    )
    running, sent, used = another(german, french, korean), {"source": "auto", "target": "en"}, []
    batch_key = translation_routes._batch_key
    monkeypatch.setattr(
        translation_routes, "_batch_key", lambda *args: used.append(args[0]) or batch_key(*args)
    )
    texts = ["가나", *PLAIN["fr"][:2], "…", PLAIN["de"][0]]
    answer = running.post("/translate", {**sent, "q": texts}).json()
    languages = [one["language"] for one in answer["detectedLanguage"]]
    assert languages == ["ko", "fr", "fr", "de", "de"]
    assert used == [korean.name, "fr", "fr", "de", "de"]
    assert answer["translatedText"] == [best(running, text)[0] for text in texts]
    wrong = running.post("/translate", {**sent, "q": "가", "target": "ko"})
    assert (wrong.status, wrong.json()["field"]) == (400, "target")


def test_forms_and_json_give_the_same_result(server):
    json = server.post("/translate", {"q": ["가", "나"], "source": "ko", "target": "en"}).json()
    body = "q=가&q=나&source=ko&target=en&format=text".encode()
    assert server.call("POST", "/translate", body, [FORM]).json() == json
    one = server.call("POST", "/translate", b"q=%EA%B0%80&source=ko&target=en", [FORM])
    assert one.json()["translatedText"] == json["translatedText"][0]
    parts = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="' + name + b'"\r\n\r\n' + value + b"\r\n"
        for name, value in ((b"q", "가".encode()), (b"source", b"ko"), (b"target", b"en"))
    )
    kind = ("content-type", "multipart/form-data; boundary=x")
    assert server.call("POST", "/translate", parts + b"--x--\r\n", [kind]).json() == one.json()


def test_json_sent_as_a_form_is_answered_with_the_missing_header(server):
    answer = server.call("POST", "/translate", b'{"q": "a", "source": "ko"}', [FORM])
    assert answer.status == 415
    assert "Content-Type: application/json" in answer.json()["error"]


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [({"target": "fr"}, 400, "target"), ({"source": "fr"}, 400, "source"),
     ({"alternatives": 10_000}, 422, "alternatives"), ({"format": "pdf"}, 422, "format"),
     ({"q": None}, 422, "q")],
)  # fmt: skip
def test_invalid_fields_are_named(server, change, status, word):
    answer = server.post("/translate", {"q": "가", "source": "ko", "target": "en", **change})
    assert answer.status == status
    assert word in answer.json()["error"]


def test_html_tags_are_kept_and_only_text_is_translated(server):
    text = '<p class="a>b">가 &amp; 나</p>\n<script>가 < 1</script><!-- 가 --> 다<br>'
    sent = {"q": text, "source": "ko", "target": "en", "format": "html"}
    answer = server.post("/translate", sent).json()["translatedText"]
    assert answer.startswith('<p class="a>b">')
    assert "b&quot;" not in answer
    assert "</p>\n<script>가 < 1</script><!-- 가 --> " in answer
    assert answer.endswith("<br>")


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a <b>c</b> d", ("a", "c", "d")),
        ("1 < 2 &lt; 3", ("1 < 2 < 3",)),
        ("<style>x</style><style>y", ()),
        ("<!-- a", ()),
        ("  <i> a\n b </i> ", ("a\n b",)),
        ("<a title=\"1 > 2\" href='x>y'>a</a>", ("a",)),
        ("<a title = '\">\">'>a</a>b", ("a", "b")),
        ("<b don't>a</b> it's <i x=\"1>b", ("a", "it's", "b")),
        ("<a href=x>y>a", ("y>a",)),
        ("", ()),
    ],
)
def test_texts_are_extracted_from_html_and_inserted_again(text, texts):
    result = parse_document(text, is_html=True)
    assert result.texts == texts
    back = insert_texts(result, result.texts)
    assert html.unescape(back) == html.unescape(text)
    assert "<script>" not in insert_texts(parse_document("a", is_html=True), ["<script>"])


@pytest.mark.parametrize(
    "part", ["<a =", "<a ='", '="', "<a ='>", "='\">", "<a " + "= " * 9, "<!--<"]
)
def test_hostile_markup_is_parsed_in_linear_time(part):
    with cpu_time() as used:
        parse_document((part * 50_000)[:200_000], is_html=True)
        parse_document('<a x="' + (part * 50_000)[:200_000], is_html=True)
    assert used.seconds < 4


def test_query_parameters_replace_a_missing_body(server, another):
    query = b"q=%EA%B0%80&source=ko&target=en&format=text"
    result = server.call("POST", "/translate", query=query)  # as deep-translator does
    assert result.json() == {"translatedText": best(server, "가")[0]}
    both = server.call(
        "POST", "/translate", b"target=en", [FORM], b"q=%EA%B0%80&source=ko&target=x"
    )
    assert both.json() == result.json()  # the body takes precedence
    assert server.call("POST", "/translate", query=b"q=%ff&source=ko&target=en").status == 400
    assert server.call("POST", "/translate").status == 415
    closed = another(api_key="long enough")
    assert closed.call("POST", "/translate", query=query).status == 401
    assert closed.call("POST", "/translate", query=query + b"&api_key=wrong one").status == 403
    assert closed.call("POST", "/translate", query=query + b"&api_key=long+enough").status == 200
