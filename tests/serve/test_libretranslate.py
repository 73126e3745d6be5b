"""LibreTranslate's clients work unchanged."""

import urllib.error

import pytest
from libretranslatepy import LibreTranslateAPI

from polyhead.serve.markup import parts_of, put_together

FORM = ("content-type", "application/x-www-form-urlencoded")


def best(server, text, **changes):
    asked = {"text": text, **changes}
    (found,) = server.post("/v1/translate", asked).json()["translations"]
    return [one["text"] for one in found["hypotheses"]]


def test_an_official_client_translates_and_lists_languages(process, server):
    client = LibreTranslateAPI(process.url)
    assert (
        client.translate("내일 회의가 있어요.", "ko", "en")
        == best(server, "내일 회의가 있어요.")[0]
    )
    assert client.languages() == [
        {"code": "ko", "name": "Korean", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.translate("a", "ko", "xx")
    assert refused.value.code == 400


def test_a_text_for_a_text_and_a_list_for_a_list(server):
    asked = {"q": "가", "source": "ko", "target": "en"}
    first, *others = best(server, "가", n_best=3)
    assert server.post("/translate", asked).json() == {"translatedText": first}
    many = server.post("/translate", {**asked, "q": ["가", "나"], "alternatives": 2}).json()
    assert many["translatedText"] == [first, best(server, "나", n_best=3)[0]]
    assert many["alternatives"][0] == others
    assert server.post("/translate", {**asked, "q": []}).json() == {"translatedText": []}
    auto = server.post("/translate", {**asked, "source": "auto"}).json()
    assert auto["detectedLanguage"]["language"] == "ko"


def test_forms_are_read_as_json_is(server):
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


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [({"target": "fr"}, 400, "target"), ({"source": "fr"}, 400, "source"),
     ({"alternatives": 10_000}, 422, "alternatives"), ({"format": "pdf"}, 422, "format"),
     ({"q": None}, 422, "q")],
)  # fmt: skip
def test_errors_are_one_line(server, change, status, word):
    answer = server.post("/translate", {"q": "가", "source": "ko", "target": "en", **change})
    assert answer.status == status
    assert word in answer.json()["error"]


def test_html_keeps_its_tags_and_only_text_is_translated(server):
    text = '<p class="a>b">가 &amp; 나</p>\n<script>가 < 1</script><!-- 가 --> 다<br>'
    found = server.post("/translate", {"q": text, "source": "ko", "target": "en", "format": "html"})
    answer = found.json()["translatedText"]
    assert answer.startswith('<p class="a>')
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
        ("", ()),
    ],
)
def test_texts_are_taken_out_of_html_and_put_back(text, texts):
    found = parts_of(text, is_html=True)
    assert found.texts == texts
    back = put_together(found, found.texts)
    assert back.replace("&lt;", "<") == text.replace("&lt;", "<")
    assert "<script>" not in put_together(parts_of("a", is_html=True), ["<script>"])
