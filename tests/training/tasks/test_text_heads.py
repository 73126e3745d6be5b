"""Fine-tuning on pairs, several labels, numbers and sentence pairs."""

import numpy as np
import pytest
import torch
from expected_errors import raises
from pretrained import pretrain
from text_heads import FEW, configure, rows_of, write_rows

import polyhead
from polyhead.checkpoint.atomic_dir import checkpoint_path
from polyhead.checkpoint.model_dir import load_model
from polyhead.errors import ConfigError, DataError
from polyhead.training.config import read_run
from polyhead.training.trainer import train

METRICS = {
    "pairs": {"accuracy", "macro_f1"},
    "labels": {"micro_f1", "macro_f1", "exact_match"},
    "numbers": {"pearson", "spearman", "mae", "rmse"},
    "graded": {"pearson", "spearman"},
    "sentences": {"accuracy", "mrr"},
}


def test_a_model_reads_what_it_was_trained_on(text_heads, tmp_path):
    models = {kind: polyhead.load(folder, device="cpu") for kind, folder in text_heads.items()}
    pairs, labels, numbers = (models[kind] for kind in ("pairs", "labels", "numbers"))
    both = pairs.classify(["apple\tpear", "car\tbus"])
    assert both[0].probabilities == pytest.approx(
        pairs.classify("apple", pair="pear").probabilities
    )
    assert pairs.classify("pear", pair="apple").probabilities != both[0].probabilities
    with raises(DataError, "no_pair"):
        pairs.classify("apple")
    with raises(ConfigError, "no_pairs"):
        labels.classify("apple", pair="pear")
    (several,) = labels.classify(["apple pear"])
    above = tuple(name for name, share in several.probabilities.items() if share > 0.5)
    assert several.labels == above
    assert str(several) == "|".join(above)
    assert numbers.classify("apple").number == pytest.approx(350, abs=200)  # starts at the mean
    vectors = models["sentences"].embed(["apple", "a pear tree", ""])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    cosines = models["sentences"].similarity("apple", ["apple", "a pear tree"])
    assert cosines == pytest.approx([1, float(vectors[0] @ vectors[1])], abs=1e-5)
    for kind, model in models.items():
        result = model.evaluate([write_rows(tmp_path, kind)])
        assert result.n_examples == 60
        if kind != "pairs":
            assert result.scores.keys() == METRICS[kind]
    with raises(DataError, "no_pairs"):
        labels.evaluate([write_rows(tmp_path, "pairs")])


def test_several_labels_and_numbers_are_learned(tmp_path):
    more = ("train.steps=80", "train.schedule.rate=1e-2", "train.validate_every=80")
    path = write_rows(tmp_path, "numbers")
    config = configure(tmp_path, "numbers", *more, f'data.valid_labelled="{path}"')
    assert train(config, tmp_path / "run").metrics["pearson"] > 0.8
    number = polyhead.load(tmp_path / "run", device="cpu").saved.config
    wanted = np.array([float(row[1]) for row in rows_of("numbers")])
    assert (number.mean, number.scale) == pytest.approx((wanted.mean(), wanted.std()))


def test_the_second_segment_starts_as_the_first_unless_it_was_trained(tmp_path):
    init = pretrain(tmp_path, "bert-tiny", "model.segments=2")
    first = configure(tmp_path, "pairs", f"train.init={init}", "train.keep=9", "text.vocab=700")
    train(first, tmp_path / "first")
    table = load_model(init).model.encoder.embed.segments.weight
    start = load_model(checkpoint_path(tmp_path / "first" / "checkpoints", 0)).model.encoder
    assert torch.equal(start.embed.segments.weight, table[:1].expand(2, -1))
    last = tmp_path / "first" / "last"
    trained = load_model(last).model.encoder.embed.segments.weight
    assert not torch.equal(trained[0], trained[1])
    again = configure(tmp_path, "pairs", f"train.init={last}", "train.keep=9", "text.vocab=700")
    train(again, tmp_path / "again")
    kept = load_model(checkpoint_path(tmp_path / "again" / "checkpoints", 0)).model.encoder
    assert torch.equal(kept.embed.segments.weight, trained)


def test_pairs_that_are_too_long_are_counted(tmp_path):
    train(configure(tmp_path, "pairs", "data.max_length=6"), tmp_path / "run")
    assert "longer than 6 tokens and were truncated" in (tmp_path / "run/train.log").read_text()


def test_data_without_pairs_or_with_classes_is_refused_for_embeddings(tmp_path):
    for kind, code in (("numbers", "no_pairs"), ("pairs", "not_a_number")):
        files = {"labelled": [str(write_rows(tmp_path, kind))]}
        with raises(DataError, code):
            train(read_run("embed-small", ("text.vocab=340",), files), tmp_path / kind)


def test_equal_scores_of_all_pairs_are_refused(tmp_path):
    path = write_rows(tmp_path, "graded")
    path.write_text(path.read_text().replace("\t0.5", "\t5.5"))
    with raises(DataError, "equal_scores", "5.5"):
        train(read_run("embed-small", FEW, {"labelled": [str(path)]}), tmp_path / "run")
