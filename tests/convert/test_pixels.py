"""Models that were trained on pixels of another scale say the same about ours."""

import json
from dataclasses import replace

import pytest
import torch
from PIL import Image

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel, weights_of
from polyhead.convert.conversion import export_model, import_model
from polyhead.convert.pixels import scale
from polyhead.data.batches.images import scaled
from polyhead.errors import CheckpointError
from polyhead.models.vit import ViT, ViTConfig
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


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def processor_of(**settings):
    return hf.ViTImageProcessorPil(size=SIZES, **settings)


def theirs(folder, **settings):
    """A ViT of random weights, nothing at zero, with the settings of its pixels beside it."""
    config = hf.ViTConfig(
        hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16,
        image_size=[8, 12], patch_size=4, num_labels=5,
    )  # fmt: skip
    model = hf.ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
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
    pixels = torch.stack([labeller.read(path, labeller.shape()) for path in pictures])
    with torch.inference_mode():
        return labeller.saved.model(scaled(pixels))


@pytest.mark.parametrize("what", SETTINGS)
def test_files_get_the_logits_of_their_whole_pipeline(what, tmp_path, pictures):
    model = theirs(tmp_path / "theirs", **SETTINGS[what])
    expected = their_logits(model, processor_of(**SETTINGS[what]), pictures)
    report = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert report.parity.equal
    bound = 1e-4 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(
        our_logits(tmp_path / "ours", pictures), expected, rtol=0, atol=bound
    )
    assert any("its patch embedding was" in note for note in report.notes) == (what != "as ours")


@pytest.mark.parametrize("what", SETTINGS)
def test_what_goes_back_computes_the_same_from_the_same_files(what, tmp_path, pictures):
    model = theirs(tmp_path / "theirs", **SETTINGS[what])
    expected = their_logits(model, processor_of(**SETTINGS[what]), pictures)
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    export_model(tmp_path / "ours", tmp_path / "back")
    back = hf.ViTForImageClassification.from_pretrained(tmp_path / "back").eval()
    processor = hf.ViTImageProcessorPil.from_pretrained(tmp_path / "back")
    assert list(processor.image_mean) == list(processor.image_std) == [0.5] * 3
    bound = 1e-4 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(
        their_logits(back, processor, pictures), expected, rtol=0, atol=bound
    )


def test_weights_for_our_pixels_stay_as_they_are_to_the_last_bit(tmp_path):
    model = theirs(tmp_path / "theirs", **SETTINGS["as ours"])
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    found = weights_of(model_folder.load_model(tmp_path / "ours").model)
    before = model.vit.embeddings.patch_embeddings.projection
    assert torch.equal(found["embed.project.weight"], before.weight)
    assert torch.equal(found["embed.project.bias"], before.bias)


def test_timms_statistics_are_read_from_its_own_configuration(tmp_path):
    """By hand: what timm's model would be shown, shown to ours before the conversion."""
    stack = replace(ViTConfig().stack, n_layers=1, d_model=12, n_heads=3, d_ff=16)
    config = ViTConfig(3, 8, 12, 3, 4, stack=stack)
    model = ViT(config).eval()
    torch.nn.init.normal_(model.to_logits.weight)  # which begins at zero
    with store.atomic_dir(tmp_path / "ours") as draft:
        model_folder.write_model(draft, SavedModel("vit", config, model, None, {}), "")
    export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    path = tmp_path / "timm" / "config.json"
    values = json.loads(path.read_text())
    values["pretrained_cfg"] |= {"mean": IMAGENET["image_mean"], "std": IMAGENET["image_std"]}
    path.write_text(json.dumps(values))
    report = import_model(str(tmp_path / "timm"), tmp_path / "again")
    assert report.notes == (
        "its pixels have image_mean = [0.485, 0.456, 0.406], image_std = [0.229, 0.224, 0.225]: "
        "its patch embedding was changed to read ours, from -1 to 1",
    )
    images = torch.rand(4, 3, 8, 12)  # from 0 to 1
    mean, std = (torch.tensor(IMAGENET[n])[:, None, None] for n in ("image_mean", "image_std"))
    with torch.inference_mode():
        found = model_folder.load_model(tmp_path / "again").model(images * 2 - 1)
        torch.testing.assert_close(found, model((images - mean) / std), rtol=0, atol=1e-4)


def test_a_directory_without_pixel_settings_is_assumed_to_be_scaled_as_ours(tmp_path):
    model = theirs(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").unlink()
    report = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert report.notes == ("scale of its pixels not given: assumed from -1 to 1, as ours",)
    found = weights_of(model_folder.load_model(tmp_path / "ours").model)
    before = model.vit.embeddings.patch_embeddings.projection
    assert torch.equal(found["embed.project.weight"], before.weight)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"image_mean": [0.1, 0.2]}, r"image_mean = \[0.1, 0.2\]: expected 3 numbers"),
        ({"image_std": ["a", 1, 1]}, r"image_std = \['a', 1, 1\]: expected 3 numbers"),
        ({"image_std": [0.0, 1, 1]}, r"image_std = \[0.0, 1.0, 1.0\]: expected more than 0"),
        ({"image_std": -1}, "expected more than 0"),
        ({"image_mean": [float("nan")] * 3}, "expected 3 numbers"),
        ({"rescale_factor": 0}, "rescale_factor = 0.0 and .* expected more than 0"),
        ({"rescale_factor": "1/255"}, "rescale_factor = 1/255: expected a number"),
        ({"image_mean": True}, "image_mean = True: expected 3 numbers"),
    ],
)
def test_impossible_statistics_are_refused(settings, line):
    with pytest.raises(CheckpointError, match=line):
        scale(settings, 3)
