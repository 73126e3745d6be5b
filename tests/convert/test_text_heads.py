"""Heads of transformers in both directions: pairs, several labels, numbers, sentence vectors."""

import json
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from foreign_models import SIZES, write_ours, write_theirs
from torch.nn import functional as F

from polyhead.checkpoint.model_dir import load_model
from polyhead.convert.conversion import import_model
from polyhead.convert.model_export import ReportConfig, export_model
from polyhead.data.batches.labelled import TextBatch
from polyhead.errors import CheckpointError
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.tasks.losses import ClassificationLoss, ContrastiveLoss, label_loss

hf = pytest.importorskip("transformers")
PROBLEMS = {
    "single_label": ("single_label_classification", 3, torch.tensor([0, 2])),
    "multi_label": ("multi_label_classification", 3, torch.tensor([[1.0, 0, 1], [0, 0, 0]])),
    "regression": ("regression", 1, torch.tensor([1.5, -2.0])),
}
FAMILIES = {"Bert": hf.BertConfig, "Electra": hf.ElectraConfig}
IDS = torch.tensor([[5, 6, 7, 2, 8, 9, 2], [5, 10, 2, 11, 2, 0, 0]])
SEGMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]])
ENCODER = BERTConfig(23, 14, 2, stack=bert_stack(2, 24, 3))


def theirs_of(family, problem):
    name, n_labels, _ = PROBLEMS[problem]
    config = FAMILIES[family](**SIZES, embedding_size=24, num_labels=n_labels, problem_type=name)
    return getattr(hf, f"{family}ForSequenceClassification")(config)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_pairs_and_losses_are_those_of_transformers(tmp_path, family, problem):
    theirs = theirs_of(family, problem)
    write_theirs(theirs, tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    ours, labels = load_model(tmp_path / "ours"), PROBLEMS[problem][2]
    assert ours.config.problem == problem
    with torch.no_grad():
        expected = theirs(IDS, (IDS != 0).long(), SEGMENTS, labels=labels)
        logits = ours.model(IDS, SEGMENTS)
        single = theirs(IDS, (IDS != 0).long()).logits
        loss = ClassificationLoss()(ours.model, TextBatch(IDS, labels))
    torch.testing.assert_close(logits, expected.logits, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(single, expected.logits, atol=1e-3)  # the second segment counts
    assert loss.total.item() / loss.count == pytest.approx(expected.loss.item(), rel=1e-5)
    export_model(tmp_path / "ours", tmp_path / "back", report=ReportConfig(4))
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    assert again.config.problem_type in (PROBLEMS[problem][0], None)
    with torch.no_grad():
        back = again(IDS, (IDS != 0).long(), SEGMENTS, labels=labels)
    torch.testing.assert_close(back.logits, expected.logits, rtol=1e-5, atol=1e-5)
    assert back.loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)


def test_the_units_of_numbers_are_in_the_exported_weights(tmp_path):
    config = ClassifierConfig(1, encoder=ENCODER, problem="regression", mean=250.0, scale=40.0)
    model = write_ours(tmp_path / "ours", "classifier", config)
    export_model(tmp_path / "ours", tmp_path / "theirs", report=ReportConfig(4))
    theirs = hf.BertForSequenceClassification.from_pretrained(tmp_path / "theirs").eval()
    with torch.no_grad():
        numbers = theirs(IDS, (IDS != 0).long(), SEGMENTS).logits
        torch.testing.assert_close(numbers, model(IDS, SEGMENTS), rtol=1e-5, atol=1e-3)
        scaled = label_loss(numbers, torch.tensor([250.0, 290.0]), model)
    expected = F.mse_loss((numbers[:, 0] - 250) / 40, torch.tensor([0.0, 1.0]), reduction="sum")
    torch.testing.assert_close(scaled, expected)


def test_another_kind_of_problem_and_several_numbers_are_refused(tmp_path):
    for name, n_labels, code in (("ranking", 3, "invalid_config_value"),
                                 ("regression", 2, "invalid_sizes")):  # fmt: skip
        theirs = theirs_of("Bert", "single_label")
        theirs.config.problem_type, theirs.config.num_labels = name, n_labels
        write_theirs(theirs, tmp_path / name)
        with raises(CheckpointError, code):
            import_model(str(tmp_path / name), tmp_path / "ours")


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sentence_encoder_is_a_folder_of_sentence_transformers(tmp_path, family, pooling):
    encoder = ENCODER if family == "Bert" else replace(ENCODER, d_embed=12)
    config = SentenceEncoderConfig(pooling, encoder=encoder)
    model = write_ours(tmp_path / "ours", "sentence_encoder", config)
    export_model(tmp_path / "ours", tmp_path / "theirs", report=ReportConfig(4))
    theirs = hf.AutoModel.from_pretrained(tmp_path / "theirs").eval()
    assert type(theirs).__name__ == f"{family}Model"
    mask = (IDS != 0).long()
    with torch.no_grad():
        states = theirs(IDS, mask).last_hidden_state
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        expected = F.normalize(mean if pooling == "mean" else states[:, 0], dim=-1)
        torch.testing.assert_close(model(IDS), expected, rtol=1e-5, atol=1e-5)
    modules = json.loads((tmp_path / "theirs" / "modules.json").read_text())
    assert [module["type"].split(".")[-1] for module in modules] == [
        "Transformer", "Pooling", "Normalize",
    ]  # fmt: skip
    import_model(str(tmp_path / "theirs"), tmp_path / "again")
    again = load_model(tmp_path / "again")
    assert (again.family, again.config.pooling) == ("sentence_encoder", pooling)
    with torch.no_grad():
        assert torch.equal(again.model(IDS), model(IDS))


def test_the_contrastive_loss_is_the_cross_entropy_of_all_pairs():
    encoder = SentenceEncoder(SentenceEncoderConfig(temperature=0.1, encoder=ENCODER)).eval()
    pairs = torch.tensor([[1, 5, 2, 8, 9, 2], [1, 6, 7, 2, 10, 2], [1, 11, 2, 12, 2, 0]])
    firsts = torch.tensor([[1, 5, 2, 0], [1, 6, 7, 2], [1, 11, 2, 0]])
    seconds = torch.tensor([[1, 8, 9, 2], [1, 10, 2, 0], [1, 12, 2, 0]])
    with torch.no_grad():
        similarity = encoder(firsts) @ encoder(seconds).T / 0.1
        loss = ContrastiveLoss()(encoder, TextBatch(pairs, torch.zeros(3)))
        both = [F.cross_entropy(s, torch.arange(3)) for s in (similarity, similarity.T)]
        twice = ContrastiveLoss()(encoder, TextBatch(pairs[[0, 1, 0]], torch.zeros(3)))
    assert loss.total.item() / loss.count == pytest.approx(sum(both).item() / 2, rel=1e-5)
    again = similarity[[0, 1, 0]][:, [0, 1, 0]]
    again[0, 2] = again[2, 0] = -torch.inf  # a repeated pair has no wrong partner in its copy
    rows = [F.cross_entropy(s, torch.arange(3), reduction="sum") for s in (again, again.T)]
    assert twice.total.item() == pytest.approx(sum(rows).item() / 2, rel=1e-5)
