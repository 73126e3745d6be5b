"""Models without tokenizers: saved and loaded as safetensors with their configuration."""

import json

import pytest
import torch
from expected_errors import raises
from safetensors.torch import load_file

import polyhead
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig

CONFIG = GPTConfig(vocab=40, max_length=8, stack=StackConfig(1, 8, 2, 16))


def test_a_model_is_the_same_after_saving_and_loading(tmp_path):
    model = polyhead.create_model("gpt", CONFIG).eval()
    assert polyhead.save_model(model, tmp_path / "one") == tmp_path / "one"
    loaded = polyhead.load_model(tmp_path / "one")
    polyhead.save_model(loaded, tmp_path / "two")  # a loaded one knows its configuration
    ids = torch.randint(40, (2, 5))
    assert torch.equal(polyhead.load_model(str(tmp_path / "two"))(ids), model(ids))
    tensors = load_file(tmp_path / "one" / "model.safetensors")  # as other libraries read it
    assert sum(map(torch.numel, tensors.values())) == sum(map(torch.numel, model.parameters()))
    values = json.loads((tmp_path / "one" / "config.json").read_text())
    assert (values["family"], values["model"]["vocab"]) == ("gpt", 40)
    with raises(CheckpointError, "no_tokenizer"):
        polyhead.load(tmp_path / "one")


def test_the_configuration_of_other_models_must_be_given(tmp_path):
    with raises(ConfigError, "unknown_config"):
        polyhead.save_model(GPT(CONFIG), tmp_path / "one")
    polyhead.save_model(GPT(CONFIG), tmp_path / "one", config=CONFIG)
    with raises(ConfigError, "unknown_config"):
        polyhead.save_model(torch.nn.Linear(2, 2), tmp_path / "two", config=CONFIG)
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_changed_file_is_not_loaded(file, tmp_path):
    polyhead.save_model(polyhead.create_model("gpt", CONFIG), tmp_path / "one")
    path = tmp_path / "one" / file
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    with pytest.raises(CheckpointError):
        polyhead.load_model(tmp_path / "one")
