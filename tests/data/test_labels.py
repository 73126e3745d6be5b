"""Labels of texts: their kinds, pairs of texts, truncation, and their form in batches."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from expected_errors import raises
from loading import load

from polyhead.data.batches.labelled import TextBatches, segments_of, split_pairs
from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import PAIRS, collect, load_labelled, stream_labelled
from polyhead.data.labels import encode_labels, label_values, problem_of
from polyhead.data.line_encoder import frame
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, PAD


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (["good", "bad"], "single_label"),
        (["0", "1", "1.0"], "single_label"),
        ([str(n) for n in range(5)], "single_label"),
        (["0.5", "1", "2"], "regression"),
        ([str(n) for n in range(2000)], "regression"),
        (["a", "b", "a|b"], "multi_label"),
        (["a|b", "b|c", "a|c", "a|b|c"], "multi_label"),
        (['["a"]', "[]"], "multi_label"),
        ([""], "contrastive"),
        ([str(n) for n in range(30)], None),
        (["a|b", "c|d"], None),
    ],
)
def test_labels_say_what_they_are_or_the_error_names_the_setting(labels, problem):
    if problem is None:
        with raises(DataError, "ambiguous_labels", "data.problem="):
            problem_of(labels)
    else:
        assert problem_of(labels) == problem


def read(tmp_path, name, content, **options):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return collect(stream_labelled([path], DataConfig(**options), []))


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.tsv", "sentence1\tsentence2\tlabel\na b\tc\t1\nd\te\t0\n", {}),
        ("a.tsv", "label\thypothesis\tpremise\n1\tc\ta b\n0\te\td\n", {}),
        ("a.csv", 'text,text_pair,label\n"a\tb",c,1\nd,e,0\n', {}),
        ("a.tsv", "a b\tc\t1\nd\te\t0\n",
         {"text_key": "1", "text_pair_key": "2", "label_key": "3"}),
        ("a.jsonl", '{"q": "a b", "p": "c", "y": 1}\n{"q": "d", "p": "e", "y": 0}\n',
         {"text_key": "q", "text_pair_key": "p", "label_key": "y"}),
    ],
)  # fmt: skip
def test_pairs_of_texts_are_read_from_two_columns(tmp_path, name, content, options):
    examples = read(tmp_path, name, content, **options)
    assert (examples.texts, examples.labels) == (["a b\tc", "d\te"], ["1", "0"])


def test_a_named_text_column_means_single_texts_and_half_a_pair_is_a_bad_line(tmp_path):
    content = "sentence1\tsentence2\tlabel\na\tb\t1\nc\t\t0\nd\te\t0\n"
    assert read(tmp_path, "a.tsv", content, text_key="sentence2").texts == ["b", "e"]
    assert read(tmp_path, "a.tsv", content).texts == ["a\tb", "d\te"]


def test_lists_of_labels_are_read_from_json(tmp_path):
    rows = [{"text": f"t{n}", "labels": ["x|y", "z"][: n % 3]} for n in range(40)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = load(load_labelled, DataConfig(labelled=(str(tmp_path / "a.jsonl"),)), seed=1)
    assert (corpus.problem, corpus.classes) == ("multi_label", ("x|y", "z"))


def test_pairs_with_equal_first_texts_are_held_out_together(tmp_path):
    rows = [f"text {n % 20}\tother {n}\t{n % 2}" for n in range(100)]
    content = "\n".join(["sentence1\tsentence2\tlabel", *rows])
    (tmp_path / "a.tsv").write_text(content, encoding="utf-8")
    corpus = load(load_labelled, DataConfig(labelled=(str(tmp_path / "a.tsv"),)), seed=1)
    train, valid = ({t.split("\t")[0] for t in part.texts} for part in (corpus.train, corpus.valid))
    assert valid
    assert not train & valid


def test_pairs_that_share_any_text_are_held_out_together_for_embeddings(tmp_path):
    rows = [f"text {n // 2}\tother {n // 3}\n" for n in range(300)]
    (tmp_path / "a.tsv").write_text("source\ttarget\n" + "".join(rows), encoding="utf-8")
    config = DataConfig(pairs=(str(tmp_path / "a.tsv"),))
    shared = {}
    for by in ("either", "source"):
        corpus = load(load_labelled, replace(config, hold_out_by=by), seed=1, form=PAIRS)
        sides = [
            [
                {text.split("\t")[side] for text in part.texts}
                for part in (corpus.train, corpus.valid)
            ]
            for side in (0, 1)
        ]
        assert not sides[0][0] & sides[0][1]
        shared[by] = sides[1][0] & sides[1][1]
        assert f"{len(corpus.valid)} of these share a text" in corpus.notices[-1]
    assert not shared["either"]
    assert shared["source"]


def test_labels_that_contradict_the_setting_or_the_training_data_are_refused():
    with raises(DataError, "not_a_number", f"'{'x' * 40}…'"):
        encode_labels(["1", "x" * 5_000], "regression", ())
    with raises(DataError, "unknown_class", "'c'"):
        encode_labels(["a|c"], "multi_label", ("a", "b"))


@pytest.mark.parametrize("limit", range(3, 14))
def test_a_pair_is_truncated_as_by_the_tokenizers_library(limit):
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{n}": n for n in range(20)} | {"[UNK]": 20}
    engine = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if limit > 3:
        engine.enable_truncation(limit - 3, strategy="longest_first")
    for first, second in ((2, 2), (7, 1), (1, 7), (5, 5), (6, 5), (5, 6), (3, 4)):
        ids = list(range(4, 4 + first)), list(range(10, 10 + second))
        found = frame([[*ids[0], EOS], [*ids[1], EOS]], limit)
        a, b = ([], []) if limit == 3 else halves(engine, ids)
        assert found == [BOS, *a, EOS, *b, EOS]


def halves(engine, ids):
    encoded = engine.encode(*(" ".join(f"w{n}" for n in side) for side in ids))
    sides = ([], [])
    for id, side in zip(encoded.ids, encoded.sequence_ids, strict=True):
        sides[side].append(id)
    return sides


def test_segments_and_both_texts_follow_from_the_ids():
    pairs = [[BOS, 5, 6, EOS, 7, EOS], [BOS, 8, EOS, 9, 10, 11, EOS]]
    ids = torch.tensor([pairs[0] + [PAD], pairs[1]])
    assert segments_of(ids).tolist() == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]]
    assert segments_of(torch.tensor([[BOS, 5, EOS, PAD]])) is None
    first, second = split_pairs(ids)
    assert first.tolist() == [[BOS, 5, 6, EOS], [BOS, 8, EOS, PAD]]
    assert second.tolist() == [[BOS, 7, EOS, PAD, PAD], [BOS, 9, 10, 11, EOS]]


@pytest.mark.parametrize(
    ("problem", "labels", "expected"),
    [
        ("single_label", ["b", "a", "b"], [1, 0, 1]),
        ("multi_label", ["b|a", "[]", "a"], [[1, 1], [0, 0], [1, 0]]),
        ("regression", ["-2.5", "0", "1e6"], [-2.5, 0, 1e6]),
    ],
)
def test_labels_in_batches_are_classes_or_numbers(problem, labels, expected):
    texts = TokenSequences.of([[BOS, 5, EOS]] * 3, 9)
    values = label_values(encode_labels(labels, problem, ("a", "b")), problem)
    batches = TextBatches(texts, values, 99, 1, n_classes=2)
    assert batches.make(np.arange(3), 0, 0).labels.tolist() == expected
