"""Every task with every kind of data, way of training and cache, two by two.

Runs on equal data have equal fingerprints and weights, however the data is given and whatever was
trained before with the same cache. Every setting that was requested is recorded and used.
"""

import hashlib
import json
import os
import socket
import tomllib
from functools import reduce
from itertools import combinations, product
from operator import getitem

import pytest
import task_rows
from reporters import Crash, crash_at
from task_rows import ROWS

from polyhead.cli.main import main
from polyhead.data import corpus_cache
from polyhead.training import entry

DATA = ("memory", "file", "store")
WAYS = ("fresh", "resumed", "init", "processes")
CACHES = ("cold", "warm")  # warm: other tasks have read the same files


def pairwise(*factors):
    """Return few rows that combine all values of every two factors, where possible."""
    rows = [row for row in product(*factors) if not {"memory", "processes"} <= {*row}]
    parts = {row: set(combinations(enumerate(row), 2)) for row in rows}
    missing = set().union(*parts.values())
    while missing:
        row = max(rows, key=lambda row: len(parts[row] & missing))
        missing -= parts[row]
        yield row


def settings_of(name, data, init=None):
    """Return the settings that a run requests."""
    row = ROWS[name]
    settings = row.overrides(
        train__steps=4, train__validate_every=2, train__keep=3, train__accumulate=2
    )
    settings[f"{row.stack}.dropout"] = 0.15 if init is None else 0.3
    if data != "memory":
        settings["data.store"] = "always" if data == "store" else "never"
    if row.task in ("translation", "text_classification"):
        settings["text.sampling"] = 0.1 if init is None else 0.2
    return settings if init is None else settings | {"train.init": str(init)}


class Files:
    """Data of all rows in files, and a finished run of each row on a warm cache."""

    def __init__(self, folder):
        self.folder, self.known = folder, {}
        data = {row.data for row in ROWS.values()}
        self.paths = {name: task_rows.write(name, folder / name) for name in data}

    def train(self, run, name, data, *, init=None, **session):
        """Train a run of a row."""
        row = ROWS[name]
        source = task_rows.examples(row.data) if data == "memory" else self.paths[row.data]
        overrides = settings_of(name, data, init)
        session |= {row.option: source, "progress": "none"}
        entry.train(row.recipe, run=run, overrides=overrides, **session)

    def reference(self, name, *, init=False):
        """Return a run from a store in the warm cache, initialized from another one if `init`."""
        if (name, init) not in self.known:
            run = self.folder / f"{name}-{init}"
            self.train(run, name, "store", init=self.base(name) if init else None)
            self.known[name, init] = run
        return self.known[name, init]

    def base(self, name):
        """Return the run from which runs of a row are initialized."""
        return self.reference(ROWS[name].base or name)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        made = Files(folder)
        for name in ROWS:
            made.reference(name)
    return made


def facts(run):
    """Return all that must not depend on how data was given: its fingerprints, and the weights."""
    weights = (run / "last" / "model.safetensors").read_bytes()
    return json.loads((run / "data.json").read_text()), hashlib.sha256(weights).hexdigest()


def fork_processes(words, n_processes):
    """Run a command in several forks, which need not import torch again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
                 "WORLD_SIZE": str(n_processes)}  # fmt: skip
    forks = []
    for rank in range(n_processes):
        if not (pid := os.fork()):
            code = 1
            try:
                os.environ.update(variables, RANK=str(rank))
                code = main(words)
            finally:
                os._exit(code)
        forks.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in forks)


@pytest.mark.parametrize(
    ("name", "data", "way", "cache"), sorted(pairwise(list(ROWS), DATA, WAYS, CACHES))
)
def test_data_weights_and_settings_are_those_requested(
    name, data, way, cache, files, tmp_path, monkeypatch
):
    place = files.folder if cache == "warm" else tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(files.folder / "cache"))
    expected, run = files.reference(name, init=way == "init"), tmp_path / "run"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setattr(corpus_cache, "_HELD", {})  # as in another process
    init = files.base(name) if way == "init" else None
    if way == "processes":
        monkeypatch.setattr(entry, "launch", fork_processes)
    if way == "resumed":
        with pytest.raises(Crash):
            files.train(run, name, data, callbacks=[crash_at(3)])
        corpus_cache._HELD.clear()
    files.train(run, name, data, init=init, processes=2 if way == "processes" else 1)
    assert facts(run) == facts(expected)
    recorded = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    saved = json.loads((run / "last" / "config.json").read_text(encoding="utf-8"))
    used = {**saved["about"]["run"], "model": saved["model"]}
    for setting, value in settings_of(name, data, init).items():
        in_model = () if setting == "train.init" else (saved["about"]["run"], used)  # without paths
        for values in (recorded, *in_model):
            assert reduce(getitem, setting.split("."), values) == value, setting
