"""The documentation: its code runs and prints what it shows, and both languages agree.

In a code block every `# → …` is a line that the block must print, in this order.
"""

import contextlib
import io
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from polyhead.cli.main import program
from polyhead.notes.claims import CHAPTERS, find_claim, select_claims
from polyhead.training.config import read_run

DOCS = Path(__file__).parents[1] / "docs"
NAMES = sorted(path.name for path in (DOCS / "en").glob("*.md"))
PAGES = [f"{language}/{name}" for language in ("en", "ko") for name in NAMES]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LINK = re.compile(r"\]\(([^)\s]+)\)")

in_english = pytest.mark.parametrize("name", NAMES)
in_both = pytest.mark.parametrize("page", PAGES)


def read(page):
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(text, language):
    """Return the code of all blocks in this language."""
    return [code for kind, code in BLOCK.findall(text) if kind == language]


def prose(text):
    """Return the text outside code blocks."""
    return BLOCK.sub("", text)


def anchors(text):
    return re.findall(r'<a id="([^"]+)"></a>', text)


def run_blocks(codes):
    """Run blocks one after the other; yield what each printed and what it should print."""
    names = {"__name__": "docs"}
    for number, code in enumerate(codes, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"block {number}", "exec"), names)
        yield printed.getvalue().splitlines(), re.findall(r"# → (.*)$", code, flags=re.M)


# Code


@pytest.mark.usefixtures("plugins")
@in_english
def test_the_code_runs_and_prints_what_it_shows(name):
    for printed, expected in run_blocks(blocks(read(f"en/{name}"), "python")):
        assert printed == expected


@in_english
def test_every_block_asserts_or_prints(name):
    codes = blocks(read(f"en/{name}"), "python")
    if name not in ("index.md", "glossary.md", "commands.md"):
        assert len(codes) >= 2
    assert all("assert " in code or "# → " in code for code in codes)


# Commands


def commands(page):
    """Return the lines of shell blocks, and the commands inside sentences."""
    text = read(page)
    lines = [line for code in blocks(text, "sh") for line in code.splitlines()]
    return lines + re.findall(r"`(polyhead verify[^`\[]*)`", prose(text))


def parsed(line):
    """Return the parameters that the command line parses, or fail."""
    first, *words = shlex.split(line)
    assert first == "polyhead", line
    command = program()
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    return command.make_context(command.name, words).params


@in_both
def test_commands_exist_with_all_their_options_and_settings(page):
    for line in commands(page):
        parameters = parsed(line)
        if parameters.get("recipe"):
            read_run(parameters["recipe"], tuple(parameters["overrides"] or ()))


@in_both
def test_every_claim_in_the_text_exists(page):
    for line in commands(page):
        parameters = parsed(line)
        if "only_list" in parameters:
            assert select_claims(parameters["chapter_or_id"] or ()), line
            assert parameters["explain"] is None or find_claim(parameters["explain"])


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_index_lists_every_claim_that_a_note_gets_wrong(language):
    _, wrong, imprecise = read(f"{language}/index.md").rsplit("\n## ", 2)
    for note, table in (("wrong", wrong), ("imprecise", imprecise)):
        listed = set(re.findall(r"\[([A-Z]\d+)\]", table))
        claims = {claim.id: claim.note for claim in select_claims()}
        assert {id for id in listed if id in claims} == {i for i in claims if claims[i] == note}


# Two languages


def test_both_languages_have_the_same_pages():
    assert NAMES == sorted(path.name for path in (DOCS / "ko").glob("*.md"))


SAME = {
    "code": lambda text: blocks(text, "python"),
    "commands": lambda text: blocks(text, "sh"),
    "headings": lambda text: re.findall(r"^(#+) ", prose(text), re.M),
    "numbers": lambda text: Counter(NUMBER.findall(prose(text))),
    "anchors": anchors,
}


@in_english
@pytest.mark.parametrize("kind", SAME)
def test_both_languages_agree(name, kind):
    english, korean = (SAME[kind](read(f"{language}/{name}")) for language in ("en", "ko"))
    assert english == korean


@in_english
def test_both_languages_have_the_same_links_except_to_each_other(name):
    english, korean = (
        Counter(LINK.findall(prose(read(f"{lang}/{name}")))) for lang in ("en", "ko")
    )
    assert english - korean == Counter([f"../ko/{name}"])
    assert korean - english == Counter([f"../en/{name}"])


# Links


@in_both
def test_anchors_are_unique_and_links_have_a_target(page):
    assert max(Counter(anchors(read(page))).values(), default=1) == 1
    for link in LINK.findall(prose(read(page))):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        goal = (DOCS / page).parent / path if path else DOCS / page
        assert goal.exists(), f"{page}: {link}"
        assert not anchor or anchor in anchors(goal.read_text(encoding="utf-8")), f"{page}: {link}"


def test_the_index_names_every_chapter_and_links_every_page():
    for language in ("en", "ko"):
        text = read(f"{language}/index.md")
        for chapter in CHAPTERS:
            assert re.search(rf"^\| \[?{chapter}[\] ]", text, flags=re.M), chapter
        assert set(NAMES) - {"index.md"} <= set(LINK.findall(text))
