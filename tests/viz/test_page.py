"""The page as a file: whole, small, and harmless whatever the tokens say."""

import base64
import hashlib
import html
import re
from importlib.resources import files

import pytest

from polyhead.errors import ConfigError
from polyhead.viz import image_page
from polyhead.viz.page import MODULES, frame, render, write
from polyhead.viz.views import AttentionView

VIEWER = files("polyhead.viz").joinpath("web")


def module(name):
    return VIEWER.joinpath(name).read_text(encoding="utf-8")


def block(page, opening):
    """What stands between an opening tag and its end."""
    return re.search(re.escape(opening) + "(.*?)</", page, re.DOTALL)[1]


# The file


def test_without_its_data_the_page_is_small(view):
    page = render(view)
    assert len(page.encode()) - len(view.to_json()) < 60_000


def test_the_page_names_no_address_and_loads_nothing(view):
    page = render(view)
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", page)
    assert not re.findall(r"<(?:link|img|iframe|script[^>]*src)", page)


def test_the_policy_allows_just_our_script_and_style(view):
    page = render(view)
    policy = html.unescape(re.search(r'Security-Policy" content="([^"]*)"', page)[1])
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def expected(opening):
        digest = hashlib.sha256(block(page, opening).encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == expected('<script type="module">')
    assert rules["style-src"] == expected("<style>")
    assert len(rules) == 5


def test_hostile_texts_neither_end_the_data_nor_fill_the_template(view, hostile):
    page = render(hostile)
    assert page.count("</script>") == render(view).count("</script>") == 2
    assert page.count("<!--") == page.count("<img") == 0
    data = block(page, 'id="attention-data">')
    assert AttentionView.from_json(data) == hostile
    assert page.count("polyhead-attention-1") == render(view).count("polyhead-attention-1")


def test_a_title_that_is_not_text_can_be_written(view, tmp_path):
    odd = AttentionView("\ud800", "", view.source, None, (), ())
    assert "<title>?</title>" in write(odd, tmp_path / "odd.html").read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_says_why(view, tmp_path):
    with pytest.raises(ConfigError, match=r"none/a.html: cannot write the page \(No such file"):
        write(view, tmp_path / "none" / "a.html")


def test_the_frame_of_a_notebook_holds_the_page_and_shuts_it_off(view):
    element = frame(view)
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', element)[1]) == render(view)
    assert re.search(r'sandbox="allow-scripts"></iframe>$', element)


# The modules, which are joined by taking away `import` and `export`


def test_modules_import_only_what_an_earlier_module_exports():
    for modules in (MODULES, image_page.MODULES):
        _check_imports(modules)
    here = {f.name for f in VIEWER.iterdir() if f.name.endswith(".js")}
    assert here == {*MODULES, *image_page.MODULES}


def _check_imports(modules):
    exported = {}
    for name in modules:
        text = module(name)
        for names, origin in re.findall(r'^import \{([^}]*)\} from "\./(\w+\.js)";$', text, re.M):
            assert {one.strip() for one in names.split(",")} <= exported[origin], (name, origin)
        assert not re.findall(
            r"\bimport\b|\bexport\b", re.sub(r"(?m)^(import|export) .*$", "", text)
        )
        exported[name] = set(re.findall(r"^export (?:const|function) (\w+)", text, re.M))


def test_no_two_modules_use_the_same_name():
    names = [
        name
        for one in MODULES
        for name in re.findall(r"^(?:export )?(?:const|let|function) (\w+)", module(one), re.M)
    ]
    assert len(names) == len(set(names))


def test_tokens_can_only_enter_as_text():
    for name in MODULES:
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
        ):
            assert way not in module(name), (name, way)


PAIR = r'^  (\w+): \[\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)",?\s*\],$'


def test_both_languages_say_everything_the_modules_say():
    text = module("words.js")
    words = {key: pair for key, *pair in re.findall(PAIR, text, re.M)}
    assert len(words) == len(re.findall(r"^  \w+: \[", text, re.M)) > 40  # each in two languages
    for english, korean in words.values():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", korean))
        assert english != korean
    modules = {*MODULES, *image_page.MODULES}
    said = {key for one in modules for key in re.findall(r'say\(state, "(\w+)"', module(one))}
    assert said <= words.keys()
