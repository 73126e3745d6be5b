"""Reading of text files: line ends, encodings, gzip, limits and unreadable paths."""

import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from expected_errors import raises
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_reading import read_all, read_text

from polyhead.data import text_files
from polyhead.data.text_files import TextLines, read_lines
from polyhead.errors import DataError

KOREAN = "안녕하세요 여러분\n오늘은 날씨가 좋아요\n"
RELAXED = settings(  # the machine may be busy; files may be overwritten
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NOT_LINE_ENDS = "a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\rj"


def check_error(path, code, *mentions, encoding="utf-8"):
    with raises(DataError, code, *mentions) as caught:
        read_lines(path, encoding=encoding)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------- counting


line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"))


@RELAXED
@given(lines=st.lists(line), ended=st.booleans(), packed=st.booleans(), mark=st.booleans())
def test_written_lines_are_read_back(lines, ended, packed, mark, write):
    lines = [each.removeprefix("\ufeff") + "." for each in lines]  # "." : no mark, no CR at its end
    data = ("\n".join(lines) + ("\n" if ended and lines else "")).encode()
    data = b"\xef\xbb\xbf" * mark + data
    assert read_lines(write(gzip.compress(data) if packed else data)) == lines


@RELAXED
@given(data=st.binary().filter(lambda data: not data.startswith(b"\x1f\x8b")))
def test_lines_are_counted_as_by_wc(data):
    n_lines = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    assert len(list(text_files.split(iter([data])))) == n_lines
    halves = iter([data[: len(data) // 2], data[len(data) // 2 :]])
    assert list(text_files.split(halves)) == list(text_files.split(iter([data])))


def test_only_a_line_feed_ends_a_line(write):
    path = write(f"{NOT_LINE_ENDS}\nsecond\n".encode())
    assert read_lines(path) == [NOT_LINE_ENDS, "second"]
    assert int(subprocess.check_output(["wc", "-l", path]).split()[0]) == 2
    assert len(path.read_text(encoding="utf-8").splitlines()) > 8, "splitlines differs"


@pytest.mark.parametrize(
    ("contents", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb", ["a\r", "b"]),
        (b"a\rb\nc\r", ["a\rb", "c\r"]),
        (b"a\tb\n", ["a\tb"]),
        ("👩‍👩‍👧 ok\n".encode(), ["👩‍👩‍👧 ok"]),
        ("\u1112\u1161\u11ab\n".encode(), ["\u1112\u1161\u11ab"]),
    ],
)  # fmt: skip
def test_line_and_file_ends(contents, lines, write):
    assert read_lines(write(contents)) == lines


# --------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_decides_with_a_notice(encoding, write):
    text = read_text(write(("\ufeff" + KOREAN).encode(encoding)))
    assert text.lines == KOREAN.splitlines()
    name = f"{encoding[:6].upper()} ({'little' if encoding.endswith('le') else 'big'}-endian)"
    assert name in text.notices[0]


@pytest.mark.parametrize(("encoding", "n_notices"), [("utf-8", 0), ("cp949", 1)])
def test_the_mark_of_utf8_overrides_another_encoding(encoding, n_notices, write):
    text = read_text(write(b"\xef\xbb\xbf" + KOREAN.encode()), encoding=encoding)
    assert text.lines == KOREAN.splitlines()
    assert ["UTF-8" in notice for notice in text.notices] == [True] * n_notices


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("contents", [KOREAN, "plain English words\nand more\n", "word", "단어 둘"])
def test_utf16_without_a_mark_is_detected(encoding, contents, write):
    order = "little" if encoding == "utf-16-le" else "big"
    path = write(contents.encode(encoding))
    check_error(path, "wrong_encoding", f"UTF-16 ({order}-endian)", f"--encoding {encoding}")
    check_error(path, "no_byte_order", "utf-16-le", "utf-16-be", encoding="utf-16")
    assert read_lines(path, encoding=encoding) == contents.splitlines()


@pytest.mark.parametrize(
    ("contents", "bad"),
    [
        (b"\xff\xfe" + "good\n\ud800 bad\nfine\n".encode("utf-16-le", "surrogatepass"),
         ["2: half a character (the lone surrogate U+D800) at column 1"]),
        ("plain\nUn grand café noir\nplain\n".encode("latin-1"),
         ["2: not UTF-8 (byte 0xE9 at column 13)"]),
        ("한국 ".encode() + b"\xff\nok\nok\n", ["1: not UTF-8 (byte 0xFF at column 4)"]),
        (KOREAN.encode() + "대한민국\n".encode("cp949"),
         ["3: not UTF-8 (byte 0xB4 at column 1); it looks like CP949 (EUC-KR)"]),
        (b"good\nna\0ught\nhal\xed\xb0\x80f\nfine\n",
         ["2: a NUL character at column 3",
          "3: half a character (the lone surrogate U+DC00) at column 4"]),
        (b"\n".join([b"x" * 1_000_000 + b"\r", b"y" * 1_000_001, b"after"]),
         ["2: longer than 1,000,000 bytes (1,000,001)"]),
    ],
    ids=["utf-16", "latin-1", "korean", "cp949", "nul", "overlong"],
)  # fmt: skip
def test_a_bad_line_is_empty_with_its_place_and_reason(contents, bad, write):
    text = read_text(write(contents))
    assert [str(line) for line in text.bad] == [f"train.ko:{reason}" for reason in bad]
    assert [n for n, line in enumerate(text.lines, 1) if not line] == [b.line for b in text.bad]
    assert len(text.lines) > len(bad)


@pytest.mark.parametrize(
    ("text", "encoding", "given", "mentions"),
    [
        (f"ascii\n{KOREAN}", "cp949", "utf-8", ["ko:2", "CP949", "2 of 3", "--encoding cp949"]),
        (f"ascii\n{KOREAN}", "euc-kr", "utf-8", ["ko:2", "CP949", "2 of 3", "--encoding cp949"]),
        ("똠방각하 펲시콜라\n", "cp949", "utf-8", ["CP949"]),
        ("Größe\nÄpfel\nTür\n", "cp1252", "utf-8", ["ko:1", "0xF6 at column 3", "3 of 3"]),
        ("“A quote” – with dashes\n", "utf-8", "cp949", ["ko:1", "--encoding utf-8"]),
    ],
)
def test_a_wrong_encoding_is_detected(text, encoding, given, mentions, write):
    path = write(text.encode(encoding))
    check_error(path, "wrong_encoding", *mentions, encoding=given)
    assert read_lines(path, encoding=encoding) == text.splitlines()


def test_truncated_utf16_is_an_error(write):
    path = write(KOREAN.encode("utf-16")[:-1])
    check_error(path, "wrong_encoding", "UTF-16 (little-endian)", "truncated data")


@pytest.mark.parametrize(
    "text", ["Größe der Tür über Maß", "déjà vu à l'été", "æøå ÆØÅ", "España ñ"]
)
def test_western_text_is_not_detected_as_korean(text, write):
    with raises(DataError, "wrong_encoding") as caught:
        read_lines(write(f"{text}\n".encode("latin-1")))
    assert "CP949" not in str(caught.value)


# ------------------------------------------------------------------------------------- gzip, limits


def test_gzip_is_detected_by_contents_and_may_have_several_members(write):
    packed = gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree")
    assert read_lines(write(packed, "no-ending")) == ["one", "two", "three"]
    assert read_lines(write(b"plain\n", "plain.gz")) == ["plain"]


def test_every_truncation_and_every_flipped_byte_of_gzip_data_is_detected(write):
    packed = gzip.compress(os.urandom(50).hex().encode() + b"\n", mtime=0)
    truncated = [packed[:length] for length in range(2, len(packed))]
    flipped = [packed[:n] + bytes([packed[n] ^ 0x55]) + packed[n + 1 :] for n in range(len(packed))]
    for damaged in truncated + flipped[10:]:  # after the header, which has no checksum
        check_error(write(damaged, "a.gz"), "damaged_gzip", "a.gz")


def test_a_gzip_bomb_is_rejected_early(write):
    path = write(gzip.compress(bytes(80 << 20), compresslevel=9), "bomb.gz")
    tracemalloc.start()
    check_error(path, "gzip_bomb", "bomb.gz", "200 times")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 << 20


def test_well_compressed_text_is_accepted(write):
    contents = (b"the same words again and again " * 3_000 + b"\n") * 100
    path = write(gzip.compress(contents), "same.gz")
    assert path.stat().st_size * text_files.MAX_RATIO < len(contents)
    assert len(read_lines(path)) == 100


def test_the_unpacked_size_is_limited():
    text_files._check_ratio(8 << 30, 8 << 30, "a.gz")
    with raises(DataError, "gzip_bomb", "8 GiB"):
        text_files._check_ratio((8 << 30) + 1, 8 << 30, "a.gz")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"PK\x03\x04....", "a zip archive (as .docx and .xlsx are)"),
        (b"%PDF-1.7", "a PDF"),
    ],
)
def test_other_formats_are_errors(head, kind, write):
    for contents in (head + bytes(100), gzip.compress(head + bytes(100))):
        check_error(write(contents, "a.txt"), "not_text", kind)
    check_error(write(gzip.compress(gzip.compress(b"a\n"))), "not_text", "twice")


def test_an_endless_line_uses_little_memory():
    class Endless(io.RawIOBase):
        left = 200

        def readable(self):
            return True

        def readinto(self, buffer):
            self.left -= 1
            buffer[:] = b"x" * len(buffer)
            return len(buffer) if self.left > 0 else 0

    stream = io.BufferedReader(Endless(), 1 << 18)
    tracemalloc.start()
    (bad,) = read_all(TextLines(stream, "endless")).bad
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(bad).startswith("endless:1: longer than 1,000,000 bytes (5")
    assert peak < 8 << 20


def test_a_pipe_of_single_bytes_is_read():
    class Drops(io.BytesIO):
        def read1(self, _=-1):
            return self.read(1)

    for contents in (KOREAN.encode("utf-16"), gzip.compress(KOREAN.encode()), KOREAN.encode()):
        assert read_all(TextLines(Drops(contents), "pipe")).lines == KOREAN.splitlines()


def test_standard_input_is_read_and_left_open(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\xff\n")))
    text = read_text(Path("-"))
    assert text.lines == ["one", ""]
    assert str(text.bad[0]) == "stdin:2: not UTF-8 (byte 0xFF at column 1)"
    assert not sys.stdin.buffer.closed


# ------------------------------------------------------------------------------------------- paths


def test_unreadable_paths_are_errors(write, tmp_path, monkeypatch):
    check_error(tmp_path, "not_a_file")
    check_error(Path("a\0b"), "not_found")
    check_error(Path("x" * 5000), "not_found")
    path = write(b"a\n")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # the superuser may read everything
    check_error(path, "cannot_read", "Permission denied")


def test_a_failing_disk_is_an_error():
    class Broken(io.BytesIO):
        def read1(self, _=-1):
            raise OSError(5, "Input/output error")

    with raises(DataError, "cannot_read", "Input/output error"):
        TextLines(Broken(), "a")


@RELAXED
@given(data=st.binary(max_size=300), packed=st.booleans())
def test_any_bytes_give_text_or_a_data_error(data, packed, write):
    for encoding in ("utf-8", "cp949", "utf-16", "utf-7"):
        path = write(gzip.compress(data) if packed else data)
        with suppress(DataError):  # anything else that is raised is a failure
            text = read_text(path, encoding=encoding)
            "".join(text.lines).encode()  # no lone surrogates
            assert all(text.lines[bad.line - 1] == "" for bad in text.bad)
