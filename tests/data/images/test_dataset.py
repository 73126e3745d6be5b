"""Images from folders, archives and idx files: everything read right, or named with a reason."""

import gzip
import io
import shutil
import struct
import sys
import tarfile
import zlib

import numpy as np
import pytest
import torch

from polyhead.data.images import files as image_files
from polyhead.data.images.dataset import ImageRequest, digits, fitted, load_collection, load_set
from polyhead.data.images.files import Unreadable, decode
from polyhead.data.images.folders import ImageShape
from polyhead.data.images.idx import read_images
from polyhead.errors import ConfigError, DataError, MissingError

Image = pytest.importorskip("PIL.Image")
SHAPE = ImageShape(8, 8, 3)


def packed(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def plain(colour, mode="RGB", size=(8, 8), form="PNG"):
    return packed(Image.new(mode, size, colour), form)


def read(content, height=8, width=8, channels=3):
    return decode(content, height=height, width=width, channels=channels)


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return str(folder)


def request(*paths, shape=SHAPE, valid=(), **more):
    return ImageRequest(shape, tuple(map(str, paths)), tuple(map(str, valid)), **more)


@pytest.fixture
def pets(tmp_path):
    """Four cats in shades of red, six dogs in shades of green."""
    cats = {f"cat/{i}.png": plain((40 * i + 20, 0, 0)) for i in range(4)}
    dogs = {f"dog/{i}.png": plain((0, 30 * i + 20, 0)) for i in range(6)}
    return write(tmp_path / "pets", cats | dogs)


# One image


@pytest.mark.parametrize("form", ["PNG", "BMP", "GIF", "TIFF", "PPM"])
def test_every_usual_format_gives_the_pixels_that_were_saved(form):
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
        ("RGBA", (10, 20, 30, 0), (255, 255, 255)),  # fully transparent: the paper is seen
        ("LA", (0, 0), (255, 255, 255)),
        ("I;16", 257 * 9, (9, 9, 9)),
    ],
)
def test_every_kind_of_pixel_becomes_colour(mode, colour, expected):
    found = read(plain(colour, mode))
    assert found.shape == (3, 8, 8)
    assert [set(np.unique(channel)) for channel in found] == [{value} for value in expected]


def test_sixteen_bits_are_scaled_not_cut():
    deep = np.linspace(0, 65_535, 64).astype(np.uint16).reshape(8, 8)
    found = read(packed(Image.fromarray(deep)), channels=1)[0]
    assert np.abs(found - deep / 257).max() <= 0.5 + 1e-9


def test_palettes_and_their_transparency_are_resolved():
    image = Image.new("P", (8, 8), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    assert read(packed(image))[:, 0, 0].tolist() == [0, 0, 255]
    assert read(packed(image, transparency=1))[:, 0, 0].tolist() == [255, 255, 255]


def test_cmyk_photographs_are_read():
    found = read(plain((0, 255, 255, 0), "CMYK", form="JPEG"))
    assert np.abs(found.astype(int) - np.array([255, 0, 0])[:, None, None]).max() < 8


def test_floating_point_pixels_are_refused():
    with pytest.raises(Unreadable, match="floating-point numbers; save it with 8 bits"):
        read(packed(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF"))


def test_a_photograph_is_turned_as_its_exif_says():
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255  # white above
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was held so that the right way up is a quarter turn clockwise
    turned = read(packed(image, exif=exif))[0]
    assert (turned == pixels[..., 0].T[:, ::-1]).all()  # white to the right


def test_the_middle_is_cut_out_and_nothing_is_squeezed():
    pixels = np.zeros((8, 24, 3), np.uint8)
    pixels[:, 8:16] = 255
    assert (read(packed(Image.fromarray(pixels))) == 255).all()
    assert (read(packed(Image.fromarray(pixels.transpose(1, 0, 2)))) == 255).all()


def test_one_pixel_becomes_a_plain_image():
    assert (read(plain((5, 6, 7), size=(1, 1))) == np.array([5, 6, 7])[:, None, None]).all()


def test_grey_images_can_be_wanted_of_colour():
    white_to_black = read(plain((255, 255, 255)), channels=1)
    assert white_to_black.shape == (1, 8, 8)
    assert (white_to_black == 255).all()


def test_a_wrong_ending_does_not_matter_and_what_is_no_image_is_named():
    with pytest.raises(Unreadable, match="not an image"):
        read(b"GIF is only the first word of this text")
    with pytest.raises(Unreadable, match="the file is empty"):
        read(b"")
    with pytest.raises(Unreadable, match="not an image"):  # never handed to an outside program
        read(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_a_truncated_file_is_refused(form):
    rng = np.random.default_rng(0)
    whole = packed(Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)), form)
    with pytest.raises(Unreadable, match="damaged or unusual"):
        read(whole[: len(whole) // 2])


def test_a_bomb_is_refused_by_its_header_before_anything_is_decoded(monkeypatch):
    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    monkeypatch.setattr(
        image_files, "convert", lambda *_: pytest.fail("the image should not have been decoded")
    )
    for width, height in ((10_001, 10_000), (2**30, 2**30), (60_000, 60_000)):
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", header), (b"IDAT", b""), (b"IEND", b""))
        bomb = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
        with pytest.raises(Unreadable, match="more than 100,000,000"):
            read(bomb)


# Many images


def test_a_folder_for_each_class_becomes_numbered_images(pets):
    found = load_collection(request(pets, valid=[pets]), seed=1)
    assert found.classes == ("cat", "dog")
    assert found.train.labels.tolist() == [0] * 4 + [1] * 6
    assert found.train.pixels.shape == (10, 3, 8, 8)
    assert found.train.pixels[:, 0, 0, 0].tolist() == [20, 60, 100, 140] + [0] * 6
    assert found.train.pixels[4:, 1, 0, 0].tolist() == [20, 50, 80, 110, 140, 170]
    assert found.notices == ()


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("inside", ["", "data/train"])
def test_an_archive_gives_the_same_as_its_folder(pets, tmp_path, ending, inside):
    path = tmp_path / f"pets.{ending}"
    with tarfile.open(path, "w:" + ending[4:]) as archive:
        archive.add(pets, arcname=inside or ".")
    found = load_collection(request(path, valid=[path]), seed=1)
    expected = load_collection(request(pets, valid=[pets]), seed=1)
    assert found.classes == expected.classes
    assert torch.equal(found.train.pixels, expected.train.pixels)
    assert found.train.fingerprint(found.classes) == expected.train.fingerprint(expected.classes)


def test_a_fingerprint_changes_with_a_pixel_a_label_and_a_name(pets):
    found = load_collection(request(pets, valid=[pets]), seed=1)
    train, classes = found.train, found.classes
    prints = {train.fingerprint(classes), train.fingerprint(("cat", "fox"))}
    pixels, labels = train.pixels.clone(), train.labels.clone()
    pixels[3, 1, 2, 2] += 1
    labels[0] = 1
    prints |= {type(train)(pixels, train.labels).fingerprint(classes)}
    prints |= {type(train)(train.pixels, labels).fingerprint(classes)}
    assert len(prints) == 4


def test_bad_images_are_named_and_skipped_or_end_the_reading(pets, tmp_path):
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "pets" / "dog" / "cut.png").write_bytes(plain("red")[:40])
    (tmp_path / "pets" / "lost.png").write_bytes(plain("red"))
    (tmp_path / "pets" / "cat" / ".DS_Store").write_bytes(b"litter")
    (tmp_path / "pets" / "cat" / "out.png").symlink_to(tmp_path / "elsewhere.png")
    (tmp_path / "elsewhere.png").write_bytes(plain("red"))
    found = load_collection(request(pets, valid=[pets]), seed=1)
    assert len(found.train) == 10
    (notice, _) = found.notices
    assert "4 bad images skipped: " in notice
    assert "cat/notes.txt: not an image" in notice
    assert "dog/cut.png: " in notice
    assert "cat/out.png: a link that leads out of the folder" in notice
    assert "lost.png" in notice
    assert "DS_Store" not in notice
    with pytest.raises(DataError, match=r"cat/notes.txt: not an image .*; repair or remove it"):
        load_collection(request(pets, on_bad="fail"), seed=1)


def archive_of(path, names, content=None):
    """A tar whose names are bytes of Windows, if they must be."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="cp949") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            data = plain("red") if content is None else content.get(name, plain("red"))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_a_class_whose_name_is_no_text_is_refused_before_training(tmp_path):
    """It could not be saved with the model."""
    path = archive_of(
        tmp_path / "a.tar", ["고양이/1.png", "고양이/2.png", "dog/1.png", "dog/2.png"]
    )
    with pytest.raises(DataError) as caught:
        load_collection(request(path, valid=[path]), seed=1)
    assert str(caught.value) == (
        r"the folder '\udcb0\udced\udcbe\udce7\udcc0\udccc' has a name that is no UTF-8 text "
        "(in CP949 it would be 고양이); rename it"
    )
    steered = archive_of(tmp_path / "b.tar", ["\x1b[2Jcat/1.png", "dog/1.png"])
    with pytest.raises(DataError, match=r"'\\x1b\[2Jcat' has a name that is no UTF-8 text; ren"):
        load_collection(request(steered, valid=[steered]), seed=1)


def test_names_of_bad_images_cannot_steer_a_terminal(tmp_path):
    names = ["cat/1.png", "cat/\x1b[31m.png", "cat/나쁜.png", "dog/1.png", "lost\r.png"]
    bad = {names[1]: b"no image", names[2]: b"no image"}
    path = archive_of(tmp_path / "a.tar", names, bad)
    notice, *_ = load_collection(request(path, valid=[path]), seed=1).notices
    assert notice.isprintable()
    notice.encode()
    assert r"cat/\x1b[31m.png: not an image" in notice
    assert r"lost\r.png: not in a folder of its class" in notice


def test_nothing_to_train_on_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds no image in a folder of its class"):
        load_collection(request(tmp_path / "empty"), seed=1)
    one = write(tmp_path / "one", {"cat/1.png": plain("red"), "cat/2.png": plain("red")})
    with pytest.raises(DataError, match="all images are of one class"):
        load_collection(request(one), seed=1)
    with pytest.raises(ConfigError, match=r"data\.images: give a folder"):
        load_collection(request(), seed=1)
    (tmp_path / "text.txt").write_text("neither")
    with pytest.raises(DataError, match="neither a folder, nor a tar archive, nor an idx file"):
        load_collection(request(tmp_path / "text.txt"), seed=1)
    alone = write(tmp_path / "alone", {"a/1.png": plain("red"), "b/1.png": plain("red")})
    with pytest.raises(DataError, match="are not enough to train on"):
        load_collection(request(alone), seed=1)


def test_the_same_class_from_two_places_is_one_and_near_names_are_told(pets, tmp_path):
    more = write(tmp_path / "more", {"cat/9.png": plain("blue"), "Dog/9.png": plain("blue")})
    found = load_collection(request(pets, more, valid=[pets]), seed=1)
    assert found.classes == ("Dog", "cat", "dog")
    assert (found.train.labels == 1).sum() == 5
    assert found.notices == ("the classes 'Dog' and 'dog' differ only in upper and lower case",)
    spelt = write(  # the same word as macOS and as others write it
        tmp_path / "spelt", {"cafe\u0301/1.png": plain("red"), "caf\u00e9/2.png": plain("red"),
                             "dog/3.png": plain("red")})  # fmt: skip
    assert load_collection(request(spelt, valid=[spelt]), seed=1).classes == ("caf\u00e9", "dog")


def test_a_class_that_was_never_trained_on_is_refused_in_validation(pets, tmp_path):
    other = write(tmp_path / "other", {"cat/1.png": plain("red"), "fox/1.png": plain("red")})
    with pytest.raises(DataError, match=r"no class 'fox' among the 2 that the model knows \(cat"):
        load_collection(request(pets, valid=[other]), seed=1)


def test_without_validation_images_every_class_gives_its_share(tmp_path):
    sizes = {"a": 40, "b": 20, "c": 2, "d": 1}
    many = {f"{c}/{i}.png": plain((i, ord(c), 0)) for c, n in sizes.items() for i in range(n)}
    folder = write(tmp_path / "many", many)
    found = load_collection(request(folder), seed=1)
    assert torch.bincount(found.valid.labels, minlength=4).tolist() == [4, 2, 1, 0]
    assert torch.bincount(found.train.labels, minlength=4).tolist() == [36, 18, 1, 1]
    both = torch.cat([found.train.pixels, found.valid.pixels])[:, :, 0, 0]
    assert len(both.unique(dim=0)) == 63  # nothing lost, nothing twice
    again = load_collection(request(folder), seed=1)
    assert torch.equal(found.valid.pixels, again.valid.pixels)
    other = load_collection(request(folder), seed=2)
    assert not torch.equal(found.valid.pixels, other.valid.pixels)
    assert "no validation images given: 7 of 63" in found.notices[-1]


# idx files and digits, which need no Pillow


def test_what_is_missing_is_told_with_the_way_to_get_it(pets, monkeypatch, mnist):
    for name in ("PIL", "sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingError, match=r"needs Pillow: pip install 'polyhead\[vision\]'"):
        load_collection(request(pets), seed=1)
    with pytest.raises(MissingError, match=r"come with scikit-learn: pip install 'polyhead\[vi"):
        load_collection(request(corpus="digits"), seed=1)
    assert len(load_collection(request(mnist[0], valid=[mnist[0]]), seed=1).train) == 12


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


def test_idx_files_are_read_with_their_labels_packed_or_not(mnist):
    path, pixels = mnist
    found = load_collection(request(path, valid=[path], shape=ImageShape(5, 7, 1)), seed=1)
    assert found.classes == ("0", "1", "2")
    assert np.array_equal(found.train.pixels[:, 0].numpy(), pixels)
    assert found.train.labels.tolist() == [0, 1, 2] * 4


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda good: good[:-1], "promises 420 bytes, but there are 419"),
        (lambda good: good + b"x", "promises 420 bytes, but there are more"),
        (lambda good: good[:4] + b"\xff" * 12 + good[16:], "bytes, which cannot be"),
        (lambda good: good[:9], "bytes, which cannot be"),
        (lambda good: bytes((0, 0, 13, 3)) + good[4:], "is not an idx file of bytes with 3 axes"),
    ],
)
def test_broken_idx_files_are_refused_before_memory_is_taken(mnist, spoil, message):
    path, _ = mnist
    path.write_bytes(spoil(gzip.decompress(path.read_bytes())))
    with pytest.raises(DataError, match=message):
        read_images(path)


def test_missing_or_too_few_labels_are_told(mnist, tmp_path):
    path, _ = mnist
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx((11,), bytes(11)))
    with pytest.raises(DataError, match=r"has 12 images but .* has 11 labels"):
        read_images(path)
    labels.unlink()
    with pytest.raises(DataError, match="its labels should be in train-labels-idx1-ubyte beside"):
        read_images(path)
    with pytest.raises(DataError, match="must be called like train-images-idx3-ubyte"):
        read_images(shutil.copy(path, tmp_path / "other.gz"))


def test_arrays_are_fitted_as_files_are():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 20), dtype=np.uint8)
    ours = fitted(torch.from_numpy(pixels)[:, None], ImageShape(6, 6, 3))
    for array, found in zip(pixels, ours, strict=True):
        theirs = read(packed(Image.fromarray(array)), 6, 6)
        assert np.abs(found.numpy().astype(int) - theirs).max() <= 2  # two ways of rounding
    striped = torch.zeros(1, 1, 8, 24, dtype=torch.uint8)
    striped[..., 8:16] = 255
    assert (fitted(striped, ImageShape(8, 8, 3)) == 255).all()
    assert (fitted(striped.mT, ImageShape(4, 4, 1)) == 255).all()


def test_the_digits_are_split_as_everyone_splits_them():
    datasets = pytest.importorskip("sklearn.datasets")
    found = digits(ImageShape(8, 8, 1))
    known = datasets.load_digits()
    assert (len(found.train), len(found.valid)) == (898, 899)
    assert found.train.labels.tolist() == known.target[:898].tolist()
    assert found.valid.labels.tolist() == known.target[898:].tolist()
    back = found.valid.pixels[:, 0].double() / 255 * 16
    assert np.abs(back.numpy() - known.images[898:]).max() < 0.04
    assert load_set(request(corpus="digits", shape=ImageShape(8, 8, 1)), found.classes)[
        0
    ].labels.equal(found.valid.labels)
