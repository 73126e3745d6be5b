"""Masked language modeling: the loss of the original, validation, resuming, filling."""

import json
import math
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from pretrained import configured, masked_batches, masked_scores, pretrain, write_lines
from torch.nn import functional as F

import polyhead
from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.convert import hf_bert as bert
from polyhead.data.batches.masked import BERT_MASKING
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.bert import BERT, BERTConfig, bert_stack
from polyhead.pipelines.task_pipeline import MaskFiller
from polyhead.special_tokens import EOS
from polyhead.tasks.losses import MaskedTokenLoss
from polyhead.tasks.masked_tokens import MaskedLM
from polyhead.training.trainer import train

VOCAB = 23


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return pretrain(tmp_path_factory.mktemp("bert"), "bert-tiny")


def test_loss_and_gradients_equal_transformers():
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=VOCAB, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=20, max_position_embeddings=16, pad_token_id=0,
    )  # fmt: skip
    theirs = hf.BertForMaskedLM(config).eval()
    values = json.loads(config.to_json_string(use_diff=False))
    ours_config = bert.config_from_hf(values)
    ours = BERT(ours_config).eval()
    model_folder.set_weights(ours, bert.from_hf(theirs.state_dict(), ours_config))
    for batch in masked_batches(BERT_MASKING, VOCAB):
        labels = batch.ids.masked_fill(~batch.chosen, -100)
        expected = theirs(
            input_ids=batch.blanked, attention_mask=(batch.ids != 0).long(), labels=labels
        ).loss
        loss = MaskedTokenLoss()(ours, batch)
        assert loss.count == int(batch.chosen.sum())
        torch.testing.assert_close(loss.total / loss.count, expected, rtol=1e-5, atol=1e-5)
        theirs.zero_grad()
        ours.zero_grad()
        expected.backward()
        (loss.total / loss.count).backward()
        torch.testing.assert_close(
            ours.encoder.embed.tokens.weight.grad,
            theirs.bert.embeddings.word_embeddings.weight.grad,
            rtol=1e-4, atol=1e-6,
        )  # fmt: skip


def test_validation_counts_every_masked_token_once():
    torch.manual_seed(0)
    model = BERT(BERTConfig(VOCAB, 16, segments=1, stack=bert_stack(1, 8, 2))).eval()
    total, right, count = 0.0, 0, 0
    for batch in masked_batches(BERT_MASKING, VOCAB):
        logits = model(batch.blanked)
        for row, place in batch.chosen.nonzero().tolist():
            answer = int(batch.ids[row, place])
            total -= F.log_softmax(logits[row, place], -1)[answer].item()
            right += int(logits[row, place].argmax()) == answer
            count += 1
    scores = masked_scores(MaskedLM(), model, masked_batches(BERT_MASKING, VOCAB))
    assert scores["loss"] == pytest.approx(total / count, rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)
    assert scores["accuracy"] == right / count


@pytest.mark.parametrize("share", [0.15, 0.6])
def test_the_share_of_masked_tokens_is_that_of_the_recipe(share, tmp_path, monkeypatch):
    config = configured("bert-tiny", write_lines(tmp_path), f"data.blanks={share}")
    counts = []

    def count(self, model, batch, original=MaskedTokenLoss.__call__):
        counts.append((int(batch.chosen.sum()), int((batch.ids > EOS).sum())))
        return original(self, model, batch)

    monkeypatch.setattr(MaskedTokenLoss, "__call__", count)
    train(config, tmp_path / "run")
    chosen, ordinary = map(sum, zip(*counts, strict=True))
    assert chosen / ordinary == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_tokenizer_of_another_size_is_refused(run, tmp_path, more):
    saved = model_folder.load_model(run)
    config = replace(saved.config, vocab=saved.config.vocab + more)
    other = replace(saved, config=config, model=BERT(config))
    with store.atomic_dir(tmp_path / "model") as draft:
        model_folder.write_model(draft, other)
    with raises(CheckpointError, "vocabulary_size"):
        model_folder.load_model(tmp_path / "model")
    imported = replace(other, about={"imported": {}})
    with store.atomic_dir(tmp_path / "imported") as draft:
        model_folder.write_model(draft, imported)
    assert model_folder.load_model(tmp_path / "imported").config.vocab == config.vocab


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("model.positions=learned data.max_length=200", "too_few_positions"),
        ("data.max_length=2", "out_of_range"),
    ],
)
def test_invalid_lengths_are_refused_before_anything_is_written(tmp_path, override, code):
    with raises(ConfigError, code):
        train(configured("bert-tiny", write_lines(tmp_path), *override.split()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_guesses_are_the_softmax_over_what_may_stand_there(run):
    filler = polyhead.load(run, device="cpu")
    assert isinstance(filler, MaskFiller)
    text = "회의는 [MASK] 시작해요."
    found = filler.fill(text, top=10_000)
    tokenizer = filler.tokenizer
    ids = torch.tensor([[1, *tokenizer.encode("회의는")[:-1], len(tokenizer),
                         *tokenizer.encode("시작해요.")[:-1], 2]])  # fmt: skip
    place = int((ids[0] == len(tokenizer)).nonzero())
    logits = filler.saved.model(ids)[0, place].tolist()
    may = {i: logits[i] for i in range(4, len(tokenizer)) if tokenizer.symbol(i).startswith("▁")}
    may = {i: z for i, z in may.items() if tokenizer.symbol(i) != "▁"}
    whole = sum(math.exp(z) for z in may.values())
    expected = {tokenizer.symbol(i)[1:]: math.exp(z) / whole for i, z in may.items()}
    assert {guess.text: guess.probability for guess in found.blanks[0]} == pytest.approx(
        expected, rel=1e-4
    )
    assert sum(guess.probability for guess in found.blanks[0]) == pytest.approx(1, rel=1e-4)
    best = max(expected, key=lambda word: expected[word])
    assert found.together[0].text == text.replace("[MASK]", best)


def test_blanks_are_filled_together_as_by_trying_all(run):
    """A beam as wide as the vocabulary misses nothing."""
    filler = polyhead.load(run, device="cpu")
    text = "[MASK] 씨는 [MASK]에 가요."
    filler.fill(text)
    allowed = filler.used.kept["candidates"]
    allowed |= {begins: ids[::12] for begins, ids in allowed.items()}  # so few that all are tried
    found = filler.fill(text, top=1000)
    singles = [{g.text: g.probability for g in guesses} for guesses in found.blanks]
    assert all(len(single) > 3 for single in singles)
    tried = {}
    for first in singles[0]:
        second = filler.fill(text.replace("[MASK]", first, 1), top=1000)
        for guess in second.blanks[0]:
            tried[first, guess.text] = math.log(singles[0][first]) + math.log(guess.probability)
    assert {one.words: one.log_p for one in found.together} == pytest.approx(tried, abs=1e-3)
    scores = [one.log_p for one in found.together]
    assert scores == sorted(scores, reverse=True)
