"""The languages of a trained model reach clients, and can be changed without training again."""

import shutil
import urllib.error

import pytest
from expected_errors import raises
from libretranslatepy import LibreTranslateAPI
from reporters import Recorder
from safetensors.torch import load_file
from served_models import started
from tiny import SMALL

from polyhead.checkpoint.atomic_dir import verify
from polyhead.cli.main import main
from polyhead.data.schedules import generator
from polyhead.errors import CheckpointError, PolyheadError
from polyhead.pipelines.translator import Translator
from polyhead.training.config import read_run
from polyhead.training.run_dir import RunDir, languages_of, relabel
from polyhead.training.trainer import train


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Write sentence pairs in a language that is not recognized, without a header."""
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    rows = [(k.translate(SHIFT), e) for k, e in generator.generate(160, 0, 0, 3).train]
    file.write_text("".join(f"{k}\t{e}\n" for k, e in rows), encoding="utf-8")
    return str(file)


SHIFT = {code: 0x4E00 + (code - 0xAC00) % 900 for code in range(0xAC00, 0xD7A4)}  # to CJK


@pytest.fixture(scope="module")
def unnamed(pairs, tmp_path_factory):
    folder, recorder = tmp_path_factory.mktemp("unnamed") / "run", Recorder()
    train(read_run("small", SMALL, {"pairs": [pairs]}), folder, callbacks=[recorder])
    (notice,) = recorder.matching("language unknown")
    assert f"polyhead languages {folder} ko-en" in notice
    return folder


@pytest.fixture
def run(unnamed, tmp_path):
    return shutil.copytree(unnamed, tmp_path / "run", symlinks=True)


def weights(run):
    return {p.parent.name: load_file(p) for p in run.glob("checkpoints/*/model.safetensors")}


def test_a_label_is_changed_in_all_checkpoints_and_nothing_else_is(run, capsys):
    before = weights(run)
    assert main(["languages", str(run)]) == 0
    assert "polyhead languages" in capsys.readouterr().err
    assert main(["languages", str(run / "best"), "zh-en"]) == 0
    assert capsys.readouterr().out == "zh → en\n"
    checkpoints = sorted(run.glob("checkpoints/*"))
    assert len(checkpoints) >= 2
    for path in checkpoints:
        verify(path)
        assert languages_of(path) == ("zh", "en")
        card = (path / "README.md").read_text(encoding="utf-8")
        assert 'language:\n- "zh"\n- "en"\n' in card
        assert "---\n\n# A transformer model: zh to en\n" in card
    assert Translator.from_dir(run, device="cpu").languages == ("zh", "en")
    after = weights(run)
    assert all((before[n][k] == after[n][k]).all() for n in before for k in before[n])
    assert not list(run.glob("checkpoints/.tmp*"))


def test_libretranslate_clients_use_the_label(run):
    relabel(run, ("zh", "en"))
    text = "会議"
    with started(run) as process:
        client = LibreTranslateAPI(process.url)
        assert client.languages()[0] == {"code": "zh", "name": "Chinese", "targets": ["en"]}
        assert client.translate(text, "zh", "en")
        with pytest.raises(urllib.error.HTTPError):
            client.translate(text, "source", "target")


def test_a_run_is_resumed_under_a_new_label_and_keeps_it(run, pairs):
    def resume(*overrides):
        recorder = Recorder()
        train(
            read_run("small", (*SMALL, *overrides), {"pairs": [pairs]}), run, callbacks=[recorder]
        )
        return recorder

    named = ("data.source_language=zh", "data.target_language=en")
    assert resume(*named).matching("languages: zh to en")
    assert {languages_of(path) for path in run.glob("checkpoints/*")} == {("zh", "en")}
    assert resume().matching("languages: zh to en")
    assert languages_of(run) == ("zh", "en")


def test_damaged_models_and_runs_in_use_are_refused(run):
    with RunDir(run).exclusive_lock(), raises(PolyheadError, "run_in_use"):
        relabel(run, ("zh", "en"))
    best = (run / "best").resolve()
    (best / "model.safetensors").write_bytes(b"x")
    with raises(CheckpointError, "damaged"):
        relabel(run, ("zh", "en"))
    assert languages_of(run) == ("", "en")


def test_only_translators_have_languages(models, capsys):
    assert main(["languages", str(models["generate"]), "ko-en"]) == 2
    assert "gpt" in capsys.readouterr().err


def test_own_files_do_not_get_the_languages_and_columns_of_a_recipe():
    data = read_run("multi30k-de-en", (), {"pairs": ["mine.tsv"]}).data
    assert (data.source_language, data.target_language) == ("", "")
    assert read_run("classify-nsmc", (), {"labelled": ["mine.tsv"]}).data.text_key is None
