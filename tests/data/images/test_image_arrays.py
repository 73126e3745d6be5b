"""Images and labels from NumPy files."""

import io
import zipfile

import numpy as np
import pytest
from expected_errors import raises

from polyhead.data.config import DataConfig
from polyhead.data.images.dataset import load_images
from polyhead.data.images.files import PixelShape
from polyhead.data.images.image_arrays import ArrayImages, read_arrays
from polyhead.errors import DataError

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
LABELS = np.array([2, 10, 1] * 4)


def write(folder, images, labels, ending="npy"):
    path = folder / f"photos.{ending}"
    if ending == "npz":
        np.savez_compressed(path, images=images, labels=labels)
    else:
        np.save(path, images)
        np.save(folder / "photos.labels.npy", labels)
    return path


def load(path, channels=3):
    config = DataConfig(images=(str(path),), hold_out=3)
    return load_images(config, PixelShape(8, 8, channels), seed=1)


@pytest.mark.parametrize("ending", ["npy", "npz"])
@pytest.mark.parametrize("kind", ["uint8", "float32", "float64"])
def test_pixels_and_classes_of_both_formats_and_all_types(ending, kind, tmp_path):
    images = COLOUR if kind == "uint8" else (COLOUR / 255).astype(kind)
    corpus = load(write(tmp_path, images, LABELS, ending))
    assert corpus.classes == ("1", "2", "10")  # in the order of the numbers
    expected = {image.tobytes(): str(label) for image, label in zip(COLOUR, LABELS, strict=True)}
    for part in (corpus.train, corpus.valid):
        for pixels, number in zip(part.pixels, part.labels, strict=True):
            image = pixels.permute(1, 2, 0).numpy().tobytes()
            assert expected[image] == corpus.classes[number]


def test_floats_are_rounded_to_the_nearest_byte():
    between = (COLOUR - np.float32(0.4)).clip(0) / 255
    arrays = ArrayImages(between, ["a"] * 12)
    assert np.array_equal(next(arrays.chunks()), COLOUR.transpose(0, 3, 1, 2))


def test_grey_images_names_and_a_column_of_labels(tmp_path):
    names = np.array([["cat"], ["dog"]] * 6)
    corpus = load(write(tmp_path, COLOUR[..., 0], names))
    assert corpus.classes == ("cat", "dog")
    assert corpus.train.pixels.shape[1:] == (3, 8, 8)
    assert (corpus.train.pixels[:, 0] == corpus.train.pixels[:, 2]).all()
    grey = load(write(tmp_path, COLOUR, names), channels=1)
    assert grey.train.pixels.shape[1:] == (1, 8, 8)


def test_npy_images_stay_on_disk(tmp_path):
    assert isinstance(read_arrays(write(tmp_path, COLOUR, LABELS)).images, np.memmap)


@pytest.mark.parametrize(
    ("images", "labels", "code"),
    [
        (COLOUR.transpose(0, 3, 1, 2), LABELS, "bad_image_array"),
        (COLOUR.astype(np.int64), LABELS, "bad_image_array"),
        (COLOUR / 2.0, LABELS, "bad_image_array"),
        (np.full((12, 8, 8), np.nan), LABELS, "bad_image_array"),
        (COLOUR, LABELS / 2, "bad_image_array"),
        (COLOUR, np.array(["a", " ", "b"] * 4), "bad_image_array"),
        (COLOUR, LABELS[:5], "unequal_lengths"),
        (COLOUR[:0], LABELS[:0], "bad_image_array"),
    ],
)
def test_other_shapes_types_and_values_are_refused(images, labels, code, tmp_path):
    with raises(DataError, code):
        load(write(tmp_path, images, labels))


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_arrays_of_objects_are_never_unpickled(ending, tmp_path):
    objects = np.array([print] * 12, dtype=object)
    with raises(DataError, "damaged_array"):
        load(write(tmp_path, COLOUR, objects, ending))


def test_missing_labels_other_names_and_damaged_files_are_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, COLOUR)
    with raises(DataError, "no_labels"):
        load(path)
    np.savez(tmp_path / "x.npz", train=COLOUR)
    with raises(DataError, "bad_image_array"):
        load(tmp_path / "x.npz")
    path.write_bytes(path.read_bytes()[:50])
    np.save(tmp_path / "x.labels.npy", LABELS)
    with raises(DataError, "damaged_array"):
        load(path)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 no archive")
    with raises(DataError, "damaged_array"):
        load(tmp_path / "x.npz")


def test_an_archive_that_unpacks_to_very_much_is_refused(tmp_path):
    zeros = io.BytesIO()
    np.save(zeros, np.zeros((70, 1024, 1024), np.uint8))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", zeros.getvalue())
    with raises(DataError, "too_large"):
        load(tmp_path / "x.npz")
