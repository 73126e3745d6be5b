"""Training of taggers and of question answering, and their pipelines."""

from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from pretrained import STACK, configured, pretrain
from token_data import write_questions, write_tagged
from torch.nn import functional as F

import polyhead
from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.data.batches.labelled import PositionBatches, segments_of
from polyhead.data.token_store import TokenSequences
from polyhead.errors import ConfigError
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.span_extractor import SpanExtractorConfig, SpanModel
from polyhead.models.tagging_model import TaggerConfig, TaggingModel
from polyhead.special_tokens import BOS, EOS
from polyhead.tasks.losses import SpanLoss, TagLoss
from polyhead.training.config import read_run
from polyhead.training.trainer import train

RECIPES = {"tagger-small": write_tagged, "qa-small": write_questions}
LEARN = (
    *(f"model.encoder.stack.{size}" for size in STACK), "text.vocab=330", "train.max_tokens=400",
    "train.validate_every=40", "train.schedule.rate=1e-2", "train.schedule.warmup=5",
)  # fmt: skip
ENCODER = BERTConfig(30, 16, stack=bert_stack(1, 16, 2))


def trained(recipe, folder, *overrides, name="run", callbacks=()):
    files = {"labelled": [str(RECIPES[recipe](folder / "data", 60))]}
    config = configured(recipe, files, "data.max_length=16", *overrides)
    return train(config, folder / name, callbacks=callbacks)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("pretrained", ["bert-tiny", "electra-tiny"])
def test_the_encoder_of_a_pretrained_model_is_adopted(recipe, pretrained, tmp_path):
    init = pretrain(tmp_path, pretrained)
    trained(recipe, tmp_path, f"train.init={init}", "train.keep=9")
    given = model_folder.load_model(init)
    model = given.model.encoder if pretrained == "bert-tiny" else given.model.discriminator
    path = store.checkpoint_path(tmp_path / "run" / "checkpoints", 0)
    initial = model_folder.load_model(path)
    ours, theirs = initial.model.encoder.state_dict(), model.state_dict()
    segments = ours.pop("embed.segments.weight")
    first = theirs.pop("embed.segments.weight")
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert len(first) == 1
    assert len(segments) == (2 if recipe == "qa-small" else 1)
    assert (segments == first).all()  # a second segment starts as the first
    assert initial.tokenizers.source.encode("회의") == given.tokenizers.source.encode("회의")


def test_a_tagger_learns_tags_and_names_entities_in_a_text(tmp_path):
    files = {"labelled": [str(write_tagged(tmp_path / "a.tsv", 80))]}
    run = read_run("tagger-small", (*LEARN, "train.steps=80"), files)
    assert train(run, tmp_path / "run").metrics["f1"] == 1
    tagger = polyhead.load(tmp_path / "run", device="cpu")
    assert tagger.used.about["words"] == "punctuation"
    text = "  Anna 김\t오늘 7."
    result = tagger.tag(text)
    assert [(text[w.start : w.end], w.tag) for w in result.words] == [
        ("Anna", "B-N"), ("김", "I-N"), ("오늘", "O"), ("7", "B-Q"), (".", "O"),
    ]  # fmt: skip
    assert [(e.text, e.tag, e.start, e.end) for e in result.entities] == [
        ("Anna 김", "N", 2, 8), ("7", "Q", 12, 13)
    ]  # fmt: skip
    first, second = result.words[:2]
    product = first.probability * second.probability
    assert result.entities[0].probability == pytest.approx(product)
    assert tagger.tag([]) == []
    assert tagger.tag(["", "7"])[0].words == ()
    scores = polyhead.evaluate(tagger, files["labelled"])
    assert scores.report.accuracy == scores.entities.scores["f1"] == 1


def test_long_texts_are_tagged_in_parts(tmp_path):
    trained("tagger-small", tmp_path)
    tagger = polyhead.load(tmp_path / "run", device="cpu")
    words = ["민수", "오늘", "7", "Anna", "빨리"] * 6
    together = tagger.tag([" ".join(words), "어제", " ".join(words[:3])])
    assert [word.text for word in together[0].words] == words
    for text, result in zip([" ".join(words), "어제"], together, strict=False):
        for alone, other in zip(tagger.tag(text).words, result.words, strict=True):
            assert alone.probability == pytest.approx(other.probability, abs=1e-5)
            assert replace(other, probability=alone.probability) == alone


def test_answers_are_found_in_long_contexts_and_impossible_questions_have_none(tmp_path):
    files = {"labelled": [str(write_questions(tmp_path / "a.jsonl", 160, impossible=0.3))]}
    limits = ("data.max_length=24", "data.stride=6", "train.steps=160")
    train(read_run("qa-small", (*LEARN, *limits), files), tmp_path / "run")
    answerer = polyhead.load(tmp_path / "run", device="cpu")
    scores = answerer.evaluate(files["labelled"])
    assert scores.scores["exact_match"] > 0.9
    context = f"{'오늘 민수 빨리 ' * 8}어제 Anna 57번 오늘 왔다. {'오늘 영희 빨리 ' * 8}"
    result = answerer.answer("몇 번?", context)
    assert result.answer.text == "57"
    assert context[result.answer.start : result.answer.end] == "57"
    shares = [answer.probability for answer in (result.answer, *result.alternatives)]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1 + 1e-6
    assert len(answerer.task.read(answerer.used, [("몇 번?", context)])[0].parts) > 3
    assert answerer.answer("몇 번?", "오늘 영희 여러번 어제 왔다.").answer.text == ""
    assert answerer.answer("몇 번?", "오늘 영희 여러번 왔다.", threshold=99.0).answer.text != ""


def test_losses_are_those_of_transformers():
    hf = pytest.importorskip("transformers")
    sizes = hf.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=16,
    )  # fmt: skip
    texts = [[BOS, 5, 6 + n, EOS, *range(7, 12 + n), EOS] for n in range(3)]
    spans, tags = [[5 + n, 6 + n] for n in range(3)], [[1, 0, 2, 1, *[0] * 9] for _ in range(3)]
    for name, model, labels in (
        ("BertForTokenClassification", TaggingModel(TaggerConfig(2, 0.0, ENCODER)), tags),
        ("BertForQuestionAnswering", SpanModel(SpanExtractorConfig(ENCODER)), spans),
    ):
        theirs = getattr(hf, name)(sizes).eval()
        copy_weights(theirs, model.eval())
        losses = []
        for text, label in zip(texts, labels, strict=True):  # theirs lets padding take part
            stores = (TokenSequences.of([row], 31) for row in (text, label[: len(text)]))
            batch = PositionBatches(*stores, 99, seed=0)[0, 0]
            options = {"token_type_ids": segments_of(batch.ids)}
            if name.endswith("Answering"):
                loss = SpanLoss()(model, batch)
                options |= {
                    "start_positions": batch.labels[:, 0],
                    "end_positions": batch.labels[:, 1],
                }
            else:
                loss = TagLoss()(model, batch)
                options = {"labels": batch.labels.masked_fill(batch.labels < 0, -100)}
            expected = theirs(batch.ids, **options).loss
            torch.testing.assert_close(loss.total / loss.count, expected, rtol=0, atol=1e-5)
            losses.append(loss.total)
        padded = [TokenSequences.of([row[: len(t)] for row, t in zip(rows, texts, strict=True)], 31)
                  for rows in (texts, labels)]  # fmt: skip
        batch = PositionBatches(*padded, 999, seed=0)[0, 0]
        together = (SpanLoss() if name.endswith("Answering") else TagLoss())(model, batch)
        torch.testing.assert_close(together.total, sum(losses))  # padding changes nothing


def copy_weights(theirs, ours):
    """Give our model the weights of one of transformers, by the table of conversion."""
    from polyhead.convert.architectures import ARCHITECTURES

    row = next(row for row in ARCHITECTURES if row.name == type(theirs).__name__)
    model_folder.set_weights(ours, row.weights_from(theirs.state_dict(), None))


def test_segments_change_after_the_first_end():
    ids = torch.tensor([[BOS, 5, 6, EOS, 7, 8, 9, EOS]])
    assert segments_of(ids).tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    model = SpanModel(SpanExtractorConfig(ENCODER)).eval()
    with torch.no_grad():
        model.encoder.embed.segments.weight[1] += 1
    assert not F.mse_loss(model(ids, segments_of(ids)), model(ids)).item() < 1e-6


@pytest.mark.parametrize(("recipe", "override", "code"), [
    ("tagger-small", "text.sampling=0.1", "no_sampling"),
    ("qa-small", "train.smoothing=0.1", "no_smoothing"),
    ("qa-small", "data.max_length=7", "out_of_range"),
    ("qa-small", "model.encoder.segments=1", "invalid_value"),
    ("tagger-small", "train.compile=true", "no_compile"),
])  # fmt: skip
def test_settings_without_a_meaning_are_refused(recipe, override, code):
    with raises(ConfigError, code):
        read_run(recipe, [override])
