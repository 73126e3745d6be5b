"""Commands write only where the documentation says, and never into their inputs."""

import fnmatch
import shlex
import subprocess
import sys
import tempfile

import pytest
from process_runs import SOURCE
from saved_models import build_all, save_model
from tiny import SMALL, train_tiny
from tiny_images import write_pictures

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.cli import main as program
from polyhead.cli.main import COMMANDS, DATA_COMMANDS, main
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.registry import create_model
from polyhead.models.sentence_encoder import SentenceEncoderConfig
from polyhead.models.span_extractor import SpanExtractorConfig
from polyhead.models.tagging_model import TaggerConfig

LINES = ["내일 회의가 있어요.", "오늘은 비가 와요.", "좋아요 yes no"]
FILES = "--source {in}/tiny/train.ko --target {in}/tiny/train.en"
TINY = " ".join((*SMALL, "train.steps=2", "train.validate_every=1", "train.save_every=1"))
SIZES = " ".join(word for word in SMALL if word.startswith(("text.", "model.")))
ENGINES, RUN = "cache/polyhead/engines*", "here/runs*"
WRITTEN = {  # command: places it may write to, as in the documentation
    f"train small {TINY} {FILES}": [RUN],
    f"train small {TINY} train.accumulate=2 --processes 2 {FILES} --run mine": ["here/mine*"],
    f"train small {TINY} --init {{in}}/tiny/run {FILES}": [RUN],
    f"train small {TINY} data.store=always {FILES}": [RUN, "cache/polyhead/corpora*"],
    "evaluate {in}/tiny/run " + FILES: [],
    "evaluate {in}/tiny/run --output out.txt " + FILES: ["here/out.txt"],
    "evaluate {in}/generate --text {in}/long.txt": [],
    "evaluate {in}/fill --text {in}/long.txt": [],
    f"compare small {SIZES} --vary model.tie=all,none --steps 2 {FILES}": [RUN],
    f"ladder small text.vocab=900 model.d_model=16 --systems none,dot --steps 2 {FILES}": [RUN],
    "runs {in}/tiny": [],
    "average {in}/tiny/run --output mean": ["here/mean*"],
    "translate {in}/tiny/run {in}/lines.txt": [ENGINES],
    "translate {in}/tiny/run --compute-type int8 --engine ctranslate2 {in}/lines.txt": [ENGINES],
    "translate {in}/tiny/run --sample {in}/lines.txt": [],
    "translate {in}/tiny/run {in}/tiny/run --engine torch {in}/lines.txt": [],
    "generate {in}/generate 내일 --max-tokens 2 --temperature 0.9": [],
    "generate {in}/generate 내일 --max-tokens 2 --greedy": [ENGINES],
    "fill {in}/fill [MASK]요": [],
    "detect {in}/detect 오늘은": [],
    "classify {in}/classify 오늘은": [],
    "classify {in}/classify-image {in}/pictures/red/0.png": [],
    "tag {in}/tag 오늘은": [],
    "answer {in}/answer 오늘은? --context {in}/lines.txt": [],
    "embed {in}/embed {in}/lines.txt": [],
    "embed {in}/embed {in}/lines.txt --output v.npy": ["here/v.npy"],
    "attention {in}/tiny/run 오늘은": ["here/attention.html"],
    "attention {in}/classify-image {in}/pictures/red/0.png --output a.svg": ["here/a.svg"],
    "recipes": [],
    "show small": [],
    "show {in}/tiny/run": [],
    "cost small": [],
    "languages {in}/tiny/run": [],
    "export {in}/tiny/run --to ctranslate2 --output ct2 --report-sentences 2": ["here/ct2*"],
    "export {in}/fill --to hf --output hf --report-sentences 0": ["here/hf*"],
    "import {made}/hf --output bert": ["here/bert*"],
    "verify --list": [],
    "verify masks": [],
    "verify --html notes.html masks": ["here/notes.html"],
    "doctor": [],
    "serve {in}/tiny/run {in}/generate --port 0": [ENGINES],
    "data list": [],
    "data make schedules --size 20": ["cache/polyhead/schedules*"],
    "data check " + FILES: [],
    "data cache": [],
    "data cache --prune --all": [],
}
ELSEWHERE = {"data get", "demo"}  # in tests/data/test_download.py; as `data make`, `train`


def test_every_command_is_tried():
    tried = {tuple(shlex.split(words)[:2]) for words in WRITTEN}
    names = {first for first, *_ in tried} | {" ".join(pair) for pair in tried if pair[0] == "data"}
    wanted = {*COMMANDS, *(f"data {name}" for name in DATA_COMMANDS)}
    assert wanted - names - ELSEWHERE - {"help"} == set()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Models of all tasks and files, which cannot be written."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "tiny").mkdir()
    train_tiny(folder / "tiny")
    models = build_all(LINES)
    tokenizers = models["fill"].tokenizers
    bert = BERTConfig(len(tokenizers.source) + 1, 24, stack=bert_stack(2, 16, 2))
    heads = {
        "tag": ("tagger", TaggerConfig(2, encoder=bert), {"classes": ["O", "B-X"]}),
        "answer": ("span_extractor", SpanExtractorConfig(encoder=bert), {}),
        "embed": ("sentence_encoder", SentenceEncoderConfig(encoder=bert), {}),
    }
    for use, (name, config, about) in heads.items():
        model = create_model(name, config).eval()
        models[use] = SavedModel(name, config, model, tokenizers, about)
    for use, saved in models.items():
        save_model(saved, folder / use)
    (folder / "long.txt").write_text("".join(f"{line}\n" for line in LINES * 9), encoding="utf-8")
    write_pictures(folder / "pictures", 2, 8)
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)
    yield folder
    for path in paths:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)


def listing(folder):
    """Return all paths below a folder, of files with the time of their last change."""
    return {
        path.relative_to(folder).as_posix(): path.lstat().st_mtime_ns * (not path.is_dir())
        for path in folder.rglob("*")
    }


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directories of a user: home, cache, temporary files, and the current one."""
    for name in ("home", "cache", "tmp", "here"):
        (tmp_path / name).mkdir()
    for name, variable in (("home", "HOME"), ("cache", "XDG_CACHE_HOME"), ("tmp", "TMPDIR")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def serve(words):
    """Serve until the server answers, then end it."""
    command = [sys.executable, "-m", "polyhead", *words]
    with subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            if b"http://" in line:
                break
        process.terminate()
        process.communicate(timeout=60)
    return 0 if b"http://" in line else 1


@pytest.mark.parametrize("words", WRITTEN)
def test_a_command_writes_only_where_the_documentation_says(words, inputs, place, monkeypatch):
    given = words.replace("{in}", str(inputs)).replace("{made}", str(place / "made"))
    if "{made}" in words:
        assert main(["export", str(inputs / "fill"), "--output", str(place / "made" / "hf")]) == 0
    read, before = listing(inputs), listing(place)
    parts = shlex.split(given)
    monkeypatch.setattr(sys, "stdin", None)
    code = serve(parts) if parts[0] == "serve" else program.main(parts)
    assert code == 0
    assert listing(inputs) == read
    after = listing(place)
    changed = {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}
    allowed = [*WRITTEN[words], "tmp/torchinductor_*"]
    if any(pattern.startswith("cache/") for pattern in allowed):
        allowed.append("cache/polyhead")
    assert {name for name in changed if not any(fnmatch.fnmatch(name, p) for p in allowed)} == set()
    for pattern in WRITTEN[words]:
        assert fnmatch.filter(changed, pattern), f"{pattern}: nothing written"
