"""A file becomes its lines: the zoo of files that people really have, each with its message."""

import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyhead.data import text_files as files
from polyhead.data.text_files import BadLine, read_lines, read_text, scan
from polyhead.errors import DataError

KOREAN = "안녕하세요 여러분\n오늘은 날씨가 좋아요\n"
RELAXED = settings(  # the machine may be busy; files may be overwritten
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NOT_LINE_ENDS = "a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\rj"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write bytes to a file of this name in an empty folder, in which the test then works."""
    monkeypatch.chdir(tmp_path)

    def to_file(contents, name="train.ko"):
        Path(name).write_bytes(contents)
        return Path(name)

    return to_file


def complaint(path, encoding="utf-8"):
    with pytest.raises(DataError) as caught:
        read_lines(path, encoding=encoding)
    message = str(caught.value)
    assert caught.value.exit_code == 4
    assert "\n" not in message
    return message


# ---------------------------------------------------------------------------------------- counting


line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"))


@RELAXED
@given(lines=st.lists(line), ended=st.booleans(), packed=st.booleans(), mark=st.booleans())
def test_any_lines_are_read_back_as_they_were_written(lines, ended, packed, mark, write):
    lines = [each.removeprefix("\ufeff") + "." for each in lines]  # "." : no mark, no CR at its end
    data = ("\n".join(lines) + ("\n" if ended and lines else "")).encode()
    data = b"\xef\xbb\xbf" * mark + data
    assert read_lines(write(gzip.compress(data) if packed else data)) == lines


@RELAXED
@given(data=st.binary().filter(lambda data: not data.startswith(b"\x1f\x8b")))
def test_the_count_is_that_of_wc_and_an_unfinished_line(data):
    n_lines = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    assert len(list(files.split(iter([data])))) == n_lines
    halves = iter([data[: len(data) // 2], data[len(data) // 2 :]])
    assert list(files.split(halves)) == list(files.split(iter([data])))


def test_only_a_line_feed_ends_a_line(write):
    path = write(f"{NOT_LINE_ENDS}\nsecond\n".encode())
    assert read_lines(path) == [NOT_LINE_ENDS, "second"]
    assert int(subprocess.check_output(["wc", "-l", path]).split()[0]) == 2
    assert len(path.read_text(encoding="utf-8").splitlines()) > 8, "Python's own way loses count"


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
    ],
)  # fmt: skip
def test_ends_of_lines_and_of_files(contents, lines, write):
    assert read_lines(write(contents)) == lines


def test_decomposed_hangul_is_handed_on_as_it_is(write):
    assert read_lines(write("\u1112\u1161\u11ab\n".encode())) == ["\u1112\u1161\u11ab"]


# --------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_is_obeyed_with_a_notice(encoding, write):
    text = read_text(write(("\ufeff" + KOREAN).encode(encoding)))
    assert text.lines == KOREAN.splitlines()
    name = f"{encoding[:6].upper()} ({'little' if encoding.endswith('le') else 'big'}-endian)"
    assert text.notices == (f"train.ko is {name} by its byte order mark, and was read as that",)


def test_the_mark_of_utf8_is_dropped_without_a_word(write):
    text = read_text(write(b"\xef\xbb\xbf" + KOREAN.encode()))
    assert (text.lines, text.notices) == (KOREAN.splitlines(), ())


def test_the_mark_is_obeyed_against_the_encoding_given(write):
    text = read_text(write(b"\xef\xbb\xbf" + KOREAN.encode()), encoding="cp949")
    assert text.lines == KOREAN.splitlines()
    assert text.notices == ("train.ko is UTF-8 by its byte order mark, and was read as that",)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("contents", [KOREAN, "plain English words\nand more\n", "word", "단어 둘"])
def test_utf16_without_a_mark_is_named(encoding, contents, write):
    order = "little" if encoding == "utf-16-le" else "big"
    path = write(contents.encode(encoding))
    assert complaint(path) == (
        f"train.ko: UTF-16 ({order}-endian) without a byte order mark, not UTF-8; read it with "
        f'--encoding {encoding} (data.encoding = "{encoding}") or run iconv -f {encoding} -t utf-8'
    )
    assert complaint(path, "utf-16") == (
        "train.ko: no byte order mark; say its order with --encoding utf-16-le or utf-16-be "
        '(data.encoding = "utf-16-le")'
    )
    assert read_lines(path, encoding=encoding) == contents.splitlines()


def test_utf16_that_is_cut_off_is_an_error(write):
    assert complaint(write(KOREAN.encode("utf-16")[:-1])) == (
        "train.ko: not UTF-16 (little-endian) to its end (truncated data); "
        "the file is cut off, or in another encoding"
    )


def test_half_a_character_in_utf16_spoils_its_own_line_only(write):
    lines = "good\n\ud800 bad\nfine\n"
    text = read_text(write(b"\xff\xfe" + lines.encode("utf-16-le", "surrogatepass")))
    assert text.lines == ["good", "", "fine"]
    assert [str(bad) for bad in text.bad] == [
        "train.ko:2: half a character (the lone surrogate U+D800) at column 1"
    ]


@pytest.mark.parametrize("encoding", ["cp949", "euc-kr"])
def test_korean_in_cp949_is_named_with_the_way_out(encoding, write):
    path = write(("ascii first\n" + KOREAN).encode(encoding))
    assert complaint(path) == (
        "train.ko:2: not UTF-8 but CP949 (EUC-KR), like 2 of 3 lines; read it with "
        '--encoding cp949 (data.encoding = "cp949") or run iconv -f cp949 -t utf-8'
    )
    assert read_lines(path, encoding="cp949") == ["ascii first", *KOREAN.splitlines()]


def test_a_letter_that_only_cp949_has_is_recognised_too(write):
    assert "not UTF-8 but CP949" in complaint(write("똠방각하 펲시콜라\n".encode("cp949")))


def test_a_single_line_in_latin1_is_a_bad_line(write):
    text = read_text(write("plain\nUn grand café noir\nplain\n".encode("latin-1"), "train.fr"))
    assert [str(bad) for bad in text.bad] == ["train.fr:2: not UTF-8 (byte 0xE9 at column 13)"]
    assert text.lines == ["plain", "", "plain"]


def test_the_column_counts_characters_and_not_bytes(write):
    text = read_text(write("한국 \n".encode()[:-1] + b"\xff\nok\nok\n"))
    assert [str(bad) for bad in text.bad] == ["train.ko:1: not UTF-8 (byte 0xFF at column 4)"]


def test_a_file_in_latin1_is_an_error_with_a_way_out(write):
    path = write("Größe\nÄpfel\nTür\n".encode("latin-1"), "train.de")
    assert complaint(path) == (
        "train.de:1: not UTF-8 (byte 0xF6 at column 3), like 3 of 3 lines; name the file's "
        'encoding, for instance --encoding cp1252 (data.encoding = "cp1252"), '
        "or convert it to UTF-8"
    )
    assert read_lines(path, encoding="cp1252") == ["Größe", "Äpfel", "Tür"]


@pytest.mark.parametrize(
    "text", ["Größe der Tür über Maß", "déjà vu à l'été", "æøå ÆØÅ", "España ñ"]
)
def test_western_text_is_never_taken_for_korean(text, write):
    assert "CP949" not in complaint(write(f"{text}\n".encode("latin-1")))


def test_a_korean_line_in_a_file_of_utf8_says_what_it_looks_like(write):
    text = read_text(write(KOREAN.encode() + "대한민국\n".encode("cp949")))
    assert [str(bad) for bad in text.bad] == [
        "train.ko:3: not UTF-8 (byte 0xB4 at column 1); it looks like CP949 (EUC-KR)"
    ]


def test_utf8_read_as_cp949_is_named(write):
    assert complaint(write("“A quote” – with dashes\n".encode()), "cp949") == (
        "train.ko:1: not CP949 (EUC-KR) but UTF-8, like 1 of 1 lines; "
        'read it with --encoding utf-8 (data.encoding = "utf-8")'
    )


def test_nul_and_half_characters_are_bad_lines(write):
    text = read_text(write(b"good\nna\0ught\nhal\xed\xb0\x80f\nfine\n"))
    assert text.lines == ["good", "", "", "fine"]
    assert text.bad == (
        BadLine("train.ko", 2, "a NUL character at column 3"),
        BadLine("train.ko", 3, "half a character (the lone surrogate U+DC00) at column 4"),
    )


# ------------------------------------------------------------------------------------- gzip, limits


def test_gzip_is_known_by_its_contents_and_may_have_several_members(write):
    packed = gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree")
    assert read_lines(write(packed, "no-ending")) == ["one", "two", "three"]
    assert read_lines(write(b"plain\n", "plain.gz")) == ["plain"]


def test_every_truncation_of_a_gzip_file_is_noticed(write):
    packed = gzip.compress(os.urandom(50).hex().encode() + b"\n")
    for length in range(2, len(packed)):
        assert complaint(write(packed[:length], "a.gz")) == (
            "a.gz: gzip data that is cut off; copy or fetch the file again"
        )


def test_every_flipped_byte_of_gzip_data_is_noticed(write):
    packed = gzip.compress(os.urandom(50).hex().encode() + b"\n", mtime=0)
    for place in range(10, len(packed)):  # after the header, which has no checksum
        flipped = packed[:place] + bytes([packed[place] ^ 0x55]) + packed[place + 1 :]
        message = complaint(write(flipped, "a.gz"))
        assert message.startswith("a.gz: ")
        assert message.endswith("copy or fetch the file again")


def test_a_bomb_is_given_up_early_and_in_little_memory(write):
    path = write(gzip.compress(bytes(80 << 20), compresslevel=9), "bomb.gz")
    tracemalloc.start()
    message = complaint(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message == (
        "bomb.gz: gzip data that unpacks to more than 200 times its size, which text does not; "
        "if you trust it, unpack it yourself"
    )
    assert peak < 10 << 20


def test_text_that_shrinks_well_is_no_bomb(write):
    contents = (b"the same words again and again " * 3_000 + b"\n") * 100
    path = write(gzip.compress(contents), "same.gz")
    assert path.stat().st_size * files.MAX_RATIO < len(contents), "this test needs a good one"
    assert len(read_lines(path)) == 100


def test_what_unpacks_without_end_is_given_up():
    files.refuse_bomb(8 << 30, 8 << 30, "a.gz")
    with pytest.raises(DataError, match=r"a\.gz: gzip data that unpacks to more than 8 GiB"):
        files.refuse_bomb((8 << 30) + 1, 8 << 30, "a.gz")


def test_what_was_packed_twice_is_named(write):
    path = write(gzip.compress(gzip.compress(b"a\n")), "a.gz")
    assert complaint(path) == "a.gz: packed by gzip twice; unpack it once"


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"PK\x03\x04....", "a zip archive (as .docx and .xlsx are)"),
        (b"%PDF-1.7", "a PDF"),
        (b"\xfd7zXZ\x00..", "packed by xz"),
    ],
)
def test_other_formats_are_named(head, what, write):
    message = f"a.txt: {what}, not text; give a plain text file (it may be .gz)"
    assert complaint(write(head + bytes(100), "a.txt")) == message
    assert complaint(write(gzip.compress(head + bytes(100)), "a.txt")) == message


def test_a_line_of_a_megabyte_is_the_longest(write):
    longest, longer = b"x" * 1_000_000, b"y" * 1_000_001
    text = read_text(write(b"\n".join([longest + b"\r", longer, b"after"])))
    assert [len(line) for line in text.lines] == [1_000_000, 0, 5]
    assert text.bad == (BadLine("train.ko", 2, "longer than 1,000,000 bytes (1,000,001)"),)


def test_an_endless_line_takes_little_memory():
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
    (bad,) = scan(stream, "endless", encoding="utf-8", notify=print)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(bad).startswith("endless:1: longer than 1,000,000 bytes (5")
    assert peak < 8 << 20


def test_a_pipe_that_gives_single_bytes_is_read_like_a_file():
    class Drops(io.BytesIO):
        def read1(self, _=-1):
            return self.read(1)

    for contents in (KOREAN.encode("utf-16"), gzip.compress(KOREAN.encode()), KOREAN.encode()):
        lines = scan(Drops(contents), "pipe", encoding="utf-8", notify=lambda _: None)
        assert list(lines) == KOREAN.splitlines()


def test_standard_input_is_read_and_left_open(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\xff\n")))
    text = read_text(Path("-"))
    assert text.lines == ["one", ""]
    assert str(text.bad[0]) == "stdin:2: not UTF-8 (byte 0xFF at column 1)"
    assert not sys.stdin.buffer.closed


# ------------------------------------------------------------------------------------------- paths


def test_a_missing_file_is_said_with_what_may_be_meant(write):
    write(b"a\n", "train.ko")
    write(b"a\n", "corpus.txt.gz")
    assert complaint(Path("trian.ko")) == "trian.ko: no such file; did you mean train.ko?"
    assert complaint(Path("corpus.txt")) == "corpus.txt: no such file; did you mean corpus.txt.gz?"
    assert complaint(Path("zzz")) == "zzz: no such file in ."
    assert complaint(Path("no/a")) == "no/a: no such file; there is no folder no either"


def test_a_folder_is_not_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert complaint(Path("folder")) == "folder: a folder; give a file"


def test_a_file_that_may_not_be_read_is_said(write, monkeypatch):
    path = write(b"a\n")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # the superuser may read everything
    assert complaint(path) == "train.ko: no permission to read it"


def test_impossible_paths_are_one_line_too():
    assert "cannot be opened" in complaint(Path("a\0b"))
    assert "cannot be opened" in complaint(Path("x" * 5000))


def test_a_disk_that_fails_is_one_line():
    class Broken(io.BytesIO):
        def read1(self, _=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(DataError, match=r"^a: cannot be read \(Input/output error\)$"):
        list(scan(Broken(), "a", encoding="utf-8", notify=print))


@RELAXED
@given(data=st.binary(max_size=300), packed=st.booleans())
def test_no_bytes_make_anything_but_text_or_a_data_error(data, packed, write):
    for encoding in ("utf-8", "cp949", "utf-16", "utf-7"):
        path = write(gzip.compress(data) if packed else data)
        with suppress(DataError):  # anything else that is raised is a failure
            text = read_text(path, encoding=encoding)
            "".join(text.lines).encode()  # no half characters
            assert all(text.lines[bad.line - 1] == "" for bad in text.bad)
