"""`fine_tune` of pipelines: the recipe that fits the model and the data."""

from dataclasses import replace
from pathlib import Path

from expected_errors import raises
from pretrained import pretrain, write_labelled, write_lines

import polyhead
from polyhead.errors import ConfigError
from polyhead.models.bert import BERTConfig, bert_stack


def test_fine_tune_uses_the_configuration_of_the_model_or_of_a_classifier(tmp_path):
    files = write_lines(tmp_path)
    bert = polyhead.load(pretrain(tmp_path, "bert-tiny"), device="cpu")
    result = bert.fine_tune(text=files["text"], run=tmp_path / "more", overrides=["train.steps=2"])
    again = polyhead.load(result.folder, device="cpu")
    assert again.saved.config == bert.saved.config
    assert again.saved.about["run"]["train"]["init"] == Path(bert.name).name
    labelled = write_labelled(tmp_path)["labelled"]
    short = ["train.steps=2", "train.max_tokens=300", "train.validate_every=2"]
    classifier = bert.fine_tune(data=labelled, run=tmp_path / "kinds", overrides=short)
    kinds = polyhead.load(classifier.folder, device="cpu")
    sizes = replace(kinds.saved.config.encoder.stack, dropout=bert.saved.config.stack.dropout)
    assert sizes == bert.saved.config.stack
    more = kinds.fine_tune(data=labelled, run=tmp_path / "kinds2", overrides=["train.steps=3"])
    assert polyhead.load(more.folder, device="cpu").classes == kinds.classes


def test_without_a_saved_configuration_a_recipe_must_be_named(tmp_path):
    model = polyhead.create_model("bert", BERTConfig(40, 8, stack=bert_stack(1, 8, 2)))
    polyhead.save_model(model, tmp_path / "bare")
    with raises(ConfigError, "no_recipe"):
        polyhead.train(text="x.txt", init=tmp_path / "bare", run=tmp_path / "run")
