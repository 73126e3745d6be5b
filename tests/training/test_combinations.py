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

import numpy as np
import pytest
from PIL import Image
from reporters import Crash, crash_at
from token_data import write_questions, write_tagged

from polyhead.cli.main import main
from polyhead.data.schedules import generator as schedules
from polyhead.training import corpus_cache, entry

TASKS = {  # recipe, option, place of the blocks; tasks of one option read the same file
    "language_modeling": ("gpt-tiny", "text", "model.stack"),
    "masked_lm": ("bert-tiny", "text", "model.stack"),
    "replaced_token_detection": ("electra-tiny", "text", "model.stack"),
    "sentence_embedding": ("embed-small", "pairs", "model.encoder.stack"),
    "translation": ("small", "pairs", "model.stack"),
    "text_classification": ("classify-small", "data", "model.encoder.stack"),
    "token_classification": ("tagger-small", "data", "model.encoder.stack"),
    "question_answering": ("qa-small", "data", "model.encoder.stack"),
    "image_classification": ("vit-digits", "images", "model.stack"),
}
DATA = ("memory", "file", "store")
WAYS = ("fresh", "resumed", "init", "processes")
CACHES = ("cold", "warm")  # warm: other tasks have read the same files
SETTINGS = {
    "train.steps": 4, "train.save_every": 2, "train.validate_every": 2, "train.max_tokens": 300,
    "train.accumulate": 2, "train.schedule.warmup": 2, "train.seed": 7,
}  # fmt: skip
SIZES = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 24}


def pairwise(*factors):
    """Return few rows that combine all values of every two factors, where possible."""
    rows = [row for row in product(*factors) if not {"memory", "processes"} <= {*row}]
    parts = {row: set(combinations(enumerate(row), 2)) for row in rows}
    missing = set().union(*parts.values())
    while missing:
        row = max(rows, key=lambda row: len(parts[row] & missing))
        missing -= parts[row]
        yield row


def settings_of(task, data, init=None):
    """Return the settings that a run requests."""
    stack = TASKS[task][2]
    settings = {f"{stack}.{name}": value for name, value in SIZES.items()} | SETTINGS
    settings[f"{stack}.dropout"] = 0.15 if init is None else 0.3
    if data != "memory":
        settings["data.store"] = "always" if data == "store" else "never"
    if task == "image_classification":
        settings |= {"model.channels": 3, "model.stack.n_heads": 4}
    else:
        settings["text.vocab"] = (
            320 if task in ("token_classification", "question_answering") else 720
        )
    if task in ("translation", "text_classification"):
        settings["text.sampling"] = 0.1 if init is None else 0.2
    return settings if init is None else settings | {"train.init": str(init)}


class Files:
    """Data of all tasks in files and in memory, and a finished run of each task on a warm cache."""

    def __init__(self, folder):
        self.folder, self.known = folder, {}
        pairs = schedules.generate(200, 0, 0, 3).train
        texts = [text for pair in pairs for text in pair]
        labelled = [(text, "yes" if "a" in text else "no") for text in texts]
        for name, header, rows in (
            ("pairs.tsv", ("source", "target"), pairs),
            ("labelled.tsv", ("text", "label"), labelled),
        ):
            lines = "".join(f"{a}\t{b}\n" for a, b in (header, *rows))
            (folder / name).write_text(lines, encoding="utf-8")
        (folder / "text.txt").write_text("".join(f"{t}\n" for t in texts), encoding="utf-8")
        blocks = write_tagged(folder / "tags.conll", 80).read_text(encoding="utf-8").split("\n\n")
        tagged = [[line.split("\t") for line in block.splitlines()] for block in blocks if block]
        tagged = [
            dict(zip(("words", "tags"), zip(*rows, strict=True), strict=True)) for rows in tagged
        ]
        (folder / "tags.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in tagged))
        lines = write_questions(folder / "questions.jsonl", 80).read_text(encoding="utf-8")
        pixels = np.random.default_rng(5).integers(0, 256, (40, 8, 8, 3), np.uint8)
        images = [(image, "a" if number < 20 else "b") for number, image in enumerate(pixels)]
        for number, (image, name) in enumerate(images):
            (folder / "images" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / "images" / name / f"{number:02}.png")
        self.examples = {
            "text": ("text.txt", texts), "pairs": ("pairs.tsv", pairs),
            "images": ("images", images),
            "text_classification": ("labelled.tsv", labelled),
            "token_classification": ("tags.jsonl", tagged),
            "question_answering": ("questions.jsonl", list(map(json.loads, lines.splitlines()))),
        }  # fmt: skip

    def train(self, run, task, data, *, init=None, **session):
        """Train a run of a task."""
        recipe, option, _ = TASKS[task]
        file, examples = self.examples.get(task) or self.examples[option]
        given = {option: examples if data == "memory" else self.folder / file}
        overrides = settings_of(task, data, init)
        entry.train(recipe, run=run, overrides=overrides, progress="none", **given, **session)

    def reference(self, task, *, init=False):
        """Return a run from a store in the warm cache, initialized from another one if `init`."""
        if (task, init) not in self.known:
            run = self.folder / f"{task}-{init}"
            self.train(run, task, "store", init=self.reference(task) if init else None)
            self.known[task, init] = run
        return self.known[task, init]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        made = Files(folder)
        for task in TASKS:
            made.reference(task)
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
    ("task", "data", "way", "cache"), sorted(pairwise(list(TASKS), DATA, WAYS, CACHES))
)
def test_data_weights_and_settings_are_those_requested(
    task, data, way, cache, files, tmp_path, monkeypatch
):
    place = files.folder if cache == "warm" else tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(files.folder / "cache"))
    expected, run = files.reference(task, init=way == "init"), tmp_path / "run"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setattr(corpus_cache, "_HELD", {})  # as in another process
    init = files.reference(task) if way == "init" else None
    if way == "processes":
        monkeypatch.setattr(entry, "launch", fork_processes)
    if way == "resumed":
        with pytest.raises(Crash):
            files.train(run, task, data, callbacks=[crash_at(3)])
        corpus_cache._HELD.clear()
    files.train(run, task, data, init=init, processes=2 if way == "processes" else 1)
    assert facts(run) == facts(expected)
    recorded = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    saved = json.loads((run / "last" / "config.json").read_text(encoding="utf-8"))
    used = {**saved["about"]["run"], "model": saved["model"]}
    for name, value in settings_of(task, data, init).items():
        in_model = () if name == "train.init" else (saved["about"]["run"], used)  # without paths
        for values in (recorded, *in_model):
            assert reduce(getitem, name.split("."), values) == value, name
