"""Languages are found by names and by text, and never guessed wrongly."""

import gzip

import pytest
from expected_errors import raises
from loading import load

from polyhead.data.config import DataConfig
from polyhead.data.languages import file_language, language_of, parse_languages, text_language
from polyhead.data.parallel import load_parallel
from polyhead.errors import ConfigError

KO = ["내일 회의가 있어요.", "비가 와요.", "집에 OK 갔다."]
EN = ["There is a meeting.", "Are you at home?", "He went to the sea."]
DE = ["Morgen ist ein Treffen.", "Was ist das?", "Er ging in die Stadt, als es regnete."]


@pytest.mark.parametrize(
    ("name", "code"),
    [("ko", "ko"), ("KO-kr", "ko"), (" Korean", "ko"), ("영어", "en"), ("eng", "en"), ("id", ""),
     ("no", ""), ("원문", ""), ("", ""), ("kok", "")],
)  # fmt: skip
def test_columns_name_languages(name, code):
    assert language_of(name) == code


@pytest.mark.parametrize(
    ("files", "code"),
    [(["a.ko"], "ko"), (["x/train.de.gz", "y.de.zst"], "de"), (["a.nl"], "nl"), (["a.kor"], "ko"),
     (["a.txt"], ""), (["a.tok"], ""), (["a.ko", "a.en"], ""), (["ko"], "ko"), ([], ""),
     (["a.zz"], "")],
)  # fmt: skip
def test_file_endings_name_languages(files, code):
    assert file_language(files) == code


@pytest.mark.parametrize(
    ("lines", "code"),
    [(KO, "ko"), (EN, "en"), (DE, ""), (["東京へ行きました。"], "ja"), (["我明天去北京。"], ""),
     (["k a̠ ɡ o̞ k̚", "t͡ɕ͈ i"], ""), ([], ""), (["12:30"], "")],
)  # fmt: skip
def test_only_certain_texts_tell_their_language(lines, code):
    assert text_language(lines) == code


@pytest.mark.parametrize("pair", ["de-en", "fr-en", "ko-en"])
def test_real_text_is_never_taken_for_another_language(pair, real_data):
    for code in pair.split("-"):
        file = real_data / "tatoeba" / f"{pair}.val.{code}.gz"
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            assert text_language(list(lines)) == (code if code in ("ko", "en") else "")


def numbered(lines):
    return [f"{line} {n}" for n in range(5) for line in lines]


def test_configuration_precedes_names_and_names_precede_text(tmp_path):
    for name, lines in {"a.de": KO, "a.en": EN}.items():
        (tmp_path / name).write_text("\n".join(numbered(lines)), encoding="utf-8")
    rows = "".join(f"{k}\t{e}\n" for k, e in zip(numbered(DE), numbered(EN), strict=True))
    (tmp_path / "plain.tsv").write_text(rows, encoding="utf-8")
    files = DataConfig(source=(str(tmp_path / "a.de"),), target=(str(tmp_path / "a.en"),))
    for config, expected in {
        files: ("de", "en"),
        DataConfig(**{**vars(files), "source_language": "fr"}): ("fr", "en"),
        DataConfig(pairs=(str(tmp_path / "plain.tsv"),)): ("", "en"),
    }.items():
        assert load(load_parallel, config, seed=1).languages == expected


def test_two_codes_are_parsed():
    assert parse_languages("ko-en") == ("ko", "en")
    assert parse_languages("zh-Hant:en") == ("zh-Hant", "en")
    assert parse_languages("Korean-english") == parse_languages("한국어-EN") == ("ko", "en")
    assert parse_languages("pt-BR:de") == ("pt-BR", "de")
    for wrong in ("ko", "ko-", "-en", "ko-en-fr", "ko en", "k-e", "../x-en", "", "klingon-en"):
        with raises(ConfigError, "invalid_languages", repr(wrong)):
            parse_languages(wrong)
