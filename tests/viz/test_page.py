"""The page as a file: small, self-contained and safe, and its JavaScript modules."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest
from views import ATTACK, hostile, image, read_messages

from polyhead.viz.page import MODULES, read, render
from polyhead.viz.views import AttentionView

IMPORT = r'^import \{([^}]*)\} from "\./(\w+\.js)";$'
ALL_MODULES = {name for modules in MODULES.values() for name in modules}


def block(page, opening):
    """Return the content between an opening tag and its end."""
    return re.search(re.escape(opening) + "(.*?)</", page, re.DOTALL)[1]


# The file


@pytest.mark.parametrize("kind", ["text", "image"])
def test_page_is_small_and_loads_nothing(view, kind):
    view = view if kind == "text" else image()
    page = render(view)
    assert len(page.encode()) - len(view.to_json()) < 64_000
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", page)
    assert not re.findall(r"<(?:link|img|iframe|script[^>]*src)", page)


def test_hostile_texts_neither_end_the_data_nor_fill_the_template(view):
    page = render(hostile())
    assert page.count("</script>") == render(view).count("</script>") == 2
    assert page.count("<!--") == page.count("<img") == 0
    data = block(page, 'id="attention-data">')
    assert AttentionView.from_json(data) == hostile()
    assert page.count("polyhead-attention-1") == render(view).count("polyhead-attention-1")
    labels = ((ATTACK, 1.0),)
    hostile_image = replace(image(), title=ATTACK, model=ATTACK, labels=labels)
    assert render(hostile_image).count("</script>") == 2


# Modules, which are joined by removing `import` and `export`


def test_modules_import_only_what_an_earlier_module_exports():
    for modules in MODULES.values():
        exported = {}
        for name in modules:
            text = read(name)
            for names, origin in re.findall(IMPORT, text, re.M):
                imported = {imported.strip() for imported in names.split(",")}
                assert imported <= exported[origin], (name, origin)
            rest = re.sub(r"(?m)^(import|export) .*$", "", text)
            assert not re.findall(r"\bimport\b|\bexport\b", rest)
            exported[name] = set(re.findall(r"^export (?:const|function) (\w+)", text, re.M))
    folder = files("polyhead.viz").joinpath("web")
    assert {file.name for file in folder.iterdir() if file.name.endswith(".js")} == ALL_MODULES


def test_no_two_modules_define_the_same_name():
    names = [
        name
        for module in MODULES["text"]
        for name in re.findall(r"^(?:export )?(?:const|let|function) (\w+)", read(module), re.M)
    ]
    assert len(names) == len(set(names))


def test_every_text_of_the_modules_is_in_both_languages():
    words = read_messages(read("words.js"))
    assert len(words) > 40
    assert all(english != korean for english, korean in words.values())
    used = {key for name in ALL_MODULES for key in re.findall(r'say\(state, "(\w+)"', read(name))}
    assert used <= words.keys()
