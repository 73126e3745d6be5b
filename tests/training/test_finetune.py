"""Initialization from a trained model (train.init) for language models, encoders and images."""

import json
import math
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from pretrained import TINY, pretrain, write_labelled, write_lines
from reporters import Crash, crash_at
from tiny_gpt import SMALL, train_gpt
from tiny_images import TINY as TINY_IMAGES
from tiny_images import train_on_pictures, write_pictures

from polyhead.atomic_file import remove
from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.checkpoint.model_dir import load_model, write_model
from polyhead.config import read
from polyhead.convert.conversion import import_model
from polyhead.cost.report import cost_report
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.models.registry import FAMILIES
from polyhead.models.vit import ViT
from polyhead.training.config import build, fitting_recipe, read_run, recipe_names, stack_of
from polyhead.training.finetune import read_pretrained, with_pretrained_sizes
from polyhead.training.optim import BLOCK
from polyhead.training.trainer import train

FROZEN = ("train.steps=1", "train.schedule.kind=constant", "train.schedule.rate=1e-12")
LANGUAGES = {"source": "ko", "target": "en"}
FEW = tuple(word for word in SMALL if not word.startswith("model."))
SETTINGS = {"gpt-tiny": FEW, "bert-tiny": TINY, "electra-tiny": TINY, "reformer-tiny": FEW}
STACK = tuple(word for word in SMALL if word.startswith("model.stack") and "dropout" not in word)
REFORMER = (
    *FEW, *STACK, "model.max_length=64", "model.positions=axial", "model.axial.shape=[8, 8]",
    "model.axial.widths=[8, 8]", "model.stack.window=8", "model.stack.lsh.chunk=8",
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of each family, by recipe."""
    folder = tmp_path_factory.mktemp("models")
    train(read_run("reformer-tiny", REFORMER, write_lines(folder)), folder / "reformer-tiny")
    return {
        "gpt-tiny": train_gpt(folder),
        "bert-tiny": pretrain(folder, "bert-tiny"),
        "electra-tiny": pretrain(folder, "electra-tiny"),
        "reformer-tiny": folder / "reformer-tiny",
    }


def configure(recipe, folder, init, *overrides):
    settings = (*SETTINGS[recipe], f'train.init="{init}"', *overrides)
    return read_run(recipe, settings, write_lines(folder))


def first_validation(run):
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return next(entry for entry in map(json.loads, lines) if entry["kind"] == "valid")


def save(saved, path):
    with atomic_dir(path) as draft:
        write_model(draft, saved)
    return path


def logits_of(saved):
    ids = torch.randint(4, 300, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        if saved.family == "electra":
            return torch.cat([saved.model.suspect(ids)[..., None], saved.model.generator(ids)], -1)
        return saved.model(ids)


def test_without_a_recipe_the_model_or_the_kind_of_files_chooses_one(trained):
    init = trained["bert-tiny"]
    assert fitting_recipe(init, {"text": ["a.txt"]}) == str(init)
    assert fitting_recipe(init, {"labelled": ["a.tsv"]}) == "classify-small"
    assert fitting_recipe(None, {"text": ["a.txt"]}) is None


@pytest.mark.parametrize("recipe", SETTINGS)
def test_weights_tokenizer_and_sizes_are_adopted_but_not_dropout(recipe, trained, tmp_path):
    config = configure(recipe, tmp_path, trained[recipe], "model.stack.dropout=0.2", *FROZEN)
    train(config, tmp_path / "run")
    before, after = (load_model(path) for path in (trained[recipe], tmp_path / "run/last"))
    torch.testing.assert_close(logits_of(after), logits_of(before), rtol=1e-4, atol=1e-5)
    text = "내일 회의가 있어요."
    assert after.tokenizers.source.encode(text) == before.tokenizers.source.encode(text)
    for name in ("n_layers", "d_model", "n_heads", "d_ff", "attention", "window", "lsh"):
        assert getattr(after.config.stack, name) == getattr(before.config.stack, name)
    assert after.config.vocab == before.config.vocab
    assert after.config.stack.dropout == 0.2
    scratch = configure(recipe, tmp_path, trained[recipe], *FROZEN)
    scratch = replace(scratch, model=before.config, train=replace(scratch.train, init=None))
    train(replace(scratch, text=before.tokenizers.config), tmp_path / "scratch")
    first, untrained = (first_validation(tmp_path / name) for name in ("run", "scratch"))
    assert first["step"] == 0
    assert first["loss"] < untrained["loss"] - 0.01


@pytest.mark.parametrize("recipe", SETTINGS)
def test_an_interrupted_run_ends_with_equal_bits(recipe, trained, tmp_path):
    config = configure(recipe, tmp_path, trained[recipe], "train.steps=5", "train.save_every=2")
    train(config, tmp_path / "whole")
    with pytest.raises(Crash):
        train(config, tmp_path / "parts", callbacks=[crash_at(3)])
    train(config, tmp_path / "parts")
    whole, parts = (load_model(tmp_path / name / "last").model for name in ("whole", "parts"))
    assert all(map(torch.equal, whole.parameters(), parts.parameters()))


def test_a_changed_model_is_detected_when_resuming(trained, tmp_path):
    saved = load_model(trained["gpt-tiny"])
    save(saved, tmp_path / "model")
    config = configure("gpt-tiny", tmp_path, tmp_path / "model", *FROZEN)
    train(config, tmp_path / "run")
    remove(tmp_path / "model")
    torch.nn.init.zeros_(next(saved.model.parameters()))
    save(saved, tmp_path / "model")
    with raises(DataError, "data_changed", "pre-trained model"):
        train(config, tmp_path / "run")


@pytest.mark.parametrize("recipe", SETTINGS)
def test_another_family_is_refused(recipe, trained, tmp_path):
    other = "bert-tiny" if recipe == "gpt-tiny" else "gpt-tiny"
    with raises(ConfigError, "init_family"):
        train(configure(recipe, tmp_path, trained[other]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "actual"),
    [("model.stack.d_model=32", "has 16"), ("model.positions=learned", "has 'rotary'")],
)
def test_overrides_that_contradict_the_model_are_refused(trained, tmp_path, override, actual):
    config = configure("bert-tiny", tmp_path, trained["bert-tiny"], override, *FROZEN)
    with raises(ConfigError, "init_conflict", override.split("=")[0], actual):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_overrides_that_agree_or_belong_to_the_run_are_accepted(trained, tmp_path):
    overrides = ("model.stack.d_model=16", "model.spotting=3.0")
    config = configure("electra-tiny", tmp_path, trained["electra-tiny"], *overrides)
    model = with_pretrained_sizes(config, read_pretrained(config, config.train.init)).model
    assert (model.stack.d_model, model.spotting) == (16, 3.0)


def fine_tuned(init, *overrides):
    """A translator that starts from another one; only these overrides are given."""
    files = {name: (str(init.parent / f"train.{end}"),) for name, end in LANGUAGES.items()}
    steps = ("train.steps=1", "train.bleu_sentences=0", "data.hold_out=20")
    return read_run("small", (*steps, f'train.init="{init}"', *overrides), files)


def test_a_translator_is_fine_tuned_with_the_regularisation_of_the_new_run(tiny_run, tmp_path):
    asked = ("model.stack.dropout=0.7", "text.sampling=0.2", "model.stack.n_layers=2")
    train(fine_tuned(tiny_run, *asked), tmp_path / "run")
    before, after = load_model(tiny_run), load_model(tmp_path / "run/last")
    assert after.config == replace(before.config, stack=replace(before.config.stack, dropout=0.7))
    assert after.tokenizers.config == replace(before.tokenizers.config, sampling=0.2)
    recorded = build(read(tmp_path / "run" / "config.toml"))
    assert (recorded.model, recorded.text) == (after.config, after.tokenizers.config)
    resumed = train(fine_tuned(tiny_run, *asked), tmp_path / "run")
    assert resumed.step == 1
    with raises(ConfigError, "config_changed"):
        train(fine_tuned(tiny_run, "model.stack.dropout=0.6", "text.sampling=0.2"), resumed.folder)


@pytest.mark.parametrize("override", ["model.stack.n_layers=5", "text.vocab=333"])
def test_a_translator_keeps_its_sizes_and_vocabulary(tiny_run, tmp_path, override):
    with raises(ConfigError, "init_conflict", override.split("=")[0]):
        train(fine_tuned(tiny_run, override), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("override", ["encoder.stack.n_layers=5", "encoder.positions=learned"])
def test_a_classifier_keeps_the_sizes_of_its_pretrained_encoder(trained, tmp_path, override):
    files = write_labelled(tmp_path)
    steps = (*FROZEN, f'train.init="{trained["bert-tiny"]}"', "model.encoder.stack.dropout=0.3")
    with raises(ConfigError, "init_conflict", "model.encoder."):
        train(read_run("classify-small", (*steps, f"model.{override}"), files), tmp_path / "run")
    train(read_run("classify-small", steps, files), tmp_path / "run")
    recorded, saved = build(read(tmp_path / "run/config.toml")), load_model(tmp_path / "run")
    assert recorded.model.encoder == saved.config.encoder
    assert recorded.text == saved.tokenizers.config
    assert saved.config.encoder.stack.dropout == 0.3


def test_texts_must_fit_the_positions_of_the_model_not_of_the_recipe(trained, tmp_path):
    init = trained["reformer-tiny"]
    with raises(ConfigError, "too_few_positions", "data.max_length = 65", "64"):
        train(configure("reformer-tiny", tmp_path, init, "data.max_length=65"), tmp_path / "run")
    recipe = read_run("gpt2")
    longer = read_run("gpt2", [f"data.max_length={recipe.model.max_length + 1}", "train.init=x"])
    assert longer.data.max_length > recipe.model.max_length  # checked when x is read


def test_models_without_a_tokenizer_or_with_more_ids_are_refused(trained, tmp_path):
    saved = load_model(trained["bert-tiny"])
    path = save(replace(saved, tokenizers=None), tmp_path / "mute")
    with raises(CheckpointError, "no_tokenizer"):
        train(configure("bert-tiny", tmp_path, path), tmp_path / "run")
    config = replace(saved.config, vocab=saved.config.vocab + 3)
    larger = replace(saved, config=config, model=type(saved.model)(config), about={"imported": {}})
    path = save(larger, tmp_path / "larger")
    with raises(CheckpointError, "init_vocabulary", "[MASK]"):
        train(configure("bert-tiny", tmp_path, path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_cost_report_notes_that_the_model_is_not_read():
    for options in (["train.init=x"], []):
        assumed = cost_report(read_run("gpt-tiny", options)).assumed
        assert any("train.init" in line for line in assumed) == bool(options)


# Layer-wise rates


@pytest.mark.parametrize("recipe", recipe_names())
def test_configurations_with_a_stack_are_those_of_models_with_blocks(recipe):
    config = read_run(recipe)
    with torch.device("meta"):
        model = FAMILIES[config.family].model(config.model)
    has_blocks = any(BLOCK.search(name) for name, _ in model.named_parameters())
    assert has_blocks == (stack_of(config.model) is not None)


def test_fine_tuning_with_layer_decay_hardly_changes_lower_layers(trained, tmp_path):
    options = ("train.optimizer.layer_decay=0.001", "train.optimizer.weight_decay=0",
               "train.schedule.kind=constant", "train.schedule.rate=0.01")  # fmt: skip
    train(configure("bert-tiny", tmp_path, trained["bert-tiny"], *options), tmp_path / "run")
    before, after = (
        load_model(path).model.state_dict() for path in (trained["bert-tiny"], tmp_path / "run")
    )
    moved = {name: float((after[name] - before[name]).abs().max()) for name in before}
    assert min(d for name, d in moved.items() if name.startswith("transform.")) > 1e-3
    assert max(d for name, d in moved.items() if ".blocks.0." in name) < 1e-3
    assert max(d for name, d in moved.items() if ".embed." in name) < 1e-6


# Images

RECIPE_STACK = {"n_layers": 1, "d_model": 8, "n_heads": 1, "d_ff": 8, "dropout": 0.1, "norm": "pre"}


@pytest.fixture(scope="module")
def image_run(tmp_path_factory):
    """A run that has learned three colours."""
    pytest.importorskip("PIL.Image")
    return train_on_pictures(tmp_path_factory.mktemp("colours"))


@pytest.fixture(scope="module")
def vit(image_run):
    return load_model(image_run)


def configure_images(init, pictures, *overrides, height=8, width=8, steps=1):
    """Configure a run whose recipe has other sizes than the model."""
    model = {"family": "vit", "height": height, "width": width, "patch": 2, "channels": 1,
             "pooling": "mean", "stack": RECIPE_STACK}  # fmt: skip
    options = {"steps": steps, "init": str(init),
               "schedule": {"rate": 1e-12, "kind": "constant", "warmup": 1}}  # fmt: skip
    values = TINY_IMAGES | {
        "model": model,
        "data": {"images": [str(pictures)]},
        "train": TINY_IMAGES["train"] | options,
    }
    return build(values, overrides)


def random_images(height=8, width=8):
    return torch.randn(3, 3, height, width, generator=torch.Generator().manual_seed(1))


def assert_same_logits(after, before, images):
    with torch.no_grad():
        expected = before.model(images)
        torch.testing.assert_close(after.model(images), expected, rtol=1e-5, atol=1e-5)


def test_with_equal_classes_the_whole_image_model_is_kept(image_run, vit, tmp_path):
    pictures = write_pictures(tmp_path / "pictures")
    train(configure_images(image_run, pictures), tmp_path / "run")
    after = load_model(tmp_path / "run" / "last")
    assert after.config == replace(vit.config, stack=replace(vit.config.stack, dropout=0.1))
    assert_same_logits(after, vit, random_images())
    first = first_validation(tmp_path / "run")
    assert first["step"] == 0  # the initial model may stay the best
    assert first["loss"] < 0.2 < math.log(3)


def test_the_head_is_reordered_to_the_order_of_the_classes(vit, tmp_path):
    order = [2, 0, 1]
    model = ViT(vit.config)
    model.load_state_dict(vit.model.state_dict())
    with torch.no_grad():
        for parameter in (model.to_logits.weight, model.to_logits.bias):
            parameter.copy_(parameter[order].clone())
    about = {"imported": {}, "classes": [vit.about["classes"][i] for i in order]}
    path = save(replace(vit, model=model, about=about), tmp_path / "reordered")
    train(configure_images(path, write_pictures(tmp_path / "pictures")), tmp_path / "run")
    after = load_model(tmp_path / "run" / "last")
    assert after.about["classes"] == vit.about["classes"]
    assert_same_logits(after, vit, random_images())


def test_with_other_classes_only_the_head_is_new_and_zero(image_run, vit, tmp_path):
    pictures = write_pictures(tmp_path / "pictures")
    (pictures / "red").rename(pictures / "warm")
    train(configure_images(image_run, pictures), tmp_path / "run")
    after = load_model(tmp_path / "run" / "last")
    assert after.about["classes"] == ["blue", "green", "warm"]
    with torch.no_grad():
        expected = vit.model.hidden(random_images())
        actual = after.model.hidden(random_images())
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert after.model.to_logits.weight.abs().max() < 1e-6
    first = first_validation(tmp_path / "run")
    assert (first["step"], first["loss"]) == (1, pytest.approx(math.log(3), abs=1e-4))


@pytest.mark.parametrize(("height", "width"), [(16, 16), (12, 8)])
def test_positions_are_interpolated_to_another_image_size(image_run, vit, tmp_path, height, width):
    pictures = write_pictures(tmp_path / "pictures")
    train(configure_images(image_run, pictures, height=height, width=width), tmp_path / "run")
    after = load_model(tmp_path / "run" / "last")
    assert after.config.grid == (height // 4, width // 4)
    assert_same_logits(after, vit, random_images(height, width))
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert f"positions from 2 x 2 to {height // 4} x {width // 4} patches" in log


def test_image_models_that_do_not_fit_are_refused(image_run, tmp_path, tiny_run):
    pictures = write_pictures(tmp_path / "pictures")
    for config, code, mention in (
        (configure_images(tiny_run, pictures), "init_family", "transformer"),
        (configure_images(image_run, pictures, height=10), "init_conflict", "10 x 8"),
        (configure_images(image_run, pictures, "model.patch=2"), "init_conflict", "model.patch"),
    ):
        with raises(ConfigError, code, mention):
            train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_imported_image_model_is_fine_tuned(tmp_path):
    hf = pytest.importorskip("transformers")
    config = hf.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20,
        image_size=8, patch_size=4, num_channels=3, num_labels=5,
    )  # fmt: skip
    hf.ViTForImageClassification(config).save_pretrained(tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    pictures = write_pictures(tmp_path / "pictures")
    train(configure_images(tmp_path / "ours", pictures, height=16), tmp_path / "run")
    before, after = (load_model(tmp_path / name) for name in ("ours", "run/last"))
    with torch.no_grad():
        expected = before.model.hidden(random_images(16, 8))
        torch.testing.assert_close(after.model.hidden(random_images(16, 8)), expected)
    assert after.config.classes == 3
