"""Pictures are saved in the format that the suffix names."""

import pytest
from expected_errors import raises

from polyhead.errors import ConfigError
from polyhead.render.picture import line_charts
from polyhead.render.svg import Point

STARTS = {"svg": b"<svg", "html": b"<!doctype html>", "PNG": b"\x89PNG\r\n"}


@pytest.mark.parametrize("suffix", STARTS)
def test_a_picture_is_saved_in_the_format_of_the_suffix(tmp_path, suffix):
    picture = line_charts("loss", {"loss": {"train": [Point(0, 2), Point(1, 1)]}}, "step")
    path = tmp_path / f"curve.{suffix}"
    picture.save(path)
    assert path.read_bytes().startswith(STARTS[suffix])


@pytest.mark.parametrize("name", ["curve.jpg", "curve"])
def test_a_picture_of_another_format_is_refused(tmp_path, name):
    picture = line_charts("loss", {}, "step")
    with raises(ConfigError, "unknown_format", ".png"):
        picture.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
