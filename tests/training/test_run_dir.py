"""Run directories: one process at a time, fixed configuration and data, foreign files untouched."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from expected_errors import raises
from reporters import stop_at
from tiny import SMALL, write_corpus

from polyhead.errors import ConfigError, DataError, PolyheadError
from polyhead.training.config import read_run
from polyhead.training.run_dir import RunDir
from polyhead.training.trainer import train


@pytest.fixture
def files(tmp_path):
    return write_corpus(tmp_path, n=60)


@pytest.fixture
def make(files):
    def configure(*overrides, **changes):
        settings = (*SMALL, "train.bleu_sentences=0", "train.steps=6", *overrides)
        return read_run("small", settings, files | changes)

    return configure


@pytest.fixture
def run(make, tmp_path):
    """The directory of a run that was interrupted at its second step."""
    train(make(), tmp_path / "run", callbacks=[stop_at(2)])
    return tmp_path / "run"


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def assert_refused(config, folder, code, *mentions, kind=ConfigError, **options):
    """Expect an error that leaves the directory unchanged; return its message."""
    before = contents(folder)
    with raises(kind, code, *mentions) as caught:
        train(config, folder, **options)
    assert contents(folder) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Configuration and data


def test_a_changed_configuration_is_refused_with_its_differences(make, run):
    config = make("train.smoothing=0.3", "train.schedule.rate=0.5", "decode.beam=2")
    mentions = ("train.smoothing: 0.1 → 0.3", "train.schedule.rate: 0.001 → 0.5", "decode.beam: ",
                "--accept-changes", "--fresh")  # fmt: skip
    assert_refused(config, run, "config_changed", *mentions)


def test_changes_of_training_and_decoding_can_be_accepted(make, run):
    config = make("train.smoothing=0.3", "decode.beam=2", "train.steps=4")
    assert train(config, run, accept_changes=True).step == 4
    assert "smoothing = 0.3" in (run / "config.toml").read_text()
    log = (run / "train.log").read_text()
    assert "changed configuration: train.steps: 6 → 4; train.smoothing" in log
    train(config, run)  # now the configuration of the run
    assert_refused(make(), run, "config_changed")


@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("model.stack.d_ff=64", "model.stack.d_ff: 32 → 64"),
        ("text.vocab=800", "text.vocab: 900 → 800"),
        ("data.max_length=99", "data.max_length: 256 → 99"),
        ("train.seed=9", "train.seed: 1 → 9"),
    ],
)
def test_data_text_model_and_seed_cannot_change(make, run, override, change):
    for accept in (False, True):
        config = make(override)
        message = assert_refused(config, run, "config_changed", change, accept_changes=accept)
        assert "--accept-changes" not in message


def test_workers_kept_checkpoints_and_description_may_change(make, run):
    config = replace(
        make("train.workers=1", "train.keep=9", "train.timeout=60"), description="other words"
    )
    assert train(config, run).step == 6


def test_a_run_of_an_earlier_version_without_newer_options_is_resumed(make, run):
    path = run / "config.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("norm_eps", "patience", "activation_d"))]
    assert len(kept) == len(lines) - 3
    path.write_text("\n".join(kept), encoding="utf-8")
    train(make("train.steps=4"), run, accept_changes=True)
    kept.insert(kept.index("[model.stack]") + 1, "norm_eps = 0.5")
    path.write_text("\n".join(kept), encoding="utf-8")
    assert_refused(make(), run, "config_changed", "norm_eps")


def test_a_run_with_the_former_rule_of_holding_out_is_resumed_with_that_rule(make, run):
    path = run / "config.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('hold_out_by = "either"\n', ""), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    assert_refused(make(), run, "config_changed", "hold_out_by: 'source' → 'either'")
    assert train(make('data.hold_out_by="source"'), run).step == 6


def test_changed_data_is_refused_until_it_is_restored(make, run, files):
    path = Path(files["target"][0])
    before = path.read_text(encoding="utf-8")
    first, rest = before.split("\n", 1)
    path.write_text(f"{first.upper()}\n{rest}", encoding="utf-8")
    with raises(DataError, "data_changed", "target", "--fresh"):
        train(make(), run)
    path.write_text(before, encoding="utf-8")
    assert train(make(), run).step == 6


def test_a_line_that_moves_from_training_to_validation_is_detected(make, tmp_path, files):
    def with_validation(n):
        for name, paths in files.items():
            lines = Path(paths[0]).read_text(encoding="utf-8").splitlines(keepends=True)
            (tmp_path / f"train.{name}").write_text("".join(lines[n:]), encoding="utf-8")
            (tmp_path / f"valid.{name}").write_text("".join(lines[:n]), encoding="utf-8")
        names = {
            f"{prefix}{name}": [str(tmp_path / f"{part}.{name}")]
            for prefix, part in (("", "train"), ("valid_", "valid"))
            for name in files
        }
        return make(**names)

    train(with_validation(5), tmp_path / "run", callbacks=[stop_at(2)])
    with raises(DataError, "data_changed", "training source"):
        train(with_validation(6), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "content", "kind", "code"),
    [
        ("data.json", "", DataError, "damaged_fingerprints"),
        ("data.json", "[]", DataError, "damaged_fingerprints"),
        ("data.json", "[" * 10**5, DataError, "damaged_fingerprints"),
        ("config.toml", "= 5", ConfigError, "unreadable_config"),
        ("config.toml", "[" * 10**5, ConfigError, "unreadable_config"),
    ],
)
def test_damaged_files_are_reported(make, run, name, content, kind, code):
    (run / name).write_text(content)
    with raises(kind, code, name):
        train(make(), run)


# Files in the directory


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "others",
    [
        {".tmp-12-chapter": "named like a draft", "chapter.txt": "x"},
        {"config.toml": 'title = "my site"', "index.html": "x", "samples/a.html": "x"},
    ],
)
def test_a_directory_with_other_files_is_refused_and_unchanged(make, tmp_path, others, fresh):
    folder = tmp_path / "mine"
    for name, text in others.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert_refused(make(), folder, "not_a_run_dir", str(folder), [*others][1], fresh=fresh)
    assert {path.name for path in folder.iterdir()} == {name.split("/")[0] for name in others}


def test_fresh_starts_over_and_removes_only_files_of_the_run(make, run, tmp_path):
    (run / "notes.txt").write_text("mine")
    (run / "elsewhere").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "file").write_text("x")
    (run / "tensorboard").symlink_to(tmp_path / "linked")
    (run / "samples").mkdir(exist_ok=True)
    (run / "samples" / "old.txt").write_text("x")
    assert train(make("model.stack.d_ff=64"), run, fresh=True).step == 6
    assert (run / "notes.txt").read_text() == "mine"
    assert (run / "elsewhere").is_dir()
    assert (tmp_path / "linked" / "file").exists()
    assert not (run / "samples").exists()
    assert not (run / "tensorboard").exists()
    assert "d_ff = 64" in (run / "config.toml").read_text()
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4  # of the new run only


class Killed(BaseException):
    """Replaces SIGKILL."""


@pytest.mark.parametrize("n_operations", range(12))
def test_fresh_that_is_killed_leaves_no_old_model_in_the_new_run(
    make, run, tmp_path, monkeypatch, n_operations
):
    train(make(), run)
    new, left = make("train.seed=7"), n_operations
    expected = contents(train(new, tmp_path / "other").best)["model.safetensors"]

    def dying(operation):
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return operation(*arguments, **options)

        return call

    with monkeypatch.context() as patch, suppress(Killed):
        for owner, name in ((Path, "rename"), (Path, "unlink"), (shutil, "rmtree")):
            patch.setattr(owner, name, dying(getattr(owner, name)))
        RunDir(run, fresh=True).start(new)
    with suppress(ConfigError):  # as long as the old configuration is there
        assert contents(train(new, run).best)["model.safetensors"] == expected
    assert contents(train(new, run, fresh=True).best)["model.safetensors"] == expected


def test_a_run_that_cannot_start_keeps_the_old_one_and_creates_no_directory(make, run, tmp_path):
    before = contents(run)
    for config in (make(source=["no.ko"], target=["no.en"]), make('train.device="mps"')):
        with pytest.raises(PolyheadError):
            train(config, run, fresh=True)
        with pytest.raises(PolyheadError):
            train(config, tmp_path / "new" / "run")
    assert contents(run) == before
    assert not (tmp_path / "new").exists()


def test_drafts_of_a_killed_process_are_removed(make, run):
    (run / ".tmp-99-config.toml").write_text("x")
    (run / "checkpoints" / ".tmp-99-abcd").mkdir()
    (run / "checkpoints" / ".tmp-99-abcd" / "model.safetensors").write_text("x")
    train(make(), run)
    assert not list(run.rglob(".tmp-*"))


def test_a_directory_that_cannot_be_created_is_reported(make, tmp_path):
    (tmp_path / "file").write_text("x")
    with raises(PolyheadError, "io", "/file/run: Not a directory") as caught:
        train(make(), tmp_path / "file" / "run")
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(
    "init",
    ["run", "run/last", "run/checkpoints/step-00000002", "alias", "run/../run", "./run/last"],
)
def test_a_run_cannot_be_initialized_from_itself(make, run, tmp_path, monkeypatch, fresh, init):
    (tmp_path / "alias").symlink_to(run / "last")
    monkeypatch.chdir(tmp_path)
    config = make(f'train.init="{init}"')
    assert_refused(config, run, "self_reference", "train.init", init, fresh=fresh)


def test_data_among_the_files_of_a_run_is_refused(make, run):
    (run / "samples").mkdir(exist_ok=True)
    (run / "samples" / "mine.ko").write_text("하나\n")
    config = make(source=[str(run / "samples" / "mine.ko")])
    assert_refused(config, run, "self_reference", "data.source", fresh=True)


def test_a_model_beside_the_files_of_a_run_may_initialize_it(make, run):
    shutil.copytree(run / "last", run / "kept")
    train(make(f'train.init="{run / "kept"}"'), run, fresh=True)
    assert (run / "kept" / "model.safetensors").exists()


# The lock

HOLD = """
import sys
from pathlib import Path
from polyhead.training.run_dir import RunDir
with RunDir(Path(sys.argv[1])).exclusive_lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ended(make, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(folder)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "locked\n"
    assert_refused(make(), folder, "run_in_use", str(holder.pid), kind=PolyheadError)
    holder.kill()
    holder.communicate()
    assert train(make(), folder).step == 6


def test_the_lock_is_not_inherited_by_a_child_that_outlives_its_parent(tmp_path):
    """As the workers that prepare batches do, for some seconds."""
    run_dir, (read, written), (ready, is_child) = RunDir(tmp_path / "run"), os.pipe(), os.pipe()
    parent = os.fork()
    if not parent:
        try:
            with run_dir.exclusive_lock():
                if os.fork():
                    os.read(ready, 1)
                    os.kill(os.getpid(), signal.SIGKILL)
                os.write(is_child, b"x")
                os.close(written)
                os.read(read, 1)  # the child waits for this test
        finally:
            os._exit(0)
    os.close(read)
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == -signal.SIGKILL
    with run_dir.exclusive_lock():
        pass
    os.close(written)
