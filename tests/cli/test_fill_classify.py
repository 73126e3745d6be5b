"""`polyhead fill`, `polyhead classify` and `polyhead evaluate` for text."""

import json
import os
from pathlib import Path

import pytest
from pretrained import SIZES, TINY, configured, pretrain, write_labelled, write_lines
from saved_models import build_electra, save_model

from polyhead.pipelines.task_pipeline import ReplacedTokenDetector
from polyhead.training.callbacks import TrainingStep
from polyhead.training.display import describe
from polyhead.training.trainer import train


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return pretrain(tmp_path_factory.mktemp("cli"), "bert-tiny")


def test_a_classifier_is_trained_from_plain_text_in_four_commands(run, fail, tmp_path):
    lines = write_lines(tmp_path)["text"][0]
    files = write_labelled(tmp_path)
    data, valid = files["labelled"][0], files["valid_labelled"][0]
    code, _, err = run("train", "electra-tiny", *TINY, *SIZES["electra-tiny"], "--text", lines,
                       "--run", tmp_path / "electra")  # fmt: skip
    assert code == 0, err
    assert "generator_accuracy" in err
    assert f"polyhead detect {tmp_path / 'electra'}" in err
    code, _, err = run("train", *TINY, "--data", data, "--valid-data", valid,
                       "--init", tmp_path / "electra", "--run", tmp_path / "run")  # fmt: skip
    assert code == 0, err
    assert str(tmp_path / "electra") in err
    assert f"use it with: polyhead classify {tmp_path / 'run'}" in err

    stdin = "회의는 3시에 시작해요.\n\n사과가 세 개 있어요."
    code, out, err = run("classify", tmp_path / "run", stdin=stdin)
    assert code == 0, err
    labels = out.splitlines()
    assert len(labels) == 3
    assert set(labels) <= {"amounts", "events", "people", "places"}
    code, scored, _ = run("classify", tmp_path / "run", "--scores", stdin=stdin)
    for line, label in zip(scored.splitlines(), labels, strict=True):
        first, *shares = line.split("\t")
        table = {name: float(share) for name, share in (share.split("=") for share in shares)}
        assert first == label == max(table, key=lambda name: table[name])
        assert sum(table.values()) == pytest.approx(1, abs=1e-3)
    (tmp_path / "lines.txt").write_text(stdin, encoding="utf-8")
    assert run("classify", tmp_path / "run", tmp_path / "lines.txt")[1].splitlines() == labels

    for model, ending in (("electra", "html"), ("run", "svg"), ("run", "json"), ("electra", "png")):
        page = tmp_path / f"page.{ending}"
        words = ("attention", tmp_path / model, "회의는 [MASK]에 시작해요.", "--output", page)
        code, _, err = run(*words)
        assert code == 0, err
        assert page.stat().st_size > 1000
        page.unlink()
        assert fail(*words, "--target", "x")[0] == 2
        assert not page.exists()


def test_arguments_that_are_not_utf_8_are_rejected(fail, bert):
    for arguments in (("fill", bert, "\udcb0[MASK]"), ("attention", bert, "\udcb0")):
        assert fail(*arguments)[:2] == (2, "not_utf8")


def test_one_mask_gives_filled_texts_and_their_probabilities(run, bert):
    code, out, err = run("fill", bert, "회의는 [MASK] 시작해요.", "--top", 3)
    assert code == 0, err
    rows = [line.split("\t") for line in out.splitlines()]
    assert len(rows) == 3
    shares = [float(share) for share, _ in rows]
    assert shares == sorted(shares, reverse=True)
    for _, text in rows:
        assert text.startswith("회의는 ")
        assert text.endswith(" 시작해요.")
        assert "[MASK]" not in text


def test_several_masks_are_predicted_alone_and_together(run, bert):
    code, out, err = run("fill", bert, "--top", 2, stdin="[MASK]은 [MASK]에 가요.\n\n내일 [MASK]\n")
    assert code == 0, err
    assert out.startswith("[MASK] 1: ")
    assert "\n[MASK] 2: " in out


def test_replaced_words_are_marked(run, fail, bert, tmp_path):
    text = "오늘은 비가 와요."
    model = save_model(build_electra([text]), tmp_path / "electra")
    found = ReplacedTokenDetector.from_dir(model, device="cpu").detect(text)
    for threshold in (0, sorted(word.probability for word in found.words)[1], 1):
        marked = [
            f"{word.text}[{word.probability:.2f}]" if word.probability >= threshold else word.text
            for word in found.words
        ]
        expected = (0, " ".join(marked) + "\n", "")
        assert run("detect", model, text, "--threshold", repr(threshold)) == expected
    code, out, err = run("detect", model, "--jsonl", stdin=f"{text}\n\n[MASK]\n{text}\n")
    assert (code, err.count("[MASK]")) == (4, 1)
    assert [json.loads(line)["text"] for line in out.splitlines()] == [text, text]
    assert fail("detect", bert, text, mention="polyhead fill")[1] == "wrong_task"
    assert fail("detect", model, text, "--threshold", 2)[:2] == (2, "bad_usage")


@pytest.mark.parametrize(
    ("arguments", "code", "error", "mention"),
    [
        (["fill", "{bert}", "[MASK]", "--top", "0"], 2, "bad_usage", "--top"),
        (["fill", "{bert}", "[MASK]", "--top", "201"], 2, "bad_usage", "200"),
        (["train", "bert-tiny", "--init", "{tiny}", "--run", "{tmp}/r"], 2, None, "{tiny}"),
        (["train", "classify-small", "--init", "nowhere", "--run", "{tmp}/r"], 5, None, "nowhere"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    fail, bert, tiny_run, tmp_path, arguments, code, error, mention
):
    text = write_lines(tmp_path)["text"][0]
    places = {"bert": bert, "tiny": tiny_run, "tmp": tmp_path, "text": text}
    arguments = [argument.format(**places) for argument in arguments]
    fail(*arguments, code=code, error=error, mention=mention.format(**places))


def test_progress_shows_the_scores_of_the_task_and_perplexity_where_there_is_one():
    step = TrainingStep(1, 1.0, 0.5, 1e-3, 0, 10, 10.0, 1.0)
    electra = {"generator_accuracy": 0.25, "precision": 0.5, "recall": 0.125}
    expected = "train loss 1.000  10 tok/s  generator 0.250  precision 0.500  recall 0.125"
    assert describe(step, electra) == expected
    gpt = {"perplexity": 3.0, "bits_per_character": 2.5}
    expected = "train loss 1.000  ppl 2.7  10 tok/s  bits/char 2.500"
    assert describe(step, gpt) == expected


# Text that is not UTF-8

KOREAN = "회의는 3시에 시작해요.\n사과가 세 개 있어요.\n"


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Train a tiny classifier."""
    folder = tmp_path_factory.mktemp("labels")
    train(configured("classify-small", write_labelled(folder)), folder / "run")
    return folder / "run"


def test_lines_before_a_bad_line_are_classified(run, labels):
    stdin = b"\xef\xbb\xbf" + KOREAN.encode() + b"\xb0\xa1\n" + KOREAN.encode()
    code, out, err = run("classify", labels, stdin=stdin)
    assert code == 4
    assert len(out.splitlines()) == 2
    assert "stdin:3:" in err


@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_a_named_encoding_is_read(run, fail, labels, encoding, tmp_path):
    expected = run("classify", labels, "--jsonl", stdin=KOREAN)
    assert expected[0] == 0
    data, file = KOREAN.encode(encoding), tmp_path / "texts.txt"
    file.write_bytes(data)
    assert run("classify", labels, "--jsonl", "--encoding", encoding, stdin=data) == expected
    assert run("classify", labels, "--jsonl", "--encoding", encoding, file) == expected
    fail("classify", labels, "--encoding", "klingon", file, code=2, mention="klingon")


def test_evaluate_reads_a_named_encoding(run, fail, labels, bert, tmp_path):
    plain = Path(write_labelled(tmp_path)["labelled"][0])
    korean = tmp_path / "korean.tsv"
    korean.write_bytes(plain.read_text(encoding="utf-8").encode("cp949"))
    expected = run("evaluate", labels, "--data", plain, "--json")
    read = run("evaluate", labels, "--data", korean, "--json", "--encoding", "cp949")
    assert read[0] == expected[0] == 0
    assert json.loads(read[1])["report"] == json.loads(expected[1])["report"]
    fail("evaluate", labels, "--data", korean, code=4, mention="--encoding cp949")
    text = tmp_path / "text.txt"
    text.write_bytes(KOREAN.encode("cp949"))
    assert run("evaluate", bert, "--text", text, "--encoding", "cp949")[0] == 0
    fail("evaluate", bert, "--text", text, code=4)
    text.write_text("")
    fail("evaluate", bert, "--text", text, code=4)


def test_a_line_without_a_mask_is_reported_and_the_others_are_filled(run, fail, bert):
    stdin = "내일 [MASK]가\n\n없음\n[MASK]에\n"
    code, out, err = run("fill", bert, "--top", "1", "--jsonl", stdin=stdin)
    assert code == 4
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["내일 [MASK]가", "[MASK]에"]
    assert "'없음'" in err
    fail("fill", bert, stdin=KOREAN.encode("cp949"), code=4, mention="stdin:1:")
