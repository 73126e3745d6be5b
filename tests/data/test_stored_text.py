"""Corpora in stores: the same weights as from memory, made once, shared, and never half written."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from expected_errors import raises
from tiny import SMALL, write_corpus
from token_data import write_questions, write_tagged

from polyhead.checkpoint import atomic_dir
from polyhead.data import corpus_cache, corpus_store, file_sums, line_spool, stored_text
from polyhead.data.corpus_store import write_store
from polyhead.data.line_encoder import StoreForm
from polyhead.data.schedules import generator as schedules
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError, PolyheadError
from polyhead.metrics.perplexity import encode_running_text
from polyhead.tasks.masked_tokens import parts_of
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer, text_config
from polyhead.tokenizers.storage import TokenizerPair, load_tokenizers, save_tokenizers
from polyhead.training.config import read_run
from polyhead.training.tasks import base
from polyhead.training.tasks.from_object import training_of
from polyhead.training.trainer import train

TINY = (
    "text.vocab=800", "train.steps=4", "train.validate_every=4", "train.save_every=4",
    "train.max_tokens=300",
)  # fmt: skip
BLOCK = ("model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
         "model.stack.d_ff=32")  # fmt: skip
ENCODER = tuple(option.replace("model.", "model.encoder.") for option in BLOCK)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """Give every test a cache of its own, and small chunks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(line_spool, "CHUNK", 7)
    monkeypatch.setattr(corpus_cache, "_HELD", {})


def weights(run):
    return hashlib.sha256((run / "last" / "model.safetensors").read_bytes()).hexdigest()


def corpus_key(config):
    return stored_text.corpus_key(config.data, config.task, config.train.seed)


def text_files(folder):
    pairs = schedules.generate(120, 0, 0, 3).train
    text = folder / "text.txt"
    lines = [line for pair in pairs for line in (*pair, "")]
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    labelled = folder / "labelled.tsv"
    rows = [f"{side}\t{name}\n" for pair in pairs for side, name in zip(pair, "ab", strict=True)]
    labelled.write_text("".join(rows), encoding="utf-8")
    return {"text": [str(text)]}, {"labelled": [str(labelled)]}


def tagged_files(folder):
    return {"labelled": [str(write_tagged(folder / "tags.tsv", 40))]}


def question_files(folder):
    return {"labelled": [str(write_questions(folder / "questions.jsonl", 40))]}


def config_of(task, folder, *overrides):
    plain, labelled = text_files(folder)
    recipe, options, files = {
        "translation": ("small", SMALL, write_corpus(folder)),
        "sampling": ("small", (*SMALL, "text.sampling=0.2"), write_corpus(folder)),
        "words": ("small", (*SMALL, "text.kind=words"), write_corpus(folder)),
        "language": ("gpt-tiny", (*TINY, *BLOCK, "data.max_length=16"), plain),
        "masked": ("bert-nsmc", (*TINY, *BLOCK, "data.max_length=12"), plain),
        "labelled": ("classify-small", (*TINY, *ENCODER, "data.max_length=16"), labelled),
        "labelled sampling": (
            "classify-small",
            (*TINY, *ENCODER, "data.max_length=16", "text.sampling=0.2"),
            labelled,
        ),
        "tags": ("tagger-small", (*TINY, *ENCODER, "data.max_length=8"), tagged_files(folder)),
        "spans": (
            "qa-small",
            (*TINY, *ENCODER, "data.max_length=16", "data.stride=4"),
            question_files(folder),
        ),
    }[task]
    return read_run(recipe, (*options, "train.workers=0", *overrides), files)


@pytest.mark.parametrize("task", [
    "translation", "sampling", "words", "language", "masked", "labelled", "labelled sampling",
    "tags", "spans",
])  # fmt: skip
def test_weights_are_equal_from_a_store_and_from_memory(task, tmp_path, monkeypatch):
    sums, notes = {}, {}
    for store in ("never", "always"):
        run = tmp_path / store
        train(config_of(task, tmp_path, f'data.store="{store}"'), run)
        sums[store], notes[store] = weights(run), (run / "data.json").read_text()
    assert sums["always"] == sums["never"]
    assert notes["always"] == notes["never"]  # fingerprints
    assert len(corpus_cache.list_stores()) == 1
    monkeypatch.setattr(stored_text, "write_store", None)
    monkeypatch.setattr(line_spool.LineSpool, "write", None)  # neither read nor encoded again
    for store in ("always", "never"):  # which are no change of the configuration
        more = config_of(task, tmp_path, 'data.store="always"')
        again = train(more, tmp_path / store)
        assert again.step == more.train.steps


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("kind", ["pairs", "parts"])
def test_scattered_examples_are_complete_and_whatever_the_processes(
    kind, processes, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    train(config_of("sampling", tmp_path, 'data.store="never"'), run)
    monkeypatch.setattr(corpus_store, "BLOCK", 30)
    monkeypatch.setattr(corpus_store, "BUFFER", 100)
    pairs = schedules.generate(100, 0, 0, 4).train
    spool = line_spool.LineSpool(2)
    spool.write(pairs)
    spool.left_out = [0, 6, 7, 50, 99]
    left = [pair for n, pair in enumerate(pairs) if n not in spool.left_out]
    form = StoreForm("pairs", 40, with_texts=True)
    if kind == "parts":
        form = StoreForm("parts", 9, task="polyhead.tasks.masked_tokens:MaskedLM")
    place = tmp_path / "stores"
    place.mkdir()
    done = []
    monkeypatch.setattr(corpus_store, "PROGRESS_SECONDS", -1 if kind == "pairs" else 10**9)
    counts, _ = write_store(
        place, spool, run / "tokenizer", form, processes=processes, progress=done.append
    )
    assert done == (sorted(set(done)) if kind == "pairs" else [])
    assert len(done) > 1 or kind == "parts"
    stores = {name: TokenSequences.open(place / name) for name in form.names}
    tokenizer = load_tokenizers(run / "tokenizer").source
    assert counts.n_lines == 95
    if kind == "parts":
        assert sorted(s.tolist() for s in stores["text"]) == sorted(
            parts_of([tokenizer.encode(source) for source, _ in left], 9)
        )
    else:
        read = [
            tuple(bytes(stores[f"{side}_text"][n].tolist()).decode() for side in form.names[:2])
            for n in range(counts.n_examples)
        ]
        kept = [pair for pair in left if max(len(tokenizer.encode(side)) for side in pair) <= 40]
        assert sorted(read) == sorted(kept)
        edges = stores["source"].documents
        numbers = {pair: int(np.searchsorted(edges, n, "right")) for n, pair in enumerate(read)}
        blocks = [numbers[pair] for pair in kept]  # at random, also within a chunk of 7 pairs
        assert sum(after < before for before, after in pairwise(blocks)) > 20
        assert counts.n_too_long == len(left) - len(kept)
        for number, pair in enumerate(read):  # the sides and their ids belong together
            for side, text in zip(form.names[:2], pair, strict=True):
                assert stores[side][number].tolist() == tokenizer.encode(text)
    documents = stores[form.names[0]].documents
    assert len(documents) == 5  # 4 blocks
    assert documents[-1] == counts.n_examples == len(stores[form.names[0]])
    assert not (place / "blocks").exists()


@pytest.mark.parametrize("task", ["translation", "masked", "language", "labelled"])
def test_the_order_of_many_examples_is_the_same_from_any_store(task, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_store, "BLOCK", 30)
    sums = set()
    for store in ("never", "always"):
        train(config_of(task, tmp_path, f'data.store="{store}"'), tmp_path / store)
        sums.add(weights(tmp_path / store))
    assert len(sums) == 1
    if task in ("translation", "masked"):  # a run of earlier versions, from memory
        path = tmp_path / "never" / "data.json"
        path.write_text(path.read_text().replace("in blocks", "of reading"))
        with raises(DataError, "data_changed", "order"):
            train(config_of(task, tmp_path), tmp_path / "never")


@pytest.mark.parametrize("task", ["translation", "language", "labelled"])
def test_fewer_examples_are_the_same_from_any_store(task, tmp_path):
    sums = set()
    for store in ("never", "always"):
        config = config_of(task, tmp_path, f'data.store="{store}"', "data.max_examples=40")
        train(config, tmp_path / store)
        sums.add(weights(tmp_path / store))
    assert len(sums) == 1
    assert corpus_cache.list_stores()[0].n_examples <= 40


def stored(tmp_path, name="run"):
    run = tmp_path / name
    train(config_of("translation", tmp_path, 'data.store="always"'), run)
    return run


def test_a_damaged_store_is_made_again(tmp_path):
    run = stored(tmp_path)
    [entry] = corpus_cache.list_stores()
    place = corpus_cache.folder() / entry.key
    corpus_cache._HELD.clear()  # as in another process
    (place / "store.json").write_text("{}")
    train(config_of("translation", tmp_path, 'data.store="always"'), run)
    assert json.loads((place / "store.json").read_text())["n_examples"] == entry.n_examples
    for name in ("source.bin", "target.idx"):
        corpus_cache._HELD.clear()
        content = bytearray((place / name).read_bytes())
        content[len(content) // 2] ^= 1
        (place / name).write_bytes(content)
        train(config_of("translation", tmp_path, 'data.store="always"'), run)
        content[len(content) // 2] ^= 1
        assert (place / name).read_bytes() == content


@pytest.mark.parametrize(("task", "name"), [("translation", "target"), ("language", "text")])
def test_damage_that_is_found_while_training_is_repaired_at_the_next_start(
    task, name, tmp_path, monkeypatch
):
    config = config_of(task, tmp_path, 'data.store="always"')
    train(config, tmp_path / "run")
    [entry] = corpus_cache.list_stores()
    path = corpus_cache.folder() / entry.key / f"{name}.bin"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    corpus_cache._HELD.clear()  # as in another process
    with monkeypatch.context() as patch:
        patch.setattr(corpus_cache, "check_blocks", lambda _: None)  # others are drawn
        with raises(DataError, "damaged_store", entry.key):
            train(config, tmp_path / "other")
    corpus_cache._HELD.clear()
    train(config, tmp_path / "other")
    assert path.read_bytes() == content
    assert weights(tmp_path / "other") == weights(tmp_path / "run")


def test_a_changed_file_is_noticed_and_an_unchanged_one_is_not_read(tmp_path, monkeypatch):
    read = []
    digest = hashlib.file_digest
    monkeypatch.setattr(
        file_sums.hashlib, "file_digest", lambda file, kind: read.append(1) or digest(file, kind)
    )
    config = config_of("translation", tmp_path, 'data.store="always"')
    corpus_key(config)
    assert read == [1, 1]
    read.clear()
    corpus_key(config)
    assert read == []
    path = Path(config.data.source[0])
    path.write_text(path.read_text() + "\n")
    corpus_key(config)
    assert read == [1]


@pytest.mark.parametrize("way", ["written", "replaced"])
def test_other_text_of_the_same_size_and_time_is_noticed(way, tmp_path):
    config = config_of("translation", tmp_path, 'data.store="always"')
    path = Path(config.data.source[0])
    key, text, state = corpus_key(config), path.read_text(), path.stat()
    other = path if way == "written" else tmp_path / "other"
    other.write_text(text[::-1])
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert corpus_key(config) != key


def test_held_out_texts_that_were_changed_in_the_cache_are_read_again(tmp_path):
    config = config_of("translation", tmp_path, 'data.store="always"')
    task = training_of(config.task)
    expected = task.read_data(config)[0].valid
    path = corpus_cache.folder() / f"{corpus_key(config)}.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(expected.labels[0], expected.labels[1]), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    assert task.read_data(config)[0].valid == expected


@pytest.mark.parametrize(
    ("module", "name"), [(corpus_cache, "check_blocks"), (atomic_dir, "_sha256")]
)
def test_a_store_that_cannot_be_read_is_kept(module, name, tmp_path, monkeypatch):
    stored(tmp_path)
    [entry] = corpus_cache.list_stores()
    corpus_cache._HELD.clear()  # as in another process
    read = getattr(module, name)

    def fail(path):
        if entry.key in path.parts:
            raise OSError(errno.EMFILE, "Too many open files")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail)
        with raises(PolyheadError, "io", "Too many open files", entry.key):
            stored(tmp_path, "other")
        problems = corpus_cache.remove_damaged()
        assert len(problems) == (name == "_sha256")
        assert all("(not deleted)" in problem for problem in problems)
    monkeypatch.setattr(stored_text, "write_store", None)  # not encoded again
    stored(tmp_path, "other")


HOLD = """
import sys, time
from pathlib import Path
from polyhead.data import corpus_cache
assert corpus_cache.use_store(Path(sys.argv[1])) is not None
print("held", flush=True)
sys.stdin.read()
"""


def test_a_store_in_use_is_not_removed(tmp_path):
    stored(tmp_path)
    [entry] = corpus_cache.list_stores()
    assert entry.in_use
    assert corpus_cache.prune() == []
    corpus_cache._HELD.popitem()[1].close()
    place = str(corpus_cache.folder() / entry.key)
    command = [sys.executable, "-c", HOLD, place]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout.readline() == "held\n"
        assert corpus_cache.list_stores()[0].in_use
        assert corpus_cache.prune() == []
        child.stdin.close()
        child.wait()
    assert corpus_cache.prune(older_than=3600.0) == []
    assert [removed.key for removed in corpus_cache.prune()] == [entry.key]
    assert corpus_cache.list_stores() == []
    assert [path.name for path in corpus_cache.folder().iterdir()] == []


TRAIN = """
import sys
from pathlib import Path
from polyhead.training.config import read_run
from polyhead.training.trainer import train
train(read_run("small", sys.argv[3:], {"source": [sys.argv[1] + "/train.ko"],
      "target": [sys.argv[1] + "/train.en"]}), Path(sys.argv[1]) / sys.argv[2])
"""


def test_processes_that_make_the_same_store_do_not_disturb_each_other(tmp_path):
    write_corpus(tmp_path)
    options = [*SMALL, 'data.store="always"']
    children = [
        subprocess.Popen([sys.executable, "-c", TRAIN, str(tmp_path), f"run-{n}", *options])
        for n in range(3)
    ]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert len({weights(tmp_path / f"run-{n}") for n in range(3)}) == 1
    assert len(corpus_cache.list_stores()) == 1
    rest = {path.suffix for path in corpus_cache.folder().iterdir()}
    assert rest <= {"", ".json"}


def test_a_failed_store_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus_cache, "seal", fail)
    with pytest.raises(PolyheadError, match="No space left"):
        stored(tmp_path)
    assert {path.suffix for path in corpus_cache.folder().iterdir()} == {".json"}


def test_large_corpora_are_stored_and_small_ones_are_not(tmp_path, monkeypatch):
    config = config_of("translation", tmp_path).data
    assert not stored_text.is_stored(config)
    size = sum(Path(name).stat().st_size for name in (*config.source, *config.target))
    monkeypatch.setattr(stored_text, "LARGE", size - 1)
    assert stored_text.is_stored(config)
    assert not stored_text.is_stored(replace(config, store="never"))
    assert not stored_text.is_stored(replace(config, source=("-",), store="always"))


def sampled(lines):
    return list(base.sample_lines(lines, base.sample_size(lines)))


def test_tokenizers_of_large_corpora_are_trained_on_an_even_sample(monkeypatch):
    lines = [f"line {n}" for n in range(1_000)]
    assert sampled(lines) == lines
    monkeypatch.setattr(base, "MAX_LINES", 100)
    sample = sampled(lines)
    assert sample == sampled(lines)
    numbers = [int(line.split()[1]) for line in sample]
    assert 90 <= len(numbers) <= 100
    assert numbers == sorted(numbers)
    assert max(b - a for a, b in pairwise([0, *numbers, 1_000])) <= 20
    monkeypatch.setattr(base, "MAX_CHARACTERS", 80)
    assert sum(map(len, sampled(lines))) <= 100


@pytest.mark.parametrize("processes", [1, 2])
def test_chunks_of_running_text_have_the_ids_of_the_whole(processes, tmp_path):
    library = pytest.importorskip("tokenizers")
    lines = ["it's", "", "", "  two  words ", "we'll see", "\t", "x1 22", "가 나", " 라", ""] * 9
    bpe = library.ByteLevelBPETokenizer()
    text = "".join(f"{line}\n" for line in lines)
    bpe.train_from_iterator([text] * 9, 400, 2, show_progress=False, special_tokens=["<end>"])
    bpe.save_model(str(tmp_path))
    files = {name: (tmp_path / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    ids = (0, 0, 0, 0, *range(1, bpe.get_vocab_size()))
    tokenizer = HuggingFaceTokenizer("fast", files, ids)
    assert tokenizer.reads_line_ends()
    place, stores = tmp_path / "tokenizer", tmp_path / "stores"
    save_tokenizers(TokenizerPair(tokenizer, tokenizer, text_config(tokenizer, tokenizer)), place)
    spool = line_spool.LineSpool(1)
    spool.write((line,) for line in lines)
    assert len(spool._chunks) > 2
    stores.mkdir()
    write_store(stores, spool, place, StoreForm("running", 0), processes=processes)
    stored = TokenSequences.open(stores / "text").ids
    assert stored.tolist() == encode_running_text(tokenizer, lines).tolist()


READERS = {  # of one file
    "text": ("gpt-tiny", "bert-tiny", "electra-tiny"),
    "pairs": ("small", "embed-small"),
    "labelled": ("classify-small", "qa-small", "embed-small"),
    "tags": ("classify-small", "tagger-small"),
}
ORDERS = [(kind, *two) for kind, recipes in READERS.items() for two in permutations(recipes, 2)]


def file_for_all_tasks(kind, folder):
    """Write a file that several tasks can read, without equal texts."""
    if kind == "tags":
        return write_tagged(folder / "tags.tsv", 40)
    path = folder / "data.jsonl"
    for number in range(80):
        text = f"Anna came {number} times"
        answers = {"text": ["Anna"], "answer_start": [0]}
        pair = {"source": text, "target": f"Anna kam {number} mal"}
        label = {"text": text, "text_pair": pair["target"], "label": number / 80}
        record = label | {"question": f"Who, {number}?", "context": text, "answers": answers}
        with path.open("a") as file:
            file.write(json.dumps(pair if kind == "pairs" else record) + "\n")
    return path


def data_of(recipe, kind, path):
    files = {"labelled" if kind == "tags" else kind: [str(path)]}
    config = read_run(recipe, ['data.store="always"', "data.hold_out=3"], files)
    task = training_of(config.task)
    corpus, fingerprints = task.read_data(config)
    corpus.train.spool()  # which checks what is read again
    corpus.train.close()
    return len(corpus.train), fingerprints, corpus


@pytest.mark.parametrize(("kind", "before", "recipe"), ORDERS)
def test_data_is_that_of_an_empty_cache_after_any_other_task(
    kind, before, recipe, tmp_path, monkeypatch
):
    path = file_for_all_tasks(kind, tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    expected = data_of(recipe, kind, path)[:2]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "used"))
    data_of(before, kind, path)
    for _ in range(2):
        assert data_of(recipe, kind, path)[:2] == expected


def test_a_text_that_is_not_that_of_its_summary_is_refused(tmp_path, monkeypatch):
    config = config_of("labelled", tmp_path, 'data.store="always"')
    task = training_of(config.task)
    task.read_data(config)[0].train.close()
    path = Path(config.data.labelled[0])
    sums = file_sums.file_sums([path])
    path.write_text(path.read_text().replace("\ta\n", "\tb\n", 1))
    monkeypatch.setattr(stored_text, "file_sums", lambda _: sums)  # as if it were unchanged
    corpus, _ = task.read_data(config)
    with raises(DataError, "data_changed", "labelled.tsv"):
        corpus.train.spool()
    task.read_data(config)[0].train.spool()  # after which it is read anew
