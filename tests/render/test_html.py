"""Pages in one file: policy, escaping and templates."""

import base64
import hashlib
import html
import json
import re

import pytest
from expected_errors import raises

from polyhead.errors import PolyheadError
from polyhead.render.html import escape_json, fill, iframe, page, write


def policy_of(content):
    policy = html.unescape(re.search(r'Security-Policy" content="([^"]*)"', content)[1])
    return dict(rule.split(" ", 1) for rule in policy.split("; "))


@pytest.mark.parametrize("script", ["", "say('<b>');"])
def test_policy_allows_only_the_own_style_and_script(script):
    rules = policy_of(page("<p>", title="", style="p {}", script=script))

    def sha256(content):
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    expected = dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    expected |= {"style-src": sha256("p {}")} | ({"script-src": sha256(script)} if script else {})
    assert rules == expected


def test_titles_are_escaped_even_if_they_are_not_text():
    assert "<title>&lt;b&gt; ?</title>" in page("", title="<b> \ud800", style="")


def test_values_are_not_searched_for_fields():
    assert fill("{{a}} {{b}}", {"a": "{{b}}", "b": "2"}) == "{{b}} 2"


def test_json_in_a_script_element_cannot_end_it():
    value = ["</script>", "<!--", "&amp;"]
    escaped = escape_json(json.dumps(value))
    assert not set("<>&") & set(escaped)
    assert json.loads(escaped) == value


def test_iframe_holds_the_page_without_access_to_its_surroundings():
    element = iframe('<p title="a">')
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', element)[1]) == '<p title="a">'
    assert 'sandbox="allow-scripts"></iframe>' in element


def test_page_that_cannot_be_written_is_reported(tmp_path):
    with raises(PolyheadError, "io", "none/a.html"):
        write("", tmp_path / "none" / "a.html")


def test_names_of_files_that_are_not_utf_8_fit_on_a_page(tmp_path):
    whole = page("<p>a\udcffb</p>", title="c\udcff", style="p{}")
    write(whole, tmp_path / "page.html")
    assert "<p>a?b</p>" in whole
    assert "<title>c?" in whole
