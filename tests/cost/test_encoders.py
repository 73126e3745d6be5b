"""The bills of BERT, ELECTRA and the classifiers are held to what torch counts in training."""

from dataclasses import replace

import pytest
import torch

from polyhead.cost.bills import step_memory
from polyhead.cost.encoders import (
    bert_bill,
    classifier_bill,
    electra_bill,
    n_blanks,
    tokens_of_image,
    vit_bill,
)
from polyhead.cost.measured import kept_bytes, products
from polyhead.cost.stack import Shape
from polyhead.data.batches.images import ImageBatch
from polyhead.data.batches.labelled import TextBatch
from polyhead.data.batches.masked import MaskedBatch, MaskingConfig, mask_tokens
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERT, BERTConfig
from polyhead.models.bert import PUBLISHED as BERTS
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.vit import PUBLISHED as VITS
from polyhead.models.vit import ViT, ViTConfig
from polyhead.training.losses import (
    ClassificationLoss,
    MaskedTokenLoss,
    ReplacedTokenLoss,
    SoftLabelLoss,
)

STACK = StackConfig(n_layers=2, d_model=32, n_heads=4, d_ff=48, activation="gelu")
PRE = replace(STACK, norm="pre", dropout=0.0)
SMALL = BERTConfig(vocab=61, max_length=64, stack=STACK)
BERT_CONFIGS = {
    "usual": SMALL,
    "narrow embedding": replace(SMALL, d_embed=16, segments=1),
    "untied": replace(SMALL, tie=False),
    "rotary, pre-norm": replace(SMALL, positions="rotary", stack=PRE),
    "all dropouts": replace(SMALL, stack=replace(STACK, attention_dropout=0.1)),
    "relu": replace(SMALL, stack=replace(STACK, activation="relu")),
    "axial": replace(SMALL, positions="axial"),
}
PLAYERS = ElectraConfig(
    vocab=61, max_length=64, d_embed=16, sharing="none", generator_size=0.5, stack=STACK
)
ELECTRA_CONFIGS = {
    "nothing shared": PLAYERS,
    "embeddings shared": replace(PLAYERS, sharing="embeddings"),
    "as wide as the generator": replace(PLAYERS, sharing="embeddings", d_embed=None),
    "all shared": replace(PLAYERS, sharing="all", generator_size=1.0, d_embed=None),
    "all shared and widened": replace(PLAYERS, sharing="all", generator_size=1.0),
    "relu, pre-norm": replace(PLAYERS, stack=replace(PRE, activation="relu")),
}
TEXTS = ClassifierConfig(classes=3, encoder=SMALL)
CLASSIFIER_CONFIGS = {
    "bert": TEXTS,
    "electra": replace(TEXTS, head="electra"),
    "mean": replace(TEXTS, head="electra", pooling="mean", encoder=replace(SMALL, d_embed=16)),
}
IMAGES = ViTConfig(classes=5, height=12, width=8, channels=3, patch=2, stack=PRE)
VIT_CONFIGS = {
    "class token": IMAGES,
    "mean": replace(IMAGES, pooling="mean", positions="sinusoidal"),
    "dropout": replace(IMAGES, stack=replace(PRE, dropout=0.1)),
    "stem": replace(IMAGES, patch=4, stem=(6,)),
    "two convolutions": replace(IMAGES, patch=4, stem=(6, 10)),
}
SHAPE = Shape(4, 24)


def cases(configs):
    return pytest.mark.parametrize("config", configs.values(), ids=configs)


def n_parameters(model):
    return sum(p.numel() for p in model.parameters())


def blanks_of(shape, share):
    torch.manual_seed(0)
    ids = torch.randint(4, 60, (shape.batch, shape.length))
    ids[:, 0], ids[:, -1] = 1, 2
    chosen = torch.zeros(ids.numel(), dtype=torch.bool)
    chosen[torch.randperm(ids.numel())[: n_blanks(shape, share)]] = True
    return MaskedBatch(ids, ids, chosen.view(ids.shape), 1.0)


@cases(BERT_CONFIGS)
@pytest.mark.parametrize("share", [0.15, 0.4])
def test_bert_costs_what_torch_counts(config, share):
    model, batch = BERT(config).train(), blanks_of(SHAPE, share)
    bill = bert_bill(config, SHAPE, share)
    assert bill.total.parameters == n_parameters(model)
    assert products(lambda: MaskedTokenLoss()(model, batch).total.backward()) == bill.total.training
    assert products(lambda: model.fill(batch.blanked, batch.chosen)) == bill.total.forward


@cases(ELECTRA_CONFIGS)
def test_electra_costs_what_torch_counts(config):
    model, batch = Electra(config).train(), blanks_of(SHAPE, 0.15)
    bill, objective = electra_bill(config, SHAPE), ReplacedTokenLoss(0)
    assert bill.total.parameters == n_parameters(model)
    assert products(lambda: objective(model, batch).total.backward()) == bill.total.training
    assert products(lambda: objective(model, batch)) == bill.total.forward


@cases(CLASSIFIER_CONFIGS)
def test_a_classifier_costs_what_torch_counts(config):
    model = Classifier(config).train()
    batch = TextBatch(blanks_of(SHAPE, 0.15).ids, torch.tensor([0, 1, 2, 0]))
    bill = classifier_bill(config, SHAPE)
    assert bill.total.parameters == n_parameters(model)
    assert (
        products(lambda: ClassificationLoss()(model, batch).total.backward()) == bill.total.training
    )
    assert products(lambda: model(batch.ids)) == bill.total.forward


@cases(VIT_CONFIGS)
def test_a_vision_transformer_costs_what_torch_counts(config):
    model, shape = ViT(config).train(), Shape(4, tokens_of_image(config))
    images = torch.randn(4, config.channels, config.height, config.width)
    batch = ImageBatch(images, torch.eye(5)[:4], shape.length)
    bill = vit_bill(config, shape)
    assert model.hidden(images).size(1) == shape.length
    assert bill.total.parameters == n_parameters(model)
    assert products(lambda: SoftLabelLoss()(model, batch).total.backward()) == bill.total.training
    assert products(lambda: model(images)) == bill.total.forward


LARGER = Shape(6, 40)


@cases(BERT_CONFIGS)
def test_bert_keeps_what_autograd_keeps(config):
    model, batch = BERT(config).train(), blanks_of(LARGER, 0.15)
    (places,) = batch.chosen.flatten().nonzero(as_tuple=True)
    kept = kept_bytes(
        lambda: model.transform(model.hidden(batch.ids, asked=places)),
        model.parameters(),
    )
    parts = bert_bill(config, LARGER).parts
    counted = sum(parts[name].kept for name in ("embeddings", "encoder", "head"))
    assert counted == pytest.approx(kept, rel=0.02)


@cases(ELECTRA_CONFIGS)
def test_electra_keeps_what_autograd_keeps(config):
    model, batch = Electra(config).train(), blanks_of(LARGER, 0.15)
    kept = kept_bytes(lambda: ReplacedTokenLoss(0)(model, batch).total, model.parameters())
    assert electra_bill(config, LARGER).total.kept == pytest.approx(kept, rel=0.02)


@cases(CLASSIFIER_CONFIGS)
def test_a_classifier_keeps_what_autograd_keeps(config):
    model = Classifier(config).train()
    batch = TextBatch(blanks_of(LARGER, 0.15).ids, torch.tensor([0, 1, 2, 0, 1, 2]))
    kept = kept_bytes(lambda: ClassificationLoss()(model, batch).total, model.parameters())
    assert classifier_bill(config, LARGER).total.kept == pytest.approx(kept, rel=0.02)


@cases(VIT_CONFIGS)
def test_a_vision_transformer_keeps_what_autograd_keeps(config):
    model, shape = ViT(config).train(), Shape(4, tokens_of_image(config))
    images = torch.randn(4, config.channels, config.height, config.width)
    batch = ImageBatch(images, torch.eye(5)[:4], shape.length)
    kept = kept_bytes(lambda: SoftLabelLoss()(model, batch).total, model.parameters())
    assert vit_bill(config, shape).total.kept == pytest.approx(kept, rel=0.02)


def test_as_many_tokens_are_asked_for_as_blanks_are_drawn():
    shape = Shape(4000, 30)
    ids = torch.full((shape.batch, shape.length), 7)
    ids[:, 0], ids[:, -1] = 1, 2
    for share in (0.15, 0.3):
        drawn = mask_tokens(
            ids, MaskingConfig(share), torch.Generator().manual_seed(0), mask=8, vocab=9
        )
        assert n_blanks(shape, share) == pytest.approx(int(drawn.chosen.sum()), rel=0.03)
    assert n_blanks(Shape(5, 3), 0.15) == 5  # one in every text at least


def test_parameters_of_published_models_are_those_published():
    base = bert_bill(BERTS["bert-base"], Shape(1, 8))
    # the checkpoint: 109,482,240 with the pooler (768² + 768), which pre-training here has not;
    # and the head that fills in blanks has 768² + 768, a norm of 2 · 768, and a bias of 30,522
    square = 768 * 768 + 768
    assert base.total.parameters == 109_482_240 - square + square + 2 * 768 + 30_522
    image = VITS["vit-b-16"]
    assert vit_bill(image, Shape(1, 197)).total.parameters == 86_567_656  # torchvision's table


def test_logits_exist_at_the_blanks_only():
    counted = bert_bill(SMALL, SHAPE)
    assert step_memory(counted).logits == 4 * n_blanks(SHAPE, 0.15) * SMALL.vocab
    assert step_memory(electra_bill(PLAYERS, SHAPE)).logits == 0  # its loss keeps them all
