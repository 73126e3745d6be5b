"""`polyhead evaluate --processes`: the scores of one process, printed and written once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pretrained import configured, pretrain, write_labelled, write_lines
from tiny_gpt import train_gpt
from tiny_images import train_on_pictures

import polyhead
from polyhead.data.line_spool import Examples
from polyhead.metrics import perplexity
from polyhead.tasks import image_classification
from polyhead.training.trainer import train

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "RANK"},
    "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip


def in_two_processes(*words):
    command = [sys.executable, "-m", "polyhead", *map(str, words), "--processes", "2"]
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300
    )


def test_two_processes_write_the_translations_and_scores_of_one(run, tiny_run, tmp_path):
    """160 lines are two chunks: one for each process."""
    files = ("--source", tiny_run.parent / "train.ko", "--target", tiny_run.parent / "train.en")
    words = ("evaluate", tiny_run, *files, "--beam", "1", "--json", "--output")
    code, expected, _ = run(*words, tmp_path / "one.en")
    assert code == 0
    done = in_two_processes(*words, tmp_path / "two.en")
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert (tmp_path / "two.en").read_bytes() == (tmp_path / "one.en").read_bytes()
    lines = (tiny_run.parent / "train.ko").read_text(encoding="utf-8").splitlines()
    translator = polyhead.load(tiny_run, device="cpu")
    options = translator.defaults.with_options({"beam": 1})
    translations = translator.translate(lines, options=options)
    assert (tmp_path / "one.en").read_text(encoding="utf-8").splitlines() == translations


def test_two_processes_print_the_perplexity_of_one(run, tmp_path):
    model = train_gpt(tmp_path)
    text = tmp_path / "text.txt"
    text.write_text((tmp_path / "train.ko").read_text(encoding="utf-8") * 4, encoding="utf-8")
    words = ("evaluate", model, "--text", text, "--json")
    expected = run(*words)[1]
    assert json.loads(expected)["n_tokens"] > 4096  # of one batch
    done = in_two_processes(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


def test_an_error_is_reported_once(tiny_run, tmp_path):
    done = in_two_processes("evaluate", tiny_run, "--source", tmp_path / "missing.ko", "--target",
                            tiny_run.parent / "train.en")  # fmt: skip
    assert done.returncode == 4
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("polyhead: ")
    assert "missing.ko" in line


def backwards(function, batches):
    """Apply a function to the last batch first; send the results as JSON, as processes do."""
    results = [function(batches[number]) for number in reversed(range(len(batches)))]
    assert len(results) > 1
    return json.loads(json.dumps(results[::-1]))


@pytest.mark.parametrize("recipe", ["bert-tiny", "electra-tiny"])
def test_batches_of_masked_tokens_may_be_scored_anywhere(recipe, tmp_path, monkeypatch):
    model = polyhead.load(pretrain(tmp_path, recipe), device="cpu")
    lines = Path(write_lines(tmp_path)["text"][0]).read_text(encoding="utf-8").splitlines()
    monkeypatch.setattr(perplexity, "MAX_TOKENS", 300)
    examples = Examples(lines)
    scores = model.evaluate_examples(examples, map_batches=backwards)
    assert scores == model.evaluate_examples(examples)


def test_batches_of_labelled_texts_may_be_classified_anywhere(tmp_path, monkeypatch):
    files = write_labelled(tmp_path)
    train(configured("classify-small", files), tmp_path / "run")
    model = polyhead.load(tmp_path / "run", device="cpu")
    monkeypatch.setattr(perplexity, "MAX_TOKENS", 100)
    examples, _ = model.read(files["labelled"])
    results = model.classify(examples.texts, map_batches=backwards)
    assert results == model.classify(examples.texts)
    for text, result in zip(examples.texts, results, strict=True):
        (alone,) = model.classify([text])
        assert result.probabilities == pytest.approx(alone.probabilities, abs=1e-6)
    scores = model.evaluate_examples(examples, map_batches=backwards)
    assert scores == model.evaluate_examples(examples)


def test_batches_of_images_may_be_classified_anywhere(tmp_path, monkeypatch):
    pytest.importorskip("PIL.Image")
    model = polyhead.load(train_on_pictures(tmp_path), device="cpu")
    monkeypatch.setattr(image_classification, "MAX_TOKENS", 16)
    pictures = [tmp_path / "pictures"]
    assert model.evaluate(pictures, map_batches=backwards) == model.evaluate(pictures)
