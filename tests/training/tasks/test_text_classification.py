"""Text classification: labelled files, fine-tuning of a pre-trained encoder, metrics."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from expected_errors import raises
from loading import load
from pretrained import STACK, configured, pretrain, write_labelled
from tiny import SMALL, write_corpus
from torch.nn import functional as F

import polyhead
from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.data.batches.labelled import TextBatches
from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import collect, load_labelled, stream_labelled
from polyhead.data.labels import class_numbers, classes_of
from polyhead.data.line_encoder import frame
from polyhead.data.token_store import TokenSequences
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.metrics.classification import report
from polyhead.metrics.perplexity import map_here
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.tasks.base import Used
from polyhead.tasks.labelled import TextInput, WholeText
from polyhead.tasks.losses import ClassificationLoss
from polyhead.tasks.text_classification import TextClassification
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import load_tokenizers, train_tokenizers, with_sampling
from polyhead.training.callbacks import Callback
from polyhead.training.config import read_run
from polyhead.training.finetune import check_blocks
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.trainer import prepare, train


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    return {
        name: pretrain(tmp_path_factory.mktemp(name), f"{name}-tiny")
        for name in ("bert", "electra")
    }


def read(tmp_path, name, content, **options):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    notices = []
    found = collect(stream_labelled([path], DataConfig(**options), notices))
    return list(zip(found.texts, found.labels, strict=True)), notices


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.tsv", "좋다\t1\n싫다\t0\n", {}),
        ("a.tsv", "text\tlabel\n좋다\t1\n싫다\t0\n", {}),
        ("a.tsv", "label\tid\ttext\n1\t7\t좋다\n0\t8\t싫다\n", {}),
        ("a.tsv", "id\tdocument\tlabel\n7\t좋다\t1\n8\t싫다\t0\n", {"text_key": "document"}),
        ("a.tsv", "7\t1\t좋다\n8\t0\t싫다\n", {"text_key": "3", "label_key": "2"}),
        ("a.jsonl", '{"text": "좋다", "label": 1}\n{"text": "싫다", "label": "0"}\n', {}),
        ("a.jsonl", '{"t": "좋다", "y": "1"}\n{"t": "싫다", "y": 0}\n',
         {"text_key": "t", "label_key": "y"}),
    ],
)  # fmt: skip
def test_all_formats_of_labelled_files_are_read_equally(tmp_path, name, content, options):
    assert read(tmp_path, name, content, **options)[0] == [("좋다", "1"), ("싫다", "0")]


def test_bad_lines_are_counted_or_refused(tmp_path):
    content = "좋다\t1\nno label\n\n\t1\n싫다\t0\n"
    found, notices = read(tmp_path, "a.tsv", content)
    assert found == [("좋다", "1"), ("싫다", "0")]
    assert len(notices) == 2
    assert notices[1].startswith("2 bad lines skipped: ")
    assert "a.tsv:2" in notices[1]
    with pytest.raises(DataError, match=r"a\.tsv:2"):
        read(tmp_path, "a.tsv", content, on_bad_line="fail")
    with raises(DataError, "no_text"):
        read(tmp_path, "a.tsv", "no label\n")


def test_classes_are_sorted_and_must_be_known():
    def classes(*labels):
        return classes_of(labels, len(labels))

    assert classes("10", "9", "9") == ("9", "10")
    assert classes("b", "10", "a") == ("10", "a", "b")
    with raises(DataError, "too_few_classes", "'a'"):
        classes("a", "a")
    with raises(DataError, "too_many_classes", "1,001"):
        classes(*map(str, range(1001)))
    with raises(DataError, "unknown_class", "here", "'c'", "'a', 'b'"):
        class_numbers(["a", "c"], ("a", "b"), "here")


def split(tmp_path, lines, seed=1):
    """Write a labelled file and hold out a part of it."""
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return load(load_labelled, DataConfig(labelled=(str(path),)), seed=seed)


def test_examples_are_held_out_without_a_validation_file(tmp_path):
    lines = [f"text {n}\t{n % 3}" for n in range(100)]
    found = split(tmp_path, lines)
    assert len(found.valid) == 10
    pairs = [
        f"{text}\t{label}"
        for part in (found.train, found.valid)
        for text, label in zip(part.texts, part.labels, strict=True)
    ]
    assert sorted(pairs) == sorted(lines)
    assert split(tmp_path, lines) == found


def test_held_out_texts_do_not_recur_in_another_spelling(tmp_path):
    lines = [f"Text {n % 40}\t{n % 2}" for n in range(80)]
    lines += [line.upper().replace(" ", "  ") for line in lines]
    for seed in range(5):
        found = split(tmp_path, lines, seed)
        train, valid = (
            {" ".join(text.lower().split()) for text in part.texts}
            for part in (found.train, found.valid)
        )
        assert len(found.valid) == 16
        assert not train & valid


def test_no_class_is_held_out_completely(tmp_path):
    rare = [f"rare {n}\tclass {n}" for n in range(15)]
    for seed in range(5):
        found = split(tmp_path, [*rare, "one\ta", "two\ta", "three\ta"], seed)
        assert found.valid.texts in (["two"], ["three"])
        assert len(found.classes) == 16


@pytest.mark.parametrize("lines", [["a\t1"], ["a\t1", "b\t2"], ["a\t1", "A\t1", "b\t2", " b \t2"]])
def test_too_few_texts_to_hold_one_out_are_refused(tmp_path, lines):
    with raises(DataError, "too_few_examples", "--valid-data"):
        split(tmp_path, lines)


def test_batches_contain_every_text_with_its_label():
    texts = [frame([[*range(4, 4 + n), EOS]], max_length=7) for n in (3, 9, 5, 3, 1)]
    assert [len(text) for text in texts] == [5, 7, 7, 5, 3]
    assert all(text[0] == BOS and text[-1] == EOS for text in texts)
    source = TextBatches(TokenSequences.of(texts, 20), np.arange(5), max_tokens=14, seed=2)
    found = []
    for step in range(source.n_batches(0)):
        ids, labels = source[0, step].ids, source[0, step].labels
        assert ids.numel() <= 14
        found += [
            ([i for i in row if i], label)
            for row, label in zip(ids.tolist(), labels.tolist(), strict=True)
        ]
    assert sorted(found, key=lambda one: one[1]) == [(t, n) for n, t in enumerate(texts)]
    first, second = source[0, 0].halves()
    assert len(first.labels) + len(second.labels) == len(source[0, 0])


def texts_by_number(batches, epoch):
    """Return the ids of each text of an epoch, in the order of the corpus."""
    texts = {}
    for numbers in batches.plan(epoch, 0):
        rows = batches.make(numbers, epoch, 0).ids.tolist()
        ids = [[i for i in row if i != PAD] for row in rows]
        texts |= dict(zip(numbers.tolist(), ids, strict=True))
    return [texts[number] for number in range(len(texts))]


def test_subwords_are_sampled_in_training_but_not_in_validation(tmp_path, encoders):
    files, init = write_labelled(tmp_path), f"train.init={encoders['bert']}"

    def prepared(option, folder):
        folder.mkdir()
        config = configured("classify-small", files, init, option)
        return prepare(config, RunDir(folder), RunLog(folder, Callback()), Processes()).setup

    sampled = prepared("text.sampling=0.5", tmp_path / "run")
    constant = prepared("text.sampling=0", tmp_path / "plain")
    source = sampled.tokenizers.source
    texts = load(load_labelled, sampled.config.data, seed=1).train.texts
    epochs = [texts_by_number(sampled.batches, epoch) for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] != epochs[1]
    assert all(
        source.decode(ids[1:]) == source.normalise(text)
        for epoch in epochs
        for ids, text in zip(epoch, texts, strict=True)
        if len(ids) < sampled.config.data.max_length
    )
    again = load_tokenizers(tmp_path / "run" / "tokenizer")
    assert again.config.sampling == 0.5
    assert again.source.encode(texts[0]) == source.encode(texts[0])  # only training samples
    short = replace(sampled.batches.sampler, max_length=5)
    sampled.batches.sampler = short
    assert {len(ids) for ids in texts_by_number(sampled.batches, 0)} == {5}
    uncut = [texts_by_number(constant.batches, epoch) for epoch in (0, 1)]
    assert uncut[0] == uncut[1] != epochs[0]


def test_sampling_is_refused_for_tasks_and_tokenizers_that_do_not_sample():
    for recipe in ("bert-tiny", "electra-tiny", "gpt-tiny"):
        with raises(ConfigError, "no_sampling", "text.sampling = 0.1"):
            read_run(recipe, ["text.kind=bpe", "text.sampling=0.1"])
    units = train_tokenizers(["가 나"], [], TextConfig(kind="words", vocab=20))
    assert with_sampling(units, 0.0) is units
    with raises(ConfigError, "unsupported_sampling"):
        with_sampling(units, 0.1)


def test_loss_and_scores_are_those_of_each_text_alone():
    encoder = BERTConfig(30, 16, 1, stack=bert_stack(1, 8, 2))
    model = Classifier(ClassifierConfig(3, encoder=encoder)).eval()
    texts = [frame([[*range(4 + n, 8 + 2 * n), EOS]], 16) for n in range(8)]
    sequences = TokenSequences.of(texts, 30)
    labels = [n % 3 for n in range(8)]
    rows = [model(torch.tensor([text]))[0] for text in texts]
    said = [int(row.argmax()) for row in rows]
    both = zip(rows, labels, strict=True)
    loss = sum(F.cross_entropy(row, torch.tensor(y)).item() for row, y in both) / 8
    used = Used(model, None, 16, "the data", None, {"classes": [*"abc"]}, DataConfig())
    inputs = [TextInput("", (WholeText(text, len(text)),)) for text in texts]
    words = (["abc"[label] for label in labels], "validate", map_here, lambda _: None)
    found = TextClassification().measure(used, inputs, *words).validation
    assert found["loss"] == pytest.approx(loss, rel=1e-5)
    assert found["accuracy"] == sum(a == b for a, b in zip(said, labels, strict=True)) / 8
    batch = TextBatches(sequences, np.array(labels), 10_000, seed=0)[0, 0]
    total = ClassificationLoss()(model, batch)
    assert total.count == 8
    assert total.total.item() / 8 == pytest.approx(loss, rel=1e-5)
    assert found["macro_f1"] == pytest.approx(report(labels, said, ["a", "b", "c"]).macro_f1)


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_weights_and_tokenizer_of_the_pretrained_model_are_adopted(encoders, tmp_path, name):
    init = encoders[name]
    options = (f"train.init={init}", "train.keep=9", "model.encoder.stack.dropout=0.37")
    run = configured("classify-small", write_labelled(tmp_path), *options)
    result = train(run, tmp_path / "run")
    assert result.metrics.keys() == {"loss", "accuracy", "macro_f1"}
    pretrained = model_folder.load_model(init)
    initial = model_folder.load_model(store.checkpoint_path(tmp_path / "run" / "checkpoints", 0))
    theirs = pretrained.model.encoder if name == "bert" else pretrained.model.discriminator
    for (a, ours), (b, other) in zip(
        initial.model.encoder.state_dict().items(), theirs.state_dict().items(), strict=True
    ):
        assert a == b
        assert torch.equal(ours, other)
    assert initial.config.head == name
    assert initial.config.encoder.stack.dropout == 0.37  # of the new run
    text = "회의는 3시에 시작해요."
    assert initial.tokenizers.source.encode(text) == pretrained.tokenizers.source.encode(text)
    assert initial.about["classes"] == ["amounts", "events", "people", "places"]


def test_a_classifier_learns_labels_and_keeps_their_names(tmp_path):
    path = tmp_path / "a.tsv"
    rows = [f"{word} {n}\t{kind}\n" for n in range(40)
            for word, kind in (("apple pie", "food"), ("red car", "thing"))]  # fmt: skip
    path.write_text("".join(rows), encoding="utf-8")
    sizes = [f"model.encoder.stack.{size}" for size in STACK]
    run = read_run("classify-small", [*sizes, "text.vocab=320", "train.steps=60",
                   "train.max_tokens=160", "train.validate_every=20", "train.schedule.rate=5e-3",
                   "train.schedule.warmup=5"], {"labelled": [str(path)]})  # fmt: skip
    assert train(run, tmp_path / "run").metrics["accuracy"] == 1
    labeller = polyhead.load(tmp_path / "run", device="cpu")
    found = labeller.classify(["red car 3", "apple pie 99", "red car"])
    assert [one.label for one in found] == ["thing", "food", "thing"]
    for one in found:
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert one.probability == max(one.probabilities.values()) > 0.5
    assert labeller.classify([]) == []
    evaluation = labeller.evaluate([path])
    assert evaluation.report.accuracy == 1
    assert evaluation.report.confusion == ((40, 0), (0, 40))
    assert evaluation.accuracy == (1, 1)


def test_predictions_do_not_depend_on_order_and_padding(tmp_path):
    train(configured("classify-small", write_labelled(tmp_path)), tmp_path / "run")
    labeller = polyhead.load(tmp_path / "run", device="cpu")
    lines = ["회의는 3시에 시작해요.", "", "사과", "가" * 300, "민준 씨는 내일 부산에 가요."]
    together = labeller.classify(lines)
    for line, one in zip(lines, together, strict=True):
        alone = labeller.classify([line])[0]
        assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-5)


def test_invalid_options_are_refused(tmp_path, tiny_run):
    files = write_labelled(tmp_path)

    def refused(*overrides):
        train(configured("classify-small", files, *overrides), tmp_path / "run")

    with raises(CheckpointError, "init_family", "transformer"):
        refused(f"train.init={tiny_run}")
    with raises(CheckpointError, "no_model"):
        refused(f"train.init={tmp_path / 'nowhere'}")
    with raises(ConfigError, "too_few_positions", "128"):
        refused("model.encoder.positions=learned", "data.max_length=129")
    with raises(ConfigError, "wrong_data", "data.text"):
        configured("classify-small", {"text": ["x"]})
    assert not (tmp_path / "run").exists()


def test_a_transformer_is_initialized_with_the_blocks_of_a_pretrained_encoder(encoders, tmp_path):
    blocks = ("model.stack.n_layers=2", "model.stack.d_model=16", "model.stack.n_heads=2",
              "model.stack.d_ff=24", "model.stack.norm=pre")  # fmt: skip
    files = write_corpus(tmp_path)
    settings = (*SMALL, *blocks, "train.steps=1", "train.bleu_sentences=0", "train.keep=9")
    init = f"train.init={encoders['bert']}"
    with raises(ConfigError, "init_conflict", "stack.activation = 'gelu'"):
        train(read_run("small", (*settings, init), files), tmp_path / "run")
    settings = (*settings, "model.stack.activation=gelu")
    with raises(ConfigError, "init_conflict", "positions = 'rotary'"):
        train(read_run("small", (*settings, init), files), tmp_path / "run")
    settings = (*settings, "model.positions=rotary")
    train(read_run("small", (*settings, init), files), tmp_path / "run")
    initial = model_folder.load_model(store.checkpoint_path(tmp_path / "run" / "checkpoints", 0))
    theirs = dict(model_folder.load_model(encoders["bert"]).model.encoder.stack.named_parameters())
    ours = dict(initial.model.encoder.named_parameters())
    assert theirs.keys() < ours.keys()  # one layer of two
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())
    log = (tmp_path / "run" / "train.log").read_text()
    assert f"initialized {len(theirs)} tensors of the encoder from {encoders['bert']}" in log


@pytest.mark.parametrize(
    ("theirs", "ours", "name"),
    [
        ({}, {"norm_eps": 1e-5}, None),
        ({"norm_eps": 0.1}, {"norm_eps": 1e-5}, "norm_eps"),
        ({"norm": "pre"}, {"norm": "pre", "reversible": True}, "reversible"),
        ({"window": 8}, {"window": 9}, None),  # no layer uses it
        ({"attention": "local", "window": 8}, {"attention": "local", "window": 9}, "window"),
        ({"lsh": LSHConfig(rounds=1)}, {}, None),
        ({"attention": "lsh", "lsh": LSHConfig(rounds=1)}, {"attention": "lsh"}, "lsh"),
    ],
)
def test_blocks_are_adopted_only_if_they_compute_the_same(theirs, ours, name):
    stack = bert_stack(2, 16, 2)
    config = BERTConfig(30, stack=replace(stack, **theirs))
    if name is None:
        check_blocks("x", config, replace(stack, **ours), "learned")
        return
    with raises(ConfigError, "init_conflict", f"the blocks of x have stack.{name} = "):
        check_blocks("x", config, replace(stack, **ours), "learned")
