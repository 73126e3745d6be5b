"""Replaced-token detection: the two losses of ELECTRA and its validation metrics."""

from dataclasses import replace

import pytest
import torch
from foreign_models import shaken
from pretrained import masked_batches, masked_scores
from torch import nn
from torch.nn import functional as F

from polyhead.checkpoint import model_dir as model_folder
from polyhead.convert.exporter import export_folders
from polyhead.data.batches.masked import ELECTRA_MASKING
from polyhead.models import electra
from polyhead.models.bert import bert_stack
from polyhead.models.electra import Electra, ElectraConfig, ElectraOutput
from polyhead.special_tokens import PAD
from polyhead.tasks.losses import ReplacedTokenLoss
from polyhead.tasks.masked_tokens import ReplacedToken
from polyhead.training.loop import TrainConfig, accumulate, average_and_clip

VOCAB = 23
SPOTTING = ReplacedTokenLoss(PAD)


@pytest.fixture
def greedy_generator(monkeypatch):
    """Replace sampling by argmax, so that two passes can be compared."""

    def likeliest(logits, _u=None, *, never):
        assert never in ([PAD], [PAD, VOCAB - 1])
        allowed = logits.detach().clone()
        allowed[:, [PAD, VOCAB - 1]] = -torch.inf
        return allowed.argmax(-1)

    monkeypatch.setattr(electra, "draw", likeliest)


def make_batches(max_tokens=60):
    return masked_batches(ELECTRA_MASKING, VOCAB, max_tokens)


def model_config(sharing="none", dropout=0.0):
    stack = replace(bert_stack(1, 8, 2), dropout=dropout, attention_dropout=dropout)
    return ElectraConfig(
        VOCAB, 16, 1, d_embed=8, sharing=sharing, generator_size=0.5, stack=stack
    )  # fmt: skip


@pytest.mark.usefixtures("greedy_generator")
@pytest.mark.parametrize("weight", [50, 3])
def test_the_loss_is_the_generator_mean_plus_lambda_times_the_discriminator_mean(weight):
    usual = model_config()
    config = usual if weight == 50 else replace(usual, spotting=float(weight))
    model = Electra(config).eval()
    for batch in make_batches():
        n_blanks = int(batch.chosen.sum())
        batch = replace(batch, tokens_per_blank=batch.n_tokens / n_blanks)
        output = model(batch.ids, batch.blanked, batch.chosen)
        real = batch.ids != PAD
        filled = F.cross_entropy(output.generated, batch.ids[batch.chosen])
        truth = (output.forged != batch.ids)[real].float()
        spotted = F.binary_cross_entropy_with_logits(output.suspicion[real], truth)
        loss = SPOTTING(model, batch)
        assert loss.count == int(real.sum())
        torch.testing.assert_close(loss.total / loss.count, filled + weight * spotted)


@pytest.mark.usefixtures("greedy_generator")
def test_both_losses_equal_transformers():
    hf = pytest.importorskip("transformers")
    model = shaken(Electra(model_config("embeddings")))
    batch = make_batches(1000)[0]
    output = model(batch.ids, batch.blanked, batch.chosen)
    halves = (hf.ElectraForMaskedLM, hf.ElectraForPreTraining)
    weights, theirs = model_folder.weights_of(model), []
    exported = export_folders("electra", model_config("embeddings"), weights, None)
    for kind, half in zip(halves, exported, strict=True):
        given = {n: v for n, v in half.files["config.json"].items() if n != "architectures"}
        theirs.append(kind(hf.ElectraConfig(**given)).eval())
        assert not theirs[-1].load_state_dict(half.weights, strict=False).unexpected_keys
        theirs[-1].tie_weights()
    mask = (batch.ids != PAD).long()
    spot = theirs[1](
        input_ids=output.forged, attention_mask=mask, labels=output.replaced.long()
    ).loss
    answers = batch.ids.masked_fill(~batch.chosen, -100)
    fill = theirs[0](input_ids=batch.blanked, attention_mask=mask, labels=answers).loss
    loss = SPOTTING(model, batch)
    torch.testing.assert_close(loss.total / loss.count, fill + 50 * spot, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("greedy_generator")
def test_splitting_a_batch_does_not_change_the_gradient():
    model = Electra(model_config("embeddings")).eval()
    batch = make_batches(1000)[0]
    found = []
    for batches in ([batch], list(batch.halves())):
        model.zero_grad()
        summed = accumulate(model.eval(), SPOTTING, batches, TrainConfig())
        parameters = list(model.parameters())
        average_and_clip(parameters, summed.predictions, 0.0)
        found.append([p.grad.clone() for p in parameters])
    for whole, halves in zip(*found, strict=True):
        torch.testing.assert_close(whole, halves, rtol=1e-4, atol=1e-6)


def test_both_models_get_gradients_but_none_through_the_samples():
    model = Electra(model_config())
    (batch, *_) = make_batches(1000)
    SPOTTING(model, batch).total.backward()
    for part in (model.generator, model.discriminator, model.spot):
        gradients = [p.grad for p in part.parameters() if p.grad is not None]
        assert any(g.abs().sum() > 0 for g in gradients)
    model.zero_grad()
    output = model(batch.ids, batch.blanked, batch.chosen)
    real = batch.ids != PAD
    F.binary_cross_entropy_with_logits(
        output.suspicion[real], output.replaced[real].float()
    ).backward()
    assert all(p.grad is None or not p.grad.any() for p in model.generator.parameters())


class FixedDetector(nn.Module):
    """A model that fills in `forgery` everywhere and classifies that token as replaced."""

    def __init__(self, forgery):
        super().__init__()
        self.forgery, self.spotting = forgery, 50.0
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, ids, _blanked, chosen, _u):
        forged = ids.masked_fill(chosen, self.forgery)
        logits = F.one_hot(ids[chosen], VOCAB).float() * 9  # the generator is always right
        suspicion = torch.where(forged == self.forgery, 1.0, -1.0)
        return ElectraOutput(suspicion, logits, forged, forged != ids)


def test_precision_and_recall_are_those_of_replaced_tokens():
    batches = make_batches()
    found = masked_scores(ReplacedToken(), FixedDetector(forgery=7), batches)
    real = sum(int(((b.ids == 7) | b.chosen).sum()) for b in batches)
    hits = sum(int((b.chosen & (b.ids != 7)).sum()) for b in batches)
    assert found["generator_accuracy"] == 1
    assert found["recall"] == 1
    assert found["precision"] == pytest.approx(hits / real)
    assert hits < real  # an original 7 counts as replaced too
    assert found["auc"] > 0.9


def test_validation_is_reproducible_and_keeps_the_random_state():
    model = Electra(model_config(dropout=0.1)).eval()
    batches = make_batches()
    before = torch.get_rng_state()
    first = masked_scores(ReplacedToken(), model, batches)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    again = masked_scores(ReplacedToken(), model, batches)
    assert again == pytest.approx(first, nan_ok=True)
