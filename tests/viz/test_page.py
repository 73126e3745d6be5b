"""The page as a file: small, self-contained and safe, and its JavaScript modules."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest
from views import ATTACK, image

from polyhead.viz.page import MODULES, read, render
from polyhead.viz.views import AttentionView

ALL_MODULES = {name for modules in MODULES.values() for name in modules}


def block(page, opening):
    """Return the content between an opening tag and its end."""
    return re.search(re.escape(opening) + "(.*?)</", page, re.DOTALL)[1]


# The file


@pytest.mark.parametrize("kind", ["text", "image"])
def test_page_is_small_and_loads_nothing(view, kind):
    view = view if kind == "text" else image()
    page = render(view)
    assert len(page.encode()) - len(view.to_json()) < 60_000
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", page)
    assert not re.findall(r"<(?:link|img|iframe|script[^>]*src)", page)


def test_hostile_texts_neither_end_the_data_nor_fill_the_template(view, hostile):
    page = render(hostile)
    assert page.count("</script>") == render(view).count("</script>") == 2
    assert page.count("<!--") == page.count("<img") == 0
    data = block(page, 'id="attention-data">')
    assert AttentionView.from_json(data) == hostile
    assert page.count("polyhead-attention-1") == render(view).count("polyhead-attention-1")
    labels = ((ATTACK, 1.0),)
    hostile_image = replace(image(), title=ATTACK, model=ATTACK, labels=labels)
    assert render(hostile_image).count("</script>") == 2


# Modules, which are joined by removing `import` and `export`


def test_modules_import_only_what_an_earlier_module_exports():
    for modules in MODULES.values():
        _check_imports(modules)
    folder = files("polyhead.viz").joinpath("web")
    assert {file.name for file in folder.iterdir() if file.name.endswith(".js")} == ALL_MODULES


def _check_imports(modules):
    exported = {}
    for name in modules:
        text = read(name)
        for names, origin in re.findall(r'^import \{([^}]*)\} from "\./(\w+\.js)";$', text, re.M):
            assert {imported.strip() for imported in names.split(",")} <= exported[origin], (
                name,
                origin,
            )
        assert not re.findall(
            r"\bimport\b|\bexport\b", re.sub(r"(?m)^(import|export) .*$", "", text)
        )
        exported[name] = set(re.findall(r"^export (?:const|function) (\w+)", text, re.M))


def test_no_two_modules_define_the_same_name():
    names = [
        name
        for module in MODULES["text"]
        for name in re.findall(r"^(?:export )?(?:const|let|function) (\w+)", read(module), re.M)
    ]
    assert len(names) == len(set(names))


def test_modules_insert_texts_only_as_text():
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\("
    for name in ALL_MODULES:
        assert not re.findall(unsafe, read(name)), name


PAIR = r'^  (\w+): \[\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)",?\s*\],$'


def test_every_text_of_the_modules_is_in_both_languages():
    text = read("words.js")
    words = {key: pair for key, *pair in re.findall(PAIR, text, re.M)}
    assert len(words) == len(re.findall(r"^  \w+: \[", text, re.M)) > 40  # each in two languages
    for english, korean in words.values():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", korean))
        assert english != korean
    used = {key for name in ALL_MODULES for key in re.findall(r'say\(state, "(\w+)"', read(name))}
    assert used <= words.keys()
