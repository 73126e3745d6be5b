"""Averaging: the mean of the weights, and only of weights that belong together."""

import json

import pytest
import torch

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.average import average, members_of
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tokenizers.storage import TextConfig, train_tokenizers


def save(place, seed, words="하나 둘 셋", **stack):
    tokenizers = train_tokenizers([words], [words], TextConfig("characters", vocab=50))
    vocab = len(tokenizers.source)
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 16} | stack
    config = TransformerConfig(vocab, vocab, stack=StackConfig(**sizes))
    torch.manual_seed(seed)
    about = {"step": seed, "valid": {"loss": 1.0}, "run": {"decode": {"beam": 3}}}
    saved = SavedModel("transformer", config, Transformer(config), tokenizers, about)
    with store.atomic_dir(place) as draft:
        model_folder.write_model(draft, saved, "# a card\n")
    return place


def weights(place):
    return model_folder.weights_of(model_folder.load_model(place).model)


@pytest.fixture
def three(tmp_path):
    return [save(tmp_path / str(seed), seed) for seed in (1, 2, 3)]


def test_the_mean_is_the_mean(three, tmp_path):
    assert average(three, tmp_path / "mean") == three
    found = [weights(place) for place in three]
    for name, tensor in weights(tmp_path / "mean").items():
        expected = torch.stack([one[name].double() for one in found]).mean(0).float()
        assert torch.equal(tensor, expected), name


def test_the_mean_of_one_model_with_itself_is_that_model(three, tmp_path):
    average([three[0], three[0]], tmp_path / "mean")
    expected = weights(three[0])
    assert all(torch.equal(t, expected[n]) for n, t in weights(tmp_path / "mean").items())


def test_it_is_a_whole_model_that_says_what_it_is(three, tmp_path):
    average(three, tmp_path / "mean")
    saved = model_folder.load_model(tmp_path / "mean")
    assert saved.tokenizers is not None
    assert saved.about["averaged"] == ["1", "2", "3"]
    assert saved.about["valid"] is None  # it was not measured
    assert saved.about["run"] == {"decode": {"beam": 3}}
    assert "not measured yet" in (tmp_path / "mean" / "README.md").read_text()


def test_of_a_run_the_newest_checkpoints_are_taken(tmp_path):
    place = tmp_path / "run" / "checkpoints"
    folders = [save(store.checkpoint_path(place, step), step) for step in (0, 4, 8, 12)]
    assert members_of([tmp_path / "run"], None) == folders[1:]  # step 0 has learned nothing
    assert members_of([tmp_path / "run"], 2) == folders[2:]
    assert average([tmp_path / "run"], tmp_path / "mean", last=2) == folders[2:]
    assert model_folder.load_model(tmp_path / "mean").about["averaged"] == [
        f.name for f in folders[2:]
    ]


def test_an_older_mean_is_replaced(three, tmp_path):
    average(three[:2], tmp_path / "mean")
    average(three, tmp_path / "mean")
    assert model_folder.load_model(tmp_path / "mean").about["averaged"] == ["1", "2", "3"]


def refused(paths, output, match, kind=CheckpointError, **options):
    with pytest.raises(kind, match=match):
        average(paths, output, **options)


def test_one_model_has_no_mean(three, tmp_path):
    refused(three[:1], tmp_path / "mean", "averaging needs at least two models; found 1")


def test_models_of_different_sizes_have_no_mean(three, tmp_path):
    other = save(tmp_path / "other", 4, d_ff=32)
    refused([*three, other], tmp_path / "mean", "other and .*/1 are models of different sizes")


def test_models_of_different_words_have_no_mean(three, tmp_path):
    other = save(tmp_path / "other", 4, words="넷 다섯 여섯"[:7])
    assert model_folder.load_model(other).config == model_folder.load_model(three[0]).config
    refused([*three, other], tmp_path / "mean", "other and .*/1 have different vocabularies")
    assert not (tmp_path / "mean").exists()


def test_what_is_not_a_model_is_not_overwritten(three, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    refused(three, tmp_path / "mine", "mine exists and is not a model; choose another --output")
    (tmp_path / "link").symlink_to(three[0])
    refused(three, tmp_path / "link", "link exists and is not a model; choose another --output")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_damaged_member_is_named(three, tmp_path):
    (three[1] / "model.safetensors").write_bytes(b"")
    refused(three, tmp_path / "mean", r"2: model\.safetensors is damaged")


def test_last_makes_sense_only_for_a_run(three, tmp_path):
    message = "--last is for the checkpoints of one run; name just its folder"
    refused(three, tmp_path / "mean", message, ConfigError, last=2)
    refused(three, tmp_path / "mean", "--last 1: averaging needs at least two", ConfigError, last=1)


def test_a_stranger_s_description_does_no_harm(three, tmp_path):
    """The card of the mean is made from what the first model says about itself."""
    for place in three:
        path = place / "config.json"
        described = json.loads(path.read_text())
        described["about"] = {
            "run": {"data": {"source": 5, "source_language": ["x"]}, "description": 7},
            "valid": {"loss": "low", "bleu": None},
        }
        path.write_text(json.dumps(described))
        (place / "manifest.json").unlink()
        store.seal(place)
    average(three, tmp_path / "mean")
    assert "Trained on: not recorded." in (tmp_path / "mean" / "README.md").read_text()
