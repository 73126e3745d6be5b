"""Every recipe's model, made small, is written for all targets that `polyhead show` names.

For transformers, the outputs are compared; other models are refused in one line.
"""

from dataclasses import fields, is_dataclass, replace

import pytest
import torch
from expected_errors import raises
from foreign_models import shaken, write_ours

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.cli.recipes import describe_exports
from polyhead.convert.exporter import export_folders
from polyhead.convert.model_export import export_model
from polyhead.convert.targets import TARGETS, reachable
from polyhead.errors import CheckpointError
from polyhead.models.registry import FAMILIES, has_mask_token
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.config import read_run, recipe_names

SMALLER = {
    "n_layers": 2, "decoder_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 24, "hidden": 8,
    "classes": 3, "max_length": 40,
}  # fmt: skip
LINES = ["내일 오후 3시에 회의가 있어요.", "the meeting is tomorrow at three o'clock", "가나다 abc"]
SLOW = "onnx"  # takes ten seconds: written once for each family

WRITTEN = {
    "MarianMTModel": ["base", "big"],
    "PegasusForConditionalGeneration": [
        "multi30k-de-en", "multi30k-de-en-best", "multi30k-en-de", "schedules-ko-en", "small",
    ],
    "GPT2LMHeadModel": ["gpt2"],
    "GPTNeoXForCausalLM": ["gpt-shakespeare", "gpt-shakespeare-small", "gpt-tiny"],
    "BertForMaskedLM": ["bert-base"],
    "EsmForMaskedLM": ["bert-nsmc", "bert-tiny"],
    "EsmForSequenceClassification": ["classify-small"],
    "EsmForTokenClassification": ["tagger-small"],
    "ElectraForMaskedLM and ElectraForPreTraining": ["electra-small"],
    "ViTForImageClassification": ["vit-b-16"],
    "IJepaForImageClassification": ["vit-digits"],
}  # fmt: skip
REFUSED = {
    "classify-nsmc": "head = 'electra', pooling = 'mean'",
    "electra-nsmc": "norm = 'pre', positions = 'rotary'",
    "electra-tiny": "norm = 'pre', positions = 'rotary'",
    "embed-small": "norm = 'pre', positions = 'rotary'",
    "g2p-ko": "tie = 'target'",
    "qa-small": "norm = 'pre', positions = 'rotary'",
    "small-lsh": "encoder_attention = 'lsh'",
    "small-moe": "experts = 8",
    "vit-cifar10": "positions = 'rotary', stem = (64, 128)",
    "vit-fashion": "positions = 'rotary', stem = (32, 64)",
    **{f"resnet-{name}": "no counterpart in transformers" for name in ("cifar10", "digits")},
    **{f"reformer-{name}": "takes their mean" for name in ("enwik8", "shakespeare", "tiny")},
    **{
        f"multi30k-de-en-{name}": "no counterpart in transformers"
        for name in ("bytenet", "convs2s", "deep-att", "gnmt", "gru-attention", "gru", "ladder",
                     "lstm", "luong-local", "luong", "moe")
    },
}  # fmt: skip
ARCHITECTURES = {recipe: name for name, recipes in WRITTEN.items() for recipe in recipes}


def shrunk(config, **sizes):
    """Return a configuration of the same structure with small sizes."""
    changes = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value) and item.name != "axial" and not isinstance(value, type):
            changes[item.name] = shrunk(value, **sizes)
        elif type(value) is int and value and item.name in sizes:
            changes[item.name] = min(value, sizes[item.name])
        elif item.name == "d_embed" and value and hasattr(config, "stack"):
            changes[item.name] = 16 if value == config.stack.d_model else 8
        elif item.name == "axial":
            changes[item.name] = type(value)()
    return replace(config, **changes)


def tiny_model(run):
    """Return an untrained model with the structure of a recipe, and its tokenizers."""
    config, family = shrunk(run.model, **SMALLER), run.family
    if FAMILIES[family].task == "image_classification":
        config = replace(config, height=2 * config.patch, width=2 * config.patch)
        return SavedModel(family, config, shaken(FAMILIES[family].model(config)), None)
    text = replace(run.text, vocab=320, sampling=0.0)
    tokenizers = train_tokenizers(LINES, LINES, text)
    sizes = {"vocab": len(tokenizers.source) + has_mask_token(family)}
    sizes |= {"source_vocab": len(tokenizers.source), "target_vocab": len(tokenizers.target)}
    config = shrunk(config, **sizes)
    model = shaken(FAMILIES[family].model(config))
    return SavedModel(family, config, model, tokenizers, {"languages": ["ko", "en"]})


def accepts(target, saved, folder):
    """Return whether export writes a model; errors after it was accepted are errors."""
    text = None if saved.tokenizers is None else saved.tokenizers.config
    try:
        target.architecture(saved.family, saved.config, text)
    except CheckpointError as error:
        return error.code != "not_exportable"
    folder.mkdir()
    target.write(saved, folder, target.compute_types[0], print)
    return any(folder.iterdir())


@pytest.mark.parametrize("recipe", recipe_names())
def test_show_names_the_targets_that_export_accepts(recipe, tmp_path):
    run = read_run(recipe)
    torch.manual_seed(0)
    saved = tiny_model(run)
    names, obstacles = reachable(run.family, run.model, run.text)
    assert set(names) | set(obstacles) == set(TARGETS)
    written = {n for n, t in TARGETS.items() if n != SLOW and accepts(t, saved, tmp_path / n)}
    assert written == set(names) - {SLOW}
    first, *others = describe_exports(run.family, run.model, run.text).splitlines()
    assert first.startswith("# export: ")
    assert all(name in first for name in names)
    assert [line.split(":")[0] for line in others] == [f"# not {name}" for name in obstacles]


def test_all_recipes_are_in_the_table():
    assert sorted(recipe_names()) == sorted([*ARCHITECTURES, *REFUSED])


@pytest.mark.parametrize("recipe", ARCHITECTURES)
def test_a_recipes_model_is_written(recipe, tmp_path):
    hf, run = pytest.importorskip("transformers"), read_run(recipe)
    write_ours(tmp_path / "ours", run.family, tiny_model(run).config)
    report = export_model(tmp_path / "ours", tmp_path / "theirs")
    assert report.architecture == ARCHITECTURES[recipe]
    assert report.parity.equal
    assert report.parity.difference < 1e-4
    for folder in [file.parent for file in tmp_path.glob("theirs/**/config.json")]:
        assert {file.suffix for file in folder.iterdir() if file.is_file()} <= {
            ".json", ".safetensors", ".md",
        }  # fmt: skip
        assert hf.AutoConfig.from_pretrained(folder).architectures[0] in report.architecture


@pytest.mark.parametrize("recipe", REFUSED)
def test_a_recipes_model_is_refused_with_the_reason(recipe):
    run = read_run(recipe)
    with raises(CheckpointError, "not_exportable", REFUSED[recipe]) as caught:
        export_folders(run.family, run.model, {}, None)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 260
