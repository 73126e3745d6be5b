"""`polyhead fill`, `polyhead classify` and `polyhead evaluate --data` as a shell sees them."""

import io
import json
import math
import os
from pathlib import Path

import pytest
from pretrained import SIZES, TINY, configured, pretrain, write_labelled, write_lines

from polyhead.cli.console import describe
from polyhead.cli.main import main
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.training.trainer import train


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Call the command line as a shell would: words and standard input in, everything out."""
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def call(*words, stdin=""):
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return pretrain(tmp_path_factory.mktemp("cli"), "bert-tiny")


def test_from_plain_text_to_a_classifier_in_four_commands(run, tmp_path):
    lines = write_lines(tmp_path)["text"][0]
    files = write_labelled(tmp_path)
    data, valid = files["labelled"][0], files["valid_labelled"][0]
    code, _, err = run("train", "electra-tiny", *TINY, *SIZES["electra-tiny"], "--text", lines,
                       "--run", tmp_path / "electra")  # fmt: skip
    assert code == 0, err
    assert "generator_accuracy" in err
    assert f"polyhead train classify-small --data FILE --init {tmp_path / 'electra'}" in err
    code, _, err = run("train", *TINY, "--data", data, "--valid-data", valid,
                       "--init", tmp_path / "electra", "--run", tmp_path / "run")  # fmt: skip
    assert code == 0, err
    assert f"beginning from the encoder of {tmp_path / 'electra'}" in err
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
        table = {name: float(share) for name, share in (one.split("=") for one in shares)}
        assert first == label == max(table, key=lambda name: table[name])
        assert sum(table.values()) == pytest.approx(1, abs=1e-3)
    code, out, _ = run("classify", tmp_path / "run", "--jsonl", stdin=stdin)
    objects = [json.loads(line) for line in out.splitlines()]
    assert [one["text"] for one in objects] == stdin.split("\n")
    assert [one["label"] for one in objects] == labels
    (tmp_path / "lines.txt").write_text(stdin, encoding="utf-8")
    assert run("classify", tmp_path / "run", tmp_path / "lines.txt")[1].splitlines() == labels

    code, out, err = run("evaluate", tmp_path / "run", "--data", valid, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["n_examples"] == 30
    assert sum(map(sum, found["report"]["confusion"])) == 30
    assert found["accuracy"][0] <= found["report"]["accuracy"] <= found["accuracy"][1]
    code, out, _ = run("evaluate", tmp_path / "run", "--data", valid)
    assert f"accuracy {found['report']['accuracy']:.4f}" in out
    assert "confusion: rows are the right classes" in out
    assert "95 % of 1,000 bootstrap samples of 30 examples" in out

    for model, ending in (("electra", "html"), ("run", "svg"), ("run", "json"), ("electra", "png")):
        page = tmp_path / f"page.{ending}"
        words = ("attention", tmp_path / model, "회의는 [MASK]에 시작해요.", "--output", page)
        code, _, err = run(*words)
        assert code == 0, err
        assert page.stat().st_size > 1000
        page.unlink()
        code, _, err = run(*words, "--target", "x")
        assert (code, err) == (2, "polyhead: only a translator has a target; leave --target out\n")
        assert not page.exists()


def test_text_whose_bytes_are_no_text_is_one_line(run, bert):
    for words in (("fill", bert, "\udcb0[MASK]"), ("attention", bert, "\udcb0")):
        code, out, err = run(*words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("polyhead: TEXT: not UTF-8 text; convert it")


def test_blanks_of_a_text_are_counted(run, bert, tmp_path):
    text = write_lines(tmp_path)["text"][0]
    code, out, err = run("evaluate", bert, "--text", text, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert set(found) == {"loss", "perplexity", "accuracy"}
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    assert MaskFiller.from_dir(bert).score(lines) == found  # the same blanks every time
    told = run("evaluate", bert, "--text", text)[1]
    assert told.startswith(f"loss                {found['loss']:.4f}\nperplexity ")
    code, _, err = run("evaluate", bert, "--text", text, "--rounds", 3)
    assert (code, err.count("\n")) == (2, 1)
    (tmp_path / "empty.txt").write_text("")
    code, _, err = run("evaluate", bert, "--text", tmp_path / "empty.txt")
    assert (code, err) == (4, "polyhead: all lines are empty; give at least one line of text\n")


def test_one_blank_gives_filled_texts_and_their_probabilities(run, bert):
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


def test_several_blanks_and_a_pipe_and_json(run, bert):
    code, out, err = run("fill", bert, "--top", 2, stdin="[MASK]은 [MASK]에 가요.\n\n내일 [MASK]\n")
    assert code == 0, err
    assert out.startswith("[MASK] 1: ")
    assert "\n[MASK] 2: " in out
    code, out, _ = run("fill", bert, "--jsonl", "--top", 2, "[MASK]은 [MASK]에 가요.")
    found = json.loads(out)
    assert [len(guesses) for guesses in found["blanks"]] == [2, 2]
    for one in found["together"]:
        assert one["text"] == "{}은 {}에 가요.".format(*one["words"])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["fill", "{bert}", "빈칸이 없다"], 4, "'빈칸이 없다'"),
        (["fill", "{bert}", "[MASK]", "--top", "0"], 2, "--top 0: expected 1 to 200"),
        (["fill", "{bert}", "[MASK]", "--top", "9000"], 2, "--top 9000: expected 1 to 200"),
        (["fill", "{tiny}", "[MASK]"], 5, "use it with: polyhead translate"),
        (["classify", "{bert}"], 5, "use it with: polyhead fill"),
        (["evaluate", "{bert}", "--data", "x.tsv"], 5, "use it with: polyhead fill"),
        (["train", "bert-tiny", "--init", "{tiny}", "--run", "{tmp}/r"], 2,
         "is a transformer model, which cannot initialize bert"),
        (["train", "classify-small", "--init", "nowhere", "--run", "{tmp}/r"], 5,
         "no model nowhere"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_an_exit_code(
    run, bert, tiny_run, tmp_path, words, code, message
):
    places = {"bert": bert, "tiny": tiny_run, "tmp": tmp_path}
    found, out, err = run(*(word.format(**places) for word in words))
    assert (found, out) == (code, "")
    *before, last = err.splitlines()
    assert last.startswith("polyhead: ")
    assert message in last
    assert all(line.endswith("…") for line in before)


@pytest.mark.parametrize("command", ["fill", "classify"])
def test_help_has_examples(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"polyhead {command} runs/" in out


def test_progress_shows_both_players_and_no_perplexity_where_there_is_none():
    line = {"loss": 20.0, "tokens_per_second": 9.0}
    players = {"loss": 20.0, "generator_accuracy": 0.25, "precision": 0.5, "recall": 0.125}
    found = describe({**line, "valid": players})
    assert "generator 0.250  precision 0.500  recall 0.125" in found
    assert "ppl" not in found
    assert "ppl" in describe({**line, "valid": {"perplexity": 3.0}})


# Text that is not UTF-8

KOREAN = "회의는 3시에 시작해요.\n사과가 세 개 있어요.\n"


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """A classifier, as bare as one can be."""
    folder = tmp_path_factory.mktemp("labels")
    train(configured("classify-small", write_labelled(folder)), folder / "run")
    return folder / "run"


@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_text_in_another_encoding_is_not_classified_as_if_it_were_text(run, labels, encoding):
    code, out, err = run("classify", labels, stdin=KOREAN.encode(encoding))
    assert (code, out) == (4, "")
    assert err == (
        "polyhead: stdin:1: not UTF-8 text; convert it, for instance by iconv -f cp949 -t utf-8\n"
    )


def test_what_came_before_a_bad_line_is_answered(run, labels):
    stdin = b"\xef\xbb\xbf" + KOREAN.encode() + b"\xb0\xa1\n" + KOREAN.encode()
    code, out, err = run("classify", labels, stdin=stdin)
    assert code == 4
    assert len(out.splitlines()) == 2
    assert "stdin:3: not UTF-8 text" in err


@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_an_encoding_that_is_named_is_read(run, labels, encoding, tmp_path):
    said = run("classify", labels, "--jsonl", stdin=KOREAN)
    assert said[0] == 0
    data, file = KOREAN.encode(encoding), tmp_path / "texts.txt"
    file.write_bytes(data)
    assert run("classify", labels, "--jsonl", "--encoding", encoding, stdin=data) == said
    assert run("classify", labels, "--jsonl", "--encoding", encoding, file) == said
    code, _, err = run("classify", labels, "--encoding", "klingon", file)
    assert (code, "klingon" in err) == (2, True)


def test_evaluation_reads_an_encoding_that_is_named(run, labels, bert, tmp_path):
    plain = Path(write_labelled(tmp_path)["labelled"][0])
    korean = tmp_path / "korean.tsv"
    korean.write_bytes(plain.read_text(encoding="utf-8").encode("cp949"))
    said = run("evaluate", labels, "--data", plain, "--json")
    assert run("evaluate", labels, "--data", korean, "--json", "--encoding", "cp949") == said
    code, _, err = run("evaluate", labels, "--data", korean)
    assert code == 4
    assert "read it with --encoding cp949" in err
    text = tmp_path / "text.txt"
    text.write_bytes(KOREAN.encode("cp949"))
    assert run("evaluate", bert, "--text", text, "--encoding", "cp949")[0] == 0
    assert run("evaluate", bert, "--text", text)[0] == 4


def test_a_line_without_a_blank_is_named_and_the_others_are_filled_in(run, bert):
    stdin = "내일 [MASK]가\n\n없음\n[MASK]에\n"
    code, out, err = run("fill", bert, "--top", "1", "--jsonl", stdin=stdin)
    assert code == 4
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["내일 [MASK]가", "[MASK]에"]
    assert "'없음': " in err
    code, out, err = run("fill", bert, stdin=KOREAN.encode("cp949"))
    assert (code, out) == (4, "")
    assert "stdin:1: not UTF-8 text" in err
