"""`polyhead verify`: selection of claims, their rows and scripts, and the command's output."""

import code
import contextlib
import inspect
import io
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from expected_errors import raises
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from polyhead.cli.main import main
from polyhead.cli.notes import row_grid
from polyhead.errors import ConfigError
from polyhead.layers.attention import (
    NO_MASK,
    FullAttention,
    Mask,
    MultiHeadAttention,
    attention_weights,
)
from polyhead.layers.transformer_stack import TransformerStack
from polyhead.notes.claims import CHAPTERS, find_claim, load_claims, read_texts, select_claims
from polyhead.notes.verification import PACKAGE, location, run_claims, script

LIMIT_SECONDS = 60
FOLDER = PACKAGE / "notes" / "chapters"


@pytest.fixture
def call(capfd, monkeypatch):
    """Run the command as a shell does: exit code, standard output, standard error."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)

    def call(*words):
        exit_code = main(["verify", *words])
        out, err = capfd.readouterr()
        return exit_code, out, err

    return call


# The real chapters


def test_every_module_is_a_chapter_and_every_text_belongs_to_a_claim():
    claims = load_claims()
    assert {file.stem for file in FOLDER.glob("[!_]*.py")} == {
        f"{name}_claims" for name in CHAPTERS
    }
    for chapter in CHAPTERS:
        ids = [claim.id for claim in claims if claim.chapter == chapter]
        assert ids
        assert list(read_texts(FOLDER / f"{chapter}.toml")) == ["title", *ids]


def test_the_library_is_right_everywhere_within_a_minute(report):
    assert {row.claim.id: row.result for row in report.rows if not row.result.holds} == {}
    assert len(report.rows) == len(load_claims())
    assert report.seconds < LIMIT_SECONDS


def test_every_row_is_complete_and_shows_the_value_of_a_note_that_is_not_right(report):
    for row in report.rows:
        claim = row.claim
        assert all(text.strip() for text in (*claim.text, *claim.explanation, claim.formula))
        assert max(map(len, claim.text)) <= 70, claim.id
        assert any("가" <= letter <= "힣" for letter in claim.explanation.ko), claim.id
        assert "\n" not in claim.formula
        assert claim.code, claim.id
        assert row.result.expected, claim.id
        assert bool(row.result.noted) == (claim.note != "right"), claim.id
        for part in claim.code:
            assert (PACKAGE.parent / location(part).path).is_file(), (claim.id, part)


def test_every_script_prints_the_result_of_its_check(report):
    printed = {row.claim.id: typed(script(row.claim)) for row in report.rows}
    assert printed == {row.claim.id: str(row.result) for row in report.rows}


def typed(text):
    """Paste a script line by line at Python's prompt and return the last line that it prints."""
    printed, problems = io.StringIO(), io.StringIO()
    prompt = code.InteractiveConsole({"__name__": "__console__"})
    with (
        torch.random.fork_rng(devices=[]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(problems),
    ):
        for line in text.splitlines():
            waiting = prompt.push(line)
    assert not waiting, text
    return problems.getvalue().rpartition("Error")[0] or printed.getvalue().splitlines()[-1]


# Selection


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
def test_claims_are_selected_by_chapter_and_id(use_sample, words, ids):
    use_sample()
    assert [claim.id for claim in select_claims(words)] == ids


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("sampel", "sampel: no such chapter or claim. Did you mean sample?"),
        ("B11", "B11: no such chapter or claim. Did you mean B10?"),
        ("nonsense", "nonsense: no such chapter or claim. `polyhead"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest_one(use_sample, word, hint):
    use_sample()
    with raises(ConfigError, "unknown_claim", hint):
        select_claims(["B2", word])


# Rows


def test_an_exception_is_a_row_with_its_file_and_line(use_sample):
    use_sample(broken=True)
    (row,) = run_claims(select_claims(["Z2"]))
    message, _, where = row.error.rpartition(" (")
    assert message == "ValueError: d_model (512) must be a multiple of n_heads (7)"
    file, _, line = where.rstrip(")").partition(":")
    assert file == "attention.py"
    source = Path(inspect.getfile(MultiHeadAttention)).read_text(encoding="utf-8").splitlines()
    assert "raise ValueError" in source[int(line) - 1]
    assert row.result.got == row.error


def test_a_row_does_not_depend_on_earlier_rows_and_keeps_the_global_random_state(use_sample):
    use_sample()
    alone = [next(iter(run_claims([claim]))).result for claim in load_claims()]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert [row.result for row in run_claims(load_claims())] == alone
    assert torch.equal(torch.rand(3), expected)


# Source code


@pytest.mark.parametrize(
    ("part", "name", "starts"),
    [
        (attention_weights, "attention_weights", "def attention_weights("),
        (Mask.dense, "Mask.dense", "    def dense("),
        (FullAttention, "FullAttention", "class FullAttention("),
        (NO_MASK, "Mask", "class Mask("),
        (FullAttention.weights, "attention_weights", "def attention_weights("),
        (TransformerStack.forward, "TransformerStack.forward", "    def forward("),
    ],
)
def test_a_part_is_located_by_file_and_line(part, name, starts):
    place = location(part)
    lines = (PACKAGE.parent / place.path).read_text(encoding="utf-8").splitlines()
    assert place.name == name
    assert lines[place.line - 1].startswith(starts)


def test_scripts_import_what_their_check_uses(use_sample):
    use_sample()
    for row in run_claims(load_claims()):
        assert typed(script(row.claim)) == str(row.result)
    text = script(find_claim("B2"))
    assert "    # a comment\n" in text
    assert "from polyhead.notes.chapters.sample_claims import HALF, twice\n" in text
    assert "import math\n" in text
    assert "os.path" not in text
    assert "@claim" not in text


# The command


def test_a_pipe_gets_one_plain_line_for_each_row(use_sample, call):
    use_sample()
    exit_code, out, err = call()
    lines = [line.split("\t") for line in out.splitlines()]
    assert exit_code == 0
    assert [line[:2] for line in lines] == [
        ["A1", "note imprecise"], ["B2", "ok"], ["B10", "note wrong"],
    ]  # fmt: skip
    assert lines[2][2:] == ["A wrong note", "2", "2", "<script>alert(1)</script>"]
    assert err.startswith("3 claims: 1 ok, 1 note wrong, 1 note imprecise (")


def test_the_exit_code_is_one_if_the_library_is_wrong(use_sample, call):
    use_sample(broken=True)
    exit_code, out, _ = call()
    assert exit_code == 1
    assert "Z1\tBROKEN\t" in out
    assert "Z2\tBROKEN\t" in out
    assert call("B2")[0] == 0


@pytest.mark.parametrize("words", [("B99",), ("--explain", "sample"), ("--lang", "de")])
def test_the_exit_code_of_an_unknown_name_is_two(use_sample, call, words):
    use_sample()
    exit_code, out, err = call(*words)
    assert (exit_code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("polyhead: ")


def test_json_contains_every_field(use_sample, call):
    use_sample(broken=True)
    exit_code, out, _ = call("--json", "--lang", "ko")
    content = json.loads(out)
    assert exit_code == 1
    assert content["counts"] == {"ok": 1, "note wrong": 1, "note imprecise": 1, "BROKEN": 2}
    rows = {row["id"]: row for row in content["checks"]}
    assert rows["B10"]["claim"] == "틀린 노트"
    assert rows["B10"]["noted"] == "<script>alert(1)</script>"
    assert rows["B2"]["code"][0].startswith("polyhead/layers/attention.py:")
    assert rows["Z2"]["error"]


def test_list_runs_nothing(use_sample, call):
    use_sample(broken=True)
    exit_code, out, _ = call("--list")
    assert exit_code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["A1", "B2", "B10", "Z1", "Z2"]
    assert [row["id"] for row in json.loads(call("--list", "--json", "B2")[1])] == ["B2"]


def test_explain_prints_texts_code_and_script(use_sample, call):
    use_sample()
    exit_code, out, _ = call("--explain", "b2", "--lang", "ko")
    assert exit_code == 0
    for part in ("B2", "맞는 노트", "1 + 1 = 2", "왜냐하면", "polyhead/layers/attention.py:"):
        assert part in out
    (row,) = run_claims([find_claim("B2")])
    assert typed(out[out.index("import torch\n") :]) == str(row.result)


@pytest.mark.parametrize(("language", "title"), [("en", "Sample"), ("ko", "견본")])
def test_a_terminal_gets_a_table_that_fits(use_sample, capfd, monkeypatch, language, title):
    use_sample()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["verify", "--lang", language]) == 0
    out = Text.from_ansi(capfd.readouterr().out).plain
    assert title in out
    assert "<script>alert(1)</script>" in out
    assert max(cell_len(line.rstrip()) for line in out.splitlines()) <= 100


@pytest.mark.parametrize("width", range(80, 121, 4))
def test_no_letter_of_a_korean_claim_is_cut_at_any_width(width):
    console = Console(width=width, file=io.StringIO())
    (row,) = run_claims([find_claim("J1")])
    console.print(row_grid(row, "ko", width))
    printed = Counter(console.file.getvalue())
    assert not Counter(row.claim.text.ko.replace(" ", "")) - printed
    assert "…" not in printed
