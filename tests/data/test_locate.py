"""Search for data files, and the table of known corpora."""

import gzip
import hashlib
import os
from pathlib import Path

import pytest
from expected_errors import raises
from text_reading import read_text

from polyhead.data.catalog import KNOWN, lookup
from polyhead.data.config import LISTS
from polyhead.data.locate import PACKAGES, data_dirs, find, home
from polyhead.errors import ConfigError, DataError
from polyhead.training.config import read_run, recipe_names


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Create empty data directories, one of them the working directory."""
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


def test_directories_are_searched_in_order(places, monkeypatch):
    monkeypatch.setattr("polyhead.data.locate.PACKAGED", places / "usr")
    wanted = Path("mine/train.de")
    for folder in ("usr", "cache/polyhead", "two", "one"):
        put(places / folder / wanted)
        assert find(wanted) == places / folder / wanted
    put(wanted)
    assert find(wanted) == wanted


def test_a_compressed_file_is_found_by_its_plain_name(places):
    packed = put(places / "two" / "mine" / "train.de.gz")
    assert find(Path("mine/train.de")) == packed
    plain = put(places / "two" / "mine" / "train.de")
    assert find(Path("mine/train.de")) == plain


def test_absolute_paths_and_standard_input_are_not_searched(places):
    path = put(places / "elsewhere" / "a.txt")
    assert find(path) == path
    assert find(Path("-")) == Path("-")
    put(places / "one" / "b.txt")
    with raises(DataError, "not_found", "b.txt", f"(searched {places})"):
        find(places / "b.txt")


def test_the_error_lists_the_searched_directories(places):
    searched = [str(places / name / "mine") for name in ("one", "two", "cache/polyhead")]
    with raises(DataError, "not_found", "mine/train.de", *searched, "POLYHEAD_DATA"):
        find(Path("mine/train.de"))


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("multi30k/train.de", "polyhead data get multi30k"),
        ("multi30k/train.de.gz", "polyhead data get multi30k"),
        ("tinyshakespeare/input.txt", "polyhead data get tinyshakespeare"),
        ("schedules/train.ko", "polyhead data make schedules"),
        ("/data/multi30k/val.en", "polyhead data get multi30k"),
        ("fashion-mnist/train-images", "apt install dataset-fashion-mnist"),
        ("multi30k/train.ed", "train.en, train.de, train.fr"),
    ],
)
def test_the_error_tells_how_to_get_a_known_corpus(path, hint):
    with raises(DataError, "not_found", hint):
        find(Path(path))


def test_the_error_suggests_similar_names(places):
    put(places / "here" / "train.ko")
    with raises(DataError, "not_found", "Did you mean train.ko?"):
        find(Path("trian.ko"))
    put(places / "here" / "bom.ko")
    with raises(DataError, "not_found", "POLYHEAD_DATA"):  # no name is near
        find(Path("nope.ko"))


@pytest.mark.parametrize("given", ["", "relative/cache"])
def test_the_default_cache_is_below_the_home_directory(given, monkeypatch, places):
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(places))
    monkeypatch.delenv("POLYHEAD_DATA")
    assert home() == places / ".cache" / "polyhead"
    assert data_dirs() == [home()]


def test_an_unknown_corpus_is_an_error_with_a_suggestion():
    assert lookup("multi30k") is KNOWN["multi30k"]
    with raises(ConfigError, "unknown_corpus", "'multi3k'", "multi30k"):
        lookup("multi3k")
    with raises(ConfigError, "unknown_corpus", *KNOWN):
        lookup("x")


def test_the_table_is_well_formed():
    for name, corpus in KNOWN.items():
        assert corpus.name == name
        assert corpus.languages or name == "cifar10"
        assert corpus.licence
        assert bool(corpus.files) == (corpus.kind == "fetched")
        names = [file.name for file in corpus.files]
        assert len(set(names)) == len(names)
        for download in corpus.downloads:
            assert download.url.startswith("https://")
            assert download.is_archive == download.name.endswith((".tar.gz", ".zip"))
            for item in (download, *download.files):
                if item.sha256:
                    assert len(bytes.fromhex(item.sha256)) == 32
                    assert item.n_bytes > 0
        unpublished = [file.name for file in corpus.files if not file.sha256]
        assert not unpublished or name.startswith(("tatoeba", "korean", "cifar10"))


@pytest.mark.parametrize("name", ["multi30k", "tinyshakespeare", "g2p-ko"])
def test_checksums_match_the_real_files(name, real_data):
    for file in KNOWN[name].files:
        data = find(real_data / name / file.name).read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.n_bytes, file.sha256)


def test_multi30k_has_the_published_numbers_of_lines(real_data):
    for split, n_lines in (("val", 1_014), ("test_2016_flickr", 1_000)):
        for language in KNOWN["multi30k"].languages:
            text = read_text(find(real_data / "multi30k" / f"{split}.{language}"))
            assert (len(text.lines), text.bad, text.notices) == (n_lines, (), ())


EMBEDDED = ("schedules",)


@pytest.mark.parametrize("name", recipe_names())
def test_every_file_of_a_recipe_comes_from_its_source(name):
    data = read_run(name).data
    for file in (file for option in LISTS for file in vars(data)[option]):
        corpus, _, file_name = file.partition("/")
        if corpus not in (*EMBEDDED, *PACKAGES):
            assert file_name.removesuffix(".gz") in [file.name for file in KNOWN[corpus].files]
            with raises(DataError, "not_found", f"polyhead data get {corpus}"):
                find(file)
