"""BERT and the classifier on it; `tests/interchange` compares both with the originals."""

import pytest
import torch

from polyhead.models.bert import BERT, PUBLISHED, BERTConfig, BERTEncoder, bert_stack
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.text_classifier import Classifier, ClassifierConfig

SMALL = BERTConfig(23, 16, stack=bert_stack(2, 16, 4))


@pytest.mark.parametrize(
    ("name", "published"), [("bert-base", 109_482_240), ("bert-large", 335_141_888)]
)
def test_the_published_sizes_have_the_published_numbers_of_parameters(name, published):
    config = PUBLISHED[name]
    with torch.device("meta"):
        parts = BERTEncoder(config), torch.nn.Linear(*[config.stack.d_model] * 2)  # and the pooler
    assert sum(p.numel() for part in parts for p in part.parameters()) == published


def test_weights_begin_within_two_standard_deviations():
    model = BERT(BERTConfig(500, 16, stack=bert_stack(2, 64, 4)))
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            assert parameter.abs().max() <= 0.04, name
            # a normal distribution cut at two sigma has 0.8796 of its standard deviation
            if parameter.numel() > 4000:
                assert parameter.std().item() == pytest.approx(0.02 * 0.8796, rel=0.05), name


def test_the_head_at_chosen_positions_is_the_head_everywhere_seen_there():
    model = BERT(SMALL).eval()
    ids, chosen = torch.randint(1, 23, (3, 9)), torch.rand(3, 9) < 0.3
    torch.testing.assert_close(model.fill(ids, chosen), model(ids)[chosen], rtol=0, atol=1e-6)
    torch.testing.assert_close(model.to_logits(model.transform(model.hidden(ids))), model(ids))


def test_padding_changes_nothing_and_no_segments_are_the_first_segment():
    model = BERT(SMALL).eval()
    ids = torch.randint(1, 23, (2, 9))
    padded = torch.nn.functional.pad(ids, (0, 4), value=0)
    torch.testing.assert_close(model(padded)[:, :9], model(ids), rtol=0, atol=1e-5)
    torch.testing.assert_close(model(ids, torch.zeros_like(ids)), model(ids), rtol=0, atol=0)
    assert not torch.allclose(model(ids, torch.ones_like(ids)), model(ids), atol=1e-5)


@pytest.mark.parametrize("head", ["bert", "electra"])
def test_a_classifier_begins_from_any_pre_trained_encoder(head):
    if head == "bert":
        pretrained, config = BERT(SMALL).encoder, SMALL
    else:
        whole = ElectraConfig(23, 16, d_embed=8, generator_size=0.5, stack=bert_stack(2, 16, 4))
        pretrained, config = Electra(whole).discriminator, whole.discriminator
    classifier = Classifier(ClassifierConfig(3, head, encoder=config)).eval()
    classifier.encoder.load_state_dict(pretrained.state_dict())
    ids = torch.randint(1, 23, (2, 9))
    assert torch.equal(classifier.encoder(ids), pretrained.eval()(ids))
    assert classifier(ids).shape == (2, 3)


def test_the_mean_of_a_text_leaves_padding_out():
    model = Classifier(ClassifierConfig(3, pooling="mean", encoder=SMALL)).eval()
    short, long = torch.randint(1, 23, (1, 5)), torch.randint(1, 23, (1, 9))
    together = torch.cat([torch.nn.functional.pad(short, (0, 4), value=0), long])
    by_hand = [model.encoder(ids).mean(dim=1) for ids in (short, long)]
    expected = model.to_logits(model.pool(torch.cat(by_hand)))
    torch.testing.assert_close(model(together), expected, rtol=0, atol=1e-6)
