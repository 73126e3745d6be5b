"""Files of words and tags, and the split of texts into words."""

import json
from itertools import pairwise

import pytest
from expected_errors import raises
from hypothesis import given
from hypothesis import strategies as st
from loading import load
from spreadsheets import spreadsheet

from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import collect, load_labelled, stream_labelled
from polyhead.errors import DataError
from polyhead.tasks.tagging import TAGGED, are_chunks, find_rule
from polyhead.tasks.words import RULES, split_words

SENTENCES = [(["세종", "대왕은", "."], ["B-PER", "I-PER", "O"]), (["서울", "갔다"], ["B-LOC", "O"])]


def read(path, **options):
    notices = []
    examples = collect(stream_labelled([path], DataConfig(**options), notices, TAGGED))
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


def test_a_row_without_tags_is_a_bad_line(tmp_path):
    (tmp_path / "a.csv").write_text("words,tags\n" + "a b,X Y\n" * 9 + "c\n")
    examples, notices = read(tmp_path / "a.csv")
    assert (len(examples), "a.csv:11: 1 words, but 0 tags" in notices[-1]) == (9, True)


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
        load(load_labelled, data, seed=1, form=TAGGED)


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


TREEBANK = """\
# global.columns are those of Universal Dependencies
# newdoc id = a
# newpar
# text = Il va\tdu lac.
1\tIl\til\tPRON\tP\t_\t2\tnsubj\t_\t_
2\tva\taller\tVERB\tV\t_\t0\troot\t_\t_
3-4\tdu\t_\t_\t_\t_\t_\t_\t_\t_
3\tde\tde\tADP\tE\t_\t5\tcase\t_\t_
4\tle\tle\tDET\tD\t_\t5\tdet\t_\t_
5\tlac\tlac\tNOUN\tN\t_\t2\tobl\t_\t_

#
# newpar
1\t#\t#\tSYM\tS\t_\t0\troot\t_\t_
1.1\tvide\tvide\tVERB\tV\t_\t_\t_\t_\t_
2\t1-2\t1-2\tNUM\tN\t_\t1\tnummod\t_\t_

"""


@pytest.mark.parametrize(("tag", "tags"), [
    (None, [["PRON", "VERB", "ADP", "DET", "NOUN"], ["SYM", "NUM"]]),
    ("5", [["P", "V", "E", "D", "N"], ["S", "N"]]),
])  # fmt: skip
def test_treebanks_are_read_without_comments_ranges_and_empty_nodes(tag, tags, tmp_path):
    (tmp_path / "a.conllu").write_text(TREEBANK, encoding="utf-8")
    words = [["Il", "va", "de", "le", "lac"], ["#", "1-2"]]
    expected = list(zip(words, tags, strict=True))
    assert read(tmp_path / "a.conllu", label_key=tag)[0] == expected
    assert read(tmp_path / "a.conllu", text_key="2", label_key=tag or "4")[0] == expected


def test_a_number_sign_may_be_a_word(tmp_path):
    for divider in "\t ":
        content = f"# a comment of some words\n#{divider}O\n#서울{divider}B-LOC\n갔다{divider}O"
        (tmp_path / "a.conll").write_text(content, encoding="utf-8")
        assert read(tmp_path / "a.conll")[0] == [(["#", "#서울", "갔다"], ["O", "B-LOC", "O"])]
    (tmp_path / "a.conll").write_text("# newpar\n서울\tB-LOC\n", encoding="utf-8")
    assert read(tmp_path / "a.conll")[0] == [(["서울"], ["B-LOC"])]


@pytest.mark.parametrize("kind", ["arrow", "xlsx", "csv"])
def test_datasets_and_spreadsheets_are_read(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    header, rows = ("words", "tags"), [tuple(map(" ".join, pair)) for pair in SENTENCES]
    if kind == "arrow":
        datasets = pytest.importorskip("datasets")
        names = datasets.ClassLabel(names=["O", "B-PER", "I-PER", "B-LOC"])
        features = {"tokens": datasets.List(datasets.Value("string")), "tags": datasets.List(names)}
        columns = {"tokens": [words for words, _ in SENTENCES],
                   "tags": [[*map(names.str2int, tags)] for _, tags in SENTENCES]}  # fmt: skip
        table = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
        table.save_to_disk(tmp_path / "folder")
        (path,) = (tmp_path / "folder").glob("*.arrow")
    elif kind == "xlsx":
        path.write_bytes(spreadsheet([header, *rows]))
    else:
        path.write_text("".join(f"{a},{b}\n" for a, b in (header, *rows)), encoding="utf-8")
    assert read(path)[0] == SENTENCES


def test_tags_of_thousands_of_digits_are_no_numbers_of_names(tmp_path):
    rows = [{"words": ["a"], "tags": [tag]} for tag in ("0", "9" * 5_000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(tmp_path / "a.jsonl", tag_names=("O", "X"))[0] == [(["a"], ["O"])]
