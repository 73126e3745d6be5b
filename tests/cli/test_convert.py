"""`polyhead import` and `polyhead export`."""

import json

import pytest
import torch
from foreign_models import make_gpt
from pretrained import configured, write_lines

from polyhead.training.trainer import train

pytest.importorskip("transformers")


@pytest.fixture
def theirs(tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "theirs"
    make_gpt(n_layer=1).save_pretrained(folder)
    return folder


def test_a_model_is_imported_and_exported_with_a_report(run, theirs, tmp_path):
    code, out, err = run("import", theirs, "--output", tmp_path / "ours")
    assert (code, out) == (0, f"{tmp_path / 'ours'}\n")
    assert "GPT2LMHeadModel: family gpt" in err
    assert "outputs: largest difference" in err
    assert "tokenizer: none" in err
    assert "Loading weights" not in err
    code, out, err = run("export", tmp_path / "ours", "--to", "hf", "--output", tmp_path / "again")
    assert (code, out) == (0, f"{tmp_path / 'again'}\n")
    assert "outputs: largest difference" in err
    assert json.loads((tmp_path / "again" / "config.json").read_text())["model_type"] == "gpt2"


def test_a_model_without_a_tokenizer_cannot_generate(run, fail, theirs, tmp_path):
    run("import", theirs, "--output", tmp_path / "ours")
    fail("generate", tmp_path / "ours", "--prompt", "once", code=5, mention="tokenizer")


@pytest.mark.parametrize(
    ("arguments", "code", "mention"),
    [
        (("import", "{theirs}", "--output", "{theirs}"), 2, "{theirs}"),
        (("import", "{here}/no/such", "--output", "{here}/x"), 5, "no/such"),
        (("import", "{theirs}", "--output", "{here}/x", "--family", "bert"), 2, "vit"),
        (("export", "{theirs}", "--output", "{here}/x"), 5, "manifest.json"),
        (("export", "{here}/ours", "--to", "nothing", "--output", "{here}/x"), 2, "hf"),
        (("import", "{theirs}"), 2, "'--output'"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(fail, theirs, tmp_path, arguments, code, mention):
    places = {"theirs": theirs, "here": tmp_path}
    arguments = [argument.format(**places) for argument in arguments]
    fail(*arguments, code=code, mention=mention.format(**places))


def test_an_export_names_every_setting_that_the_other_library_lacks(run, fail, tmp_path):
    lines = write_lines(tmp_path)
    odd = ("model.stack.norm=post", "model.positions=sinusoidal", "model.stack.d_k=4")
    train(configured("bert-tiny", lines, *odd), tmp_path / "odd")
    classic = ("model.stack.norm=post", "model.positions=learned")
    train(configured("bert-tiny", lines, *classic), tmp_path / "post")
    _, _, line = fail("export", tmp_path / "odd", "--output", tmp_path / "a", code=5)
    for word in ("d_k", "8", "positions", "learned"):
        assert word in line
    assert run("export", tmp_path / "post", "--output", tmp_path / "b")[0] == 0
