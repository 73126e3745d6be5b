"""Names of other tools are answered with commands, options and settings that exist."""

import re

import pytest

from polyhead.cli.main import COMMANDS, DATA_COMMANDS, DELETING, program
from polyhead.config import habits, setting_keys
from polyhead.training.config import read_run

PROGRAM = program()
DATA = {f"data {name}": PROGRAM.commands["data"].commands[name] for name in DATA_COMMANDS}
CLI = {**{name: PROGRAM.commands[name] for name in COMMANDS}, **DATA}
SETTINGS = set(setting_keys(read_run().plain()))
OF_PARAMETERS = {
    (command, option): answer
    for command, found in CLI.items()
    for parameter in reversed(found.params)
    for option, answer in habits()["with"].get(parameter.name, {}).items()
}
OF_COMMANDS = {
    (command, option): answer
    for command, table in habits()["options"].items()
    for option, answer in table.items()
}
HABITS = {**OF_PARAMETERS, **OF_COMMANDS}


def options(command):
    return {name for parameter in command.params for name in parameter.opts} | {"--help"}


def check(answer, command):
    """Every command, option and setting of an answer exists; none of them deletes."""
    names = re.findall(r"polyhead (data [a-z]+|[a-z]+)", answer)
    assert set(names) <= set(CLI), answer
    known = set().union(*(options(CLI[name]) for name in names)) or options(command)
    assert set(re.findall(r"--[a-z][a-z-]*", answer)) <= known, answer
    assert set(re.findall(r"\b(?:train|model|data|text|decode)\.[a-z_.]+", answer)) <= SETTINGS
    assert not set(re.findall(r"--[a-z][a-z-]*", answer)) & set(DELETING)


@pytest.mark.parametrize(("word", "answer"), habits()["commands"].items())
def test_the_commands_of_other_tools_lead_to_ours(fail, word, answer):
    assert word not in CLI
    check(answer, PROGRAM)
    fail(word, "runs/mine", "--output", "x", code=2, error="bad_usage", mention=answer)


@pytest.mark.parametrize(("command", "option"), HABITS)
def test_the_options_of_other_tools_lead_to_ours(fail, command, option):
    answer, target = HABITS[command, option], CLI.get(command, PROGRAM)
    if option in options(target):  # one of this command
        return
    check(answer, target)
    words = [] if command == "polyhead" else command.split()
    _, _, line = fail(*words, option, code=2, error="bad_usage")
    assert answer in line or "=VALUE" in line  # a setting


@pytest.mark.parametrize(("name", "meant"), habits()["settings"].items())
def test_the_settings_of_other_tools_lead_to_ours(fail, name, meant):
    key = meant.partition(",")[0]
    assert key in SETTINGS
    fail("train", "small", f"{name}=1", code=2, error="unknown_key", mention=key)
    fail("train", f"--{name.replace('_', '-')}", "1", code=2, error="bad_usage", mention=key)


@pytest.mark.parametrize(
    ("words", "mention"),
    [
        (["train", "--dropout", "0"], "model.stack.dropout=VALUE"),
        (["train", "--epochs", "3"], "train.epochs=VALUE"),
        (["train", "small", "epochs=5"], "train.epochs"),
        (["train", "small", "model.n_layers=2"], "model.stack.n_layers"),
        (["show", "multi30k-de-en-gnmt", "model.layers=2"], "did you mean n_layers"),
        (["train", "--batch-size", "8"], "counts tokens"),
        (["data", "download", "multi30k"], "polyhead data get"),
    ],
)
def test_settings_and_groups_are_found_by_their_own_names(fail, words, mention):
    fail(*words, code=2, mention=mention)


@pytest.mark.parametrize(
    ("words", "option"), [("train --fersh", "--fresh"), ("data cache --pune", "--prune")]
)
def test_a_misspelt_option_that_deletes_is_not_proposed(fail, words, option):
    _, _, line = fail(*words.split(), code=2, error="bad_usage")
    assert option not in line
