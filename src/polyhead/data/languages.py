"""Languages of a corpus: as configured, by the names of columns or files, or by the text itself."""

import re
from collections.abc import Sequence

from babel import Locale, UnknownLocaleError

from polyhead.data.config import DataConfig
from polyhead.errors import ConfigError

NAMES = {  # of columns; the first is the code of ISO 639-2
    "ko": ("kor", "korean", "한국어", "한글"), "en": ("eng", "english", "영어"),
    "de": ("deu", "german", "deutsch", "독일어"), "fr": ("fra", "french", "français", "프랑스어"),
    "ja": ("jpn", "japanese", "日本語", "일본어"), "zh": ("zho", "chinese", "中文", "중국어"),
    "es": ("spa", "spanish", "español", "스페인어"), "cs": ("ces", "czech", "čeština", "체코어"),
    "ru": ("rus", "russian", "русский", "러시아어"), "it": ("ita", "italian", "italiano"),
    "vi": ("vie", "vietnamese", "베트남어"), "pt": ("por", "portuguese", "português"),
}  # fmt: skip
CODE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8}){0,2}", re.IGNORECASE)
PACKED = re.compile(r"\.(gz|xz|zst)$")
SAMPLE = 1_000  # lines
HANGUL, KANA = re.compile("[\u1100-\u11ff\uac00-\ud7a3]"), re.compile("[\u3040-\u30ff]")
ENGLISH = frozenset(["the", "and", "you", "that", "to", "with", "this", "are", "there"])
ENGLISH_SHARE = 0.04  # of the words; about a tenth in English, hardly any elsewhere


def language_of(name: str) -> str:
    """Return the code of the language that a column is named after, or ""."""
    name = name.strip().lower().replace("_", "-")
    for code, names in NAMES.items():
        if name in (code, *names) or re.fullmatch(rf"{code}-[a-z]{{2}}", name):
            return code
    return ""


def language_name(code: str) -> str:
    """Return the English name of a language; its code if it is unknown."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def file_language(files: Sequence[str]) -> str:
    """Return the language that the endings of all files name, as in train.ko.gz, or ""."""
    endings = {PACKED.sub("", file).rpartition(".")[2] for file in files}
    ending = endings.pop() if len(endings) == 1 else ""
    is_code = len(ending) == 2 and ending.islower() and language_name(ending) != ending
    return language_of(ending) or (ending if is_code else "")


def text_language(lines: Sequence[str]) -> str:
    """Return "ko", "ja" or "en" if a text is surely in that language, otherwise ""."""
    text = "\n".join(lines[:SAMPLE]).lower()
    n_letters = max(1, sum(map(str.isalpha, text)))
    if len(HANGUL.findall(text)) > n_letters / 2:
        return "ko"
    if len(KANA.findall(text)) > n_letters / 4:
        return "ja"
    words = re.findall(r"[^\W\d_]+", text)
    return "en" if sum(word in ENGLISH for word in words) > ENGLISH_SHARE * len(words) else ""


def configured_languages(data: DataConfig) -> tuple[str, str]:
    """Return the languages of source and target, as configured or by the names of the files."""
    return (
        data.source_language or file_language(data.source),
        data.target_language or file_language(data.target),
    )


def parse_languages(text: str) -> tuple[str, str]:
    """Return the two codes of a text such as ko-en, korean-english or zh-Hant:en."""
    names = text.split(":" if ":" in text else "-")
    codes = [("-" not in name and language_of(name)) or name for name in names]
    if len(codes) != 2 or not all(CODE.fullmatch(code) for code in codes):
        message = f"languages {text!r}: expected two codes, such as ko-en or zh-Hant:en"
        raise ConfigError(message, "invalid_languages")
    return codes[0], codes[1]
