"""The command line: results on stdout, messages on stderr, exit codes; translators."""

import io
import json
import math
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console
from tiny import SMALL, write_corpus

from polyhead import __version__
from polyhead.cli.main import COMMANDS, SECTIONS
from polyhead.cli.options import complete_dir, complete_recipe
from polyhead.config import from_dict
from polyhead.models.registry import FAMILIES, find_config, list_models
from polyhead.pipelines.translator import Translator
from polyhead.training.callbacks import TrainingEnd, TrainingStart, TrainingStep, Validation
from polyhead.training.display import TrainingScreen

LINES = "민준 씨는 내일 부산에 가요.\n\n회의는 3시에 시작해요.\n"
FAST = ["--beam", "2", "--max-length", "8", "--device", "cpu"]


def timed_python(*arguments):
    """Run Python; return also its processor time, which other processes hardly change."""
    before = os.times()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    after = os.times()
    spent = after.children_user + after.children_system
    return done, spent - before.children_user - before.children_system


def test_help_and_version_do_not_import_torch():
    code = (
        "import sys\nfrom polyhead.cli.main import COMMANDS, main\n"
        "for arguments in (['--version'], [], ['data'], *([name] for name in COMMANDS)):\n"
        "    assert main(arguments if '--version' in arguments else [*arguments, '--help']) == 0\n"
        "heavy = {'torch', 'numpy', 'sentencepiece', 'sacrebleu'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done, _ = timed_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout
    for command in (*COMMANDS, "data"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    "command", [*sorted(set(COMMANDS) - {"recipes", "doctor", "demo"}), "data check", "data get"]
)
def test_help_prints_each_example_on_a_line_of_its_own(run, command):
    code, out, _ = run(*command.split(), "--help")
    examples = [line.strip() for line in out.splitlines() if line.startswith("  polyhead ")]
    assert code == 0
    assert examples
    for example in examples:
        assert example.startswith(f"polyhead {command}")
        assert example.count("polyhead") == 1


def test_bare_commands_and_help_print_the_help(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    whole = run("--help")
    assert whole[0] == 0
    assert whole[1].startswith("Usage: polyhead")
    assert "..." not in whole[1].split("Train and score:")[1]  # no description is cut
    assert run() == run("help") == whole
    assert run("data") == run("data", "--help") == run("help", "data")
    assert "..." not in run("data")[1].split("Commands:")[1]
    assert run("help", "train") == run("train", "--help")
    assert {name for names in SECTIONS.values() for name in names} == {*COMMANDS, "data"}


def test_a_text_or_a_file_can_be_an_argument(run, fail, tiny_run, tmp_path):
    path = tmp_path / "a.ko"
    path.write_text(LINES, encoding="utf-8")
    piped = run("translate", tiny_run, *FAST, stdin=LINES)
    assert run("translate", tiny_run, path, *FAST) == piped
    assert run("translate", tiny_run, "-", *FAST, stdin=LINES) == piped
    assert run("translate", tiny_run, LINES.rstrip("\n"), *FAST) == piped
    assert run("translate", tiny_run, "", *FAST) == (0, "\n", "")
    for place in ("runs/b", "b.txt"):
        fail("translate", tiny_run, place, code=2, error="not_found", mention=place)
    fail("translate", tiny_run, LINES, "--top-k", 2, code=2, error="no_effect", mention="--sample")


@pytest.mark.parametrize(
    "word", ["hello", "Hi!", "U.S.A.", "3.5", "안녕", "no/where ", "안녕" * 99]
)
def test_one_word_is_a_text(run, tiny_run, tmp_path, monkeypatch, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello").mkdir()
    assert run("translate", tiny_run, word, *FAST) == run("translate", tiny_run, *FAST, stdin=word)


@pytest.mark.parametrize(
    ("tokenizer", "code", "error"), [("nonsense", 2, "unknown_tokenizer"), ("ko-mecab", 3, None)]
)
def test_an_unusable_tokenizer_is_reported_before_anything_is_translated(
    fail, tiny_run, tmp_path, monkeypatch, tokenizer, code, error
):
    monkeypatch.setitem(sys.modules, "mecab_ko", None)
    monkeypatch.setattr(Translator, "translate", lambda *_: pytest.fail("translated"))
    path = tmp_path / "a.ko"
    path.write_text(LINES, encoding="utf-8")
    words = ["--source", path, "--target", path, "--tokenize", tokenizer]
    fail("evaluate", tiny_run, *words, code=code, error=error, mention=tokenizer)


def test_characters_that_the_locale_lacks_are_replaced():
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "", "LC_ALL": "C",
                   "PYTHONCOERCECLOCALE": "0"}  # fmt: skip
    words = [sys.executable, "-m", "polyhead", "verify", "D4", "--lang", "ko"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout[:2]) == (0, "D4"), done.stderr


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_bar_keeps_counts_and_times_at_every_width(width):
    screen, written = TrainingScreen(), io.StringIO()
    screen.console = Console(file=written, force_terminal=True, width=width, color_system=None)
    screen.on_start(TrainingStart(Path(), 0, 120, {}, {}))
    screen.on_step(TrainingStep(120, 1.2, 1.0, 0.1, 0, 99, 12345.0, 1.0))
    screen.on_validation(Validation(120, {"accuracy": 0.894}))
    screen.on_end(TrainingEnd(120, "finished", {}))
    last = [line for line in written.getvalue().split("\r") if "left" in line][-1]
    assert "120/120 0:00:00 left" in last
    assert width < 80 or "accuracy 0.894" in last  # of the last validation
    assert len(last.split("\n")[0]) <= width + 10


def test_help_takes_less_than_a_third_of_a_second():
    """Processor time; the best of several runs counts."""
    times = []
    for _ in range(8):
        done, seconds = timed_python("-m", "polyhead", "--help")
        assert done.returncode == 0
        times.append(seconds)
        if seconds < 0.3:
            break
    bare = min(timed_python("-c", "pass")[1] for _ in range(3))
    assert min(times) < max(0.3, 12 * bare), times


def test_every_input_line_gives_an_output_line(run, tiny_run):
    code, out, err = run("translate", tiny_run, *FAST, stdin=LINES + "없는 줄바꿈")
    assert (code, out.count("\n"), err) == (0, 4, "")
    assert out.split("\n")[1] == ""
    strange = "가\u2028나\n다\x0b라\x0c마\r\n바\x85\n".encode() + b"\xff\xfe bad\n"
    code, out, err = run("translate", tiny_run, *FAST, stdin=strange)
    assert (code, out.count("\n")) == (0, 4)
    assert "stdin:4: " in err
    assert "\ufffd in 1 of 4 lines" in err


@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_text_that_is_not_utf_8_needs_its_encoding(run, fail, tiny_run, encoding):
    data = LINES.encode(encoding)
    fail("translate", tiny_run, *FAST, stdin=data, code=4, error="not_utf8", mention="stdin:1:")
    expected = run("translate", tiny_run, *FAST, stdin=LINES)
    decoded = run("translate", tiny_run, *FAST, "--encoding", encoding, stdin=data)
    assert decoded[:2] == expected[:2]


def test_a_long_sentence_is_translated_in_parts_with_a_warning(run, tiny_run):
    code, out, err = run("translate", tiny_run, *FAST, stdin="부산에 가요 " * 200 + "\n내일\n")
    assert (code, out.count("\n")) == (0, 2)
    assert "line 1 of this block is longer than 256 tokens" in err


def test_sentences_of_a_line_are_translated_one_by_one(run, tiny_run):
    first, second = "내일 회의가 있어요.", "세 시에 만나요."
    lines = f"{first}\n{second}\n{first}  {second}\n"
    code, out, err = run("translate", tiny_run, *FAST, stdin=lines)
    assert code == 0, err
    alone, other, together = out.splitlines()
    assert together == f"{alone}  {other}"
    code, out, _ = run("translate", tiny_run, "--no-split", *FAST, stdin=lines)
    assert (code, out.splitlines()[:2]) == (0, [alone, other])
    assert out.splitlines()[2] != together


def test_scores_n_best_and_alignment_are_columns(run, tiny_run):
    words = ("--n-best", "2", "--scores", "--align", *FAST)
    code, out, _ = run("translate", tiny_run, *words, stdin=LINES.split("\n")[0] + "\n")
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert len(rows) == 2
    assert float(rows[0][0]) >= float(rows[1][0])
    links = [tuple(map(int, link.split("-"))) for link in rows[0][2].split()]
    assert [target for _, target in links] == list(range(len(rows[0][1].split())))


def test_json_lines_have_source_scores_and_alignment(run, tiny_run):
    words = ("--jsonl", "--align", "--n-best", "2", *FAST)
    code, out, _ = run("translate", tiny_run, *words, stdin=LINES)
    assert code == 0
    objects = [json.loads(line) for line in out.splitlines()]
    assert [o["source"] for o in objects] == LINES.splitlines()
    assert len(objects[0]["translations"]) == 2
    best = objects[0]["translations"][0]
    assert {"text", "score", "log_p", "confidence", "alignment"} == set(best)
    assert math.exp(best["log_p"]) < best["confidence"] < 1


def test_equal_seeds_give_equal_samples_and_a_prefix_is_kept(run, tiny_run):
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
    assert "both decoded with a beam of 1" in out
    assert "tok:13a" in out
    assert "p = " in out
    code, out, _ = run("evaluate", tiny_run, *files, "--json", "--output", tmp_path / "out.en")
    assert [s["name"] for s in json.loads(out)["scores"]] == ["BLEU", "chrF2"]
    assert (tmp_path / "out.en").read_text().count("\n") == 12
    code, out, _ = run("evaluate", tiny_run, *files, "--against", tmp_path / "out.en", "--json")
    assert json.loads(out)["against"][0]["p_value"] == 1.0
    code, out, _ = run("evaluate", tiny_run, *files, "--against", tiny_run, "--json")
    assert {test["p_value"] for test in json.loads(out)["against"]} == {1.0}  # decoded alike
    decoding = json.loads(out)["decoding"]
    assert (decoding["beam"], json.loads(out)["decoding_of_against"]) == (1, decoding)


def test_pairs_and_other_metrics_are_scored(run, fail, tiny_run, tmp_path):
    sides = [
        (tiny_run.parent / f"train.{end}").read_text().splitlines()[:9] for end in ("ko", "en")
    ]
    rows = "".join(f"{first}\t{second}\n" for first, second in zip(*sides, strict=True))
    path = tmp_path / "pairs.tsv"
    path.write_text(f"ko\ten\n{rows}\tno source\n", encoding="utf-8")
    for name, lines in zip(("a.ko", "a.en"), sides, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = ("--source", tmp_path / "a.ko", "--target", tmp_path / "a.en")
    words = ("--metric", "chrF", "--beam", 1)
    scored = run("evaluate", tiny_run, "--pairs", path, *words)
    assert scored[0] == 0
    assert scored[1].startswith("chrF2 ")
    assert f"{path}:11" in scored[2]  # skipped
    assert scored[:2] == run("evaluate", tiny_run, *files, *words)[:2]
    for name, mention in (("COMET", "comet-score"), ("bluu", "bleu"), ("x", "wer")):
        error = ("unknown_metric", mention)
        fail("evaluate", tiny_run, *files, "--metric", name, error=error[0], mention=error[1])


def test_attention_writes_a_page(run, tiny_run, tmp_path):
    page = tmp_path / "page.html"
    code, _, err = run("attention", tiny_run, "부산에 가요.", "--output", page)
    assert code == 0
    assert "부산에" in page.read_text(encoding="utf-8")
    assert f"written to {page}" in err


def test_a_run_is_trained_resumed_and_averaged(run, tmp_path):
    files = write_corpus(tmp_path)
    words = ("train", "small", *SMALL, "--run", tmp_path / "run",
             "--source", files["source"][0], "--target", files["target"][0])  # fmt: skip
    code, out, err = run(*words)
    assert (code, out) == (0, "")
    assert "held out" in err
    assert "use it with: polyhead translate" in err
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    modified = newest.stat().st_mtime_ns
    assert run(*words)[0] == 0  # already finished
    assert newest.stat().st_mtime_ns == modified
    code, _, err = run(*words, "train.max_tokens=300")
    assert code == 2
    assert "train.max_tokens: 400 → 300" in err
    assert run("average", tmp_path / "run", "--output", tmp_path / "mean")[0] == 0
    code, out, _ = run("translate", tmp_path / "mean", *FAST, stdin=LINES)
    assert out.count("\n") == 3


def test_show_prints_a_recipe_with_all_defaults(run, tmp_path):
    code, out, _ = run("recipes")
    assert code == 0
    for name in ("small", "base", "big", "schedules-ko-en", "multi30k-de-en", "polyhead[vision]"):
        assert name in out  # square brackets are not markup
    code, shown, _ = run("show", "base", "train.steps=7")
    assert code == 0
    assert "steps = 7" in shown
    assert "beta_2 = 0.98" in shown  # a default that the recipe does not mention
    (tmp_path / "mine.toml").write_text(shown)
    assert run("show", tmp_path / "mine.toml")[1] == shown
    code, printed, _ = run("train", "base", "train.steps=7", "--print-config")
    comments = [line for line in shown.splitlines() if line.startswith("# ")]
    assert printed == shown.removeprefix("".join(f"{line}\n" for line in comments))
    assert comments[0].startswith("# export: hf (MarianMTModel)")


def test_a_folder_or_file_named_like_a_recipe_does_not_hide_it(run, fail, tmp_path, monkeypatch):
    expected = {command: run(*command.split()) for command in ("train small --print-config",
                "show small", "train base --print-config", "show base")}  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "base").write_text("nonsense")
    assert {command: run(*command.split()) for command in expected} == expected
    fail("train", "./small", "--print-config", code=5, mention="small")
    fail("train", "./base", "--print-config", code=2, error="invalid_toml")


def test_steps_override_the_epochs_of_a_recipe(run):
    assert "epochs" in run("show", "small")[1]
    _, shown, _ = run("show", "small", "train.steps=7")
    assert "steps = 7\n" in shown
    assert "epochs" not in shown
    assert "epochs = 2" in run("show", "small", "train.epochs=2")[1]


@pytest.mark.parametrize(
    ("recipe", "settings", "name"),
    [
        ("small", ["train.steps=7", "train.epochs=2"], "train.steps"),
        ("base", ["train.schedule.rate=1e-4"], "train.schedule.rate"),
        ("small", ["train.schedule.factor=2"], "train.schedule.factor"),
        ("small", ["model.stack.window=32"], "model.stack.window"),
        ("small", ["model.stack.lsh.chunk=32"], "model.stack.lsh"),
        ("gpt2", ["model.axial.shape=[32, 32]"], "model.axial"),
    ],
)
def test_settings_without_effect_beside_others_are_refused(fail, recipe, settings, name):
    fail("show", recipe, *settings, code=2, error="no_effect", mention=name)


def test_settings_of_the_kinds_of_attention_in_use_are_accepted(run):
    assert run("show", "small-lsh", "model.stack.lsh.chunk=32")[0] == 0
    words = ("show", "small", 'model.encoder_attention=["full", "local"]', "model.stack.window=9")
    assert run(*words)[0] == 0


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
    ("arguments", "code", "error", "mention"),
    [
        (["train"], 2, "no_recipe", "polyhead recipes"),
        (["train", "smal"], 2, None, "small"),
        (["train", "small", "model.stack.n_head=3"], 2, None, "n_heads"),
        (["train", "small", "train.steps=x"], 2, None, "train.steps"),
        (["train", "small"], 2, None, "data"),
        (["train", "small", "--source", "no.ko", "--target", "no.en"], 4, None, "no.ko"),
        (["train", "--text", "a.txt"], 2, "no_recipe", "polyhead train gpt-tiny --text"),
        (["train", "--images", "photos"], 2, "no_recipe", "polyhead train vit-cifar10 --images"),
        (["translate", "nowhere"], 5, None, "nowhere"),
        (["translate"], 2, "bad_usage", "Missing"),
        (["frobnicate"], 2, "bad_usage", "'frobnicate'"),
        (["compare", "small", "--seeds", "x"], 2, "bad_usage", "'--seeds'"),
        (["compare", "small", "bases"], 2, "no_recipe", "bases"),
        (["compare", "--budget", "1s", "--systems", ","], 2, "unknown_system", "--list"),
        (["generate", "model", "--prmpt", "x"], 2, "bad_usage", "see polyhead generate --help"),
        (["train", "a man walks " * 90], 2, "file_name_too_long", "a man wa…"),
        (["train", "gpt-tiny", "--run", "run" * 90], 2, "file_name_too_long", "runrun"),
        (["data", "get", "multi3k"], 2, None, "multi30k"),
        (["data", "check"], 2, "no_input", "--pairs"),
        (["evaluate", "model", "--source", "a"], 2, "no_input", "--target"),
        (["evaluate", "model", "--data", "a", "--text", "b"], 2, "no_input", "--images"),
        (["show", "small", "train=5", "train.steps=3"], 2, None, "train"),
        (["show", "small", "train.steps=3", "train=5"], 2, None, "[train]"),
        (["show", "gpt-tiny", "model.stack.dropout=1.5"], 2, None, "model.stack.dropout = 1.5"),
        (["show", "multi30k-de-en-gnmt", "model.dropout=1"], 2, None, "model.dropout = 1"),
        (["show", "small", f"train.seed={2**63}"], 2, None, "seed = 9223372036854775808"),
        (["show", "bert", "train.steps=3"], 2, "not_a_recipe", "bert"),
        (["show", "small", "model.positions=learned", "model.max_length=64"], 2, None, "64"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    fail, tmp_path, monkeypatch, arguments, code, error, mention
):
    monkeypatch.chdir(tmp_path)
    fail(*arguments, code=code, error=error, mention=mention)
    assert not list(tmp_path.iterdir())  # nothing is written


def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "polyhead", "recipes"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "No space left on device" in done.stderr


def test_show_prints_task_size_and_configuration_of_a_model(run):
    shown = {name: run("show", name) for name in list_models()}
    assert {code for code, _, _ in shown.values()} == {0}
    for name, size in (("gpt2-xl", "1,557,611,200"), ("transformer", "")):
        family, config = find_config(name)
        assert shown[name][1].startswith(f"# {name}: {FAMILIES[family].task}, {size}")
        values = tomllib.loads(shown[name][1])["model"]
        assert values.pop("family") == family
        assert from_dict(type(config), values) == config


def test_a_closed_pipe_is_no_error(tiny_run):
    head = subprocess.run(  # noqa: S602
        f"yes 내일 | head -n 500 | {sys.executable} -m polyhead translate {tiny_run} --beam 1 "
        "--max-length 4 | head -n 1; echo ${PIPESTATUS[2]}",
        shell=True, capture_output=True, text=True, check=True, executable="/bin/bash",
    )  # fmt: skip
    assert head.stderr == ""
    assert head.stdout.splitlines()[-1] == "0"


def test_shell_completion_lists_commands():
    words = {"_POLYHEAD_COMPLETE": "complete_bash", "COMP_WORDS": "polyhead tra", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "polyhead"], env=os.environ | words, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["train", "translate"]


def test_recipes_settings_and_runs_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "mine" / "config.toml").write_text("")
    assert complete_dir("runs/") == complete_dir("runs/m") == ["runs/mine"]
    assert complete_dir("") == ["runs", "runs/mine"]
    assert complete_recipe("multi30k-en") == ["multi30k-en-de"]
    assert "train.epochs=" in complete_recipe("train.e")
