"""The frame of all exports: texts, figures, card, and what is refused."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree

import pytest
import yaml
from expected_errors import raises
from foreign_models import SIZES, write_theirs
from pretrained import configured, write_labelled, write_lines
from sacrebleu.metrics import CHRF
from tiny import train_tiny
from tiny_images import train_on_pictures

import polyhead
from polyhead.checkpoint.model_dir import load_model
from polyhead.cli.main import main
from polyhead.convert import onnx_graphs
from polyhead.convert.conversion import import_model
from polyhead.convert.model_export import ReportConfig, export_model
from polyhead.convert.parity_report import find_texts
from polyhead.convert.target_types import Reader
from polyhead.convert.targets import TARGETS
from polyhead.errors import CheckpointError, ConfigError, MissingError
from polyhead.training.config import read_run
from polyhead.training.trainer import train

pytest.importorskip("transformers")
HF = TARGETS["hf"]
TEXT = "내일 회의가 있어요."
SAMPLES = {
    "tagger-small": '{"tokens": ["Ada", "wrote"], "tags": ["B-PER", "O"]}',
    "qa-small": '{"question": "Who?", "context": "Ada wrote it.", '
    '"answers": [{"text": "Ada", "answer_start": 0}]}',
}


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return train_tiny(tmp_path_factory.mktemp("mt"), overrides=("model.stack.norm=post",))


def make_run(kind, folder, *more):
    """Train a tiny model that transformers can express."""
    if kind == "vit":
        pytest.importorskip("PIL")
        return train_on_pictures(folder)
    if kind == "classifier":
        stack = ("model.encoder.stack.norm=post", "model.encoder.positions=learned",
                 "model.pooling=first", "model.head=bert")  # fmt: skip
        config = configured("classify-small", write_labelled(folder), *stack, *more)
    else:
        sizes = ("text.vocab=700", "train.steps=4", "train.max_tokens=300", "model.max_length=64",
                 "model.positions=learned", "data.max_length=64")  # fmt: skip
        stack = ("n_layers=1", "d_model=16", "n_heads=2", "d_ff=24")
        names = (*sizes, *(f"model.stack.{size}" for size in stack))
        config = read_run("gpt-tiny", (*names, *more), write_lines(folder))
    train(config, folder / "run")
    return folder / "run"


def test_a_runs_held_out_pairs_are_translated_by_both_models(translator, tmp_path):
    report = export_model(translator, tmp_path / "out")
    figures = report.figures
    assert (figures.origin, figures.n_texts) == ("sentences held out by the run", 8)
    assert set(figures.equal.values()) == {8}
    assert len(figures.equal) == 3
    assert figures.parity.difference < 1e-4
    assert figures.scores.keys() == {"BLEU", "chrF2"}
    assert all(speed > 0 for speed in figures.speed)
    size = sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) / 1e6
    assert figures.megabytes[1] == pytest.approx(size, rel=0.1)


def test_scores_are_those_of_evaluate(translator, tmp_path):
    pairs = [("내일 만나요.", "see you tomorrow."), ("오늘 회의가 있어요.", "a meeting today.")]
    file = tmp_path / "test.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    options = ReportConfig(file=file)
    figures = export_model(translator, tmp_path / "out", report=options).figures
    assert (figures.origin, figures.n_texts) == ("sentences of test.tsv", 2)
    model = polyhead.load(translator, device="cpu")
    decode = replace(model.defaults, beam=4, length_penalty=0.0, split_sentences=False)
    outputs = model.translate([source for source, _ in pairs], options=decode)
    expected = CHRF().corpus_score(outputs, [[target for _, target in pairs]]).score
    assert figures.scores["chrF2"] == pytest.approx((expected, expected))


@pytest.mark.parametrize(
    ("kind", "scores", "origin"),
    [
        ("gpt", {"perplexity"}, "sentences held out"),
        ("classifier", {"accuracy in %"}, "sentences held out"),
        ("vit", {"accuracy in %"}, "images held out"),
    ],
)
def test_other_models_are_compared_on_held_out_data(kind, scores, origin, tmp_path):
    run = make_run(kind, tmp_path)
    figures = export_model(run, tmp_path / "out").figures
    assert figures.origin.startswith(origin)
    assert figures.equal == {"within 0.0001": figures.n_texts}
    assert figures.scores.keys() == scores
    ours, theirs = next(iter(figures.scores.values()))
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert polyhead.load(run, device="cpu").export("hf", tmp_path / "again") == tmp_path / "again"


@pytest.mark.parametrize("kind", ["gpt", "classifier", "tagger-small", "qa-small"])
def test_held_out_texts_stay_with_the_run_when_its_data_are_gone(kind, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    if kind in SAMPLES:
        rows = [SAMPLES[kind].replace("Ada", f"A{i}d") + "\n" for i in range(30)]
        Path("rows.jsonl").write_text("".join(rows), encoding="utf-8")
        train(configured(kind, {"labelled": ["rows.jsonl"]}, "text.vocab=300"), tmp_path / "run")
    else:
        make_run(kind, tmp_path / "data").rename(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    rmtree("data")
    saved = load_model(Path("run"))
    texts = find_texts(saved, Path("run"), longest=60)
    assert texts == find_texts(saved, Path("run/best"), longest=60)
    assert texts.origin == "sentences held out by the run"
    assert set(texts.references) == (set(saved.about["classes"]) if kind == "classifier" else set())
    Path("run/held-out.jsonl").write_text("[1", encoding="utf-8")
    assert "random ids" in find_texts(saved, Path("run"), longest=60).origin


def test_a_model_outside_a_run_is_compared_on_random_ids(translator, tmp_path):
    copytree((translator / "best").resolve(), tmp_path / "alone")
    report = export_model(tmp_path / "alone", tmp_path / "out", report=ReportConfig(texts=5))
    assert report.figures.origin.startswith("texts of random ids")
    assert report.figures.n_texts == 5
    assert report.figures.scores == {}
    none = export_model(tmp_path / "alone", tmp_path / "bare", report=ReportConfig(texts=0))
    assert none.figures is None


@pytest.mark.parametrize("pad", [1, 5, 22])  # 1 is our BOS, 22 the last id
@pytest.mark.parametrize("target", ["hf", "ctranslate2"])
def test_a_model_without_a_tokenizer_may_have_any_padding_id(target, pad, tmp_path):
    hf = pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    theirs = hf.BertForSequenceClassification(hf.BertConfig(**SIZES, pad_token_id=pad))
    import_model(str(write_theirs(theirs, tmp_path / "theirs")), tmp_path / "ours")
    figures = export_model(tmp_path / "ours", tmp_path / "out", to=target).figures
    assert figures.equal == {"within 0.0001": 32}


def wrong(saved, folder, kind):
    """Return a reader with one wrong translation, and log-probabilities that are too small."""
    right = HF.open(saved, folder, kind)
    seen = []

    def search(sources, beam, limit):
        outputs = right.search(sources, beam, limit)
        outputs[0] = [*outputs[0], 9] if beam == 1 and not seen else outputs[0]
        seen.append(beam)
        return outputs

    return Reader(lambda examples: [log_p - 0.01 for log_p in right.outputs(examples)], search)


def test_differences_are_refused_in_float32_and_counted_in_int8(translator, tmp_path, monkeypatch):
    target = replace(HF, open=wrong, compute_types=("float32", "int8"))
    monkeypatch.setitem(TARGETS, "hf", target)
    with raises(CheckpointError, "parity_failed", "MarianMTModel", "1.0e-02"):
        export_model(translator, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    figures = export_model(translator, tmp_path / "out", compute_type="int8").figures
    assert list(figures.equal.values()) == [7, 8, 0]
    assert figures.parity.difference == pytest.approx(0.01, rel=1e-3)
    with raises(ConfigError, "invalid_option", "--compute-type int4", "int8"):
        export_model(translator, tmp_path / "other", compute_type="int4")


def test_missing_packages_are_named_before_anything_is_read(tmp_path, monkeypatch):
    target = replace(HF, packages=("no_such_package",), extra="fast")
    monkeypatch.setitem(TARGETS, "hf", target)
    with raises(MissingError, "missing_package", "pip install", "ctranslate2"):
        export_model(tmp_path / "none", tmp_path / "out")


def command(capsys, *arguments):
    """Run `polyhead export` and return what it says."""
    assert main(["export", *map(str, arguments)]) == 0
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "equal"),
    # greedy search, beam search, log-probabilities; CTranslate2's beam search ends earlier than
    # ours, so that outputs of a model that has learnt nothing may differ
    [("hf", 3), ("ctranslate2", 2), ("ctranslate2 --compute-type int8", 0), ("argos", 2)],
)
def test_a_translator_is_exported_by_the_command(options, equal, translator, tmp_path, capsys):
    target = options.split()[0]
    for package in TARGETS[target].packages:
        pytest.importorskip(package)
    said = command(capsys, translator, "--output", tmp_path / "out", "--to", *options.split())
    assert said.count("8 of 8") >= equal
    assert "chrF2" in said
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "8 sentences held out by the run" in card
    assert yaml.safe_load(card.split("---")[1])["library_name"] == TARGETS[target].library


@pytest.mark.parametrize(
    ("kind", "target"),
    [("gpt", "ctranslate2"), ("gpt", "gguf"), ("classifier", "ctranslate2"), ("vit", "onnx")],
)
def test_other_models_are_exported_by_the_command(kind, target, tmp_path, capsys):
    for package in TARGETS[target].packages:
        pytest.importorskip(package)
    words = [make_run(kind, tmp_path), "--to", target, "--output", tmp_path / "out"]
    if target == "onnx":
        try:
            onnx_graphs.check_torch()
        except MissingError as error:
            pytest.skip(str(error))
        # graphs cannot be traced while shapes are checked
        line = [sys.executable, "-m", "polyhead", "export", *map(str, words)]
        said = subprocess.run(line, capture_output=True, check=True, encoding="utf-8").stderr
    else:
        said = command(capsys, *words)
    difference = re.search(r"largest difference of outputs: (\S+)", said)
    assert float(difference[1]) < 1e-4 if target != "gguf" else "tensors were read again" in said
    assert ("writing model.onnx" in said) == (target == "onnx")
    assert (tmp_path / "out" / "README.md").exists()


def run_card(folder, monkeypatch, capsys, *changes):
    """Run the code of a card with some changes; return what it prints."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.S)
    monkeypatch.chdir(folder.parent)
    for old, new in (("TEXT", TEXT), *changes):
        assert old in code or old == "TEXT"
        code = code.replace(old, new)
    exec(compile(code, "card", "exec"), {})
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(("target", "joint"), [("hf", 1), ("ctranslate2", 1), ("ctranslate2", 0)])
def test_the_code_of_the_card_runs(target, joint, translator, tmp_path, monkeypatch, capsys):
    for package in TARGETS[target].packages:
        pytest.importorskip(package)
    if not joint:
        separate = ("text.joint=false", "model.tie=target")
        translator = train_tiny(tmp_path, overrides=separate)
    export_model(translator, tmp_path / "out", to=target, report=ReportConfig(2))
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    matter = yaml.safe_load(card.split("---")[1])
    assert matter["language"] == ["ko", "en"]
    assert "licence of the training data" in card
    (code,) = re.findall(r"```python\n(.*?)```", card, re.S)
    assert code.count("\n") == 5
    assert run_card(tmp_path / "out", monkeypatch, capsys)


def test_the_code_of_the_card_decodes_with_the_second_vocabulary(tmp_path, monkeypatch, capsys):
    separate = ("text.joint=false", "model.tie=target", "model.stack.norm=post", "text.kind=words")
    run = train_tiny(tmp_path, overrides=separate)
    export_model(run, tmp_path / "out", report=ReportConfig(2))
    options = polyhead.DecodeConfig(beam=1, max_length=8)
    expected = polyhead.load(run, engine="torch").translate([TEXT], options=options)
    greedy = ("num_beams=4", "num_beams=1, max_new_tokens=8")
    assert run_card(tmp_path / "out", monkeypatch, capsys, greedy) == str(expected)


@pytest.mark.parametrize("kind", ["translator", "gpt", "classifier"])
def test_a_card_without_a_tokenizer_uses_ids(kind, tmp_path, monkeypatch, capsys):
    pytest.importorskip("ctranslate2")
    letters = ("text.kind=characters", "text.vocab=300")
    if kind == "translator":
        run = train_tiny(tmp_path, overrides=letters)
    else:
        run = make_run(kind, tmp_path, *letters)
    export_model(run, tmp_path / "out", to="ctranslate2", report=ReportConfig(2))
    assert not list((tmp_path / "out").glob("*.model"))
    assert re.fullmatch(r"[\[(][\d, ]+[\])]", run_card(tmp_path / "out", monkeypatch, capsys))
