"""The choice of a language by option or locale."""

import pytest
from expected_errors import raises

from polyhead.errors import ConfigError
from polyhead.i18n import Words, chosen_language


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "", "LC_ALL": "ko"}, "ko"),
        ({}, "en"),
    ],
)
def test_language_is_that_of_the_locale_unless_given(monkeypatch, environment, language):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert chosen_language(None) == language
    assert chosen_language("ko") == "ko"


def test_unknown_language_is_refused():
    with raises(ConfigError, "unknown_language", "fr"):
        chosen_language("fr")


def test_words_fall_back_to_english():
    words = Words("step", "스텝")
    shown = [words.in_language(language) for language in ("en", "ko", "fr")]
    assert shown == ["step", "스텝", "step"]
