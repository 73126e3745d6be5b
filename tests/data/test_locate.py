"""Data is found where it may lie, and an error says how to come by it."""

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from polyhead.data.locate import KNOWN, find, folders, home, lookup
from polyhead.data.text_files import read_text
from polyhead.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Three empty folders, one of them the present one, for data to lie in."""
    for name in ("here", "one", "two", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("POLYHEAD_DATA", f"{tmp_path / 'one'}{os.pathsep}{tmp_path / 'two'}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text\n")
    return path


def test_the_nearest_place_is_taken_first(places):
    wanted = Path("mine/train.de")
    for folder in ("cache/polyhead", "two", "one"):
        put(places / folder / wanted)
        assert find(wanted) == places / folder / wanted
    put(wanted)
    assert find(wanted) == wanted


def test_a_packed_file_is_found_by_its_plain_name(places):
    packed = put(places / "two" / "mine" / "train.de.gz")
    assert find(Path("mine/train.de")) == packed
    plain = put(places / "two" / "mine" / "train.de")
    assert find(Path("mine/train.de")) == plain


def test_an_absolute_path_and_standard_input_are_taken_as_they_are(places):
    path = put(places / "elsewhere" / "a.txt")
    assert find(path) == path
    assert find(Path("-")) == Path("-")
    put(places / "one" / "b.txt")
    with pytest.raises(DataError, match=rf"b\.txt is not there \(looked in {places}\); "):
        find(places / "b.txt")


def test_the_error_says_where_it_looked(places):
    with pytest.raises(DataError) as caught:
        find(Path("mine/train.de"))
    sought = ", ".join(f"{places / name / 'mine'}" for name in ("one", "two", "cache/polyhead"))
    assert str(caught.value) == (
        f"mine/train.de is not there (looked in mine, {sought}); "
        "give its whole path, or set POLYHEAD_DATA to the folder of your data"
    )


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("multi30k/train.de", "; bring it with: polyhead data get multi30k"),
        ("multi30k/train.de.gz", "; bring it with: polyhead data get multi30k"),
        ("tinyshakespeare/input.txt", "; bring it with: polyhead data get tinyshakespeare"),
        ("schedules/train.ko", "; bring it with: polyhead data make schedules"),
        ("/data/multi30k/val.en", "; bring it with: polyhead data get multi30k"),
        (
            "fashion-mnist/train-images",
            "; on Debian or Ubuntu it comes with: apt install dataset-f",
        ),
        ("multi30k/train.ed", "; multi30k has no such file, but train.en, train.de, train.fr"),
    ],
)
def test_the_error_names_the_command_that_brings_a_known_corpus(path, end):
    with pytest.raises(DataError) as caught:
        find(Path(path))
    assert end in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_package_brought_is_found_last(places, monkeypatch):
    monkeypatch.setattr("polyhead.data.locate.PACKAGED", places / "usr")
    for folder in (places / "usr", home()):
        (folder / "clothes").mkdir(parents=True)
        (folder / "clothes" / "images.gz").write_bytes(b"")
    assert find(Path("clothes/images")) == home() / "clothes" / "images.gz"
    (home() / "clothes" / "images.gz").unlink()
    assert find(Path("clothes/images")) == places / "usr" / "clothes" / "images.gz"


@pytest.mark.parametrize("given", ["", "relative/cache"])
def test_without_a_proper_cache_folder_it_is_that_of_the_home_folder(given, monkeypatch, places):
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(places))
    monkeypatch.delenv("POLYHEAD_DATA")
    assert home() == places / ".cache" / "polyhead"
    assert folders() == [home()]


def test_names_of_corpora_are_looked_up_with_a_suggestion():
    assert lookup("multi30k") is KNOWN["multi30k"]
    with pytest.raises(
        ConfigError, match=r"^no corpus is called 'multi3k'; did you mean multi30k\?$"
    ):
        lookup("multi3k")
    with pytest.raises(ConfigError, match=r"'x'; there are schedules, multi30k, tinyshakespeare$"):
        lookup("x")


def test_the_table_is_well_formed():
    for name, corpus in KNOWN.items():
        assert corpus.name == name
        assert corpus.languages
        assert corpus.licence
        assert bool(corpus.files) == (corpus.kind == "fetched")
        names = [file.name for file in corpus.files]
        assert len(set(names)) == len(names)
        for file in corpus.files:
            assert file.url.startswith("https://")
            assert Path(file.url).name.removesuffix(".gz") == file.name
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.n_bytes > 0


@pytest.mark.parametrize("name", ["multi30k", "tinyshakespeare"])
def test_the_checksums_are_those_of_the_real_files(name, real_data):
    for file in KNOWN[name].files:
        data = find(real_data / name / file.name).read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.n_bytes, file.sha256)


def test_the_files_of_multi30k_have_the_published_numbers_of_lines(real_data):
    for split, n_lines in (("val", 1_014), ("test_2016_flickr", 1_000)):
        for language in KNOWN["multi30k"].languages:
            text = read_text(find(real_data / "multi30k" / f"{split}.{language}"))
            assert (len(text.lines), text.bad, text.notices) == (n_lines, (), ())
