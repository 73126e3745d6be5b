"""Models that were trained on pixels of another scale say the same about ours."""

import json
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from foreign_models import change_config, make_vit, write_ours, write_theirs
from PIL import Image

from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import weights_of
from polyhead.convert.conversion import import_model
from polyhead.convert.model_export import export_model
from polyhead.convert.pixels import scale
from polyhead.data.batches.images import scaled
from polyhead.errors import CheckpointError
from polyhead.models.vit import ViTConfig
from polyhead.pipelines.image_classifier import ImageClassifier

hf = pytest.importorskip("transformers")
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
SETTINGS = {
    "as ours": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
    "ImageNet's colours": IMAGENET,
    "one number for all": {"image_mean": 0.4, "image_std": 0.25},
    "not normalised": {"do_normalize": False},
    "from 0 to 2": {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 0.9, 0.8]},
    "not rescaled": {"do_rescale": False, "image_mean": [120.0] * 3, "image_std": [60.0] * 3},
}
SIZES = {"height": 8, "width": 12}


def processor_of(**settings):
    return hf.ViTImageProcessorPil(size=SIZES, **settings)


def theirs(folder, **settings):
    """A ViT of random weights with the settings of its pixels beside it."""
    model = make_vit(image_size=[8, 12], patch_size=4, num_channels=3)
    write_theirs(model, folder)
    processor_of(**settings).save_pretrained(folder)
    return model


@pytest.fixture
def pictures(tmp_path):
    """Files of exactly the right size, so that nothing is resized."""
    pixels = torch.randint(0, 256, (3, 8, 12, 3), dtype=torch.uint8).numpy()
    pixels[0], pixels[1, :, :, 0] = 255, 0
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, one in zip(paths, pixels, strict=True):
        Image.fromarray(one).save(path)
    return paths


@torch.inference_mode()
def their_logits(model, processor, pictures):
    images = [Image.open(path) for path in pictures]
    return model(**processor(images, return_tensors="pt")).logits


def our_logits(folder, pictures):
    labeller = ImageClassifier.from_dir(folder, device="cpu")
    read = labeller.task.read(labeller.used, [(path,) for path in pictures])
    pixels = torch.stack([given.pixels for given in read])
    with torch.inference_mode():
        return labeller.saved.model(scaled(pixels))


@pytest.mark.parametrize("name", SETTINGS)
def test_import_and_export_give_the_logits_of_their_whole_pipeline(name, tmp_path, pictures):
    model = theirs(tmp_path / "theirs", **SETTINGS[name])
    expected = their_logits(model, processor_of(**SETTINGS[name]), pictures)
    bound = {"rtol": 0, "atol": 1e-4 * max(1.0, float(expected.abs().max()))}
    report = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert report.parity.equal
    assert bool(report.notes) == (name != "as ours")
    torch.testing.assert_close(our_logits(tmp_path / "ours", pictures), expected, **bound)
    export_model(tmp_path / "ours", tmp_path / "back")
    back = hf.ViTForImageClassification.from_pretrained(tmp_path / "back").eval()
    processor = hf.ViTImageProcessorPil.from_pretrained(tmp_path / "back")
    assert list(processor.image_mean) == list(processor.image_std) == [0.5] * 3
    torch.testing.assert_close(their_logits(back, processor, pictures), expected, **bound)


@pytest.mark.parametrize("given", [True, False], ids=["as ours", "no settings"])
def test_weights_for_our_pixels_stay_as_they_are_to_the_last_bit(given, tmp_path):
    model = theirs(tmp_path / "theirs", **SETTINGS["as ours"])
    if not given:
        (tmp_path / "theirs" / "preprocessor_config.json").unlink()
    report = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert len(report.notes) == (0 if given else 1)
    found = weights_of(model_folder.load_model(tmp_path / "ours").model)
    before = model.vit.embeddings.patch_embeddings.projection
    assert torch.equal(found["embed.project.weight"], before.weight)
    assert torch.equal(found["embed.project.bias"], before.bias)


def test_timms_statistics_are_read_from_its_own_configuration(tmp_path):
    """By hand: what timm's model would be shown, shown to ours before the conversion."""
    stack = replace(ViTConfig().stack, n_layers=1, d_model=12, n_heads=3, d_ff=16)
    config = ViTConfig(3, 8, 12, 3, 4, stack=stack)
    model = write_ours(tmp_path / "ours", "vit", config)
    export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    values = json.loads((tmp_path / "timm" / "config.json").read_text())["pretrained_cfg"]
    values |= {"mean": IMAGENET["image_mean"], "std": IMAGENET["image_std"]}
    change_config(tmp_path / "timm", pretrained_cfg=values)
    (note,) = import_model(str(tmp_path / "timm"), tmp_path / "again").notes
    assert "[0.485, 0.456, 0.406]" in note
    images = torch.rand(4, 3, 8, 12)  # from 0 to 1
    mean, std = (torch.tensor(IMAGENET[n])[:, None, None] for n in ("image_mean", "image_std"))
    with torch.inference_mode():
        found = model_folder.load_model(tmp_path / "again").model(images * 2 - 1)
        torch.testing.assert_close(found, model((images - mean) / std), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"image_mean": [0.1, 0.2]}, "[0.1, 0.2]"),
        ({"image_std": ["a", 1, 1]}, "['a', 1, 1]"),
        ({"image_std": [0.0, 1, 1]}, "[0.0, 1.0, 1.0]"),
        ({"image_std": -1}, "-1"),
        ({"image_mean": [float("nan")] * 3}, "nan"),
        ({"rescale_factor": 0}, "rescale_factor = 0.0"),
        ({"rescale_factor": "1/255"}, "1/255"),
        ({"image_mean": True}, "image_mean = True"),
    ],
)
def test_impossible_statistics_are_refused(settings, value):
    with raises(CheckpointError, "invalid_pixels", value):
        scale(settings, 3)
