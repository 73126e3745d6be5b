"""What torch's counter does not see is counted by hand here, and must be the same."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from polyhead.cost.measured import products
from polyhead.data.batches.translation import TranslationBatch
from polyhead.models.baselines.bytenet import ByteNet, ByteNetConfig
from polyhead.models.baselines.seq2seq import Seq2Seq, Seq2SeqConfig
from polyhead.models.registry import FAMILIES
from polyhead.training.losses import TranslationLoss

BATCH, LENGTH, D_IN, D = 3, 5, 8, 6


def of_cell(n_gates, *, d_in=D_IN, steps=LENGTH):
    """W x and U h at every step: n_gates rows of d_in and of D numbers for each of D gates."""
    return 2 * BATCH * steps * n_gates * D * (d_in + D)


@pytest.mark.parametrize(("kind", "n_gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("two_ways", [False, True])
def test_a_recurrent_layer_costs_its_two_matrices_at_every_step(kind, n_gates, two_ways):
    cells = kind(D_IN, D, batch_first=True, bidirectional=two_ways)
    x = torch.randn(BATCH, LENGTH, D_IN)
    ways = 2 if two_ways else 1
    assert products(lambda: cells(x)) == ways * of_cell(n_gates)


def test_the_fused_lstm_costs_twice_as_much_on_the_way_back():
    cells = nn.LSTM(D_IN, D, num_layers=2, batch_first=True)
    x = torch.randn(BATCH, LENGTH, D_IN, requires_grad=True)
    once = of_cell(4) + of_cell(4, d_in=D)
    assert products(lambda: cells(x)[0].sum().backward()) == 3 * once


def test_packed_sentences_cost_no_padding():
    cells = nn.LSTM(D_IN, D, batch_first=True)
    packed = pack_padded_sequence(
        torch.randn(BATCH, LENGTH, D_IN), torch.tensor([5, 3, 2]), batch_first=True
    )
    assert products(lambda: cells(packed)) == of_cell(4) * 10 // (BATCH * LENGTH)


def batch_of(source, target, vocab=20):
    torch.manual_seed(0)
    labels = torch.randint(4, vocab, (BATCH, target))
    return TranslationBatch(torch.randint(4, vocab, (BATCH, source)), labels.roll(1, 1), labels)


def test_sutskevers_translator_equals_a_hand_count():
    model = Seq2Seq(Seq2SeqConfig(20, 20, d_model=8, n_layers=2, dropout=0.0)).eval()
    batch = batch_of(7, 4)
    lstm = 2 * 4 * 8 * (8 + 8)  # one layer at one position: four gates of W x and U h
    forward = BATCH * (7 + 4) * 2 * lstm + BATCH * 4 * 2 * 8 * 20  # and the output layer
    assert products(lambda: model(batch.source, batch.target)) == forward
    assert products(lambda: TranslationLoss(0)(model, batch).total.backward()) == 3 * forward


def test_bytenet_equals_a_hand_count():
    config = ByteNetConfig(20, 20, d_model=8, n_layers=2, decoder_layers=1, a=1.0, dropout=0.0)
    model, batch = ByteNet(config).eval(), batch_of(6, 5)
    block = 2 * (8 * 4 + 3 * 4 * 4 + 4 * 8)  # down, three places, up
    forward = BATCH * (6 * 2 * block + 5 * block + 5 * 2 * 8 * 8 + 5 * 2 * 8 * 20)
    assert products(lambda: model(batch.source, batch.target)) == forward


@pytest.mark.parametrize(
    "family",
    ["ladder", "seq2seq", "bahdanau", "luong", "deep_att", "gnmt", "convs2s", "bytenet", "moe"],
)
def test_every_translator_learns_for_about_thrice_what_it_says(family):
    model, config = FAMILIES[family].model, FAMILIES[family].config
    model, batch = model(config(20, 20)).train(), batch_of(7, 4)
    forward = products(lambda: model(batch.source, batch.target))
    training = products(lambda: TranslationLoss(0)(model, batch).total.backward())
    assert 2.8 * forward < training <= 3 * forward
