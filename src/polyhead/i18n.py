"""Texts in English and Korean, and the choice between the two languages."""

import os
from typing import NamedTuple

from polyhead.errors import ConfigError


class Words(NamedTuple):
    """A text in each language."""

    en: str
    ko: str

    def in_language(self, language: str) -> str:
        """Return the Korean text for "ko", else the English one."""
        return self.ko if language == "ko" else self.en


def chosen_language(option: str | None) -> str:
    """Return the value of --lang, else "ko" in a Korean locale and "en" in any other."""
    if option is None:
        locales = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
        return "ko" if next(filter(None, locales), "").lower().startswith("ko") else "en"
    if option not in Words._fields:
        languages = " or ".join(Words._fields)
        raise ConfigError(f"--lang {option}: expected {languages}", "unknown_language")
    return option
