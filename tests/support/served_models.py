"""Five tiny models of all tasks, served without sockets and as a process."""

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from asgi import Running
from pretrained import configured, pretrain, write_labelled
from tiny_gpt import train_gpt
from tiny_images import train_on_pictures

from polyhead.server.model_registry import ModelRegistry, load_models
from polyhead.server.settings import Settings
from polyhead.training.trainer import train

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def models(tiny_run, tmp_path_factory):
    """Return the directories of a translator, a language model, a BERT and two classifiers."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("gpt", "bert", "kinds", "images")}
    files = write_labelled(folders["kinds"])
    train(configured("classify-small", files), folders["kinds"] / "kinds")
    return {
        "translate": tiny_run,
        "generate": train_gpt(folders["gpt"]),
        "fill": pretrain(folders["bert"], "bert-tiny"),
        "classify": folders["kinds"] / "kinds",
        "classify-image": train_on_pictures(folders["images"], "colours"),
    }


@pytest.fixture(scope="session")
def registry(models):
    return load_models(list(models.values()), "cpu", "torch")


@pytest.fixture(scope="session")
def served(registry):
    """Return the served model of a use."""
    by_use = {served.about.use: served for served in registry.models}
    return by_use.__getitem__


@pytest.fixture(scope="session")
def picture(models):
    """Return the file of a red image."""
    return models["classify-image"].parent / "pictures" / "red" / "0.png"


@pytest.fixture(scope="session")
def server(registry):
    running = Running(registry)
    yield running
    running.close()


@pytest.fixture
def another(registry):
    """Start a server with other models or settings, for one test."""
    with contextlib.ExitStack() as stack:

        def start(*models, **settings):
            running = Running(ModelRegistry(models or registry.models), Settings(**settings))
            stack.callback(running.close)
            return running

        yield start


@dataclass
class Process:
    """Running `polyhead serve`."""

    process: subprocess.Popen
    host: str
    port: int

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"


@contextlib.contextmanager
def started(*words, command=(sys.executable, "-m", "polyhead", "serve")):
    command = [*command, *map(str, words), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        seen = []
        for line in process.stderr:
            seen.append(line)
            if found := re.search(r"http://([\d.]+):(\d+)/", line):
                yield Process(process, found[1], int(found[2]))
                return
        raise AssertionError("".join(seen))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="session")
def process(models):
    """Start a real server with all models; do not stop it."""
    with started(*models.values()) as running:
        yield running


@pytest.fixture
def start(models):
    """Start a real server with the translator and these options."""
    with contextlib.ExitStack() as stack:
        yield lambda *words: stack.enter_context(started(models["translate"], *words))
