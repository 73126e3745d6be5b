"""Configuration files: errors name the option, TOML round trips."""

import json
import tomllib
from dataclasses import dataclass, field, fields
from typing import Literal

import pytest
from expected_errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from polyhead.bounds import Factor, Few
from polyhead.config import differences, from_dict, plain, read, set_by_path, to_toml
from polyhead.errors import ConfigError
from polyhead.models.transformer import TransformerConfig
from polyhead.tokenizers.base import TextConfig
from polyhead.training.loop import TrainConfig


@dataclass(frozen=True)
class Run:
    model: TransformerConfig
    train: TrainConfig = field(default_factory=TrainConfig)
    names: tuple[str, ...] = ()
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Plain:
    flag: bool = False
    few: Few = 1
    ratio: Factor = 0.5
    number: int | None = None
    rate: float = 0.0
    text: str | None = None
    sizes: tuple[int, ...] = ()
    kind: Literal["a", "b"] = "a"
    inner: TextConfig = field(default_factory=TextConfig)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2000), st.floats(-1, 200), st.sampled_from("ac"),
    st.lists(st.integers(0, 3) | st.booleans(), max_size=2), st.just({"vocab": 9}),
    st.just({"vocab": True}), st.just({"vocab": 1}),
)  # fmt: skip
GOOD = {"model": {"source_vocab": 10, "target_vocab": 10}}


@settings(max_examples=500)
@given(st.dictionaries(st.sampled_from([each.name for each in fields(Plain)]), VALUES, max_size=3))
def test_values_are_those_that_pydantic_accepts(values):
    try:
        expected = TypeAdapter(Plain).validate_json(json.dumps(values), strict=True)
    except ValidationError:
        with pytest.raises(ConfigError):
            from_dict(Plain, values)
    else:
        built = from_dict(Plain, values)
        assert built == expected
        assert repr(built) == repr(expected)  # 1 is 1.0, but is not written so


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"modle": {}}, "unknown_key", "modle: no such option; did you mean model?"),
        ({}, "missing_key", "model: "),
        ({"model": GOOD["model"] | {"stack": {"n_head": 4}}}, "unknown_key",
         "model.stack.n_head: no such option; did you mean n_heads?"),
        ({"model": GOOD["model"] | {"stack": {"norm": "mid"}}}, "invalid_value",
         "model.stack.norm = 'mid': should be 'pre' or 'post'"),
        ({"model": GOOD["model"] | {"stack": {"d_model": "big"}}}, "invalid_value",
         "model.stack.d_model = 'big': should be a valid integer"),
        ({**GOOD, "train": {"steps": "5"}}, "invalid_value", "train.steps = '5': should be"),
        ({**GOOD, "train": {"steps": 5.0}}, "invalid_value", "train.steps = 5.0: should be"),
        ({**GOOD, "train": {"steps": True}}, "invalid_value", "train.steps = True: should be"),
        ({**GOOD, "train": {"steps": 0}}, "invalid_value", "train: steps = 0: "),
        ({**GOOD, "train": {"bf16": 1}}, "invalid_value", "train.bf16 = 1: should be"),
        ({**GOOD, "train": {"schedule": {"rate": float("nan")}}}, "invalid_value",
         "train.schedule.rate = nan"),
        ({"model": {"source_vocab": 10, "target_vocab": 9, "tie": "all"}}, "invalid_value",
         'model: tie = "all"'),
        ({**GOOD, "train": 5}, "invalid_value", "train = 5: should be an object"),
        ({**GOOD, "names": ["\udcff.txt"]}, "invalid_value", "UTF-8"),
        ({**GOOD, "kind": "x" * 100_000}, "invalid_value", "kind = "),
        ({**GOOD, "y" * 100_000: 1}, "unknown_key", "yyy"),
    ],
)  # fmt: skip
def test_errors_name_the_option_in_one_short_line(values, code, message):
    with raises(ConfigError, code, message) as caught:
        from_dict(Run, values)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_deeply_nested_value_is_refused():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with raises(ConfigError, "invalid_value"):
        from_dict(Run, {**GOOD, "kind": deep})


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"steps = ", "invalid_toml"),
        (b"steps = " + b"9" * 5000, "invalid_toml"),
        (b"steps = '\xff'", "unreadable_config"),
        (None, "no_config_file"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path, content, code):
    file = tmp_path / "run.toml"
    if content is not None:
        file.write_bytes(content)
    with raises(ConfigError, code, str(file)):
        read(file)


def test_overrides_replace_values_of_the_file_and_the_file_those_of_the_dataclass(tmp_path):
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbf[train]\nsteps = 10\nclip_norm = 2\n")  # with a BOM, an integer
    train = from_dict(TrainConfig, read(file, ["train.steps=5", "train.bf16=true"])["train"])
    assert (train.steps, train.clip_norm, train.bf16) == (5, 2.0, True)
    assert train.log_every == TrainConfig().log_every


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("a.b=1", 1), ("a.b = 1", 1), ("a.b=1e-3", 1e-3), ("a.b=true", True),
        ('a.b="true"', "true"), ("a.b=no", "no"), ("a.b=train.ko", "train.ko"),
        ("a.b=x=y", "x=y"), ('a.b=["x", "y"]', ["x", "y"]), ("a.b=" + "9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_the_right_side_of_an_override_is_toml_or_a_word(override, value):
    values: dict = {}
    set_by_path(values, override)
    assert values == {"a": {"b": value}}


@pytest.mark.parametrize("override", ["steps", "=5", "a.b.c=1"])
def test_invalid_overrides_are_refused(override):
    with raises(ConfigError, "bad_override", override):
        set_by_path({"a": {"b": 1}}, override)


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
def test_written_toml_is_read_back_by_tomllib(values):
    assert tomllib.loads(to_toml(values)) == values


def test_a_configuration_survives_a_round_trip():
    config = TrainConfig(steps=7, epochs=0.1, clip_norm=1e-30)
    assert from_dict(TrainConfig, tomllib.loads(to_toml(plain(config)))) == config


def test_differences_are_named_with_both_values():
    before = {"train": {"steps": 1, "seed": 1}, "model": {"stack": {"d_model": 8}}}
    after = {"train": {"steps": 2, "seed": 1, "bf16": True}, "model": {"stack": {"d_model": 8}}}
    assert differences(before, after) == ["train.steps: 1 → 2", "train.bf16: None → True"]
    assert differences(before, before) == []
    assert differences({"a": 1}, {"a": 1.0}) == []
