"""The folder of a run: one process at a time, what was agreed stays, strangers' things stay too."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from tiny import SMALL, write_corpus

from polyhead.errors import ConfigError, DataError, PolyheadError
from polyhead.training import run_dir as runs
from polyhead.training.config import read_run
from polyhead.training.run_log import NullReporter
from polyhead.training.trainer import train


class LeaveAt(NullReporter):
    """A reporter that asks the run to leave."""

    def __init__(self, step):
        self.at = step

    def step(self, metrics):
        if metrics["step"] == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def files(tmp_path):
    return write_corpus(tmp_path, n=60)


@pytest.fixture
def make(files):
    def run(*overrides, **changes):
        settings = (*SMALL, "train.bleu_sentences=0", "train.steps=6", *overrides)
        found = read_run("small", settings, files | changes)
        return replace(found, train=replace(found.train, epochs=None))

    return run


@pytest.fixture
def begun(make, tmp_path):
    """A run that was interrupted at its second step."""
    train(make(), tmp_path / "run", reporter=LeaveAt(2))
    return tmp_path / "run"


def everything(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(kind, run, folder, **options):
    """The message; nothing in the folder may have changed."""
    before = everything(folder)
    with pytest.raises(kind) as caught:
        train(run, folder, **options)
    after = everything(folder)
    after.pop(".lock", None)
    before.pop(".lock", None)
    assert after == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What was agreed


def test_a_changed_configuration_is_refused_and_the_difference_shown(make, begun):
    run = make("train.smoothing=0.3", "train.schedule.rate=0.5", "decode.beam=2")
    told = refused(ConfigError, run, begun)
    assert "train.smoothing: 0.1 → 0.3" in told
    assert "train.schedule.rate: 0.001 → 0.5" in told
    assert "decode.beam: " in told
    assert "--accept-changes" in told
    assert "--fresh" in told


def test_changes_of_training_and_decoding_can_be_accepted(make, begun):
    run = make("train.smoothing=0.3", "decode.beam=2", "train.steps=4")
    assert train(run, begun, accept_changes=True).step == 4
    assert "smoothing = 0.3" in (begun / "config.toml").read_text()
    log = (begun / "train.log").read_text()
    assert "going on with a changed configuration: train.steps: 6 → 4; train.smoothing" in log
    train(run, begun)  # agreed from now on
    refused(ConfigError, make(), begun)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("model.stack.d_ff=64", "model.stack.d_ff: 32 → 64 cannot change within a run"),
        ("text.vocab=800", "text.vocab: 900 → 800 cannot change within a run"),
        ("data.max_length=99", "data.max_length: 256 → 99 cannot change within a run"),
        ("train.seed=9", "train.seed: 1 → 9 cannot change within a run"),
    ],
)
@pytest.mark.parametrize("accept", [False, True])
def test_text_model_and_seed_cannot_change(make, begun, override, told, accept):
    """Nor does the message propose what would not help."""
    message = refused(ConfigError, make(override), begun, accept_changes=accept)
    assert told in message
    assert "--accept-changes" not in message


def test_what_does_not_matter_may_change(make, begun):
    assert train(make("train.workers=1", "train.keep=9"), begun).step == 6


def test_a_run_of_an_earlier_version_goes_on_although_options_were_added_since(make, begun):
    path = begun / "config.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("norm_eps", "patience", "activation_d"))]
    assert len(kept) == len(lines) - 3
    path.write_text("\n".join(kept), encoding="utf-8")
    train(make("train.steps=4"), begun, accept_changes=True)
    kept[kept.index("[model.stack]") + 1 :] = [
        "norm_eps = 0.5",
        *kept[kept.index("[model.stack]") + 1 :],
    ]
    path.write_text("\n".join(kept), encoding="utf-8")
    assert "norm_eps" in refused(ConfigError, make(), begun)


def test_a_description_is_not_a_setting(make, begun):
    assert train(replace(make(), description="other words"), begun).step == 6


def test_changed_text_is_refused(make, begun, files):
    path = files["target"][0]
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    with open(path, "w", encoding="utf-8") as file:
        file.writelines([lines[0].upper(), *lines[1:]])
    with pytest.raises(DataError) as caught:
        train(make(), begun)
    assert "target data are no longer those that this run began with" in str(caught.value)
    assert "--fresh" in str(caught.value)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)
    assert train(make(), begun).step == 6


def test_a_line_that_moves_from_training_to_validation_is_noticed(make, tmp_path, files):
    def with_validation(n):
        for name, sides in files.items():
            with open(sides[0], encoding="utf-8") as file:
                lines = file.readlines()
            (tmp_path / f"train.{name}").write_text("".join(lines[n:]))
            (tmp_path / f"valid.{name}").write_text("".join(lines[:n]))
        names = {
            f"{prefix}{name}": [str(tmp_path / f"{part}.{name}")]
            for prefix, part in (("", "train"), ("valid_", "valid"))
            for name in files
        }
        return make(**names)

    train(with_validation(5), tmp_path / "run", reporter=LeaveAt(2))
    with pytest.raises(DataError, match="the training source data are no longer those"):
        train(with_validation(6), tmp_path / "run")


@pytest.mark.parametrize("content", ["", "[]", "[" * 10**5])
def test_a_damaged_record_of_the_text_is_told(make, begun, content):
    (begun / "data.json").write_text(content)
    with pytest.raises(DataError, match=r"data\.json is damaged: which text .* --fresh"):
        train(make(), begun)


@pytest.mark.parametrize("content", ["= 5", "[" * 10**5])
def test_a_damaged_configuration_is_told(make, begun, content):
    (begun / "config.toml").write_text(content)
    assert "config.toml cannot be read" in refused(ConfigError, make(), begun)


# Whose folder it is


def test_a_folder_with_other_things_is_refused_and_stays_as_it_was(make, tmp_path):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / ".tmp-12-chapter").write_text("a name that looks like ours")
    (folder / "chapter.txt").write_text("x")
    told = refused(ConfigError, make(), folder)
    words = "holds other things than a run, such as chapter.txt; choose another --run"
    assert told == f"{folder} {words}"
    refused(ConfigError, make(), folder, fresh=True)
    assert sorted(path.name for path in folder.iterdir()) == [".tmp-12-chapter", "chapter.txt"]


def test_the_configuration_of_another_program_is_not_taken_for_ours(make, tmp_path):
    folder = tmp_path / "site"
    (folder / "samples").mkdir(parents=True)
    (folder / "config.toml").write_text('title = "my site"\n')
    (folder / "index.html").write_text("x")
    refused(ConfigError, make(), folder, fresh=True)


def test_fresh_starts_over_and_removes_only_what_is_ours(make, begun):
    (begun / "notes.txt").write_text("mine")
    (begun / "attention.html").write_text("mine")
    (begun / "elsewhere").mkdir()
    (begun / "samples").mkdir(exist_ok=True)
    (begun / "samples" / "old.txt").write_text("x")
    result = train(make("model.stack.d_ff=64"), begun, fresh=True)
    assert result.step == 6
    assert (begun / "notes.txt").read_text() == "mine"
    assert (begun / "elsewhere").is_dir()
    assert not (begun / "samples").exists()
    assert "d_ff = 64" in (begun / "config.toml").read_text()
    assert len((begun / "metrics.jsonl").read_text().splitlines()) == 4  # of the new run only


def test_fresh_does_not_follow_links(make, begun, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (begun / "samples").symlink_to(tmp_path / "precious")
    train(make(), begun, fresh=True)
    assert (tmp_path / "precious" / "file").exists()


def test_fresh_does_not_throw_a_run_away_for_one_that_cannot_begin(make, begun):
    missing = {"source": ["no.ko"], "target": ["no.en"]}
    refused(DataError, make(**missing), begun, fresh=True)
    refused(ConfigError, make('train.device="mps"'), begun, fresh=True)


def test_what_a_crash_left_half_written_is_removed(make, begun):
    (begun / ".tmp-99-config.toml").write_text("x")
    (begun / "checkpoints" / ".tmp-99-abcd").mkdir()
    (begun / "checkpoints" / ".tmp-99-abcd" / "model.safetensors").write_text("x")
    train(make(), begun)
    assert not list(begun.rglob(".tmp-*"))


def test_a_place_where_nothing_can_be_written_is_told(make, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(PolyheadError, match=r"cannot write to .*/file/run: Not a directory") as e:
        train(make(), tmp_path / "file" / "run")
    assert e.value.exit_code == 1


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("inside", ["", "last", "checkpoints/step-00000002"])
def test_a_run_does_not_begin_from_what_it_would_remove(make, begun, fresh, inside):
    assert (begun / inside).exists()
    told = refused(ConfigError, make(f'train.init="{begun / inside}"'), begun, fresh=fresh)
    assert told == (
        f"train.init = {str(begun / inside)!r} belongs to {begun}, the run that is to begin from "
        "it; choose another --run"
    )


def test_links_and_detours_to_the_own_run_are_seen_through(make, begun, tmp_path, monkeypatch):
    (tmp_path / "alias").symlink_to(begun / "last")
    monkeypatch.chdir(tmp_path)
    for init in ("alias", "run/../run", "./run/last"):
        told = refused(ConfigError, make(f'train.init="{init}"'), begun, fresh=True)
        assert f"train.init = '{init}' belongs to {begun}" in told


def test_text_that_lies_among_what_a_run_writes_is_not_removed(make, begun):
    (begun / "samples").mkdir(exist_ok=True)
    text = begun / "samples" / "mine.ko"
    text.write_text("하나\n")
    told = refused(ConfigError, make(source=[str(text)]), begun, fresh=True)
    assert told.startswith(f"data.source = {str(text)!r} belongs to {begun}")


def test_a_guest_of_a_run_may_be_what_it_begins_from(make, begun):
    shutil.copytree(begun / "last", begun / "kept")
    train(make(f'train.init="{begun / "kept"}"'), begun, fresh=True)
    assert (begun / "kept" / "model.safetensors").exists()


# One at a time

HOLD = """
import sys
from pathlib import Path
from polyhead.api import runs
with runs.alone(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone(make, tmp_path):
    folder = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "mine\n"
    told = refused(PolyheadError, make(), folder)
    assert told == (
        f"{folder} is being trained by another process ({holder.pid}); wait for it, or choose "
        "another --run"
    )
    holder.kill()  # with no time to tidy up
    holder.communicate()
    assert train(make(), folder).step == 6


def test_the_lock_is_not_kept_by_a_child_that_outlives_its_parent(tmp_path):
    """As the workers that prepare batches do, for some seconds."""
    folder, (read, written) = tmp_path / "run", os.pipe()
    parent = os.fork()
    if not parent:
        try:
            with runs.alone(folder):
                if os.fork():
                    os.kill(os.getpid(), signal.SIGKILL)
                os.close(written)
                os.read(read, 1)  # the child waits for us
        finally:
            os._exit(0)
    os.close(read)
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == -signal.SIGKILL
    with runs.alone(folder):
        pass
    os.close(written)
