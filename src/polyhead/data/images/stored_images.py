"""Images of large sets: decoded once, and trained on from a store in the cache.

The store is keyed by the contents of the files and by the pixels of an image. It has four token
stores: `image`, the bytes of every image in the order of reading; `digest`, 8 bytes of each, equal
for equal images; `row`, the numbers of those that are used, sorted by name; `label`, the class of
each of these.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyhead.data.config import DataConfig
from polyhead.data.corpus_cache import Reporting, folder, make_store, use_store
from polyhead.data.corpus_store import PROGRESS_SECONDS
from polyhead.data.file_sums import digest, file_sums, read_facts, write_facts
from polyhead.data.holdout import drawn_for_training
from polyhead.data.images.cifar import META
from polyhead.data.images.dataset import (
    ImageCorpus,
    ImageReader,
    ImageSet,
    ReadImages,
    content_digests,
    load_images,
    map_images,
)
from polyhead.data.images.files import PixelShape
from polyhead.data.images.idx import is_idx, labels_of
from polyhead.data.locate import find
from polyhead.data.token_store import CODES, TokenSequences, TokenWriter

FORMAT = 2
LARGE = 100_000_000  # bytes of all pixels
TYPES = {"image": CODES[1], "digest": CODES[1], "row": CODES[4], "label": CODES[4]}


def read_image_corpus(
    data: DataConfig, shape: PixelShape, seed: int, callback: Reporting
) -> tuple[ImageCorpus, dict[str, str]]:
    """Return the images of a configuration and their fingerprints; a large set is a store."""
    corpus = load_images(data, shape, seed, partial(_read, callback=callback))
    parts = {"training": corpus.train, "validation": corpus.valid}
    sums = {name: _fingerprint(part, corpus.classes) for name, part in parts.items()}
    used = drawn_for_training(len(corpus.train), data.max_examples, seed)
    if used is not None:
        corpus = replace(corpus, train=corpus.train.select(used.tolist()))
    return corpus, sums


def _fingerprint(images: ImageSet, classes: tuple[str, ...]) -> str:
    """Return the fingerprint of images, which is computed once for each part of a store."""
    if images.rows is None or images.file is None or images.file.name is None:
        return images.fingerprint(classes)
    numbers = torch.stack([images.rows, images.labels]).numpy().tobytes()
    key = [images.file.name.parent.name, hashlib.sha256(numbers).hexdigest(), classes]
    path = folder() / f"{digest(key)}.json"
    known = read_facts(path)
    if known is None:
        known = {"fingerprint": images.fingerprint(classes)}
        write_facts(path, known)
    return str(known["fingerprint"])


def _read(reader: ImageReader, callback: Reporting) -> ReadImages:
    """Read images into a store, or, if they are few, into memory."""
    data, shape = reader.config, reader.shape
    if data.store == "never":
        return reader.collect()
    key = digest([FORMAT, "images", shape, data.on_bad_line, file_sums(_files(data.images))])
    place = folder() / key
    info = use_store(place)
    if info is None:
        batches, first = _reported(reader, callback), []
        if data.store == "auto":
            for batch in batches:
                first.append(batch)
                if reader.n_images * shape.n_bytes > LARGE:
                    break
            else:
                return reader.collect(first)
        write = partial(
            _write, reader=reader, batches=chain(first, batches), place=place, callback=callback
        )
        info = make_store(place, write, callback.on_notice)
    stores = {name: TokenSequences.open(place / name) for name in TYPES}
    rows, labels = (
        torch.from_numpy(stores[name].ids.astype(np.int64)) for name in ("row", "label")
    )
    images = map_images(stores["image"], shape, rows, labels)
    contents = stores["digest"].ids.view(np.uint64)[rows.numpy()]
    return ReadImages(images, tuple(info["classes"]), list(info["notices"]), contents)


def _files(names: Iterable[str]) -> list[Path]:
    """Return all files and directories that images with these names are read from."""
    paths = []
    for path in map(find, names):
        paths.append(path)
        if not path.is_dir() and is_idx(path):
            paths.append(labels_of(path))
        elif path.with_name(META).is_file():
            paths.append(path.with_name(META))
    return paths


def _reported(reader: ImageReader, callback: Reporting) -> Iterator[np.ndarray]:
    """Yield the batches of a reader, and report its progress from time to time."""
    started = reported = time.monotonic()
    for batch in reader:
        now = time.monotonic()
        if now > reported + PROGRESS_SECONDS:
            reported = now
            speed = reader.n_images / (now - started)
            done = f"{reader.n_images:,} images, {speed:,.0f} per second"
            callback.on_stage(f"decoding the images: {done}")
        yield batch


def _write(
    draft: Path,
    *,
    reader: ImageReader,
    batches: Iterable[np.ndarray],
    place: Path,
    callback: Reporting,
) -> dict[str, Any]:
    """Write the token stores of images; return what else is known of them."""
    writers = {name: TokenWriter(draft / name, kind) for name, kind in TYPES.items()}
    n_bytes = reader.shape.n_bytes
    for batch in batches:
        writers["image"].add(batch.reshape(-1), np.full(len(batch), n_bytes))
        writers["digest"].add(content_digests(batch).view(np.uint8), np.full(len(batch), 8))
    classes, labels = reader.classes()
    for name, numbers in (("row", np.array(reader.rows)), ("label", labels.numpy())):
        writers[name].add(numbers, np.ones(len(numbers)))
    for writer in writers.values():
        writer.close()
    height, width, _ = reader.shape
    contents = f"{len(labels):,} images of {height} x {width} pixels"
    callback.on_notice(f"{contents} are kept in {place} for other runs (polyhead data cache)")
    return {
        "files": list(reader.config.images),
        "contents": contents,
        "n_examples": len(labels),
        "n_tokens": 0,
        "classes": classes,
        "notices": reader.notices,
    }
