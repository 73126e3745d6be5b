"""The border of the program: results on stdout, one line of stderr for mistakes, exit codes."""

import io
import json
import os
import subprocess
import sys
import time

import pytest
from tiny import SMALL, write_corpus

from polyhead import __version__
from polyhead.cli.main import main

LINES = "민준 씨는 내일 부산에 가요.\n\n회의는 3시에 시작해요.\n"
FAST = ["--beam", "2", "--max-length", "8", "--device", "cpu"]


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Call the command line as a shell would: words and standard input in, everything out."""

    def call(*words, stdin=""):
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def fast_python(*words):
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return done, time.perf_counter() - started


def test_help_and_version_do_not_import_torch():
    code = (
        "import sys\nfrom polyhead.cli.main import main\n"
        "for words in (['--help'], ['--version'], ['train', '--help'], ['data', '--help']):\n"
        "    assert main(words) == 0\n"
        "heavy = {'torch', 'numpy', 'sentencepiece', 'sacrebleu'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done, _ = fast_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout
    for command in ("train", "translate", "generate", "evaluate", "attention", "average", "import",
                    "export", "fill", "classify", "recipes", "show", "verify", "cost", "data",
                    "doctor", "demo"):  # fmt: skip
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("words", [("train",), ("translate",), ("data", "check")])
def test_examples_stand_one_a_line_as_they_can_be_pasted(run, words):
    _, out, _ = run(*words, "--help")
    examples = [line.strip() for line in out.splitlines() if line.startswith("  polyhead ")]
    assert examples
    for example in examples:
        assert example.startswith(f"polyhead {' '.join(words)}")
        assert example.count("polyhead") == 1


def test_help_answers_at_once():
    """0.3 s on a quiet machine; the best of several tries, because this one may not be quiet."""
    times = []
    for _ in range(8):
        done, seconds = fast_python("-m", "polyhead", "--help")
        assert done.returncode == 0
        times.append(seconds)
        if seconds < 0.3:
            break
    bare = min(fast_python("-c", "pass")[1] for _ in range(3))
    assert min(times) < max(0.3, 12 * bare), times


def test_one_line_in_one_line_out(run, tiny_run):
    code, out, err = run("translate", tiny_run, *FAST, stdin=LINES + "없는 줄바꿈")
    assert (code, err) == (0, "")
    assert out.count("\n") == 4
    assert out.split("\n")[1] == ""


def test_strange_line_ends_and_bytes_do_not_change_the_number_of_lines(run, tiny_run):
    strange = "가\u2028나\n다\x0b라\x0c마\r\n바\x85\n".encode() + b"\xff\xfe bad\n"
    code, out, err = run("translate", tiny_run, *FAST, stdin=strange)
    assert code == 0
    assert out.count("\n") == 4
    assert "stdin:4: bytes that are not UTF-8 text are replaced by \ufffd, in 1 of 4 lines" in err


@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_text_to_translate_that_is_not_utf_8_is_named_and_read_if_its_encoding_is_said(
    run, tiny_run, encoding
):
    piped = LINES.encode(encoding)
    code, out, err = run("translate", tiny_run, *FAST, stdin=piped)
    assert (code, out) == (4, "")
    assert "stdin:1: not UTF-8 text; convert it" in err
    expected = run("translate", tiny_run, *FAST, stdin=LINES)
    said = run("translate", tiny_run, *FAST, "--encoding", encoding, stdin=piped)
    assert said[:2] == expected[:2]


def test_a_long_line_is_translated_in_pieces_and_said_so(run, tiny_run):
    code, out, err = run("translate", tiny_run, *FAST, stdin="부산에 가요. " * 200 + "\n내일\n")
    assert (code, out.count("\n")) == (0, 2)
    assert "line 1 of this block is longer than 256 tokens; it is translated in pieces" in err


def test_scores_n_best_and_alignment_are_columns(run, tiny_run):
    words = ("--n-best", "2", "--scores", "--align", *FAST)
    code, out, _ = run("translate", tiny_run, *words, stdin=LINES.split("\n")[0] + "\n")
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert len(rows) == 2
    assert float(rows[0][0]) >= float(rows[1][0])
    links = [tuple(map(int, link.split("-"))) for link in rows[0][2].split()]
    assert [target for _, target in links] == list(range(len(rows[0][1].split())))


def test_json_lines_hold_everything(run, tiny_run):
    words = ("--jsonl", "--align", "--n-best", "2", *FAST)
    code, out, _ = run("translate", tiny_run, *words, stdin=LINES)
    assert code == 0
    objects = [json.loads(line) for line in out.splitlines()]
    assert [o["source"] for o in objects] == LINES.splitlines()
    assert len(objects[0]["translations"]) == 2
    assert {"text", "score", "log_p", "alignment"} == set(objects[0]["translations"][0])


def test_prefix_sample_and_seed(run, tiny_run):
    words = ("translate", tiny_run, "--sample", "--top-k", "5", "--max-length", "8", "--seed")
    first = run(*words, "3", stdin=LINES)
    assert first == run(*words, "3", stdin=LINES)
    assert first != run(*words, "4", stdin=LINES)
    _, out, _ = run("translate", tiny_run, *FAST, "--prefix", "Minjun", stdin=LINES[:17] + "\n")
    assert out.startswith("Minjun")


def test_evaluate_prints_scores_signatures_and_a_paired_test(run, tiny_run, other_run, tmp_path):
    source, target = tiny_run.parent / "train.ko", tiny_run.parent / "train.en"
    for path in (source, target):
        lines = path.read_text().splitlines(keepends=True)[:12]
        (tmp_path / path.name).write_text("".join(lines))
    files = ("--source", tmp_path / "train.ko", "--target", tmp_path / "train.en", "--beam", "1")
    code, out, _ = run("evaluate", tiny_run, *files, "--against", other_run)
    assert code == 0
    assert out.startswith("BLEU ")
    assert "tok:13a" in out
    assert "p = " in out
    code, out, _ = run("evaluate", tiny_run, *files, "--json", "--output", tmp_path / "out.en")
    assert [s["name"] for s in json.loads(out)["scores"]] == ["BLEU", "chrF2"]
    assert (tmp_path / "out.en").read_text().count("\n") == 12
    code, out, _ = run("evaluate", tiny_run, *files, "--against", tmp_path / "out.en", "--json")
    assert json.loads(out)["against"][0]["p_value"] == 1.0


def test_attention_writes_a_page(run, tiny_run, tmp_path):
    page = tmp_path / "page.html"
    code, _, err = run("attention", tiny_run, "부산에 가요.", "--output", page)
    assert code == 0
    assert "부산에" in page.read_text(encoding="utf-8")
    assert f"written to {page}" in err


def test_a_corpus_is_trained_interrupted_and_averaged(run, tmp_path):
    files = write_corpus(tmp_path)
    words = ("train", "small", *SMALL, "train.epochs=0.5", "--run", tmp_path / "run",
             "--source", files["source"][0], "--target", files["target"][0])  # fmt: skip
    code, out, err = run(*words)
    assert (code, out) == (0, "")
    assert "held out for validation and not trained on" in err
    assert "use it with: polyhead translate" in err
    code, _, err = run(*words)  # again: already finished
    assert code == 0
    assert "training already complete" in err
    code, _, err = run(*words, "train.max_tokens=300")
    assert code == 2
    assert "train.max_tokens: 400 → 300" in err
    code, _, err = run("average", tmp_path / "run", "--output", tmp_path / "mean")
    assert code == 0
    code, out, _ = run("translate", tmp_path / "mean", *FAST, stdin=LINES)
    assert out.count("\n") == 3


def test_recipes_are_listed_and_shown_complete(run, tmp_path):
    code, out, _ = run("recipes")
    assert code == 0
    for name in ("small", "base", "big", "schedules-ko-en", "multi30k-de-en"):
        assert name in out
    code, shown, _ = run("show", "base", "train.steps=7")
    assert code == 0
    assert "steps = 7" in shown
    assert "beta_2 = 0.98" in shown  # a default that the recipe does not mention
    (tmp_path / "mine.toml").write_text(shown)
    assert run("show", tmp_path / "mine.toml")[1] == shown
    code, printed, _ = run("train", "base", "train.steps=7", "--print-config")
    assert printed == shown


def test_steps_on_the_command_line_win_over_the_epochs_of_a_recipe(run):
    assert "epochs" in run("show", "small")[1]
    _, shown, _ = run("show", "small", "train.steps=7")
    assert "steps = 7\n" in shown
    assert "epochs" not in shown
    assert "epochs = 2" in run("show", "small", "train.steps=7", "train.epochs=2")[1]


def test_data_make_list_and_check(run, tmp_path):
    folder = tmp_path / "made"
    code, out, _ = run("data", "make", "schedules", "--output", folder, "--size", "200")
    assert code == 0
    assert len(out.splitlines()) == 7
    code, out, _ = run("data", "list")
    assert code == 0
    assert "multi30k" in out
    code, out, _ = run("data", "check", "--source", folder / "train.ko", "--target",
                       folder / "train.en", "--json")  # fmt: skip
    assert code == 0
    assert json.loads(out)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train"], 2, "say what to train: a recipe"),
        (["train", "smal"], 2, "there is no recipe 'smal'; did you mean small?"),
        (
            ["train", "small", "model.stack.n_head=3"],
            2,
            "n_head: no such option; did you mean n_",
        ),
        (["train", "small", "train.steps=x"], 2, "train.steps = 'x': should be a valid integer"),
        (["train", "small"], 2, "data: give either source and target files, or pairs"),
        (["train", "small", "--source", "no.ko", "--target", "no.en"], 4, "no.ko not found"),
        (["translate", "nowhere"], 5, "there is no model nowhere; train one"),
        (["translate"], 2, "Missing"),
        (["frobnicate"], 2, "No such command 'frobnicate'"),
        (["compare", "small", "--seeds", "x"], 2, "Invalid value for '--seeds': Input should be a"),
        (["generate", "model", "--prmpt", "x"], 2, "--prompt); see polyhead generate --help"),
        (["train", "a man walks " * 90], 2, "a man wa…: no file has so long a name"),
        (["train", "gpt-tiny", "--run", "run" * 90], 2, "…: no file has so long a name"),
        (["data", "get", "multi3k"], 2, "did you mean multi30k?"),
        (["data", "check"], 2, "name the corpus"),
        (
            ["show", "small", "train=5", "train.steps=3"],
            2,
            "train is a value, not a",
        ),
        (["show", "small", "train.steps=3", "train=5"], 2, "train = 5: expected a table, as in [t"),
        (["show", "gpt-tiny", "model.stack.dropout=1.5"], 2, "model.stack.dropout = 1.5: should b"),
        (["show", "multi30k-de-en-gnmt", "model.dropout=1"], 2, "model.dropout = 1: should be le"),
        (["show", "small", f"train.seed={2**63}"], 2, "train: seed = 9223372036854775808: expect"),
        (["show", "small", "train=5"], 2, "train = 5: expected a table, as in [train]"),
        (
            ["show", "small", "model.positions=learned", "model.max_length=64"],
            2,
            "data.max_length = 256: the model has only 64 positions",
        ),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(words, code, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, out, err = run(*words)
    assert (found, out) == (code, "")
    *before, last, end = err.split("\n")
    assert (last[:10], end) == ("polyhead: ", "")
    assert message in last
    assert before in ([], ["reading the data …"])
    assert not list(tmp_path.iterdir())  # a mistake leaves nothing behind


def test_a_reader_that_has_enough_is_no_error(tiny_run):
    head = subprocess.run(  # noqa: S602
        f"yes 내일 | head -n 500 | {sys.executable} -m polyhead translate {tiny_run} --beam 1 "
        "--max-length 4 | head -n 1; echo ${PIPESTATUS[2]}",
        shell=True, capture_output=True, text=True, check=True, executable="/bin/bash",
    )  # fmt: skip
    assert head.stderr == ""
    assert head.stdout.splitlines()[-1] == "0"


def test_completion_is_offered():
    words = {"_POLYHEAD_COMPLETE": "complete_bash", "COMP_WORDS": "polyhead tra", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "polyhead"], env=os.environ | words, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["train", "translate"]


def test_recipes_are_listed_as_they_are_written(run):
    """Square brackets in a description are not the screen's business."""
    code, out, _ = run("recipes")
    assert code == 0
    assert "polyhead[vision]" in out
