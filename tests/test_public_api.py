"""The public surface: lazy imports, typed and documented signatures, presets, repr."""

import ast
import inspect
import subprocess
import sys
import typing
from importlib import resources

import pytest
import torch
from expected_errors import raises

import polyhead
from polyhead.errors import ConfigError
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import FAMILIES

NAMES = [name for name in polyhead.__all__ if name != "__version__"]


def public_functions(name):
    """Yield an exported function, or the public methods that an exported class defines."""
    item = getattr(polyhead, name)
    if not inspect.isclass(item):
        yield name, item
        return
    for method, value in vars(item).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
            yield f"{name}.{method}", inspect.unwrap(function)


def mentions_any(annotation):
    return annotation is typing.Any or any(map(mentions_any, typing.get_args(annotation)))


def test_importing_polyhead_does_not_import_torch():
    code = "import sys, polyhead; dir(polyhead); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_dir_lists_all_names_and_each_can_be_imported():
    assert dir(polyhead) == sorted(polyhead.__all__)
    for name in NAMES:
        assert getattr(polyhead, name).__name__ == name
    with pytest.raises(AttributeError, match="lod"):
        polyhead.lod  # noqa: B018


def test_type_checkers_see_the_names_that_are_imported_lazily():
    source = (resources.files("polyhead") / "__init__.py").read_text(encoding="utf-8")
    imported = {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("polyhead.")
        for alias in node.names
    }
    assert imported == {name: f"polyhead.{module}" for name, module in polyhead._MODULES.items()}
    assert set(imported) == set(NAMES)
    assert (resources.files("polyhead") / "py.typed").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_public_signatures_are_typed_without_any_and_documented(name):
    assert inspect.getdoc(getattr(polyhead, name))
    for where, function in public_functions(name):
        parameters = inspect.signature(function).parameters.values()
        annotations = [p.annotation for p in parameters if p.name not in ("self", "cls")]
        annotations.append(inspect.signature(function).return_annotation)
        assert inspect.Parameter.empty not in annotations, where
        assert not any(map(mentions_any, annotations)), where
        assert where.endswith(("__init__", "forward")) or inspect.getdoc(function), where


def test_presets_have_unique_names_and_published_sizes():
    names = polyhead.list_models()
    assert len(names) == len(set(names))
    presets = {preset for family in FAMILIES.values() for preset in family.presets}
    assert presets <= set(names)
    assert "gpt2" in polyhead.list_models("language_modeling")
    assert "gpt2" not in polyhead.list_models("translation")
    with torch.device("meta"):
        model = polyhead.create_model("gpt2")
    assert sum(weight.numel() for weight in model.parameters()) == 124_439_808


def test_create_model_takes_a_known_name_and_a_configuration_of_the_family():
    config = GPTConfig(vocab=50, max_length=8)
    with torch.device("meta"):
        assert polyhead.create_model("gpt", config).to_logits.weight.shape[0] == 50
    with raises(ConfigError, "wrong_config_class", "BERTConfig", "GPTConfig"):
        polyhead.create_model("bert", config)
    with raises(ConfigError, "unknown_model", "gtp2", "gpt2"):
        polyhead.create_model("gtp2")


def test_a_loaded_pipeline_is_evaluated_and_its_repr_fits_two_lines(tiny_run):
    translator = polyhead.load(tiny_run, device="cpu")
    assert type(translator) is polyhead.Translator
    text = repr(translator)
    assert text.count("\n") <= 1
    assert len(text.replace(str(tiny_run), "run")) <= 2 * 100
    assert "Translator" in text
    assert "transformer" in text
    result = polyhead.evaluate(translator, ["내일", "오늘"], ["tomorrow", "today"])
    assert [score.name for score in result.scores] == ["BLEU", "chrF2"]
    assert len(result.outputs) == 2
