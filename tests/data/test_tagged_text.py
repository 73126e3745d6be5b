"""Files of words and tags, and the split of texts into words."""

import json
from itertools import pairwise

import pytest
from expected_errors import raises
from hypothesis import given
from hypothesis import strategies as st

from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import load_labelled, read_labelled
from polyhead.data.tagged_text import RULES, TAGGED, are_chunks, find_rule, split_words
from polyhead.errors import DataError

SENTENCES = [(["세종", "대왕은", "."], ["B-PER", "I-PER", "O"]), (["서울", "갔다"], ["B-LOC", "O"])]


def read(path, **options):
    notices = []
    examples = read_labelled([path], DataConfig(**options), notices, TAGGED)
    pairs = zip(examples.texts, examples.labels, strict=True)
    return [(text.split("\t"), label.split("\t")) for text, label in pairs], notices


def conll(divider, extra=""):
    return "\n".join(
        "".join(f"{word}{extra}{divider}{tag}\n" for word, tag in zip(*pair, strict=True))
        for pair in SENTENCES
    )


@pytest.mark.parametrize("content", [
    conll("\t"), conll(" "), conll("\t", "\tNNP\tx"), f"-DOCSTART- -X- O\n\n{conll(' ')}",
    f"# text = a comment\n{conll(chr(9))}", f"\n\n{conll(chr(9))}\n\n\n",
])  # fmt: skip
def test_conll_files_have_a_word_and_a_tag_on_each_line(content, tmp_path):
    (tmp_path / "a.conll").write_text(content, encoding="utf-8")
    assert read(tmp_path / "a.conll")[0] == SENTENCES


@pytest.mark.parametrize("names", [("words", "tags"), ("tokens", "ner_tags")])
def test_records_have_lists_of_words_and_of_tags(names, tmp_path):
    rows = [dict(zip(names, pair, strict=True)) for pair in SENTENCES]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert read(tmp_path / "a.jsonl")[0] == read(tmp_path / "a.json")[0] == SENTENCES


def test_a_dataset_with_numbers_is_read_with_their_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    tags = ["O", "B-PER", "I-PER", "B-LOC"]
    numbers = [[tags.index(tag) for tag in pair[1]] for pair in SENTENCES]
    table = datasets.Dataset.from_dict({"id": ["a", "b"], "tokens": [p[0] for p in SENTENCES],
                                        "ner_tags": numbers})  # fmt: skip
    table.to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", tag_names=tuple(tags))[0] == SENTENCES
    assert read(tmp_path / "a.parquet")[0][1] == (["서울", "갔다"], ["3", "0"])


def test_columns_are_chosen_by_number(tmp_path):
    (tmp_path / "a.conll").write_text("1\t서울\tNNP\tB-LOC\n2\t갔다\tVV\tO\n", encoding="utf-8")
    (pair,) = read(tmp_path / "a.conll", text_key="2", label_key="3")[0]
    assert pair == (["서울", "갔다"], ["NNP", "VV"])


def test_bad_sentences_are_skipped_or_an_error(tmp_path):
    (tmp_path / "a.conll").write_text(f"서울\n갔다\tO\n\n{conll(chr(9))}", encoding="utf-8")
    pairs, notices = read(tmp_path / "a.conll")
    assert pairs == SENTENCES
    assert "a.conll:1:" in notices[-1]
    with raises(DataError, "bad_line", "a.conll:1:"):
        read(tmp_path / "a.conll", on_bad_line="fail")
    rows = [{"words": ["a", "b"], "tags": ["O"]}, {"words": ["a"], "tags": ["O"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs, notices = read(tmp_path / "a.jsonl")
    assert pairs == [(["a"], ["O"])]
    assert "2 words, but 1 tags" in notices[-1]


def test_tags_of_the_validation_data_are_those_of_training(tmp_path):
    (tmp_path / "a.tsv").write_text(conll("\t"), encoding="utf-8")
    (tmp_path / "b.tsv").write_text("서울\tB-ORG\n", encoding="utf-8")
    data = DataConfig(
        labelled=(str(tmp_path / "a.tsv"),), valid_labelled=(str(tmp_path / "b.tsv"),)
    )
    with raises(DataError, "unknown_class", "B-ORG"):
        load_labelled(data, 1, form=TAGGED)


@pytest.mark.parametrize(("rule", "words"), [
    ("spaces", ["(서울)은,", "U.N.", "3.5%"]),
    ("punctuation", ["(", "서울)은", ",", "U.N", ".", "3.5", "%"]),
    ("characters", [*"(서울)은,U.N.3.5%"]),
])  # fmt: skip
def test_words_are_split_by_a_rule(rule, words):
    text = "(서울)은,  U.N.\t3.5%"
    assert [text[slice(*place)] for place in split_words(text, rule)] == words


@given(text=st.text(max_size=40), rule=st.sampled_from(sorted(RULES)))
def test_no_rule_loses_a_character_that_is_not_white_space(text, rule):
    places = split_words(text, rule)
    assert "".join(text[slice(*place)] for place in places) == "".join(text.split())
    assert all(first[1] <= second[0] for first, second in pairwise(places))


def test_the_rule_is_found_by_the_words_of_the_training_data():
    assert find_rule(["아\t버\t지", "가\t다"]) == "characters"
    assert find_rule(["서울\t갔다\t.", "부산\t, \t왔다"]) == "punctuation"
    assert find_rule(["서울에\t갔다.", "부산,\t왔다"]) == "spaces"


def test_tags_of_chunks_are_recognized():
    assert are_chunks(["O", "B-PER", "I-PER"])
    assert are_chunks(["B", "I"])
    assert not are_chunks(["NNP", "O"])
    assert not are_chunks(["O", "I-PER"])
