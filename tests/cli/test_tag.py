"""The commands tag, answer and evaluate, and HTTP, with tiny taggers and question answering."""

import json

import pytest
from asgi import Running
from pretrained import configured
from token_data import write_questions, write_tagged

import polyhead
from polyhead.server.model_registry import load_models
from polyhead.training.trainer import train

TEXT = "민수 오늘 7 Anna 빨리"
CONTEXT = "어제 Anna 57번 오늘 왔다."


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Run directories and data files of a tagger and of question answering."""
    folder = tmp_path_factory.mktemp("token-tasks")
    written = {"tagger-small": write_tagged, "qa-small": write_questions}
    folders = {}
    for recipe, write in written.items():
        path = write(folder / f"{recipe}.data", 60)
        train(configured(recipe, {"labelled": [str(path)]}, "data.max_length=32"), folder / recipe)
        folders[recipe] = (folder / recipe, path)
    return folders


def test_words_and_tags_are_columns_and_an_empty_line_has_none(run, fail, models):
    tagger, _ = models["tagger-small"]
    expected = polyhead.load(tagger, device="cpu").tag(TEXT)
    out = run("tag", tagger, TEXT)[1]
    assert out == "".join(f"{word.text}\t{word.tag}\n" for word in expected.words) + "\n"
    lines = run("tag", tagger, "--jsonl", stdin=f"{TEXT}\n\n")[1].splitlines()
    assert [len(json.loads(line)["words"]) for line in lines] == [5, 0]
    assert fail("tag", tagger, tagger)[1] == "one_model"
    assert run("tag", tagger, "Anna")[1] == run("tag", tagger, stdin="Anna")[1]


def test_questions_are_answered_on_the_command_line_as_in_python(run, fail, models, tmp_path):
    answerer, _ = models["qa-small"]
    (tmp_path / "context.txt").write_text(CONTEXT, encoding="utf-8")
    expected = polyhead.load(answerer, device="cpu").answer("몇 번?", CONTEXT, top=3)
    words = ("answer", answerer, "--context", tmp_path / "context.txt", "--top", 3)
    code, out, _ = run(*words, "몇 번?")
    assert code == 0
    answers = [expected.answer, *expected.alternatives]
    assert [line.split("\t")[0] for line in out.splitlines()] == [
        answer.text or "(no answer)" for answer in answers
    ]
    row = json.dumps({"question": "몇 번?"}, ensure_ascii=False)
    (line,) = run(*words, "--jsonl", stdin=f"{row}\n")[1].splitlines()
    assert json.loads(line)["answer"]["text"] == expected.answer.text
    for options in ((), ("--jsonl",)):
        lines = run(*words[:4], *options, stdin=f"\n{row}\n  \n{row}\n")[1].splitlines()
        assert [bool(line) for line in lines] == [False, True, False, True]
        assert run(*words[:4], *options, stdin="\n\n")[1] == "\n\n"
    assert fail("answer", answerer, stdin="no JSON\n")[1] == "bad_line"


def test_an_empty_question_or_context_is_refused_by_its_name(models):
    served = Running(load_models([models["qa-small"][0]], "cpu", "torch"))
    try:
        for question, context, field in (("", CONTEXT, "question"), ("몇 번?", " ", "context")):
            refused = served.post("/v1/answer", {"question": question, "context": context})
            assert (refused.status, refused.json()["field"]) == (422, field)
    finally:
        served.close()


def test_long_texts_to_tag_count_in_a_batch_with_all_their_parts(models, monkeypatch):
    served = Running(load_models([models["tagger-small"][0]], "cpu", "torch"))
    tokenizer = served.app.context.models.models[0].model.tokenizer
    cut, submitted, submit = [], [], served.app.scheduler.submit
    pieces = type(tokenizer).pieces
    monkeypatch.setattr(
        type(tokenizer), "pieces", lambda *words: cut.append(words[1]) or pieces(*words)
    )
    monkeypatch.setattr(
        served.app.scheduler, "submit", lambda *words: submitted.extend(words[0]) or submit(*words)
    )
    try:
        response = served.post("/v1/tag", {"text": [f"{TEXT} " * 100, TEXT]}).json()
    finally:
        served.close()
    sizes = [sum(len(part.ids) for part in request.content.parts) for request in submitted]
    assert [request.size for request in submitted] == sizes
    assert sizes[0] > 500 > sizes[1] > 5  # all parts, each with its beginning and end
    assert [len(result["words"]) for result in response["results"]] == [500, 5]
    assert sorted(cut) == sorted(TEXT.split())  # every word once
