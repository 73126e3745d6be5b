"""Files of questions, contexts and answers."""

import json

import pytest
from expected_errors import raises
from loading import load
from token_data import write_questions

from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import collect, load_labelled, stream_labelled
from polyhead.errors import DataError
from polyhead.tasks.question_answering import QUESTIONS, answers_of

CONTEXT = "세종은\n1397년에 한양에서 태어났다."
ANSWERS = [("1397년", 4), ("한양", 11)]


def squad(answers=ANSWERS, **item):
    given = [{"text": text, "answer_start": start} for text, start in answers]
    questions = [
        {"id": "a", "question": "언제 어디서?", "answers": given, **item},
        {"id": "b", "question": "왜?", "answers": [], "is_impossible": True},
    ]
    return {"version": "2", "data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]}


def read(path, **options):
    notices = []
    examples = collect(stream_labelled([path], DataConfig(**options), notices, QUESTIONS))
    return list(zip(examples.texts, map(answers_of, examples.labels), strict=True)), notices


def test_squads_form_is_read_also_on_one_long_line(tmp_path):
    whole = squad()
    whole["data"][0]["title"] = "x" * 1_200_000  # a line of text files has at most a million bytes
    (tmp_path / "a.json").write_text(json.dumps(whole))
    examples, _ = read(tmp_path / "a.json")
    context = CONTEXT.replace("\n", " ")
    assert examples == [
        (f"언제 어디서?\t{context}", [(start, text) for text, start in ANSWERS]),
        (f"왜?\t{context}", []),
    ]
    for start, text in examples[0][1]:
        assert context[start : start + len(text)] == text


def test_repeated_and_other_white_space_keeps_the_places_of_answers(tmp_path):
    context = "세종은  1397년에\t\n 한양에서\u3000태어났다."
    answers = [(text, context.index(text)) for text in ("1397년에\t\n 한양", "태어났다")]
    item = {"question": "언제  어디서?", "answers": [
        {"text": text, "answer_start": start} for text, start in answers]}  # fmt: skip
    whole = {"data": [{"paragraphs": [{"context": context, "qas": [item]}]}]}
    (tmp_path / "a.json").write_text(json.dumps(whole))
    [(text, places)], _ = read(tmp_path / "a.json")
    question, kept = text.split("\t")
    assert (question, len(kept)) == ("언제 어디서?", len(context))
    assert places == [
        (start, " ".join(text.split()).replace("에 ", "에   ")) for text, start in answers
    ]
    assert [kept[start : start + len(text)] for start, text in places] == [t for _, t in places]


@pytest.mark.parametrize("form", ["datasets", "columns", "tsv", "no start"])
def test_tables_are_read(form, tmp_path):
    context, path = CONTEXT.replace("\n", " "), tmp_path / "a.jsonl"
    answers = {"text": ["한양"], "answer_start": [11]}
    record = {"id": 1, "question": "어디?", "context": context}
    record |= {"answers": answers} if form == "datasets" else {"answer": "한양", "answer_start": 11}
    if form == "no start":
        del record["answer_start"]
    path.write_text(json.dumps(record) + "\n")
    if form == "tsv":
        path.write_text(
            "question\tcontext\tanswer\tanswer_start\n" + f"어디?\t{context}\t한양\t11\n"
        )
    assert read(path)[0] == [(f"어디?\t{context}", [(11, "한양")])]


AT_MINUS = 11 - len(CONTEXT)  # where a slice also finds it


@pytest.mark.parametrize(
    "answers", [[("1397", 5)], [("없다", 0)], [("한양", AT_MINUS)], [("한양", -3)], [(None, 0)]]
)
def test_answers_that_do_not_stand_at_their_start_are_skipped_or_an_error(answers, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(squad(answers)))
    examples, notices = read(tmp_path / "a.json")
    assert len(examples) == 1
    assert "a.json:1: the answer" in notices[-1]
    with raises(DataError, "bad_line", "a.json:1"):
        read(tmp_path / "a.json", on_bad_line="fail")


def test_a_table_without_questions_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "b"}\n')
    with raises(DataError, "unclear_columns", "question"):
        read(tmp_path / "a.jsonl")


def test_questions_about_one_context_are_held_out_together(tmp_path):
    path = write_questions(tmp_path / "a.jsonl", 60)
    rows = path.read_text(encoding="utf-8")
    path.write_text(rows + rows.replace("몇 번?", "번호는?"), encoding="utf-8")
    corpus = load(
        load_labelled, DataConfig(labelled=(str(path),), hold_out=9), seed=1, form=QUESTIONS
    )
    contexts = [
        {text.split("\t")[1] for text in part.texts} for part in (corpus.train, corpus.valid)
    ]
    assert len(corpus.valid) > 1
    assert not contexts[0] & contexts[1]
    assert corpus.classes == ("answer",)


def paragraph(**changes):
    question = {"question": "어디?", "answers": [{"text": "한양", "answer_start": 11}]}
    return {"context": CONTEXT, "qas": [question]} | changes


@pytest.mark.parametrize(
    "articles",
    [
        [1], ["x"], [None], [{"paragraphs": 5}], [{"paragraphs": [paragraph(qas=None)]}],
        [{"paragraphs": [7]}], [{"paragraphs": [paragraph(qas=["x"])]}],
        *([{"paragraphs": [paragraph(qas=[{"question": "어디?", "answers": answers}])]}]
          for answers in (None, 5, ["Bob"], {"text": 5}, [{"text": "한양", "answer_start": True}],
                          {"text": ["한양"], "answer_start": []}, "한양")),
        *([{"paragraphs": [paragraph(context=CONTEXT + end)]}] for end in ("\0", "\udc00")),
        [{"paragraphs": [paragraph(qas=[{"question": "어\0디?"}])]}],
    ],
)  # fmt: skip
def test_objects_of_another_form_are_bad_examples(articles, tmp_path):
    articles = [{"paragraphs": [paragraph()]}, *articles]
    (tmp_path / "a.json").write_text(json.dumps({"data": articles}))
    examples, notices = read(tmp_path / "a.json")
    assert len(examples) == 1
    assert "a.json:2: " in notices[-1]


@pytest.mark.parametrize(
    "answers", [["Bob"], {"text": 5}, {"text": ["한양"], "answer_start": [11, 12]}, [5], "없다"]
)
def test_answers_of_another_form_in_tables_are_bad_examples(answers, tmp_path):
    good = paragraph()["qas"][0] | {"context": CONTEXT}
    rows = [good, good | {"answers": answers}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    examples, notices = read(tmp_path / "a.jsonl")
    assert len(examples) == 1
    assert "a.jsonl:2: " in notices[-1]


@pytest.mark.parametrize(
    ("form", "code"),
    [("squad", "unclear_columns"), ("jsonl", "unclear_columns"), ("tsv", "no_text")],
)
def test_a_start_of_thousands_of_digits_is_one_line(form, code, tmp_path):
    path, digits = tmp_path / "a.json", "9" * 5_000
    good = '{"question": "어디?", "context": "한양 x", "answer": "한양", "answer_start": '
    path.write_text(f"{good}{digits}}}")
    if form == "squad":
        path.write_text(json.dumps(squad()).replace("11", digits))
    elif form == "tsv":
        path.write_text(f"question\tcontext\tanswer\tanswer_start\n어디?\tx y\t한양\t{digits}\n")
    with raises(DataError, code) as error:
        read(path)
    assert "\n" not in str(error.value)


def test_a_byte_order_mark_is_no_part_of_the_json(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(squad()), encoding="utf-8-sig")
    assert len(read(tmp_path / "a.json")[0]) == 2
