"""`polyhead verify`: which checks run, what their rows say, and how the program leaves."""

import code
import contextlib
import inspect
import io
import json
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from rich.text import Text

from polyhead.cli.main import main
from polyhead.errors import ConfigError
from polyhead.layers.attention import FullAttention, MultiHeadAttention, attention_weights
from polyhead.layers.masks import EVERYTHING, Mask
from polyhead.layers.transformer_stack import TransformerStack
from polyhead.notes import runner
from polyhead.notes.claims import CHECKS
from polyhead.notes.explain import PACKAGE, place, places, snippet
from polyhead.notes.runner import CHAPTERS, chosen, load, run

LIMIT_SECONDS = 60


@pytest.fixture
def call(capfd, monkeypatch):
    """The command as a shell would call it: exit code, standard output, standard error."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)

    def call(*words):
        exit_code = main(["verify", *words])
        out, err = capfd.readouterr()
        return exit_code, out, err

    return call


# The real chapters


def test_every_chapter_exists_and_every_module_is_a_chapter():
    names = {chapter.name for chapter in CHAPTERS}
    modules = {file.stem for file in (PACKAGE / "polyhead/notes/chapters").glob("[!_]*.py")}
    assert modules == names
    load()
    assert {check.chapter for check in CHECKS.values()} == names


def test_our_code_does_what_is_true_everywhere(report):
    broken = {row.check.id: row.finding for row in report.rows if not row.finding.holds}
    assert broken == {}
    assert len(report.rows) == len(CHECKS)


def test_everything_takes_less_than_a_minute(report):
    assert report.seconds < LIMIT_SECONDS


def test_wrong_notes_are_shown_with_their_own_value(report):
    wrong = [row for row in report.rows if row.verdict == "note wrong"]
    assert wrong
    assert [row.check.id for row in wrong if not row.finding.noted] == []


def test_every_check_can_be_read(report):
    for row in report.rows:
        check = row.check
        for words in (check.claim, check.explain):
            assert words.en.strip()
            assert words.ko.strip()
        assert max(map(len, check.claim)) <= 70, check.id
        assert any("가" <= letter <= "힣" for letter in check.explain.ko), check.id
        assert check.formula.strip(), check.id
        assert "\n" not in check.formula
        assert check.code, check.id
        assert row.finding.expected, check.id
        for found in places(check):
            assert (PACKAGE / found.path).is_file(), (check.id, found)


def test_every_script_finds_what_its_check_finds(report):
    """Typed line by line at Python's prompt, which is less patient than a file."""
    different = {}
    for row in report.rows:
        found = typed(snippet(row.check))
        if found != row.finding:
            different[row.check.id] = (found, row.finding)
    assert different == {}


def typed(script):
    """Paste a script at the prompt; what was its finding?"""
    names, problems = {"__name__": "__console__"}, io.StringIO()
    prompt = code.InteractiveConsole(names)
    with (
        torch.random.fork_rng(devices=[]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(problems),
    ):
        for line in script.splitlines():
            waiting = prompt.push(line)
    if waiting or problems.getvalue().find("Error") >= 0:
        return problems.getvalue() or "waiting for more"
    return names["finding"]


# What runs, and in which order


def test_rows_stand_in_the_order_of_their_numbers(chapter):
    chapter()
    assert [check.id for check in load()] == ["A1", "B2", "B10"]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ((), ["A1", "B2", "B10"]),
        (("sample",), ["A1", "B2", "B10"]),
        (("b10",), ["B10"]),
        (("B10", "A1"), ["A1", "B10"]),
        (("B2", "sample", "b2"), ["A1", "B2", "B10"]),
    ],
)
def test_chapters_and_ids_can_be_mixed(chapter, words, ids):
    chapter()
    assert [check.id for check in chosen(words)] == ids


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sampel", "sampel: no such chapter or claim; did you mean sample? "),
        ("B11", "B11: no such chapter or claim; did you mean B10? "),
        ("nonsense", "nonsense: no such chapter or claim; polyhead verify --list shows them all"),
    ],
)
def test_an_unknown_name_is_one_line_with_a_suggestion(chapter, word, message):
    chapter()
    with pytest.raises(ConfigError) as error:
        chosen(["B2", word])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_verdicts_tell_the_note_from_the_code(chapter):
    chapter(broken=True)
    verdicts = {row.check.id: row.verdict for row in run(load())}
    assert verdicts == {
        "A1": "note imprecise", "B2": "ok", "B10": "note wrong", "Z1": "BROKEN", "Z2": "BROKEN",
    }  # fmt: skip


def test_an_exception_is_a_row_with_its_line(chapter):
    chapter(broken=True)
    (row,) = run(chosen(["Z2"]))
    says, _, where = row.error.rpartition(" (")
    assert says == "ValueError: d_model (512) must be a multiple of n_heads (7)"
    file, _, line = where.rstrip(")").partition(":")
    assert file == "attention.py"
    source = Path(inspect.getfile(MultiHeadAttention)).read_text(encoding="utf-8").splitlines()
    assert "raise ValueError" in source[int(line) - 1]
    assert row.finding.got == row.error


def test_a_row_does_not_depend_on_what_ran_before(chapter):
    chapter()
    alone = [next(iter(run([check]))).finding for check in load()]
    assert alone == [row.finding for row in run(load())]


def test_running_leaves_the_random_numbers_of_others_alone(chapter):
    chapter()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    list(run(load()))
    assert torch.equal(torch.rand(3), expected)


# Code and scripts


@pytest.mark.parametrize(
    ("part", "name", "starts"),
    [
        (attention_weights, "attention_weights", "def attention_weights("),
        (Mask.dense, "Mask.dense", "    def dense("),
        (FullAttention, "FullAttention", "class FullAttention("),
        (EVERYTHING, "Mask", "class Mask("),
        (FullAttention.weights, "attention_weights", "def attention_weights("),
        (TransformerStack.forward, "Stack.forward", "    def forward("),
    ],
)
def test_code_is_found_by_file_and_line(part, name, starts):
    found = place(part)
    lines = (PACKAGE / found.path).read_text(encoding="utf-8").splitlines()
    assert found.name == name
    assert lines[found.line - 1].startswith(starts)
    assert not lines[found.last - 1].isspace()


def test_a_forward_is_that_of_its_own_class():
    assert place(FullAttention.forward).line > place(FullAttention).line
    assert place(FullAttention.forward).last <= place(FullAttention).last


def test_scripts_of_the_sample_can_be_typed(chapter):
    module = chapter()
    for row in run(load()):
        script = snippet(row.check)
        assert typed(script) == row.finding, script
    script = snippet(runner.CHECKS["B2"])
    assert "# a comment that it does\n" in script
    assert "# a comment between two statements\n" in script
    assert "docstring" not in script
    assert f"from {module.__name__} import HALF, twice\n" in script
    assert "os.path" not in script
    assert "import math\n" in script
    assert script.endswith("print(finding)\n")


# The command


def test_a_pipe_gets_one_plain_line_for_each_row(chapter, call):
    chapter()
    exit_code, out, err = call()
    lines = [line.split("\t") for line in out.splitlines()]
    assert exit_code == 0
    assert [line[:2] for line in lines] == [
        ["A1", "note imprecise"], ["B2", "ok"], ["B10", "note wrong"],
    ]  # fmt: skip
    assert lines[2][2:] == ["A wrong note", "2", "2", "<script>alert(1)</script>"]
    assert err.startswith("3 claims: 1 ok, 1 note wrong, 1 note imprecise (")


def test_broken_code_ends_with_one(chapter, call):
    chapter(broken=True)
    exit_code, out, _ = call()
    assert exit_code == 1
    assert "Z1\tBROKEN\t" in out
    assert "Z2\tBROKEN\t" in out
    assert call("B2")[0] == 0


def test_a_mistyped_name_ends_with_two(chapter, call):
    chapter()
    for words in (("B99",), ("--explain", "sample"), ("--lang", "de")):
        exit_code, out, err = call(*words)
        assert (exit_code, out) == (2, "")
        assert err.count("\n") == 1
        assert err.startswith("polyhead: ")


def test_json_holds_everything(chapter, call):
    chapter(broken=True)
    exit_code, out, _ = call("--json", "--lang", "ko")
    content = json.loads(out)
    assert exit_code == 1
    assert content["counts"] == {"ok": 1, "note wrong": 1, "note imprecise": 1, "BROKEN": 2}
    rows = {row["id"]: row for row in content["checks"]}
    assert rows["B10"]["claim"] == "틀린 노트"
    assert rows["B10"]["noted"] == "<script>alert(1)</script>"
    assert rows["B2"]["code"][0].startswith("polyhead/layers/attention.py:")
    assert rows["Z2"]["error"]


def test_the_list_runs_nothing(chapter, call):
    chapter(broken=True)
    exit_code, out, _ = call("--list")
    assert exit_code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["A1", "B2", "B10", "Z1", "Z2"]
    assert [row["id"] for row in json.loads(call("--list", "--json", "B2")[1])] == ["B2"]


def test_an_explanation_has_all_its_parts(chapter, call):
    chapter()
    exit_code, out, _ = call("--explain", "b2", "--lang", "ko")
    assert exit_code == 0
    for part in ("B2", "맞는 노트", "1 + 1 = 2", "왜냐하면", "polyhead/layers/attention.py:"):
        assert part in out
    script = out[out.index("import torch\n") :]
    assert typed(script) == next(iter(run(chosen(["B2"])))).finding


@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_terminal_gets_a_table_that_fits(chapter, capfd, monkeypatch, language):
    chapter()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["verify", "--lang", language]) == 0
    out = strip(capfd.readouterr().out)
    assert {"en": "Sample", "ko": "견본"}[language] in out
    assert "<script>alert(1)</script>" in out
    assert max(map(wide, out.splitlines())) <= 100


def strip(text):
    return Text.from_ansi(text).plain


def wide(line):
    return cell_len(line.rstrip())
