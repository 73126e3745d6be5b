"""Fine-tuning: every family goes on from a model of its own, and from no other."""

import json
import os
from dataclasses import replace

import pytest
import torch
from pretrained import TINY, pretrain, write_lines
from tiny_gpt import SMALL, train_gpt

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.cost.report import cost_report
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.models.registry import FAMILIES
from polyhead.training import finetune as continuing
from polyhead.training import trainer as training
from polyhead.training.config import read_run, recipe_names
from polyhead.training.optim import BLOCK
from polyhead.training.trainer import train

HARDLY = ("train.steps=1", "train.schedule.kind=constant", "train.schedule.rate=1e-12")
FEW = tuple(word for word in SMALL if not word.startswith("model."))
SETTINGS = {"gpt-tiny": FEW, "bert-tiny": TINY, "electra-tiny": TINY, "reformer-tiny": FEW}
STACK = tuple(word for word in SMALL if word.startswith("model.stack") and "dropout" not in word)
REFORMER = (
    *FEW, *STACK, "model.max_length=64", "model.positions=axial", "model.axial.shape=[8, 8]",
    "model.axial.widths=[8, 8]", "model.stack.window=8", "model.stack.lsh.chunk=8",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _a_disk_that_does_not_wait(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of each family, by recipe."""
    folder = tmp_path_factory.mktemp("models")
    files = write_lines(folder)
    train(read_run("reformer-tiny", REFORMER, files), folder / "reformer-tiny")
    return {
        "gpt-tiny": train_gpt(folder),
        "bert-tiny": pretrain(folder, "bert-tiny"),
        "electra-tiny": pretrain(folder, "electra-tiny"),
        "reformer-tiny": folder / "reformer-tiny",
    }


def going_on(recipe, folder, init, *overrides):
    given = (*SETTINGS[recipe], "text.vocab=600", f'train.init="{init}"', *overrides)
    return read_run(recipe, given, write_lines(folder))


def first_validation(run):
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return next(entry for entry in map(json.loads, lines) if entry["kind"] == "valid")


def logits_of(saved):
    ids = torch.randint(4, 300, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        if saved.family == "electra":
            return torch.cat([saved.model.suspect(ids)[..., None], saved.model.generator(ids)], -1)
        return saved.model(ids)


@pytest.mark.parametrize("recipe", SETTINGS)
def test_a_model_goes_on_where_another_ended(recipe, trained, tmp_path):
    run = going_on(recipe, tmp_path, trained[recipe], "model.stack.dropout=0.2", *HARDLY)
    train(run, tmp_path / "run")
    before, after = (
        model_folder.load_model(path) for path in (trained[recipe], tmp_path / "run/last")
    )
    torch.testing.assert_close(logits_of(after), logits_of(before), rtol=1e-4, atol=1e-5)
    text = "내일 회의가 있어요."
    assert after.tokenizers.source.encode(text) == before.tokenizers.source.encode(text)
    sizes = ("n_layers", "d_model", "n_heads", "d_ff", "attention", "window", "lsh")
    for name in sizes:
        assert getattr(after.config.stack, name) == getattr(before.config.stack, name)
    assert after.config.vocab == before.config.vocab
    assert after.config.stack.dropout == 0.2
    scratch = going_on(recipe, tmp_path, trained[recipe], *HARDLY)
    scratch = replace(scratch, model=before.config, train=replace(scratch.train, init=None))
    train(replace(scratch, text=before.tokenizers.config), tmp_path / "scratch")
    first, untaught = (first_validation(tmp_path / name) for name in ("run", "scratch"))
    assert first["step"] == 0
    assert first["loss"] < untaught["loss"] - 0.01


@pytest.mark.parametrize("recipe", SETTINGS)
def test_an_interrupted_run_ends_with_the_same_bits(recipe, trained, tmp_path, monkeypatch):
    run = going_on(recipe, tmp_path, trained[recipe], "train.steps=5", "train.save_every=2")
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
    assert train(run, tmp_path / "parts").step == 5
    one, two = (model_folder.load_model(tmp_path / name / "last") for name in ("whole", "parts"))
    assert all(map(torch.equal, one.model.parameters(), two.model.parameters()))


def test_a_model_that_was_trained_further_meanwhile_is_noticed(trained, tmp_path):
    saved = model_folder.load_model(trained["gpt-tiny"])
    with store.atomic_dir(tmp_path / "model") as draft:
        model_folder.write_model(draft, saved, "")
    run = going_on("gpt-tiny", tmp_path, tmp_path / "model", *HARDLY)
    train(run, tmp_path / "run")
    store.remove(tmp_path / "model")
    torch.nn.init.zeros_(next(saved.model.parameters()))
    with store.atomic_dir(tmp_path / "model") as draft:
        model_folder.write_model(draft, saved, "")
    with pytest.raises(DataError, match="the pre-trained model or its data are no longer those"):
        train(run, tmp_path / "run")


@pytest.mark.parametrize("recipe", SETTINGS)
def test_another_family_is_refused(recipe, trained, tmp_path):
    other = "bert-tiny" if recipe == "gpt-tiny" else "gpt-tiny"
    with pytest.raises(ConfigError, match=r"another family than .*, which can begin only from"):
        train(going_on(recipe, tmp_path, trained[other]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.stack.d_model=32", r"model.stack.d_model = 32: .* has 16; leave it out"),
        ("model.positions=learned", r"model.positions = 'learned': .* has 'rotary'"),
        ("model.stack.d_model=16", None),
        ("model.stack.dropout=0.3", None),
    ],
)
def test_what_is_asked_for_must_be_as_the_model_has_it(trained, tmp_path, override, words):
    run = going_on("bert-tiny", tmp_path, trained["bert-tiny"], override, *HARDLY)
    if words is None:
        train(run, tmp_path / "run")
        return
    with pytest.raises(ConfigError, match=words) as error:
        train(run, tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_texts_must_fit_the_positions_of_the_model_not_of_the_recipe(trained, tmp_path):
    init = trained["reformer-tiny"]
    with pytest.raises(ConfigError, match=r"data.max_length = 65: the model learns only 64"):
        train(going_on("reformer-tiny", tmp_path, init, "data.max_length=65"), tmp_path / "run")
    recipe = read_run("gpt2")
    longer = read_run("gpt2", [f"data.max_length={recipe.model.max_length + 1}", "train.init=x"])
    assert longer.data.max_length > recipe.model.max_length  # that of x is looked at later


def test_a_model_without_text_is_refused(trained, tmp_path):
    saved = model_folder.load_model(trained["bert-tiny"])
    with store.atomic_dir(tmp_path / "mute") as draft:
        model_folder.write_model(draft, replace(saved, tokenizers=None), "")
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        train(going_on("bert-tiny", tmp_path, tmp_path / "mute"), tmp_path / "run")
    config = replace(saved.config, vocab=saved.config.vocab + 3)
    larger = replace(saved, config=config, model=type(saved.model)(config), about={"imported": {}})
    with store.atomic_dir(tmp_path / "larger") as draft:
        model_folder.write_model(draft, larger, "")
    with pytest.raises(CheckpointError, match=r"but its tokenizer and \[MASK\]"):
        train(going_on("bert-tiny", tmp_path, tmp_path / "larger"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_weight_of_spotting_is_the_new_runs(trained, tmp_path):
    run = going_on("electra-tiny", tmp_path, trained["electra-tiny"], "model.spotting=3.0")
    assert continuing.resized(run, continuing.read_own(run)).model.spotting == 3.0


def test_the_bill_says_that_it_does_not_look_at_the_model():
    words = "sizes as in the recipe: those of train.init are not looked at"
    assert words in cost_report(read_run("gpt-tiny", ["train.init=x"])).assumed
    assert words not in cost_report(read_run("gpt-tiny")).assumed


# Rates that fall from layer to layer


@pytest.mark.parametrize("recipe", recipe_names())
def test_models_of_blocks_are_those_whose_parameters_say_so(recipe):
    run = read_run(recipe)
    with torch.device("meta"):
        model = FAMILIES[run.family].model(run.model)
    blocks = any(BLOCK.search(name) for name, _ in model.named_parameters())
    assert blocks == (run.family in training.OF_BLOCKS)


def test_a_model_without_blocks_is_not_trained_by_layers(tmp_path):
    run = read_run("multi30k-de-en-lstm", ["train.optimizer.layer_decay=0.8"])
    with pytest.raises(ConfigError) as caught:
        train(run, tmp_path / "run")
    assert str(caught.value) == (
        "train.optimizer.layer_decay = 0.8: a model of family seq2seq has no blocks above each "
        "other, as transformer, gpt, reformer, bert, electra, classifier, vit have; leave it out"
    )
    assert not (tmp_path / "run").exists()


def test_fine_tuning_by_layers_hardly_moves_what_lies_deep(trained, tmp_path):
    given = ("train.optimizer.layer_decay=0.001", "train.optimizer.weight_decay=0", *HARDLY[1:2])
    run = going_on("bert-tiny", tmp_path, trained["bert-tiny"], "train.schedule.rate=0.01", *given)
    train(run, tmp_path / "run")
    before = model_folder.load_model(trained["bert-tiny"]).model.state_dict()
    moved = {
        name: float((weight - before[name]).abs().max())
        for name, weight in model_folder.load_model(tmp_path / "run/last")
        .model.state_dict()
        .items()
    }
    assert min(d for name, d in moved.items() if name.startswith("transform.")) > 1e-3
    assert max(d for name, d in moved.items() if ".blocks.0." in name) < 1e-3
    assert max(d for name, d in moved.items() if ".embed." in name) < 1e-6
