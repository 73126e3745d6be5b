"""Every option of every command changes something, or is refused with a code.

The options are those of the parsers: a new one without a value in VALUES fails.
"""

import hashlib
import shutil
from pathlib import Path

import pytest
from pretrained import configured, pretrain, write_labelled
from text_heads import write_rows
from tiny_gpt import train_gpt
from tiny_images import train_on_pictures, write_pictures
from token_data import write_questions, write_tagged
from typer import Exit

from polyhead.cli import main as program
from polyhead.convert.model_export import export_model
from polyhead.errors import DataError
from polyhead.experiments import plan
from polyhead.training.run_dir import RunDir
from polyhead.training.trainer import train

EVERYWHERE = {"device", "processes", "engine", "compute_type"}  # change how, not what is computed
REFUSED = {
    "no_effect", "wrong_task", "no_input", "conflicting_options", "no_lsh_attention", "no_pairs",
    "out_of_range", "wrong_data", "init_family", "bad_line", "no_data", "unequal_files",
    "no_plan", "budget_missing", "unknown_baseline", "unknown_system", "incomplete_test",
    "unknown_language", "out_of_memory", "fixed_systems", "unknown_word", "mismatched_halves",
    "missing_weight",
}  # fmt: skip
OF_THE_TEXT = {"coverage", "replace_unknown"}  # words that are unknown or left out change
FLAG = None
VALUES = {  # of each option; names in braces are files
    "source": "{ko}", "target": "{en}", "text": "{ko}", "data": "{labels}", "pairs": "{pairs}",
    "images": "{pictures}", "against": "{en}", "lowercase": FLAG, "tokenize": "char",
    "metric": "wer", "beam": "2", "length_penalty": "3", "rounds": "3", "as_generated": FLAG,
    "size": "13", "output": "{output}", "json_out": FLAG, "encoding": "utf-16", "coverage": "2",
    "replace_unknown": FLAG, "dictionary": "{pairs}", "sample": FLAG, "temperature": "3",
    "top_k": "1", "top_p": "0.1", "n_best": "3", "max_length": "1", "scores": FLAG,
    "no_split": FLAG, "prefix": "Anna", "align": FLAG, "jsonl": FLAG, "seed": "9",
    "prompt": "오늘", "max_tokens": "1", "greedy": FLAG, "stop": "{last}", "n": "2", "tokens": FLAG,
    "pair": "word", "top": "2", "threshold": "0.001", "context": "Anna 57.",
    "similar_to": "Anna", "valid_source": "{ko}", "valid_target": "{en}", "valid_text": "{en}",
    "valid_pairs": "{pairs}", "valid_data": "{labels}", "valid_images": "{pictures}",
    "source_column": "2", "target_column": "1", "text_column": "2", "text_pair_column": "1",
    "label_column": "1", "languages": "de-en", "init": "{language_modeling}",
    "on_bad_line": "fail",
}  # fmt: skip
TRAINED = {  # task: recipe and input of `train`
    "translation": ("small", "--source", "{bad_ko}", "--target", "{bad_en}"),
    "translation of pairs": ("small", "--pairs", "{bad_pairs}"),
    "language_modeling": ("gpt-tiny", "--text", "{bad_ko}"),
    "masked_lm": ("bert-tiny", "--text", "{bad_ko}"),
    "replaced_token": ("electra-tiny", "--text", "{bad_ko}"),
    "text_classification": ("classify-small", "--data", "{bad_labels}"),
    "token_classification": ("tagger-small", "--data", "{bad_tags}"),
    "question_answering": ("qa-small", "--data", "{bad_questions}"),
    "sentence_embedding": ("embed-small", "--pairs", "{bad_pairs}"),
    "graded pairs": ("embed-small", "--data", "{bad_graded}"),
    "image_classification": ("vit-cifar10", "--images", "{bad_pictures}"),
}  # fmt: skip
VALUES |= {  # of commands without a model
    "length": "9", "only_list": FLAG, "lang": "ko", "explain": "B4", "html": "{output}.html",
    "sort": "task", "condition": "task=translation", "form": "csv",
    "sentence": "2", "kind": "decoder", "layer": "1", "head": "1", "lines": FLAG, "word": "빈",
    "merge": FLAG, "last": "1", "sentences": "{two}", "report_sentences": "1",
    "generator": "{exported}", "family": "vit", "test_source": "{ko}", "test_target": "{en}",
}  # fmt: skip
WITHOUT_OPTIONS = {"recipes", "show", "languages", "doctor"}
LEFT_OUT = {"serve", "demo"}  # run on, or for minutes: see tests/server and test_demo
COMPARED = {  # options of `compare`
    "vary": "data.hold_out=5,6", "plan": "{ko}", "budget": "9m", "steps": "9",
    "systems": "lstm", "seeds": "2", "baseline": "lstm", "ensemble": "lstm+transformer",
    "scale": "paper", "metric": "wer", "test_source": "{ko}", "test_target": "{en}",
    "test_pairs": "{pairs}", "test_text": "{en}", "test_data": "{labels}",
    "test_images": "{pictures}", "lang": "nn",
}  # fmt: skip
OF_ONE_CALL = ("fresh", "accept_changes", "print_config", "log_to", "progress", "run")
EVALUATED = {  # task: the input of `evaluate`
    "translation": ("--source", "{ko}", "--target", "{en}"),
    "language_modeling": ("--text", "{ko}"), "masked_lm": ("--text", "{ko}"),
    "replaced_token": ("--text", "{ko}"),
    "text_classification": ("--data", "{labels}"), "token_classification": ("--data", "{tags}"),
    "question_answering": ("--data", "{questions}"), "sentence_embedding": ("--pairs", "{pairs}"),
    "image_classification": ("--images", "{pictures}"),
}  # fmt: skip


@pytest.fixture(scope="module")
def places(tiny_run, text_heads, tmp_path_factory):
    """Return a model for each task, and files by the names in braces."""
    folder = tmp_path_factory.mktemp("options")
    found = {
        "folder": folder,
        "output": folder / "output",
        "pictures": folder / "pictures",
        "run": folder / "new",
    }
    for end in ("ko", "en"):
        lines = (tiny_run.parent / f"train.{end}").read_text(encoding="utf-8").splitlines()[:6]
        found[end] = folder / f"few.{end}"
        found[end].write_text("\n".join(lines) + "\n", encoding="utf-8")
    found["two"] = folder / "two.ko"
    found["two"].write_text("내일 회의가 있어요. 부산에 가요.\n", encoding="utf-8")
    labelled = write_labelled(folder)
    found["labels"] = folder / "valid.tsv"
    found["tags"] = write_tagged(folder / "tags.conll", 20)
    found["questions"] = write_questions(folder / "questions.jsonl", 20)
    found["pairs"] = write_rows(folder, "sentences")
    for recipe, name in (("tagger-small", "tags"), ("qa-small", "questions")):
        files = {"labelled": [str(found[name])]}
        train(configured(recipe, files, "data.max_length=32"), folder / recipe)
    train(configured("classify-small", labelled), folder / "classifier")
    whole = {end: tiny_run.parent / f"train.{end}" for end in ("ko", "en")}
    whole |= {name: found[name] for name in ("labels", "tags", "questions", "pairs")}
    whole["graded"] = found["graded"] = write_rows(folder, "graded")
    for name, path in whole.items():
        found[f"bad_{name}"] = folder / f"bad-{path.name}"
        found[f"bad_{name}"].write_bytes(path.read_bytes() + b"\xff\n")
    found["bad_pictures"] = write_pictures(folder / "bad-pictures")
    (found["bad_pictures"] / "red" / "bad.png").write_bytes(b"\xff")
    found |= {
        "translation": tiny_run, "language_modeling": train_gpt(tmp_path_factory.mktemp("gpt")),
        "masked_lm": pretrain(folder, "bert-tiny"),
        "replaced_token": pretrain(folder, "electra-tiny"),
        "text_classification": folder / "classifier",
        "token_classification": folder / "tagger-small",
        "question_answering": folder / "qa-small", "sentence_embedding": text_heads["sentences"],
        "image_classification": train_on_pictures(folder),
    }  # fmt: skip
    export_model(Path(found["masked_lm"]), folder / "exported", to="hf")
    found["exported"] = folder / "exported"
    return {name: str(place) for name, place in found.items()}


def options_of(command):
    """Return the options of a command's parser, by the names of its parameters."""
    name, *below = command.split()
    found = program.program(name).commands[name]
    parameters = (found.commands[below[0]] if below else found).params
    return {p.name: p.opts[0] for p in parameters if p.opts[0].startswith("--")}


def check_options(run, places, monkeypatch, command, base, *, stdin="", values=VALUES, skip=()):
    """Run a command with each option, and compare outputs with those of the command alone."""
    codes, report = [], program.report
    monkeypatch.setattr(program, "report", lambda e, code: codes.append(e.code) or report(e, code))
    base = [word.format(**places) for word in base]

    def use(*words):
        for made in Path(places["folder"]).glob("output*"):
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        codes.clear()
        code, out, err = run(*command.split(), *base, *words, stdin=stdin)
        made = sorted(p for p in Path(places["folder"]).glob("output*/**/*.*") if p.is_file())
        made += sorted(p for p in Path(places["folder"]).glob("output*") if p.is_file())
        return (
            code,
            "".join([out, *(hashlib.sha256(p.read_bytes()).hexdigest() for p in made)]),
            err,
        )

    (alone, expected, message), ignored = use(), []
    assert alone == 0, message
    for name, option in options_of(command).items():
        if name in (*EVERYWHERE, *skip, "help") or option in base:
            continue
        value = values[name]
        last = expected.strip()[-1:]
        words = [option] if value is FLAG else [option, value.format(**places, last=last)]
        code, out, err = use(*words)
        if code:
            is_used = code == DataError.exit_code or name == "size"  # it does not fit
            ignored += [] if is_used or codes[-1] in REFUSED else [(option, *codes, err)]
        elif out == expected and name not in ("output", *OF_THE_TEXT):
            ignored.append(option)
    return ignored


@pytest.mark.parametrize("task", EVALUATED)
def test_evaluate_uses_or_refuses_every_option(run, places, monkeypatch, task):
    base = (f"{{{task}}}", *EVALUATED[task], *(["--beam", "1"] * (task == "translation")))
    assert check_options(run, places, monkeypatch, "evaluate", base) == []


@pytest.mark.parametrize(
    ("command", "base", "stdin"),
    [
        ("translate", ("{translation}", "{two}", "--scores"), ""),
        ("generate", ("{language_modeling}", "오늘은"), ""),
        ("classify", ("{text_classification}", "{ko}", "--jsonl"), ""),
        ("fill", ("{masked_lm}", "오늘 [MASK]"), ""),
        ("detect", ("{replaced_token}", "오늘 왔다."), ""),
        ("tag", ("{token_classification}", "{ko}"), ""),
        ("answer", ("{question_answering}", "몇 번?", "--context", "{ko}", "--jsonl"), ""),
        ("embed", ("{sentence_embedding}", "{ko}", "--output", "{output}.npy"), ""),
        ("answer", ("{question_answering}", "몇 번?", "--context", "{ko}"), ""),
        ("cost", ("gpt-tiny",), ""),
        ("verify", ("B3",), ""),
        ("runs", ("{folder}",), ""),
        ("attention", ("{translation}", "{two}", "--output", "{output}.svg"), ""),
        ("average", ("{translation}", "--output", "{output}"), ""),
        ("export", ("{translation}", "--to", "ctranslate2", "--output", "{output}"), ""),
        ("import", ("{exported}", "--output", "{output}"), ""),
        ("data check", ("--source", "{ko}", "--target", "{en}"), ""),
        ("data check", ("--pairs", "{pairs}"), ""),
        ("data check", ("--data", "{labels}"), ""),
    ],
)
def test_commands_use_or_refuse_every_option(run, places, monkeypatch, command, base, stdin):
    values = VALUES | ({"threshold": "-1000"} if command == "answer" else {})
    values |= {"tokens": "9"} if command == "cost" else {}
    values |= {"target": "{en}"} if command == "attention" else {}
    skip = ("compare",) if command == "runs" else ()  # takes two values
    ignored = check_options(
        run, places, monkeypatch, command, base, stdin=stdin, values=values, skip=skip
    )
    assert ignored == []


def test_a_seed_is_refused_with_greedy_search(fail, places):
    model, error = places["language_modeling"], "conflicting_options"
    fail("generate", model, "오늘", "--greedy", "--seed", "1", error=error, mention="--seed")


def test_every_command_is_tried_or_left_out_on_purpose():
    (mark,) = test_commands_use_or_refuse_every_option.pytestmark
    tried = {command for command, *_ in mark.args[1]} | {"evaluate", "train", "compare"}
    assert {c.split()[0] for c in tried} | LEFT_OUT | WITHOUT_OPTIONS == {*program.COMMANDS, "data"}
    assert not any(map(options_of, WITHOUT_OPTIONS))


@pytest.mark.parametrize("task", TRAINED)
def test_train_uses_or_refuses_every_option(run, places, monkeypatch, task):
    def stop(_run, fingerprints, _valid):
        print(fingerprints)
        raise Exit

    monkeypatch.setattr(RunDir, "start", lambda _run, c, **_: print(c.data.source_language))
    monkeypatch.setattr(RunDir, "record_data", stop)
    base = (*TRAINED[task], "--run", "{run}")
    values = VALUES | {f"valid_{base[1][2:]}": base[2].replace("bad_", "")}
    ignored = check_options(
        run, places, monkeypatch, "train", base, values=values, skip=OF_ONE_CALL
    )
    assert ignored == []


@pytest.mark.parametrize("task", TRAINED)
def test_compare_uses_or_refuses_every_option(run, places, monkeypatch, tmp_path, task):
    def stop(p):
        print(p.base, p.test, p.systems, p.metric, p.ensembles, p.request.seeds, p.request.budget)
        print(p.test or [p.stage(system, 1, 0) for system in p.systems])
        raise Exit

    monkeypatch.setattr(plan, "check_same_plan", stop)
    words = [word.replace("bad_", "") for word in TRAINED[task]]
    vary = () if words[0] == "small" else ("--vary", "data.hold_out=5,6")
    base = (*words, *vary, "--steps", "5", "--run", str(tmp_path / "run"))
    values = VALUES | COMPARED
    values |= {f"valid_{words[1][2:]}": words[2]}
    read = plan.READ.get(task, plan.READ["sentence_embedding"]).replace("labelled", "data").split()
    skip = ("run", "list_only", *(f"test_{name}" for name in read if vary))  # after training
    ignored = check_options(run, places, monkeypatch, "compare", base, values=values, skip=skip)
    assert ignored == []
