"""Images in stores: the same weights as from memory, decoded once, damage found."""

import hashlib
import shutil

import pytest
import torch
from expected_errors import raises
from tiny_images import TINY, write_pictures

from polyhead.data import corpus_cache
from polyhead.data.images import dataset
from polyhead.data.images.dataset import ImageReader, ImageSet
from polyhead.data.images.files import PixelShape
from polyhead.errors import DataError
from polyhead.training.callbacks import Callback
from polyhead.training.config import build
from polyhead.training.run_log import READING
from polyhead.training.trainer import train

pytest.importorskip("PIL.Image")
SHAPE = PixelShape(8, 8, 3)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """Give every test a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus_cache, "_HELD", {})


def config_of(images, store, valid=(), **options):
    data = {"images": [str(images)], "valid_images": list(map(str, valid)), "store": store}
    training = TINY["train"] | {"steps": 6, "validate_every": 3, "save_every": 6} | options
    augment = {"flip": True, "shift": 1, "cutmix": 1.0}
    return build(TINY | {"data": data | {"augment": augment}, "train": training})


def weights(run):
    return hashlib.sha256((run / "last" / "model.safetensors").read_bytes()).hexdigest()


def load(images, store, **options):
    data = config_of(images, store, **options).data
    return dataset.read_image_corpus(data, SHAPE, 1, READING.get())


def is_mapped(corpus):
    return corpus.train.file.name is not None


def test_weights_are_equal_from_a_store_and_from_memory(tmp_path, monkeypatch):
    images = write_pictures(tmp_path / "pictures")
    sums, notes = {}, {}
    for store, workers in (("never", 0), ("always", 0), ("always", 1)):
        run = tmp_path / f"{store}-{workers}"
        train(config_of(images, store, workers=workers), run)
        sums[run], notes[run] = weights(run), (run / "data.json").read_text()
    assert len(set(sums.values())) == len(set(notes.values())) == 1
    [entry] = corpus_cache.list_stores()
    assert entry.contents == "24 images of 8 x 8 pixels"
    monkeypatch.setattr(ImageReader, "__iter__", None)  # neither decoded
    monkeypatch.setattr(ImageSet, "fingerprint", None)  # nor read again
    assert train(config_of(images, "always"), tmp_path / "never-0").step == 6


def test_a_stored_set_is_the_one_in_memory(tmp_path):
    images = write_pictures(tmp_path / "pictures", n=12)
    shutil.copytree(images / "red", tmp_path / "valid" / "red")
    (images / "red" / "bad.png").write_text("no image")
    options = {"valid": [tmp_path / "valid"]}
    memory, prints = load(images, "never", **options)
    for _ in range(2):  # made, and opened
        corpus, stored_prints = load(images, "always", **options)
        assert stored_prints == prints
        assert corpus.classes == memory.classes
        assert corpus.notices == memory.notices
        assert is_mapped(corpus)
        assert corpus.valid.labels.tolist() == [2] * 12
        part = corpus.train.pixels_of(torch.tensor([20, 3]))
        assert torch.equal(part, memory.train.pixels[[20, 3]])


def test_large_sets_are_stored_and_small_ones_are_not(tmp_path, monkeypatch):
    images = write_pictures(tmp_path / "pictures")
    assert not is_mapped(load(images, "auto")[0])
    assert corpus_cache.list_stores() == []
    monkeypatch.setattr(dataset, "LARGE", 23 * SHAPE.n_bytes)
    assert is_mapped(load(images, "auto")[0])
    assert not is_mapped(load(images, "never")[0])
    assert len(corpus_cache.list_stores()) == 1


def test_equal_images_are_held_out_together(tmp_path):
    images = write_pictures(tmp_path / "pictures", n=30)
    for colour in ("red", "green", "blue"):
        for number in range(20):
            shutil.copy(images / colour / f"{number}.png", images / colour / f"copy-{number}.png")
    notices = set()
    for store in ("never", "always", "always"):
        corpus, _ = load(images, store)
        train, valid = (
            {image.numpy().tobytes() for image in part.pixels}
            for part in (corpus.train, corpus.valid)
        )
        assert not train & valid
        assert len(valid) < len(corpus.valid) <= 15
        notices.add(corpus.notices[-1])
    assert len(notices) == 1
    assert "share a text or an image" in notices.pop()


def test_a_damaged_image_is_found_when_it_is_read(tmp_path, monkeypatch):
    images = write_pictures(tmp_path / "pictures")
    load(images, "always")
    [entry] = corpus_cache.list_stores()
    path = corpus_cache.folder() / entry.key / "image.bin"
    path.write_bytes(b"??" + path.read_bytes()[2:])
    monkeypatch.setattr(corpus_cache, "check_blocks", lambda _: None)
    corpus, _ = load(images, "always")
    with raises(DataError, "damaged_store"):
        _ = corpus.train.pixels


def test_changed_images_are_decoded_again(tmp_path):
    images = write_pictures(tmp_path / "pictures")
    _, before = load(images, "always")
    assert load(images, "always")[1] == before
    assert len(corpus_cache.list_stores()) == 1
    shutil.copy(images / "red" / "0.png", images / "red" / "1.png")
    assert load(images, "always")[1] != before
    assert len(corpus_cache.list_stores()) == 2


def test_progress_is_reported_while_images_are_decoded(tmp_path, monkeypatch):
    stages = []
    reporter = Callback()
    reporter.on_stage = stages.append
    monkeypatch.setattr(dataset, "PROGRESS_SECONDS", 0.0)
    token = READING.set(reporter)
    load(write_pictures(tmp_path / "pictures"), "always")
    READING.reset(token)
    assert stages[0].startswith("decoding the images: 24 images")
