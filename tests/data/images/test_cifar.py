"""Files of CIFAR-10 are read as its authors describe them."""

import numpy as np
import pytest
from expected_errors import raises

from polyhead.data.config import DataConfig
from polyhead.data.images.dataset import load_images
from polyhead.data.images.files import PixelShape
from polyhead.errors import DataError

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write(folder, labels, seed=0):
    """Write records: a label, then 1,024 red, 1,024 green and 1,024 blue pixels, row by row."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)  # as Pillow has them
    rows = [
        bytes([n]) + image.transpose(2, 0, 1).tobytes()
        for n, image in zip(labels, images, strict=True)
    ]
    (folder / "data_batch_1.bin").write_bytes(b"".join(rows))
    return images


def load(folder, channels=3, size=32):
    config = DataConfig(images=(str(folder / "data_batch_1.bin"),), hold_out=1)
    return load_images(config, PixelShape(size, size, channels), seed=1)


@pytest.mark.parametrize("named", [True, False])
def test_pixels_and_classes(named, tmp_path):
    labels = [3, 3, 9, 0, 9, 3]
    images = write(tmp_path, labels)
    if named:
        (tmp_path / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    corpus = load(tmp_path)
    assert corpus.classes == (("airplane", "cat", "truck") if named else ("0", "3", "9"))
    pixels = {
        part.numpy().tobytes() for side in (corpus.train, corpus.valid) for part in side.pixels
    }
    assert pixels == {image.transpose(2, 0, 1).tobytes() for image in images}
    index = next(i for i, p in enumerate(corpus.train.pixels) if p[0, 0, 0] == images[2, 0, 0, 0])
    assert corpus.classes[corpus.train.labels[index]] == ("truck" if named else "9")


def test_grey_is_that_of_pillow(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    images = write(tmp_path, [0, 0, 1, 1])
    corpus = load(tmp_path, channels=1)
    greys = [np.asarray(image_module.fromarray(image).convert("L")).astype(int) for image in images]
    for pixels in corpus.train.pixels:
        assert min(abs(pixels[0].numpy().astype(int) - grey).max() for grey in greys) <= 1


@pytest.mark.parametrize("content", [b"", b"x" * 3072, b"\x0a" + bytes(3072)])
def test_other_files_are_errors(content, tmp_path):
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    with raises(DataError, "not_cifar"):
        load(tmp_path)
