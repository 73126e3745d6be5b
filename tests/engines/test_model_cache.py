"""Converted models beside their model: made once, never taken from others."""

import json
import shutil

import pytest
from expected_errors import raises

from polyhead.checkpoint.atomic_dir import seal
from polyhead.engines import model_cache
from polyhead.engines.model_cache import ENGINES, converted_model
from polyhead.errors import CheckpointError


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with model_cache.atomic_dir(tmp_path / "model") as draft:
        (draft / "config.json").write_text("{}")
    return tmp_path / "model"


class Converter:
    """Counts its calls."""

    def __init__(self):
        self.n_calls = 0

    def __call__(self, folder):
        self.n_calls += 1
        (folder / "model.bin").write_text(f"conversion {self.n_calls}")


def test_a_model_is_converted_once_for_each_name(model):
    convert = Converter()
    first = converted_model(model, "a", convert)
    assert converted_model(model, "a", convert) == first == model / ENGINES / "a"
    assert convert.n_calls == 1
    converted_model(model, "b", convert)
    assert convert.n_calls == 2
    model_cache.verify(model)  # still a whole model


def change(place, _):
    (place / "model.bin").write_text("changed")


def change_and_seal(place, _):
    (place / "model.bin").write_text("changed")
    (place / "manifest.json").unlink()
    seal(place)


def retrain(_, model):
    (model / "config.json").write_text('{"other": 1}')
    (model / "manifest.json").unlink()
    shutil.move(model / ENGINES, model.parent / "kept")
    seal(model)
    shutil.move(model.parent / "kept", model / ENGINES)


@pytest.mark.parametrize("damage", [change, change_and_seal, retrain])
def test_a_changed_conversion_or_model_is_converted_again(model, damage):
    convert = Converter()
    place = converted_model(model, "a", convert)
    damage(place, model)
    converted_model(model, "a", convert)
    assert (place / "model.bin").read_text() == "conversion 2"
    converted_model(model, "a", convert)
    assert convert.n_calls == 2


def test_a_conversion_of_another_user_is_not_used(model, tmp_path, monkeypatch):
    convert = Converter()
    converted_model(model, "a", convert)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))  # another key
    converted_model(model, "a", convert)
    assert convert.n_calls == 2


def test_the_key_is_readable_by_its_user_only(model, tmp_path):
    converted_model(model, "a", Converter())
    key = tmp_path / "cache" / "polyhead" / "engines.key"
    assert (key.stat().st_mode & 0o777, len(key.read_bytes())) == (0o600, 32)


def test_without_a_writable_place_a_model_is_converted_for_the_process(model, monkeypatch):
    monkeypatch.setattr(model_cache.os, "access", lambda *_: False)
    convert = Converter()
    place = converted_model(model, "a", convert)
    assert (place / "model.bin").is_file()
    assert not (model / ENGINES).exists()
    assert json.loads((model / "manifest.json").read_text()).keys() == {"config.json"}


def test_a_damaged_model_is_not_converted(model):
    (model / "config.json").write_text("[]")
    with raises(CheckpointError, "damaged"):
        converted_model(model, "a", Converter())
