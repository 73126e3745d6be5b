"""Images from directories and idx files, and their errors."""

import gzip
import io
import os
import shutil
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from expected_errors import raises

from polyhead.data.config import DataConfig
from polyhead.data.images import files as image_files
from polyhead.data.images.dataset import digits, fitted, load_images, load_set
from polyhead.data.images.files import LIMITS, PixelShape, Unreadable, decode, decode_all
from polyhead.data.images.image_arrays import read_images
from polyhead.errors import ConfigError, DataError, MissingError

Image = pytest.importorskip("PIL.Image")
SHAPE = PixelShape(8, 8, 3)


def packed(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def plain(colour, mode="RGB", size=(8, 8), form="PNG"):
    return packed(Image.new(mode, size, colour), form)


def read(content, height=8, width=8, channels=3):
    return decode(content, PixelShape(height, width, channels))


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return str(folder)


def load(*paths, shape=SHAPE, valid=(), seed=1, **options):
    images, valid_images = (tuple(map(str, names)) for names in (paths, valid))
    return load_images(DataConfig(images=images, valid_images=valid_images, **options), shape, seed)


@pytest.fixture
def pets(tmp_path):
    """Four cats in shades of red, six dogs in shades of green."""
    cats = {f"cat/{i}.png": plain((40 * i + 20, 0, 0)) for i in range(4)}
    dogs = {f"dog/{i}.png": plain((0, 30 * i + 20, 0)) for i in range(6)}
    return write(tmp_path / "pets", cats | dogs)


# One image


@pytest.mark.parametrize("form", ["PNG", "BMP", "GIF", "TIFF", "PPM"])
def test_saved_pixels_are_read_back(form):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 2, (8, 8, 3), dtype=np.uint8) * 255
    assert np.array_equal(read(packed(Image.fromarray(pixels), form)), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("L", 77, (77, 77, 77)),
        ("1", 1, (255, 255, 255)),
        ("RGB", (10, 20, 30), (10, 20, 30)),
        ("RGBA", (10, 20, 30, 255), (10, 20, 30)),
        ("RGBA", (10, 20, 30, 0), (255, 255, 255)),  # fully transparent
        ("LA", (0, 0), (255, 255, 255)),
        ("I;16", 257 * 9, (9, 9, 9)),
    ],
)
def test_all_pixel_modes_are_converted(mode, colour, expected):
    pixels = read(plain(colour, mode))
    assert pixels.shape == (3, 8, 8)
    assert [set(np.unique(channel)) for channel in pixels] == [{value} for value in expected]


def test_sixteen_bits_are_scaled():
    deep = np.linspace(0, 65_535, 64).astype(np.uint16).reshape(8, 8)
    pixels = read(packed(Image.fromarray(deep)), channels=1)[0]
    assert np.abs(pixels - deep / 257).max() <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GIF is only the first word of this text", "not an image"),
        (b"", "the file is empty"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "not an image"),  # no program runs
        (packed(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF"), "floating-point"),
    ],
)
def test_other_contents_are_unreadable(content, reason):
    with pytest.raises(Unreadable, match=reason):
        read(content)


def test_palettes_and_their_transparency_are_resolved():
    image = Image.new("P", (8, 8), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    assert read(packed(image))[:, 0, 0].tolist() == [0, 0, 255]
    assert read(packed(image, transparency=1))[:, 0, 0].tolist() == [255, 255, 255]


def test_cmyk_photographs_are_read():
    pixels = read(plain((0, 255, 255, 0), "CMYK", form="JPEG"))
    assert np.abs(pixels.astype(int) - np.array([255, 0, 0])[:, None, None]).max() < 8


def test_photographs_are_rotated_by_their_exif_data():
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255  # white above
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6  # rotate a quarter turn clockwise
    turned = read(packed(image, exif=exif))[0]
    assert (turned == pixels[..., 0].T[:, ::-1]).all()  # white to the right


def test_the_centre_is_cut_out():
    pixels = np.zeros((8, 24, 3), np.uint8)
    pixels[:, 8:16] = 255
    assert (read(packed(Image.fromarray(pixels))) == 255).all()
    assert (read(packed(Image.fromarray(pixels.transpose(1, 0, 2)))) == 255).all()
    assert (read(plain((5, 6, 7), size=(1, 1))) == np.array([5, 6, 7])[:, None, None]).all()
    assert (read(plain((255, 255, 255)), channels=1) == np.full((1, 8, 8), 255)).all()


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_truncated_file_is_unreadable(form):
    rng = np.random.default_rng(0)
    whole = packed(Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)), form)
    with pytest.raises(Unreadable, match="damaged"):
        read(whole[: len(whole) // 2])


def test_a_bomb_is_rejected_by_its_header():
    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    for width, height in ((10_001, 10_000), (2**30, 2**30), (60_000, 60_000)):
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", header), (b"IDAT", b""), (b"IEND", b""))
        bomb = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
        with pytest.raises(Unreadable, match="more than 100,000,000"):
            read(bomb)


# Many images


@pytest.fixture
def with_megabytes(monkeypatch):
    """Give the child process that decodes images less memory."""

    def give(megabytes):
        monkeypatch.setattr(
            image_files._DECODER.sandbox, "limits", LIMITS._replace(megabytes=megabytes)
        )

    return give


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16"])
def test_two_copies_of_a_large_image_are_enough(with_megabytes, mode):
    transparent = {"transparency": 0} if mode == "P" else {}
    content = packed(Image.new(mode, (3000, 2000)), compress_level=1, **transparent)
    with_megabytes(2 * 4 * 6 + 8)  # 4 bytes per pixel, and bands
    assert read(content).tolist() == np.full((3, 8, 8), 0 if mode == "I;16" else 255).tolist()


def test_an_image_that_exceeds_the_memory_costs_no_other(with_megabytes):
    bomb, good = plain((1, 2, 3), size=(3000, 2000)), plain((1, 2, 3))
    with_megabytes(12)
    first, second, third = decode_all([good, bomb, good], SHAPE)
    assert isinstance(second, Unreadable)
    assert "12 MB" in str(second)
    assert np.array_equal(first, third)
    assert first[:, 0, 0].tolist() == [1, 2, 3]


def test_warnings_about_an_image_are_not_shown(capfd, recwarn):
    content = bytearray(plain("red", form="TIFF"))
    entry = content.index(struct.pack("<HHI", 257, 4, 1))
    content[entry + 4 : entry + 8] = struct.pack("<I", 10**6)  # "Tag data larger than file"
    with pytest.raises(Unreadable):
        read(bytes(content))
    assert len(recwarn) == 0
    assert capfd.readouterr().err == ""


def test_directories_are_classes(pets):
    corpus = load(pets, valid=[pets])
    assert corpus.classes == ("cat", "dog")
    assert corpus.train.labels.tolist() == [0] * 4 + [1] * 6
    assert corpus.train.pixels.shape == (10, 3, 8, 8)
    assert corpus.train.pixels[:, 0, 0, 0].tolist() == [20, 60, 100, 140] + [0] * 6
    assert corpus.train.pixels[4:, 1, 0, 0].tolist() == [20, 50, 80, 110, 140, 170]
    assert corpus.notices == ()


def test_fingerprints_depend_on_pixels_labels_and_names(pets):
    corpus = load(pets, valid=[pets])
    train, classes = corpus.train, corpus.classes
    prints = {train.fingerprint(classes), train.fingerprint(("cat", "fox"))}
    pixels, labels = train.pixels.clone(), train.labels.clone()
    pixels[3, 1, 2, 2] += 1
    labels[0] = 1
    prints |= {type(train).of(pixels, train.labels).fingerprint(classes)}
    prints |= {type(train).of(train.pixels, labels).fingerprint(classes)}
    assert len(prints) == 4


def test_bad_images_are_skipped_or_an_error(pets, tmp_path):
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "pets" / "dog" / "cut.png").write_bytes(plain("red")[:40])
    (tmp_path / "pets" / "lost.png").write_bytes(plain("red"))
    (tmp_path / "pets" / "cat" / ".DS_Store").write_bytes(b"ignored")
    (tmp_path / "pets" / "cat" / "out.png").symlink_to(tmp_path / "elsewhere.png")
    (tmp_path / "elsewhere.png").write_bytes(plain("red"))
    corpus = load(pets, valid=[pets])
    assert len(corpus.train) == 10
    (notice, _) = corpus.notices
    assert "4 bad images skipped: " in notice
    assert "cat/notes.txt: not an image" in notice
    assert "dog/cut.png: " in notice
    assert "cat/out.png: a link out of the directory" in notice
    assert "lost.png" in notice
    assert "DS_Store" not in notice
    with raises(DataError, "bad_image", "cat/notes.txt: not an image"):
        load(pets, on_bad_line="fail")


def folder_of(path, names, content=None):
    """Write a directory of images whose names are in CP949."""
    for name in names:
        place = Path(os.fsdecode(os.fsencode(path) + b"/" + name.encode("cp949")))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(plain("red") if content is None else content.get(name, plain("red")))
    return path


def test_class_names_must_be_printable_utf8(tmp_path):
    path = folder_of(tmp_path / "a", ["고양이/1.png", "고양이/2.png", "dog/1.png", "dog/2.png"])
    with raises(
        DataError, "invalid_class_name", r"'\udcb0\udced\udcbe\udce7\udcc0\udccc'", "고양이"
    ):
        load(path, valid=[path])
    escaped = folder_of(tmp_path / "b", ["\x1b[2Jcat/1.png", "dog/1.png"])
    with raises(DataError, "invalid_class_name", r"'\x1b[2Jcat'"):
        load(escaped, valid=[escaped])


def test_names_of_bad_images_are_escaped(tmp_path):
    names = ["cat/1.png", "cat/\x1b[31m.png", "cat/나쁜.png", "dog/1.png", "lost\r.png"]
    bad = {names[1]: b"no image", names[2]: b"no image"}
    path = folder_of(tmp_path / "a", names, bad)
    notice, *_ = load(path, valid=[path]).notices
    assert notice.isprintable()
    notice.encode()
    assert r"cat/\x1b[31m.png: not an image" in notice
    assert r"lost\r.png: not in a directory of its class" in notice


def test_archives_and_arrays_are_refused(tmp_path):
    for name in ("photos.tar.gz", "photos.npz", "photos.npy"):
        (tmp_path / name).write_bytes(b"anything")
        with raises(DataError, "unknown_format", name):
            load(tmp_path / name)


def test_unusable_collections_are_errors(tmp_path):
    (tmp_path / "empty").mkdir()
    with raises(DataError, "no_images", "empty"):
        load(tmp_path / "empty")
    one = write(tmp_path / "one", {"cat/1.png": plain("red"), "cat/2.png": plain("red")})
    with raises(DataError, "too_few_classes", "cat"):
        load(one)
    with raises(ConfigError, "no_data"):
        load()
    (tmp_path / "text.txt").write_text("neither")
    with raises(DataError, "unknown_format", "text.txt"):
        load(tmp_path / "text.txt")
    fox = write(tmp_path / "fox", {"cat/1.png": plain("red"), "fox/1.png": plain("red")})
    dog = write(tmp_path / "dog", {"cat/1.png": plain("red"), "dog/1.png": plain("red")})
    with raises(DataError, "unknown_class", "'fox'", "cat"):
        load(dog, valid=[fox])
    alone = write(tmp_path / "alone", {"a/1.png": plain("red"), "b/1.png": plain("red")})
    with raises(DataError, "too_few_examples"):
        load(alone)


def test_classes_are_merged_and_similar_names_reported(pets, tmp_path):
    more = write(tmp_path / "more", {"cat/9.png": plain("blue"), "Dog/9.png": plain("blue")})
    corpus = load(pets, more, valid=[pets])
    assert corpus.classes == ("Dog", "cat", "dog")
    assert (corpus.train.labels == 1).sum() == 5
    assert "'Dog' and 'dog'" in corpus.notices[0]
    spelt = write(  # NFD and NFC
        tmp_path / "spelt", {"cafe\u0301/1.png": plain("red"), "caf\u00e9/2.png": plain("red"),
                             "dog/3.png": plain("red")})  # fmt: skip
    assert load(spelt, valid=[spelt]).classes == ("caf\u00e9", "dog")


def test_held_out_images_are_stratified(tmp_path):
    sizes = {"a": 40, "b": 20, "c": 2, "d": 1}
    many = {f"{c}/{i}.png": plain((i, ord(c), 0)) for c, n in sizes.items() for i in range(n)}
    folder = write(tmp_path / "many", many)
    corpus = load(folder)
    assert torch.bincount(corpus.valid.labels, minlength=4).tolist() == [4, 2, 1, 0]
    assert torch.bincount(corpus.train.labels, minlength=4).tolist() == [36, 18, 1, 1]
    both = torch.cat([corpus.train.pixels, corpus.valid.pixels])[:, :, 0, 0]
    assert len(both.unique(dim=0)) == 63  # each once
    again = load(folder)
    assert torch.equal(corpus.valid.pixels, again.valid.pixels)
    other = load(folder, seed=2)
    assert not torch.equal(corpus.valid.pixels, other.valid.pixels)
    assert "7 of 63 images" in corpus.notices[-1]


# idx files and digits, which need no Pillow


def test_missing_packages_are_errors(pets, monkeypatch, mnist):
    for name in ("PIL", "sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with raises(MissingError, "missing_package", "Pillow", "pip install"):
        load(pets)
    with raises(MissingError, "missing_package", "scikit-learn", "pip install"):
        load(corpus="digits")
    assert len(load(mnist[0], valid=[mnist[0]]).train) == 12


def idx(shape, content):
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + content


@pytest.fixture
def mnist(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 5, 7), dtype=np.uint8)
    labels = bytes([0, 1, 2] * 4)
    images = tmp_path / "train-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(idx(pixels.shape, pixels.tobytes())))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx((12,), labels))
    return images, pixels


def test_idx_files_are_read_with_their_labels(mnist):
    path, pixels = mnist
    corpus = load(path, valid=[path], shape=PixelShape(5, 7, 1))
    assert corpus.classes == ("0", "1", "2")
    assert np.array_equal(corpus.train.pixels[:, 0].numpy(), pixels)
    assert corpus.train.labels.tolist() == [0, 1, 2] * 4


@pytest.mark.parametrize(
    ("damage", "code", "mention"),
    [
        (lambda good: good[:-1], "damaged_idx", "419"),
        (lambda good: good + b"x", "damaged_idx", "420"),
        (lambda good: good[:4] + b"\xff" * 12 + good[16:], "damaged_idx", "bytes"),
        (lambda good: good[:9], "damaged_idx", "bytes"),
        (lambda good: bytes((0, 0, 13, 3)) + good[4:], "not_idx", "3 axes"),
    ],
)
def test_damaged_idx_files_are_errors(mnist, damage, code, mention):
    path, _ = mnist
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))
    with raises(DataError, code, mention):
        read_images(path)


def test_missing_labels_are_errors(mnist, tmp_path):
    path, _ = mnist
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx((11,), bytes(11)))
    with raises(DataError, "unequal_lengths", "12 images", "11 labels"):
        read_images(path)
    labels.unlink()
    with raises(DataError, "no_labels", "train-labels-idx1-ubyte"):
        read_images(path)
    with raises(DataError, "no_labels", "train-images-idx3-ubyte"):
        read_images(shutil.copy(path, tmp_path / "other.gz"))


def test_arrays_are_fitted_like_files():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 20), dtype=np.uint8)
    ours = fitted(torch.from_numpy(pixels)[:, None], PixelShape(6, 6, 3))
    for array, corpus in zip(pixels, ours, strict=True):
        theirs = read(packed(Image.fromarray(array)), 6, 6)
        assert np.abs(corpus.numpy().astype(int) - theirs).max() <= 2  # different rounding
    striped = torch.zeros(1, 1, 8, 24, dtype=torch.uint8)
    striped[..., 8:16] = 255
    assert (fitted(striped, PixelShape(8, 8, 3)) == 255).all()
    assert (fitted(striped.mT, PixelShape(4, 4, 1)) == 255).all()


def test_the_digits_have_the_usual_split():
    datasets = pytest.importorskip("sklearn.datasets")
    corpus = digits(PixelShape(8, 8, 1))
    known = datasets.load_digits()
    assert (len(corpus.train), len(corpus.valid)) == (898, 899)
    assert corpus.train.labels.tolist() == known.target[:898].tolist()
    assert corpus.valid.labels.tolist() == known.target[898:].tolist()
    back = corpus.valid.pixels[:, 0].double() / 255 * 16
    assert np.abs(back.numpy() - known.images[898:]).max() < 0.04
    images, _ = load_set(DataConfig(corpus="digits"), PixelShape(8, 8, 1), corpus.classes)
    assert images.labels.equal(corpus.valid.labels)
