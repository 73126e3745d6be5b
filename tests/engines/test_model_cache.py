"""Converted models in the user's cache: made once, never taken from the model's directory."""

import os
import time
from pathlib import Path

import pytest
from expected_errors import raises

from polyhead.checkpoint.atomic_dir import seal, verify
from polyhead.engines import ctranslate2_engine
from polyhead.engines.ctranslate2_engine import UNUSED, converted_model
from polyhead.errors import CheckpointError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "polyhead" / "engines"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    seal(folder)
    return folder


class Converter:
    """Counts its calls."""

    def __init__(self):
        self.n_calls = 0

    def __call__(self, folder):
        self.n_calls += 1
        (folder / "model.bin").write_text(f"conversion {self.n_calls}")


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_a_model_is_converted_once_for_each_name(model, cache):
    convert, before = Converter(), contents(model)
    first = converted_model(model, "a", convert)
    assert converted_model(model, "a", convert) == first
    assert first.parent == cache
    assert convert.n_calls == 1
    converted_model(model, "b", convert)
    assert convert.n_calls == 2
    assert contents(model) == before
    assert cache.stat().st_mode & 0o777 == 0o700


def test_what_a_model_directory_contains_is_neither_used_nor_written(model, tmp_path):
    """As in a download whose links lead to files of the user."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (model / ".engines").mkdir()
    (model / ".engines" / "a.mac").symlink_to(tmp_path / "precious")
    (model / ".engines" / "a").symlink_to(tmp_path / "elsewhere")
    place = converted_model(model, "a", Converter())
    assert (place / "model.bin").read_text() == "conversion 1"
    assert (tmp_path / "precious").read_text() == "mine"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def change(place, *_):
    (place / "model.bin").write_text("changed")


def retrain(_place, model, _patch):
    (model / "config.json").write_text('{"other": 1}')
    (model / "manifest.json").unlink()
    seal(model)


def update(_place, _model, monkeypatch):
    monkeypatch.setattr(ctranslate2_engine, "__version__", "another")


@pytest.mark.parametrize("event", [change, retrain, update])
def test_a_changed_conversion_model_or_version_is_converted_again(model, event, monkeypatch):
    convert = Converter()
    event(converted_model(model, "a", convert), model, monkeypatch)
    place = converted_model(model, "a", convert)
    assert (place / "model.bin").read_text() == "conversion 2"
    converted_model(model, "a", convert)
    assert convert.n_calls == 2


def test_unused_conversions_are_removed_at_the_next_one(model, cache):
    convert = Converter()
    unused, used = (converted_model(model, name, convert) for name in "ab")
    killed = cache / ".tmp-1-b"
    killed.mkdir()
    for path in (unused, used, killed):
        os.utime(path, (0, time.time() - UNUSED - 60))
    converted_model(model, "b", convert)
    added = converted_model(model, "c", convert)
    assert set(cache.iterdir()) == {used, added}


def test_without_a_writable_place_a_model_is_converted_for_the_process(model, cache, monkeypatch):
    monkeypatch.setattr(ctranslate2_engine.os, "access", lambda *_: False)
    place = converted_model(model, "a", Converter())
    assert (place / "model.bin").is_file()
    assert list(cache.iterdir()) == []
    verify(model)
    blocked = Path(os.environ["XDG_CACHE_HOME"], "file")
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert (converted_model(model, "a", Converter()) / "model.bin").is_file()


def test_a_damaged_model_is_not_converted(model):
    (model / "config.json").write_text("[]")
    with raises(CheckpointError, "damaged"):
        converted_model(model, "a", Converter())
