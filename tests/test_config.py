"""Every mistake in a configuration is named, with its place and a way out."""

import tomllib
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.config import differences, from_dict, plain, read, set_by_path, to_toml
from polyhead.errors import ConfigError
from polyhead.models.transformer import TransformerConfig
from polyhead.training.loop import TrainConfig


@dataclass(frozen=True)
class Run:
    model: TransformerConfig
    train: TrainConfig = field(default_factory=TrainConfig)
    names: tuple[str, ...] = ()
    kind: Literal["a", "b"] = "a"


GOOD = {"model": {"source_vocab": 10, "target_vocab": 10}}


def complaint(values):
    with pytest.raises(ConfigError) as caught:
        from_dict(Run, values)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults_come_from_the_dataclasses():
    assert from_dict(Run, GOOD).model.stack.d_model == 512


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modle": {}}, "modle: no such option; did you mean model?"),
        ({}, "model: this option is required"),
        (
            {"model": GOOD["model"] | {"stack": {"n_head": 4}}},
            "model.stack.n_head: no such option; did you mean n_heads?",
        ),
        (
            {"model": GOOD["model"] | {"stack": {"norm": "mid"}}},
            "model.stack.norm = 'mid': should be 'pre' or 'post'",
        ),
        (
            {"model": GOOD["model"] | {"stack": {"d_model": "big"}}},
            "model.stack.d_model = 'big': should be a valid integer",
        ),
        ({**GOOD, "train": {"steps": "5"}}, "train.steps = '5': should be a valid integer"),
        ({**GOOD, "train": {"steps": 5.0}}, "train.steps = 5.0: should be a valid integer"),
        ({**GOOD, "train": {"steps": True}}, "train.steps = True: should be a valid integer"),
        ({**GOOD, "train": {"steps": 0}}, "train: steps = 0: expected at least 1"),
        ({**GOOD, "train": {"bf16": 1}}, "train.bf16 = 1: should be a valid boolean"),
        (
            {**GOOD, "train": {"schedule": {"rate": float("nan")}}},
            "train.schedule.rate = nan: should be a finite number",
        ),
        (
            {"model": {"source_vocab": 10, "target_vocab": 9, "tie": "all"}},
            'model: tie = "all" needs one joint vocabulary, but the source has 10',
        ),
        ({**GOOD, "train": 5}, "train = 5: should be an object"),
        ({**GOOD, "names": ["\udcff.txt"]}, "is not text that UTF-8 can hold"),
    ],
)
def test_mistakes_are_explained(values, message):
    assert message in complaint(values)


def test_a_long_wrong_value_is_not_repeated_at_length():
    assert len(complaint({**GOOD, "kind": "x" * 100_000})) < 200
    assert len(complaint({**GOOD, "y" * 100_000: 1})) < 300


def test_a_value_that_is_too_deep_is_refused():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert complaint({**GOOD, "kind": deep}) == "configuration: a value is too large or too deep"


def test_a_whole_number_may_stand_for_a_real_one():
    assert from_dict(TrainConfig, {"clip_norm": 2}).clip_norm == 2.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"steps = ", "not valid TOML"),
        (b"steps = " + b"9" * 5000, "not valid TOML"),
        (b"steps = '\xff'", "cannot be read as UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, text, message):
    file = tmp_path / "run.toml"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no configuration file .*/none\.toml"):
        read(tmp_path / "none.toml")


def test_a_byte_order_mark_does_no_harm(tmp_path):
    """Windows' editor writes one."""
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbf[train]\nsteps = 10\n")
    assert read(file) == {"train": {"steps": 10}}


def test_overrides_win(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[train]\nsteps = 10\nclip_norm = 2.0\n")
    train = from_dict(TrainConfig, read(file, ["train.steps=5", "train.bf16=true"])["train"])
    assert (train.steps, train.clip_norm, train.bf16) == (5, 2.0, True)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("a.b=1", 1),
        ("a.b = 1", 1),
        ("a.b=1e-3", 1e-3),
        ("a.b=true", True),
        ('a.b="true"', "true"),
        ("a.b=no", "no"),
        ("a.b=train.ko", "train.ko"),
        ("a.b=x=y", "x=y"),
        ('a.b=["x", "y"]', ["x", "y"]),
        ("a.b=" + "9" * 5000, "9" * 5000),
    ],
)
def test_the_right_side_of_an_override_is_toml_or_a_word(override, value):
    values: dict = {}
    set_by_path(values, override)
    assert values == {"a": {"b": value}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps", "'steps': write an override as name=value, as in train.steps=500"),
        ("=5", "'=5': write an override as name=value"),
        ("a.b.c=1", "'a.b.c=1': b is a value, not a table"),
    ],
)
def test_an_override_that_makes_no_sense_is_explained(override, message):
    with pytest.raises(ConfigError) as caught:
        set_by_path({"a": {"b": 1}}, override)
    assert message in str(caught.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text("abc_", min_size=1, max_size=4)
VALUES = st.booleans() | st.integers(-(2**53), 2**53) | TEXTS | st.lists(TEXTS)
VALUES |= st.floats(allow_nan=False)
TABLES = st.recursive(
    st.dictionaries(NAMES, VALUES, max_size=4),
    lambda inner: st.dictionaries(NAMES, VALUES | inner, max_size=4),
    max_leaves=5,
)


@settings(deadline=None)
@given(TABLES)
def test_a_toml_file_says_what_was_written_into_it(values):
    """The oracle is Python's own reader."""
    assert tomllib.loads(to_toml(values)) == values


def test_a_configuration_survives_its_file():
    config = TrainConfig(steps=7, epochs=0.1, clip_norm=1e-30)
    assert from_dict(TrainConfig, tomllib.loads(to_toml(plain(config)))) == config


def test_differences_are_named_with_both_values():
    before = {"train": {"steps": 1, "seed": 1}, "model": {"stack": {"d_model": 8}}}
    after = {"train": {"steps": 2, "seed": 1, "bf16": True}, "model": {"stack": {"d_model": 8}}}
    assert differences(before, after) == ["train.steps: 1 → 2", "train.bf16: None → True"]
    assert differences(before, before) == []
    assert differences({"a": 1}, {"a": 1.0}) == []
