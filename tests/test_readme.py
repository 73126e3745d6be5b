"""Commands of the readmes work, and both readmes show the same ones."""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import write_corpus

from polyhead.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]


def commands(name):
    """The shell commands of a readme: indented lines that start a program of ours."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = re.findall(r"^    (\S.*)$", text, flags=re.M)
    ours = [line for line in lines if re.search(r"\b(polyhead|make) ", line)]
    return [line.split("  #")[0].strip() for line in ours]


def tables(name):
    """The first column of every table row: the commands that are listed."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"^\| (`polyhead [^|]*(?:\\\|[^|]*)*`)", text, flags=re.M)


def test_both_languages_show_the_same_commands():
    assert len(commands("README.md")) >= 9
    assert commands("README.md") == commands("README.ko.md")
    lists = [tables(f"docs/{language}/commands.md") for language in ("en", "ko")]
    assert len(lists[0]) == len(lists[1]) == 31
    named = {name for row in lists[0] for name in re.findall(r"polyhead ([a-z]+)", row)}
    assert set(COMMANDS) | {"data"} <= named


def test_both_languages_have_at_most_900_words():
    for name in ("README.md", "README.ko.md"):
        assert len((ROOT / name).read_text(encoding="utf-8").split()) <= 900


def test_both_languages_have_the_same_figures():
    numbers = [
        re.findall(r"\d+(?:\.\d+)?", "".join(re.findall(r"^\|.*\d.*\|$", text, flags=re.M)))
        for text in ((ROOT / f"README{kind}.md").read_text() for kind in ("", ".ko"))
    ]
    assert sorted(numbers[0]) == sorted(numbers[1])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with the files that the readme's reader has."""
    folder = tmp_path_factory.mktemp("reader")
    files = write_corpus(folder, n=40)
    sides = [Path(files[side][0]).read_text().splitlines() for side in ("source", "target")]
    pairs = zip(*sides, strict=True)
    (folder / "corpus.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    for language, lines in zip(("ko", "en"), sides, strict=True):
        (folder / f"test.{language}").write_text("".join(f"{line}\n" for line in lines[:5]))
    return folder


def test_the_readme_can_be_typed_from_top_to_bottom(workplace, monkeypatch, capfdbinary):
    monkeypatch.chdir(workplace)
    for line in commands("README.md"):
        if line.startswith("make "):
            continue
        first, _, rest = line.partition(" | ")
        words = shlex.split(rest or first)
        given = f"{shlex.split(first)[1]}\n" if rest else ""
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        assert words[0] == "polyhead"
        code = main(words[1:])
        out, err = capfdbinary.readouterr()
        allowed = (0, 4) if "check" in words else (0,)  # forty sentences may well be called wrong
        assert code in allowed, f"{line}: {err.decode()}"
        if words[1] == "translate":
            assert out.decode().count("\n") == 1
    assert (workplace / "page.html").stat().st_size > 10_000


def test_python_of_the_readmes_runs(workplace, monkeypatch):
    """Both readmes have the same code but for comments, and it runs on the reader's files."""
    blocks = [
        re.search(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)[1]
        for name in ("README.md", "README.ko.md")
    ]
    code = [re.sub(r"\s*#.*", "", block) for block in blocks]
    assert code[0] == code[1]
    monkeypatch.chdir(workplace)
    small = code[0].replace('run="runs/mine"', 'run="runs/python", overrides=["train.epochs=1"]')
    variables = {}
    exec(small.replace('load("runs/mine"', 'load("runs/python"'), variables)
    assert variables["model"].translate([""]) == [""]
    assert sum(p.numel() for p in variables["gpt"].parameters()) == 124_439_808  # as published


@pytest.mark.slow
def test_python_of_the_readme_passes_a_type_checker(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "example.py").write_text(f'{code[1]}print(model.translate("a", beem=5))\n')
    words = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--cache-dir",
             ROOT / ".mypy_cache", "--config-file", ROOT / "pyproject.toml"]  # fmt: skip
    done = subprocess.run(
        [*words, tmp_path / "example.py"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    wrong = set(re.findall(r"example\.py:(\d+): error", done.stdout))
    assert wrong == {str(code[1].count("\n") + 1)}, done.stdout  # the misspelt option only


def test_the_straight_line_learns_to_say_sentences_backwards(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import straight_line

    assert straight_line.main(tmp_path, steps=400) == "f e d c b a"
