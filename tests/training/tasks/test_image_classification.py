"""Image classification with a Vision Transformer: training, resuming, use, evaluation."""

import json
import math

import numpy as np
import pytest
import torch
from tiny_images import COLOURS, TINY, train_on_pictures, write_pictures
from torch.nn import functional as F

import polyhead
from polyhead.data.batches.images import ImageBatch, ImageBatches
from polyhead.data.config import AugmentConfig
from polyhead.data.images.dataset import ImageSet
from polyhead.errors import ConfigError, DataError
from polyhead.models.vit import ViT
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.tasks.losses import SoftLabelLoss, soft_cross_entropy
from polyhead.training.config import build, read_run, recipe_names
from polyhead.training.trainer import train

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A shared run that has learned three colours."""
    return train_on_pictures(tmp_path_factory.mktemp("colours"))


@pytest.fixture(scope="session")
def labeller(finished):
    return polyhead.load(finished)


def picture(name):
    return np.full((8, 8, 3), COLOURS[name], np.uint8)


# Batches and loss


def numbered_images(n=23):
    pixels = torch.arange(n, dtype=torch.uint8)[:, None, None, None].expand(n, 1, 4, 4)
    return ImageSet.of(pixels.contiguous(), torch.arange(n) % 5)


def test_an_epoch_has_every_image_once_in_batches_of_similar_size():
    batches = ImageBatches(numbered_images(), 5, AugmentConfig(), tokens=5, max_tokens=45, seed=1)
    assert batches.batch_size == 9
    seen = [batches[0, step] for step in range(batches.n_batches(0))]
    assert [len(batch.images) for batch in seen] == [8, 8, 7]
    numbers = ((torch.cat([batch.images for batch in seen])[:, 0, 0, 0] + 1) * 127.5).round()
    assert sorted(numbers.tolist()) == list(range(23))
    labels = torch.cat([batch.targets for batch in seen]).argmax(1)
    assert torch.equal(labels, numbers.long() % 5)
    assert seen[0].n_tokens == 8 * 5


def test_a_batch_depends_only_on_seed_epoch_and_step():
    change = AugmentConfig(shift=1, mixup=0.5)
    batches = ImageBatches(numbered_images(), 5, change, tokens=5, max_tokens=45, seed=1)
    late = batches[3, 1]
    fresh = ImageBatches(numbered_images(), 5, change, tokens=5, max_tokens=45, seed=1)[3, 1]
    assert torch.equal(late.images, fresh.images)
    assert torch.equal(late.targets, fresh.targets)
    assert not torch.equal(late.images, batches[2, 1].images)


def test_bytes_are_scaled_to_minus_one_to_one():
    images = ImageSet.of(
        torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1, 1), torch.zeros(3).long()
    )
    batch = ImageBatches(images, 1, AugmentConfig(), tokens=1, max_tokens=9, seed=1)[0, 0]
    values = sorted(batch.images.flatten().tolist())
    assert values == pytest.approx([-1.0, -0.6, 1.0], abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_hard_and_soft_labels_equals_torch(smoothing):
    logits, labels, shares = torch.randn(6, 4), torch.randint(4, (6,)), torch.rand(6, 4).softmax(1)
    for given, ours in ((labels, F.one_hot(labels, 4).float()), (shares, shares)):
        expected = F.cross_entropy(logits, given, reduction="sum", label_smoothing=smoothing)
        torch.testing.assert_close(soft_cross_entropy(logits, ours, smoothing), expected)


def test_the_losses_of_both_halves_sum_to_that_of_the_batch():
    model = ViT(build(TINY).model)
    torch.nn.init.normal_(model.to_logits.weight)
    batch = ImageBatch(torch.randn(5, 3, 8, 8), torch.rand(5, 1000).softmax(1), 5)
    whole = SoftLabelLoss(0.1)(model, batch)
    halves = [SoftLabelLoss(0.1)(model, half) for half in batch.halves()]
    assert [half.count for half in halves] == [2, 3]
    torch.testing.assert_close(whole.total, halves[0].total + halves[1].total)


# Training


def test_a_model_learns_colours_and_keeps_their_names(finished, labeller):
    assert isinstance(labeller, ImageClassifier)
    assert labeller.classes == tuple(COLOURS)
    assert labeller.saved.config.classes == 3
    lines = (finished / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = [json.loads(line) for line in lines][-1]
    assert last["accuracy"] == 1.0
    assert last["loss"] < 0.1


def test_the_first_loss_is_that_of_uniform_predictions(tmp_path):
    write_pictures(tmp_path / "pictures", 4)
    schedule = {"rate": 1e-12, "kind": "constant", "warmup": 1}
    values = {"data": {"images": [str(tmp_path / "pictures")]},
              "train": TINY["train"] | {"steps": 1, "schedule": schedule}}  # fmt: skip
    result = train(build(TINY | values), tmp_path / "run")
    assert result.metrics["loss"] == pytest.approx(math.log(3), abs=1e-4)


def test_a_run_trained_in_two_parts_ends_equal(tmp_path, finished):
    change = {"augment": {"flip": True, "shift": 1, "erase": 0.3, "mixup": 0.3, "cutmix": 1.0}}
    whole = train_on_pictures(tmp_path, "whole", **change)
    values = TINY | {"data": {"images": [str(tmp_path / "pictures")], **change}}
    train(build(values | {"train": TINY["train"] | {"steps": 20}}), tmp_path / "parts")
    train(build(values), tmp_path / "parts", accept_changes=True)
    once, twice, other = (
        ImageClassifier.from_dir(run).saved.model.state_dict()
        for run in (whole, tmp_path / "parts", finished)
    )
    assert all(torch.equal(once[name], twice[name]) for name in once)
    assert not torch.equal(once["to_logits.weight"], other["to_logits.weight"])


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("vit-")])
def test_every_image_recipe_builds_a_model(name):
    run = read_run(name)
    with torch.device("meta"):
        model = ViT(run.model)
    expected = math.prod(run.model.grid) + (run.model.pooling == "class")
    assert run.model.n_tokens == model.n_tokens == expected
    assert run.train.max_tokens // expected >= 32


# Use


def test_arrays_and_files_are_classified_equally_with_all_probabilities(labeller, tmp_path):
    for name in COLOURS:
        path = tmp_path / f"{name}.png"
        Image.fromarray(picture(name)).save(path)
        from_array, from_file = labeller.classify([picture(name), path])
        assert from_array == from_file
        assert from_array.label == name
        assert 0.9 < from_array.probability <= 1
    (found,) = labeller.classify([picture("red")], top=10)
    shares = found.probabilities
    assert found.label == next(iter(shares)) == "red"
    assert shares.keys() == set(COLOURS)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_predictions_do_not_depend_on_the_number_of_images(labeller):
    many = [picture(name) for name in COLOURS] * 30
    single = [labeller.classify([one])[0] for one in many[:3]]
    together = labeller.classify(many)
    assert [one.label for one in together[:3]] == [one.label for one in single]
    for one, other in zip(single, together, strict=False):
        assert one.probability == pytest.approx(other.probability, abs=1e-5)


def test_larger_images_use_interpolated_positions(labeller):
    big = np.kron(picture("green"), np.ones((2, 2, 1), np.uint8))
    (found,) = labeller.classify([big], size=(16, 16))
    assert found.label == "green"
    with pytest.raises(ConfigError, match="an image of 10 x 8 pixels cannot be cut into patches"):
        labeller.classify([big], size=(10, 8))


def test_invalid_images_are_refused_by_name(labeller, tmp_path):
    (tmp_path / "note.png").write_text("not an image")
    with pytest.raises(DataError, match=r"note.png: not an image"):
        labeller.classify([tmp_path / "note.png"])
    for wrong in (np.zeros((8, 8), np.float32), np.zeros((8, 8, 2), np.uint8)):
        with pytest.raises(DataError, match=r"an image of .* with shape \(8, 8.*: expected bytes"):
            labeller.classify([wrong])


def test_evaluation_returns_a_confusion_matrix(labeller, tmp_path):
    folder = write_pictures(tmp_path / "test", 3)
    (folder / "red" / "0.png").rename(folder / "blue" / "wrong.png")
    evaluation = labeller.evaluate([folder])
    found = evaluation.report
    assert found.confusion == ((3, 0, 1), (0, 3, 0), (0, 0, 2))
    assert found.accuracy == pytest.approx(8 / 9)
    assert [one.count for one in found.classes] == [4, 3, 2]
    assert evaluation.notices == ()
