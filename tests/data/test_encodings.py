"""Names of encodings, and the reasons of undecodable lines."""

import pytest
from expected_errors import raises

from polyhead.data.text_files import NotTextError, canonical, decode, is_korean, wide_without_mark
from polyhead.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "name"),
    [("UTF8", "utf-8"), ("utf-8-sig", "utf-8"), ("UTF_16", "utf-16"), ("uhc", "cp949"),
     ("latin1", "iso8859-1")],
)  # fmt: skip
def test_aliases_have_one_canonical_name(given, name):
    assert canonical(given) == name


@pytest.mark.parametrize(
    "given", ["", "klingon", "zip", "base64", "rot13", "hex", "a\0b", "undefined"]
)
def test_an_unknown_encoding_is_an_error(given):
    with raises(ConfigError, "unknown_encoding", repr(given)):
        canonical(given)


def test_a_stray_nul_is_not_taken_for_utf16():
    assert wide_without_mark(b"one tw\0 three\nfour five six\n") is None
    assert wide_without_mark(b"plain words\n") is None
    assert wide_without_mark(b"\0") is None


def test_chinese_characters_are_not_taken_for_korean():
    assert is_korean("한국어와 English".encode("cp949"))
    assert not is_korean("漢字漢字".encode("cp949"))
    assert not is_korean(b"ascii")


@pytest.mark.parametrize(
    ("raw", "encoding", "why", "looks_like"),
    [
        (b"ab\xff", "utf-8", "not UTF-8 (byte 0xFF at column 3)", ""),
        (b"a\0", "cp949", "a NUL character at column 2", None),
        (b"\\ud800", "unicode_escape", "half a character (the lone surrogate U+D800) at column 1",
         None),
        (b"\xe2\x80\x99", "cp949",
         "not CP949 (EUC-KR) (byte 0xE2 at column 1); it looks like UTF-8", "utf-8"),
    ],
)  # fmt: skip
def test_the_reason_names_the_byte_and_its_column(raw, encoding, why, looks_like):
    with pytest.raises(NotTextError) as caught:
        decode(raw, encoding)
    assert str(caught.value) == why
    assert caught.value.looks_like == looks_like
