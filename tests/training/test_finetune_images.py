"""Fine-tuning a Vision Transformer: other classes, other sizes of images, models of others."""

import json
import math
from dataclasses import replace

import pytest
import torch
from tiny_images import TINY, train_on_pictures, write_pictures

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.convert.conversion import import_model
from polyhead.errors import ConfigError
from polyhead.models.vit import ViT
from polyhead.training import trainer as training
from polyhead.training.config import build
from polyhead.training.trainer import train

pytest.importorskip("PIL.Image")
HARDLY = {"steps": 1, "schedule": {"rate": 1e-12, "kind": "constant", "warmup": 1}}
OTHER = {"n_layers": 1, "d_model": 8, "n_heads": 1, "d_ff": 8, "dropout": 0.1, "norm": "pre"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A model that has learned three colours, and its pictures."""
    return train_on_pictures(tmp_path_factory.mktemp("colours"))


@pytest.fixture(scope="module")
def saved(finished):
    return model_folder.load_model(finished)


def going_on(init, pictures, *overrides, height=8, width=8, steps=1):
    """A run whose recipe has other sizes than the model that it begins from."""
    model = {"family": "vit", "height": height, "width": width, "patch": 2, "channels": 1,
             "pooling": "mean", "stack": OTHER}  # fmt: skip
    values = TINY | {
        "model": model,
        "data": {"images": [str(pictures)]},
        "train": TINY["train"] | HARDLY | {"init": str(init), "steps": steps},
    }
    return build(values, overrides)


def renamed(pictures, **names):
    for old, new in names.items():
        (pictures / old).rename(pictures / new)
    return pictures


def first_validation(run):
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found = next(one for one in map(json.loads, lines) if one["kind"] == "valid")
    return found["step"], found["loss"]


def images(height=8, width=8):
    return torch.randn(3, 3, height, width, generator=torch.Generator().manual_seed(1))


def test_with_the_same_classes_everything_is_kept(finished, saved, tmp_path):
    pictures = write_pictures(tmp_path / "pictures")
    train(going_on(finished, pictures), tmp_path / "run")
    after = model_folder.load_model(tmp_path / "run" / "last")
    assert after.config == replace(
        saved.config, stack=replace(saved.config.stack, dropout=OTHER["dropout"])
    )
    with torch.no_grad():
        expected = saved.model(images())
        torch.testing.assert_close(after.model(images()), expected, rtol=1e-5, atol=1e-5)
    step, loss = first_validation(tmp_path / "run")
    assert step == 0  # a beginning that may stay the best
    assert loss < 0.2 < math.log(3)


def test_a_head_whose_classes_stand_in_another_order_is_sorted(saved, tmp_path):
    order = [2, 0, 1]
    model = ViT(saved.config)
    model.load_state_dict(saved.model.state_dict())
    with torch.no_grad():
        for parameter in (model.to_logits.weight, model.to_logits.bias):
            parameter.copy_(parameter[order].clone())
    names = [saved.about["classes"][i] for i in order]
    with store.atomic_dir(tmp_path / "turned") as draft:
        about = {"imported": {}, "classes": names}
        model_folder.write_model(draft, replace(saved, model=model, about=about), "")
    train(going_on(tmp_path / "turned", write_pictures(tmp_path / "pictures")), tmp_path / "run")
    after = model_folder.load_model(tmp_path / "run" / "last")
    assert after.about["classes"] == saved.about["classes"]
    with torch.no_grad():
        expected = saved.model(images())
        torch.testing.assert_close(after.model(images()), expected, rtol=1e-5, atol=1e-5)


def test_with_other_classes_only_the_head_is_new_and_zero(finished, saved, tmp_path):
    pictures = renamed(write_pictures(tmp_path / "pictures"), red="warm")
    train(going_on(finished, pictures), tmp_path / "run")
    after = model_folder.load_model(tmp_path / "run" / "last")
    assert after.about["classes"] == ["blue", "green", "warm"]
    with torch.no_grad():
        expected = saved.model.hidden(images())
        torch.testing.assert_close(after.model.hidden(images()), expected, rtol=1e-5, atol=1e-5)
    assert after.model.to_logits.weight.abs().max() < 1e-6
    assert first_validation(tmp_path / "run") == (1, pytest.approx(math.log(3), abs=1e-4))


@pytest.mark.parametrize(("height", "width"), [(16, 16), (12, 8)])
def test_another_size_of_images_stretches_the_positions(finished, saved, tmp_path, height, width):
    pictures = write_pictures(tmp_path / "pictures")
    train(going_on(finished, pictures, height=height, width=width), tmp_path / "run")
    after = model_folder.load_model(tmp_path / "run" / "last")
    assert after.config.grid == (height // 4, width // 4)
    with torch.no_grad():
        expected = saved.model(images(height, width))
        found = after.model(images(height, width))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert f"positions are stretched from 2 x 2 to {height // 4} x {width // 4} patches" in log


def test_an_interrupted_run_ends_with_the_same_bits(finished, tmp_path, monkeypatch):
    pictures = renamed(write_pictures(tmp_path / "pictures"), red="warm")
    faster = ("train.schedule.rate=0.01", "train.save_every=2", "train.validate_every=2")
    run = going_on(finished, pictures, *faster, height=12, steps=5)
    train(run, tmp_path / "whole")

    class Leaves(Exception):
        pass

    def leave(session, progress, update, original=training._updated):
        if progress.step == 3:
            raise Leaves
        original(session, progress, update)

    monkeypatch.setattr(training, "_updated", leave)
    with pytest.raises(Leaves):
        train(run, tmp_path / "parts")
    monkeypatch.undo()
    train(run, tmp_path / "parts")
    one, two = (model_folder.load_model(tmp_path / name / "last") for name in ("whole", "parts"))
    assert all(map(torch.equal, one.model.parameters(), two.model.parameters()))


def test_what_does_not_fit_is_refused_with_one_line(finished, tmp_path, tiny_run):
    pictures = write_pictures(tmp_path / "pictures")
    for run, words in (
        (going_on(tiny_run, pictures), "another family than vit, which can begin only from"),
        (going_on(finished, pictures, height=10), "an image of 10 x 8 pixels cannot be cut"),
        (going_on(finished, pictures, "model.patch=2"), r"model.patch = 2: .* has 4; leave it"),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            train(run, tmp_path / "run")
        assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_imported_model_is_fine_tuned(tmp_path):
    hf = pytest.importorskip("transformers")
    config = hf.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20,
        image_size=8, patch_size=4, num_channels=3, num_labels=5,
    )  # fmt: skip
    hf.ViTForImageClassification(config).save_pretrained(tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    pictures = write_pictures(tmp_path / "pictures")
    train(going_on(tmp_path / "ours", pictures, height=16), tmp_path / "run")
    before, after = (model_folder.load_model(tmp_path / name) for name in ("ours", "run/last"))
    with torch.no_grad():
        expected = before.model.hidden(images(16, 8))
        torch.testing.assert_close(after.model.hidden(images(16, 8)), expected)
    assert after.config.classes == 3
