"""Averaging: the mean of weights, only of models that belong together."""

import json

import pytest
import torch
from expected_errors import raises
from saved_models import build_model, save_model, seal_again

from polyhead.checkpoint.atomic_dir import checkpoint_path
from polyhead.checkpoint.average import average, find_members
from polyhead.checkpoint.model_dir import load_model, weights_of
from polyhead.errors import CheckpointError, ConfigError


def save(path, seed, words="하나 둘 셋", **stack):
    about = {"step": seed, "valid": {"loss": 1.0}, "run": {"decode": {"beam": 3}}}
    return save_model(build_model([words], about, seed=seed, **stack), path)


def load_weights(path):
    return weights_of(load_model(path).model)


@pytest.fixture
def three(tmp_path):
    return [save(tmp_path / str(seed), seed) for seed in (1, 2, 3)]


@pytest.mark.parametrize("members", [(0, 1, 2), (0, 0)])
def test_the_average_is_the_mean_of_all_weights(three, tmp_path, members):
    paths = [three[i] for i in members]
    assert average(paths, tmp_path / "mean") == paths
    weights = [load_weights(path) for path in paths]
    for name, tensor in load_weights(tmp_path / "mean").items():
        expected = torch.stack([w[name].double() for w in weights]).mean(0).float()
        assert torch.equal(tensor, expected), name


def test_the_average_is_a_complete_model_that_replaces_an_older_one(three, tmp_path):
    average(three[:2], tmp_path / "mean")
    average(three, tmp_path / "mean")
    saved = load_model(tmp_path / "mean")
    assert saved.tokenizers is not None
    assert saved.about["averaged"] == ["1", "2", "3"]
    assert saved.about["valid"] is None
    assert saved.about["run"] == {"decode": {"beam": 3}}
    assert "not validated yet" in (tmp_path / "mean" / "README.md").read_text()


def test_the_newest_checkpoints_of_a_run_are_averaged(tmp_path):
    checkpoints = tmp_path / "run" / "checkpoints"
    paths = [save(checkpoint_path(checkpoints, step), step) for step in (0, 4, 8, 12)]
    assert find_members([tmp_path / "run"], None) == paths[1:]  # step 0 is untrained
    assert average([tmp_path / "run"], tmp_path / "mean", last=2) == paths[2:]
    assert load_model(tmp_path / "mean").about["averaged"] == [path.name for path in paths[2:]]


def test_models_that_do_not_belong_together_are_refused(three, tmp_path):
    output = tmp_path / "mean"
    larger = save(tmp_path / "larger", 4, d_ff=32)
    other_words = save(tmp_path / "words", 4, words="넷 다섯 여섯"[:7])
    assert load_model(other_words).config == load_model(three[0]).config
    with raises(CheckpointError, "too_few_models"):
        average(three[:1], output)
    for other, mention in ((larger, "architectures"), (other_words, "vocabularies")):
        with raises(CheckpointError, "different_models", str(other), mention):
            average([*three, other], output)
    path = three[2] / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"about": {"classes": ["b", "a"]}}))
    seal_again(three[2])
    with raises(CheckpointError, "different_models", str(three[2]), "names of classes"):
        average(three, output)
    (three[1] / "model.safetensors").write_bytes(b"")
    with raises(CheckpointError, "damaged", "2: model.safetensors"):
        average(three, output)
    assert not output.exists()


def test_a_directory_that_is_not_a_model_is_not_overwritten(three, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    (tmp_path / "link").symlink_to(three[0])
    for name in ("mine", "link"):
        with raises(CheckpointError, "output_exists", name, "--output"):
            average(three, tmp_path / name)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_last_requires_one_run_and_two_checkpoints(three, tmp_path):
    with raises(ConfigError, "not_a_run_dir", "--last"):
        average(three, tmp_path / "mean", last=2)
    with raises(ConfigError, "out_of_range", "--last 1"):
        average(three, tmp_path / "mean", last=1)


def test_a_description_of_unexpected_types_is_averaged(three, tmp_path):
    """The model card is made from the description of the first model."""
    for path in three:
        config = path / "config.json"
        values = json.loads(config.read_text())
        values["about"] = {
            "run": {"data": {"source": 5, "source_language": ["x"]}, "description": 7},
            "valid": {"loss": "low", "bleu": None},
        }
        config.write_text(json.dumps(values))
        seal_again(path)
    average(three, tmp_path / "mean")
    assert "Trained on: not recorded." in (tmp_path / "mean" / "README.md").read_text()
