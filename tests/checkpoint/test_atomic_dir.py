"""Atomic directories: complete or absent, and every change of their bytes is detected."""

import ctypes
import errno
import json
import os
import stat
from random import Random

import pytest
from expected_errors import raises

from polyhead.checkpoint import atomic_dir as store
from polyhead.errors import CheckpointError, PolyheadError


def write(folder, **texts):
    with store.atomic_dir(folder) as draft:
        (draft / "inner").mkdir()
        for name, text in texts.items():
            (draft / "inner" / name).write_text(text)
        (draft / "data.bin").write_bytes(bytes(range(256)) * 9)
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def sealed(tmp_path):
    return write(tmp_path / "model", a="some text\n", b="")


# Writing


def test_a_directory_appears_complete(tmp_path):
    place = tmp_path / "new" / "place" / "model"
    with store.atomic_dir(place) as draft:
        (draft / "a").write_text("1")
        assert not place.exists()
    assert names(place) == ["a", "manifest.json"]
    assert names(place.parent) == ["model"]
    store.verify(place)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_previous_state(sealed, error):
    def fail(directory):
        with store.atomic_dir(directory) as draft:
            (draft / "a").write_text("other")
            raise error

    for directory in (sealed, sealed.with_name("new")):
        with pytest.raises(error):
            fail(directory)
    assert (sealed / "inner" / "a").read_text() == "some text\n"
    store.verify(sealed)
    assert names(sealed.parent) == ["model"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_existing_directory_is_replaced_as_a_whole(sealed, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(store, "_exchange", lambda *_: False)
    write(sealed, c="new")
    assert names(sealed / "inner") == ["c"]
    store.verify(sealed)
    assert names(sealed.parent) == ["model"]


def test_there_is_no_moment_without_a_directory(sealed, monkeypatch):
    """No other rename is needed where the system can exchange two names."""
    first, second = (bytes(write(sealed.with_name(name), a=name)) for name in ("x", "y"))
    try:
        answer = ctypes.CDLL(None).renameat2(-100, first, -100, second, 2)
    except AttributeError:
        answer = -1
    if answer != 0:
        pytest.skip("this file system cannot exchange names")
    monkeypatch.setattr(os, "rename", None)
    monkeypatch.setattr(os, "replace", None)
    write(sealed, c="new")
    store.verify(sealed)


def test_a_link_is_replaced_and_its_target_is_not(sealed):
    link = sealed.with_name("link")
    store.link(link, sealed)
    write(link, c="new")
    assert not link.is_symlink()
    assert names(link / "inner") == ["c"]
    assert names(sealed / "inner") == ["a", "b"]
    assert names(sealed.parent) == ["link", "model"]


def test_file_modes_follow_the_umask(tmp_path):
    before = os.umask(0o022)
    try:
        place = tmp_path / "model"
        with store.atomic_dir(place) as draft:
            (draft / "a").touch(mode=0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o644}


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_a_full_disk_is_an_error_and_the_old_directory_stays(sealed, monkeypatch, failing):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing != "write":
        monkeypatch.setattr(os, failing, full)
        monkeypatch.setattr(store, "_exchange", lambda *_: False)

    with (
        raises(PolyheadError, "io", str(sealed), "No space left on device") as caught,
        store.atomic_dir(sealed) as draft,
    ):
        (draft / "a").write_text("new")
        if failing == "write":
            full()
    monkeypatch.undo()
    assert caught.value.exit_code == 1
    store.verify(sealed)
    assert (sealed / "inner" / "a").read_text() == "some text\n"
    assert names(sealed.parent) == ["model"]


# Verifying


def test_every_flipped_bit_truncation_and_addition_is_detected(sealed):
    random = Random(0)
    for path in sorted(p for p in sealed.rglob("*") if p.is_file()):
        good = path.read_bytes()
        lengths = random.sample(range(len(good)), min(len(good), 100))
        damaged = [*(good[:length] for length in lengths), good + b" ", good + b"\n"]
        for place in random.sample(range(len(good)), min(len(good), 300)):
            bit = 1 << random.randrange(8)
            damaged.append(good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :])
        for bad in damaged:
            path.write_bytes(bad)
            with raises(CheckpointError, "damaged"):
                store.verify(sealed)
        path.write_bytes(good)
    store.verify(sealed)


def test_missing_files_are_named(sealed):
    assert list(store.verify(sealed)) == ["data.bin", "inner/a", "inner/b"]
    (sealed / "inner" / "b").unlink()
    with raises(CheckpointError, "damaged", "inner/b"):
        store.verify(sealed)
    (sealed / "manifest.json").unlink()
    with raises(CheckpointError, "no_manifest"):
        store.verify(sealed)


@pytest.mark.parametrize(
    "name",
    ["../secret", "inner/../../secret", "/etc/passwd", "..", ".", "", "a\nb", "a\0b", "\ud800",
     "x" * 5000, "inner/a/b", "//etc/passwd", "inner//a", "./data.bin"],
)  # fmt: skip
def test_names_outside_the_directory_are_refused(sealed, name):
    (sealed.parent / "secret").write_text("x")
    manifest = store.verify(sealed) | {name: "0" * 64}
    (sealed / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    with raises(CheckpointError, "damaged", "invalid name") as e:
        store.verify(sealed)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 300


@pytest.mark.parametrize("content", ["[]", "1", '{"data.bin": 5}', "[" * 10**6, "\xff", "{}", None])
def test_manifests_of_another_form_are_refused(sealed, content):
    with (sealed / "manifest.json").open("r+b") as file:
        file.truncate(0 if content else 2**40)  # a sparse file, which is not read
        file.write((content or "").encode("latin-1"))
    with raises(CheckpointError, "damaged"):
        store.verify(sealed)


@pytest.mark.parametrize("name", ["data.bin", "inner/a", "inner", "manifest.json"])
def test_links_are_not_followed(sealed, name):
    outside = sealed.parent / "outside"
    (sealed / name).rename(outside)
    (sealed / name).symlink_to(outside)
    with raises(CheckpointError, "damaged"):
        store.verify(sealed)


def test_a_named_pipe_is_not_read(sealed):
    (sealed / "data.bin").unlink()
    os.mkfifo(sealed / "data.bin")
    with raises(CheckpointError, "damaged", "data.bin"):
        store.verify(sealed)


# Finding and removing checkpoints


def checkpoints(folder, *steps):
    return [write(store.checkpoint_path(folder, step), a=str(step)) for step in steps]


def test_the_newest_valid_checkpoint_is_found_with_messages_about_newer_ones(tmp_path):
    first, two, three = checkpoints(tmp_path, 5, 10, 15)
    assert store.newest_checkpoint(tmp_path) == (three, [])
    (three / "data.bin").write_bytes(b"")
    path, problems = store.newest_checkpoint(tmp_path)
    assert path == two
    assert [problem.startswith(f"{three}: data.bin") for problem in problems] == [True]
    (two / "manifest.json").unlink()
    path, problems = store.newest_checkpoint(tmp_path)
    assert (path, len(problems)) == (first, 2)
    (first / "manifest.json").unlink()
    assert store.newest_checkpoint(tmp_path)[0] is None
    assert store.newest_checkpoint(tmp_path / "nowhere") == (None, [])


def test_checkpoints_are_sorted_by_number_and_other_names_ignored(tmp_path):
    checkpoints(tmp_path, 10**8, 99_999_999, 3)
    (tmp_path / "step-5").mkdir()
    (tmp_path / ".tmp-1-step-00000007").mkdir()
    (tmp_path / "step-00000009.bak").mkdir()
    assert [step for step, _ in store.list_checkpoints(tmp_path)] == [3, 99_999_999, 10**8]


def test_the_last_valid_checkpoints_and_the_spared_one_are_kept(tmp_path):
    def kept_after(step, **options):
        store.remove_old_checkpoints(tmp_path, store.checkpoint_path(tmp_path, step), **options)
        return [step for step, _ in store.list_checkpoints(tmp_path)]

    folders = checkpoints(tmp_path, *range(1, 8))
    assert kept_after(7, keep=3, spare=folders[1]) == [2, 5, 6, 7]
    (folders[6] / "data.bin").write_bytes(b"")
    assert kept_after(6, keep=2, spare=None) == [5, 6]  # after a roll-back from 7, now damaged
    assert kept_after(6, keep=1, spare=None) == [6]


def test_only_drafts_are_removed(tmp_path):
    (tmp_path / ".tmp-123-abc").mkdir()
    (tmp_path / ".tmp-123-abc" / "file").write_text("x")
    (tmp_path / ".tmp-123-metrics.jsonl").write_text("x")
    (tmp_path / ".tmp-123-best").symlink_to(tmp_path)
    (tmp_path / ".tmp-mine").write_text("x")
    (tmp_path / "other").write_text("x")
    store.remove_drafts(tmp_path)
    assert names(tmp_path) == [".tmp-mine", "other"]


# Links


def test_links_are_relative_and_replaced(tmp_path):
    first, second = checkpoints(tmp_path / "run" / "checkpoints", 1, 2)
    link = tmp_path / "run" / "last"
    for target in (first, second):
        store.link(link, target)
        assert link.resolve() == target
        assert not os.path.isabs(os.readlink(link))
    (tmp_path / "run").rename(tmp_path / "moved")
    store.verify(tmp_path / "moved" / "last")
    assert names(tmp_path / "moved") == ["checkpoints", "last"]
