"""Arguments read without typer are those that typer reads; everything else is left to it."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.exceptions import TyperException

from polyhead.cli.main import program
from polyhead.cli.plain_arguments import plain_arguments
from polyhead.cli.translate import translate

TYPER = program("translate").commands["translate"]
NAMES = [option for parameter in TYPER.params for option in parameter.opts if option[:2] == "--"]
VALUES = [
    "5",
    "0.6",
    "0",
    "-1",
    "1e3",
    "05",
    "1_0",
    " 5",
    "٣",
    "auto",
    "-",
    "",
    "a b",
    "한국어",
    "a.b",
]


def read_by_typer(words):
    with TYPER.make_context("translate", list(words)) as context:
        return context.params


@pytest.mark.parametrize(
    "line",
    [
        "runs/mine", "runs/mine - a.txt", "runs/mine '내일 회의가 있어요.' ''",
        "runs/mine --beam 5 --compute-type int8", "--beam 3 runs/a runs/b --beam 4 --scores",
        "runs/a --length-penalty 1 --temperature 0.5 --dictionary a/b.txt --jsonl --no-split",
        "runs/a --prefix 'The end' --seed 12 --n-best 3 --sample --encoding cp949",
    ],
)  # fmt: skip
def test_plain_arguments_are_those_of_typer(line):
    words = shlex.split(line)
    arguments = plain_arguments(translate, words)
    assert arguments == read_by_typer(words)
    assert all(type(arguments[name]) is type(value) for name, value in read_by_typer(words).items())


@pytest.mark.parametrize(
    "line",
    [
        "", "--beam 5", "runs/a --help", "runs/a -h", "runs/a --beam=5", "runs/a --beam five",
        "runs/a --beam -1", "runs/a --beam", "runs/a --beem 5", "runs/a --top_k 5", "runs/a -- --x",
        "runs/a --length-penalty nan", "runs/a --prefix --scores", "runs/a --models b",
    ],
)  # fmt: skip
def test_other_forms_and_mistakes_are_left_to_typer(line):
    assert plain_arguments(translate, shlex.split(line)) is None


@given(st.lists(st.sampled_from([*NAMES, *VALUES, "runs/mine"]), max_size=6))
def test_no_words_are_read_differently(words):
    arguments = plain_arguments(translate, words)
    if arguments is not None:
        try:
            expected = read_by_typer(words)
        except TyperException as error:
            pytest.fail(f"typer refuses {words}: {error}")
        assert arguments == expected
