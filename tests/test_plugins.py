"""Plug-ins: registries, files and modules, child processes, and the examples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from expected_errors import raises
from tiny import SMALL

from polyhead import plugin_registry
from polyhead.cli.main import main
from polyhead.errors import ConfigError, MissingError
from polyhead.models.registry import create_model
from polyhead.plugin_registry import VARIABLE, load_plugin
from polyhead.training.config import read_run

EXAMPLES = Path(__file__).parents[1] / "examples" / "plugins"
ACTIVATION = """
from torch import nn
from polyhead.plugins import register_activation
register_activation({name!r})(nn.{kind})
"""
pytestmark = pytest.mark.usefixtures("plugins")


def write_plugin(folder, name="mine", registers="mine", kind="Tanh"):
    """Write a plug-in that registers an activation."""
    path = folder / f"{name}.py"
    path.write_text(ACTIVATION.format(name=registers, kind=kind), encoding="utf-8")
    return path


def test_a_name_of_a_plugin_is_valid_in_a_recipe(tmp_path):
    with raises(ConfigError, "unknown_activation", "model.stack.activation = 'mine'", "relu"):
        read_run("small", ["model.stack.activation=mine"])
    assert load_plugin(write_plugin(tmp_path)) == "mine"
    run = read_run("small", ["model.stack.activation=mine", *SMALL])
    model = create_model("transformer", run.model)
    assert isinstance(model.encoder.blocks[0].feed_forward.activation, torch.nn.Tanh)
    with raises(ConfigError, "unknown_activation", "did you mean mine?"):
        read_run("small", ["model.stack.activation=mina"])


def test_a_taken_name_is_refused_and_nothing_of_the_plugin_remains(tmp_path):
    both = write_plugin(tmp_path)
    both.write_text(both.read_text() + "register_activation('relu')(nn.ReLU)\n")
    with raises(ConfigError, "name_taken", "'relu'", "polyhead"):
        load_plugin(both)
    assert "mine" not in plugin_registry.REGISTRIES["activation"]
    load_plugin(write_plugin(tmp_path))
    with raises(ConfigError, "name_taken", "'mine'", "by mine"):
        load_plugin(write_plugin(tmp_path, "other"))


@pytest.mark.parametrize(
    ("text", "kind", "code", "words"),
    [
        (None, MissingError, "missing_plugin", "bad.py"),
        ("x = 1", ConfigError, "empty_plugin", "registers nothing"),
        ("x = 1\n1 / 0", ConfigError, "plugin_failed", "line 2: ZeroDivisionError"),
        ("x = (", ConfigError, "plugin_failed", "line 1: SyntaxError"),
        ("import sys; sys.exit(1)", ConfigError, "plugin_failed", "SystemExit"),
        ("import no_such_package", MissingError, "missing_package", "no_such_package"),
    ],
)
def test_an_unusable_plugin_is_one_line(tmp_path, capsys, text, kind, code, words):
    path = tmp_path / "bad.py"
    if text is not None:
        path.write_text(text)
    with raises(kind, code, words):
        load_plugin(path)
    assert main(["show", "small", "--plugin", str(path)]) == kind.exit_code
    assert capsys.readouterr().err.count("\n") == 1
    assert os.environ[VARIABLE] == ""


def test_modules_are_loaded_by_name(tmp_path):
    sys.path.append(str(tmp_path))
    write_plugin(tmp_path, "installed_part")
    assert load_plugin("installed_part") == "installed_part"
    with raises(MissingError, "missing_plugin", "no_such_part"):
        load_plugin("no_such_part")
    with raises(ConfigError, "name_taken", "json"):
        load_plugin(write_plugin(tmp_path, "json"))


@pytest.mark.parametrize("form", ["before", "after", "equals"])
def test_the_option_is_taken_before_and_after_the_command(tmp_path, capsys, form):
    path = str(write_plugin(tmp_path))
    words = ["show", "small", "model.stack.activation=mine"]
    option = [f"--plugin={path}"] if form == "equals" else ["--plugin", path]
    assert main([*option, *words] if form == "before" else [*words, *option]) == 0
    assert 'activation = "mine"' in capsys.readouterr().out
    assert os.environ[VARIABLE] == path


def test_the_option_needs_a_value_and_is_in_every_help(capsys):
    assert main(["show", "small", "--plugin"]) == 2
    for words in (["--help"], ["train", "--help"], ["translate", "--help"]):
        assert main(words) == 0
        assert "--plugin FILE_OR_MODULE" in capsys.readouterr().out


def test_other_processes_load_what_the_variable_and_entry_points_name(tmp_path):
    """In a new process nothing is loaded until a name is unknown; entry points are found too."""
    named = write_plugin(tmp_path, "named", "from_variable")
    write_plugin(tmp_path, "installed", "from_package")
    metadata = tmp_path / "installed-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[polyhead.plugins]\nany = installed\n")
    script = """
import sys
from polyhead.layers.feed_forward import ACTIVATIONS
assert "relu" in ACTIVATIONS and not {"named", "installed"} & sys.modules.keys()
assert {"from_variable", "from_package"} <= set(ACTIVATIONS)
assert ACTIVATIONS.plugin_of("from_package") == "installed"
"""
    paths = os.pathsep.join([*sys.path, str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": paths, VARIABLE: str(named)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=120)
