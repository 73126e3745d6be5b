"""`polyhead import` and `polyhead export` as a shell calls them."""

import json

import pytest
import torch
from pretrained import configured, write_lines

from polyhead.cli.main import main
from polyhead.training.trainer import train

hf = pytest.importorskip("transformers")


@pytest.fixture
def run(capfd):
    def call(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def theirs(tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "theirs"
    sizes = {"n_embd": 12, "n_layer": 1, "n_head": 3, "n_positions": 13}
    hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=29, **sizes)).save_pretrained(folder)
    return folder


def test_there_and_back_with_a_report(run, theirs, tmp_path, capfd):
    capfd.readouterr()
    code, out, err = run("import", theirs, "--output", tmp_path / "ours")
    assert (code, out) == (0, f"{tmp_path / 'ours'}\n")
    assert "GPT2LMHeadModel: our family gpt" in err
    assert "outputs: the largest difference is" in err
    assert "none in the folder: the model knows ids, not text" in err
    assert "Loading weights" not in err
    code, out, err = run("export", tmp_path / "ours", "--to", "hf", "--output", tmp_path / "again")
    assert (code, out) == (0, f"{tmp_path / 'again'}\n")
    assert "outputs: the largest difference is" in err
    assert json.loads((tmp_path / "again" / "config.json").read_text())["model_type"] == "gpt2"


def test_a_model_without_a_tokenizer_says_so_when_it_should_write(run, theirs, tmp_path):
    run("import", theirs, "--output", tmp_path / "ours")
    code, _, err = run("generate", tmp_path / "ours", "--prompt", "once")
    assert code == 5
    assert "has no tokenizer" in err


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("import", "{theirs}", "--output", "{theirs}"), 2, "already exists. Choose another"),
        (("import", "{here}/no/such", "--output", "{here}/x"), 5, "there is no folder"),
        (("import", "{theirs}", "--output", "{here}/x", "--family", "bert"), 2, "only vit can be"),
        (("export", "{theirs}", "--output", "{here}/x"), 5, "it has no manifest.json"),
        (("export", "{here}/ours", "--to", "onnx", "--output", "{here}/x"), 2, "expected hf (Hugg"),
        (("import", "{theirs}"), 2, "Missing option '--output'"),
    ],
)
def test_mistakes_are_one_line_and_the_right_code(words, code, line, run, theirs, tmp_path):
    found, out, err = run(*(word.format(theirs=theirs, here=tmp_path) for word in words))
    assert (found, out) == (code, "")
    assert line in err
    assert err.splitlines()[-1].startswith("polyhead: ")


def test_help_has_examples(run):
    for command in ("import", "export"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"polyhead {command} " in out


def test_what_cannot_be_written_is_told_with_all_that_would_have_to_be_different(run, tmp_path):
    """The embedded recipes have what is better today than in the papers; exports say so."""
    lines = write_lines(tmp_path)
    train(configured("bert-tiny", lines), tmp_path / "pre")
    classic = ("model.stack.norm=post", "model.positions=learned")
    train(configured("bert-tiny", lines, *classic), tmp_path / "post")
    code, _, err = run("export", tmp_path / "pre", "--output", tmp_path / "a")
    assert code == 5
    assert err.splitlines()[-1] == (
        "polyhead: norm = 'pre': Hugging Face's model of this family has only 'post'. Retrain "
        "with norm = 'post' and positions = 'learned' to export it."
    )
    assert run("export", tmp_path / "post", "--output", tmp_path / "b")[0] == 0
