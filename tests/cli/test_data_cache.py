"""`polyhead data cache`: lists the encoded corpora and deletes those that are not in use."""

import json
import os
import time

import pytest
from tiny import SMALL, write_corpus

from polyhead.cli.main import main
from polyhead.data import corpus_cache
from polyhead.errors import DataError
from polyhead.training.config import read_run
from polyhead.training.trainer import train


@pytest.fixture
def run(capsys):
    """Return a function that runs a command and returns its exit code and output."""

    def run(*words):
        capsys.readouterr()
        return main(["data", "cache", *words]), capsys.readouterr()

    return run


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the directory of a store that no run uses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus_cache, "_HELD", {})
    train(
        read_run("small", (*SMALL, 'data.store="always"'), write_corpus(tmp_path)), tmp_path / "r"
    )
    corpus_cache._HELD.popitem()[1].close()
    [entry] = corpus_cache.list_stores()
    return corpus_cache.folder() / entry.key


def test_stores_are_listed_with_their_files_and_sizes(run, store, tmp_path):
    code, printed = run()
    assert code == 0
    assert store.name in printed.out
    assert str(tmp_path / "train.ko") in printed.out
    code, printed = run("--json")
    [entry] = json.loads(printed.out)
    n_bytes = sum(path.stat().st_size for path in store.iterdir())
    sides = [json.loads((store / "store.json").read_text())[name] for name in ("n_tokens",)]
    bins = sum((store / f"{side}.bin").stat().st_size for side in ("source", "target"))
    assert (entry["key"], entry["n_bytes"], entry["in_use"]) == (store.name, n_bytes, False)
    assert [entry["n_tokens"]] == sides == [bins // 2]


def test_only_stores_that_were_not_used_lately_are_deleted(run, store):
    run("--prune")
    assert store.exists()
    long_ago = time.time() - 2 * 86_400
    os.utime(store / "lock", (long_ago, long_ago))
    run("--prune", "--older-than", "3d")
    assert store.exists()
    code, printed = run("--prune", "--older-than", "47h")
    assert code == 0
    assert store.name in printed.out
    assert not store.exists()


def test_all_stores_can_be_deleted(run, store):
    assert run("--prune", "--all")[0] == 0
    assert not store.exists()
    code, printed = run()
    assert (code, printed.out) == (0, "")
    assert "0 stores" in printed.err


def test_verifying_deletes_a_store_with_a_changed_byte(run, store):
    assert run("--verify")[0] == 0
    path = store / "target.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    code, printed = run("--verify")
    assert code == DataError.exit_code
    assert "target.bin is damaged" in printed.err
    assert not store.exists()


@pytest.mark.parametrize("words", [("--older-than", "3 weeks"), ("--all",)])
def test_invalid_options_are_one_line(run, words):
    code, printed = run(*words)
    assert code == 2
    assert printed.err.count("\n") == 1
