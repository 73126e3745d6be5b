"""Plug-ins: registries, files and modules, child processes, and the examples."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from expected_errors import raises
from tiny import SMALL, write_corpus
from torch.nn import functional as F

import polyhead
from polyhead import plugin_registry
from polyhead.checkpoint.model_dir import load_model
from polyhead.cli.main import main
from polyhead.convert.targets import TARGETS, reachable
from polyhead.errors import CheckpointError, ConfigError, MissingError
from polyhead.layers.attention import Mask
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.transformer_stack import ATTENTION, StackConfig
from polyhead.models.registry import create_model, list_models
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
        ("x = 1\n1 / 0", ConfigError, "plugin_failed", "line 2): ZeroDivisionError"),
        ("x = (", ConfigError, "plugin_failed", "line 1): SyntaxError"),
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


@pytest.fixture
def example():
    """Load an example, and return its module."""

    def load(name):
        return sys.modules[load_plugin(EXAMPLES / f"{name}.py")]

    return load


@pytest.mark.parametrize("name", ["linear_attention", "relu_squared", "contrastive", "rnn"])
def test_an_example_has_at_most_60_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 60


def explicit_linear_attention(q, k, v, allowed):
    """The formula with loops: φ(q_i) · φ(k_j), normalized over the keys that i may see."""
    q, k = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
    context = torch.zeros(*q.shape[:-1], v.size(-1), dtype=v.dtype)
    for i in range(q.size(2)):
        weight = (q[:, :, i, None] * k).sum(-1) * allowed[:, None, i]
        context[:, :, i] = (weight[..., None] * v).sum(2) / weight.sum(-1, keepdim=True)
    return context


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n_queries", [1, 5, 150])
def test_linear_attention_is_its_formula(example, causal, n_queries):
    kernel = example("linear_attention").LinearAttention(StackConfig())
    n_keys = 150 if causal else 70
    q = torch.randn(2, 3, n_queries, 8, dtype=torch.float64)
    k, v = (torch.randn(2, 3, n_keys, width, dtype=torch.float64) for width in (8, 5))
    real = torch.arange(n_keys) < torch.tensor([[n_keys], [n_keys - 20]])
    mask = Mask(keys=None if causal else real, causal=causal)
    allowed = torch.ones(2, n_queries, n_keys)
    allowed = allowed.tril(n_keys - n_queries) if causal else allowed * real[:, None]
    expected = explicit_linear_attention(q, k, v, allowed)
    torch.testing.assert_close(kernel(q, k, v, mask), expected)
    torch.testing.assert_close(kernel.weights(q, k, mask) @ v, expected)
    pairs = Mask(pairs=allowed.bool())  # as beam search gives it
    torch.testing.assert_close(kernel(q, k, v, pairs), expected)


def test_relu_squared_is_torchs_relu_times_itself(example):
    x = torch.randn(4, 5, 6)
    assert torch.equal(example("relu_squared").ReLUSquared()(x), F.relu(x) * F.relu(x))


def test_the_contrastive_loss_is_torchs_cross_entropy(example):
    module = example("contrastive")
    first, second = torch.randn(2, 7, 16, dtype=torch.float64)
    similar = F.cosine_similarity(first[:, None], second[None], dim=-1) / module.TEMPERATURE
    expected = F.cross_entropy(similar, torch.arange(7))
    torch.testing.assert_close(module.contrast(first, second), expected)


def test_the_recurrent_family_decodes_as_it_trains(example):
    config = example("rnn").RNNConfig(vocab=20, d_model=8, n_layers=2)
    assert "rnn" in list_models("language_modeling")
    model, ids = create_model("rnn", config), torch.randint(0, 20, (3, 6))
    expected = model.to_logits(model.hidden(ids))
    state = model.begin(ids[:, :2], width=2, max_length=9)
    for i in range(2, 6):
        logits = model.step(ids[:, i, None].repeat(1, 2), state)
        torch.testing.assert_close(logits, expected[:, None, i].expand(-1, 2, -1))
    before = state.h.clone()
    state.select(torch.tensor([[1, 1], [0, 1], [1, 0]]))
    state.keep(torch.tensor([2, 0]))
    assert torch.equal(
        state.h, before[:, [2, 0]][:, :, [1, 0]].index_select(1, torch.tensor([0, 1]))
    )


def train(folder, plugin, recipe, files, *overrides):
    """Train by the command line, with an example in `folder`; return the run and the plug-in."""
    shutil.copy(EXAMPLES / f"{plugin}.py", folder)
    path, run = str(folder / f"{plugin}.py"), str(folder / "run")
    words = [word for option, name in files.items() for word in (f"--{option}", *name)]
    assert main(["train", recipe, *words, "--run", run, "--plugin", path, *overrides]) == 0
    return run, path


def forget():
    """Unload all plug-ins, as in a new process."""
    for registry in plugin_registry.REGISTRIES.values():
        for plugin in set(registry._plugins.values()):
            registry.remove_plugin(plugin)
            sys.modules.pop(plugin, None)
    plugin_registry._loaded.clear()
    os.environ[VARIABLE] = ""


@pytest.mark.slow
def test_a_translator_with_linear_attention_and_a_metric_of_its_own(tmp_path, capsys):
    metric = tmp_path / "shortness.py"
    metric.write_text(
        "from polyhead.plugins import register_metric\n"
        "@register_metric('shortness')\n"
        "def shortness(outputs, references):\n"
        "    return sum(map(len, references)) / (1 + sum(map(len, outputs)))\n"
    )
    load_plugin(metric)
    files = write_corpus(tmp_path)
    kinds = ["model.stack.attention=linear", "train.judge_by=shortness"]
    run, path = train(tmp_path, "linear_attention", "small", files, *SMALL, *kinds)
    assert "shortness" in capsys.readouterr().err
    translator = polyhead.load(run)
    first = translator.translate(["내일 회의가 있어요."])
    with record_attention(translator.model) as maps:
        translator.model(torch.randint(4, 9, (1, 5)), torch.randint(4, 9, (1, 4)))
    kernel = type(translator.model.decoder.blocks[0].self_attention.kernel)
    assert kernel.__name__ == "LinearAttention"
    torch.testing.assert_close(maps["decoder.blocks.0.self_attention"].sum(-1), torch.ones(1, 2, 4))
    page = tmp_path / "page.html"
    assert main(["attention", run, "내일 회의가 있어요.", "--output", str(page)]) == 0
    files = [word for name, paths in files.items() for word in (f"--{name}", *paths)]
    capsys.readouterr()
    assert main(["evaluate", run, *files, "--metric", "shortness", "--json"]) == 0
    assert '"shortness"' in capsys.readouterr().out
    assert main(["cost", "small", *kinds, "--json"]) == 0

    names, obstacles = reachable(translator.saved.family, translator.saved.config, None)
    assert not names
    assert obstacles.keys() == TARGETS.keys()
    assert all("linear_attention" in reason for reason in obstacles.values())
    assert main(["export", run, "--to", "hf", "--output", str(tmp_path / "out")]) == 5

    forget()
    with raises(CheckpointError, "missing_plugin", "attention kernel 'linear'", "linear_attention"):
        load_model(Path(run))
    assert "linear" not in ATTENTION
    assert main(["translate", run, "내일 회의가 있어요."]) == 5
    assert main(["translate", run, "내일 회의가 있어요.", "--plugin", path]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == first[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "change"),
    [
        ("contrastive", "train.objective=contrastive"),
        ("relu_squared", "model.stack.activation=relu2"),
    ],
)
def test_examples_train_masked_language_models(tmp_path, plugin, change, capsys):
    files = {"text": write_corpus(tmp_path)["source"]}
    sizes = [word for word in SMALL if "bleu" not in word]
    run, _ = train(tmp_path, plugin, "bert-tiny", files, *sizes, change)
    assert main(["fill", run, "내일 [MASK] 있어요."]) == 0
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [1, 2])
def test_the_recurrent_family_is_trained_and_used(tmp_path, capsys, n_processes):
    recipe = str(EXAMPLES / "rnn.toml")
    files = {"text": write_corpus(tmp_path)["source"]}
    sizes = ["text.vocab=900", "model.d_model=16", "train.steps=4", "train.accumulate=2"]
    processes = ["--processes", str(n_processes)]
    run, _ = train(tmp_path, "rnn", recipe, files, *sizes, *processes)
    capsys.readouterr()
    assert main(["generate", run, "--prompt", "내일"]) == 0
    assert main(["show", run]) == 0
    assert 'family = "rnn"' in capsys.readouterr().out
