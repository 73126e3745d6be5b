"""Commands for images: train, classify, evaluate, attention."""

import json
import os

import pytest
from tiny_images import COLOURS, TINY, train_on_pictures, write_pictures

from polyhead.config import to_toml

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="session")
def colours_run(tmp_path_factory):
    return train_on_pictures(tmp_path_factory.mktemp("colours"))


@pytest.fixture
def pictures(tmp_path):
    paths = {}
    for name, colour in COLOURS.items():
        paths[name] = tmp_path / f"{name}.png"
        Image.new("RGB", (20, 30), colour).save(paths[name])
    return paths


def test_a_model_is_trained_from_a_directory_of_images(run, tmp_path):
    (tmp_path / "tiny.toml").write_text(to_toml(TINY), encoding="utf-8")
    folder, valid = write_pictures(tmp_path / "a", 3), write_pictures(tmp_path / "b", 2)
    (folder / "red" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    words = ("train", tmp_path / "tiny.toml", "train.steps=2", "--images", folder,
             "--valid-images", valid, "--run")  # fmt: skip
    code, _, err = run(*words, tmp_path / "run")
    assert code == 0
    assert "red/broken.png: " in err
    assert "9 training examples of 8 x 8 pixels in 3 classes, 6 for validation" in err
    assert f"use it with: polyhead classify {tmp_path / 'run'}" in err
    code, _, err = run(*words, tmp_path / "other", "--on-bad-line", "fail")
    assert (code, "red/broken.png: " in err) == (4, True)


def test_every_image_gives_a_line_or_a_json_object(run, colours_run, pictures):
    code, out, _ = run("classify", colours_run, *pictures.values())
    assert code == 0
    for (name, path), line in zip(pictures.items(), out.splitlines(), strict=True):
        file, label, share = line.split("\t")
        assert (file, label) == (str(path), name)
        assert 0.8 < float(share) <= 1
    result = json.loads(run("classify", colours_run, pictures["red"], "--top", 2, "--jsonl")[1])
    assert result["image"] == str(pictures["red"])
    assert result["labels"][0]["name"] == "red"
    assert len(result["labels"]) == 2


def test_images_are_resized_to_a_multiple_of_the_patch(run, fail, colours_run, pictures):
    classify = ("classify", colours_run, pictures["blue"])
    code, out, _ = run(*classify, "--size", "16x12")
    assert (code, out.split("\t")[1]) == (0, "blue")
    assert "4" in fail(*classify, "--size", "13", code=2, mention="13")[2]
    fail(*classify, "--size", "big", code=2, error="bad_size")
    fail(*classify, "--top", "0", code=2, error="out_of_range")
    fail(*classify, "--scores", code=2, error="conflicting_options")
    fail("classify", colours_run, code=2, error="no_input")


def test_an_unreadable_image_is_reported_and_the_others_are_classified(run, colours_run, pictures):
    pictures["green"].write_text("no image")
    code, out, err = run("classify", colours_run, *pictures.values())
    assert code == 4
    assert [line.split("\t")[1] for line in out.splitlines()] == ["blue", "red"]
    assert "green.png: " in err


def test_evaluation_prints_scores_and_confusion(run, fail, colours_run, tmp_path):
    evaluate = ("evaluate", colours_run, "--images", write_pictures(tmp_path / "test", 4))
    for options in ((), ("--size", "16")):
        code, out, _ = run(*evaluate, *options)
        assert code == 0
        assert out.startswith("accuracy 1.0000  macro F1 1.0000\n")
    result = json.loads(run(*evaluate, "--json")[1])
    assert result["confusion"] == [[4, 0, 0], [0, 4, 0], [0, 0, 4]]
    assert fail(*evaluate, "--size", "13")[0] == 2
    assert fail(*evaluate[:-1], tmp_path / "nowhere")[0] == 4


def test_pages_numbers_and_pictures_of_attention_are_written(run, colours_run, pictures, tmp_path):
    written = {}
    for name, options in {
        "page.html": (), "numbers.json": (), "all.png": (), "all.svg": (),
        "one.svg": ("--layer", 2, "--head", 1),
    }.items():  # fmt: skip
        output = tmp_path / name
        code, _, err = run("attention", colours_run, pictures["red"], "--output", output, *options)
        assert (code, "red.png → red" in err) == (0, True)
        written[name] = output.read_bytes()
    assert b"polyhead-image-attention-1" in written["page.html"]
    data = json.loads(written["numbers.json"])
    assert (data["rows"], data["columns"], data["n_layers"], data["n_heads"]) == (2, 2, 2, 2)
    for head in (head for layer in data["layers"] for head in layer):
        assert 0 < sum(head) < 1  # the class token keeps a part for itself
    assert written["all.png"].startswith(b"\x89PNG")
    assert written["all.svg"].count(b'class="cells"') == 1 + 2 * 2  # the roll-out, and all heads
    assert written["one.svg"].count(b'class="cells"') == 1
    assert "layer 2, head 1 · 0 to" in written["one.svg"].decode()


@pytest.mark.parametrize(
    ("output", "options", "code", "mention"),
    [
        ("a.gif", (), 2, ".html"), ("a.svg", ("--layer", 3), 2, "layer 3"),
        ("a.svg", ("--merge",), 2, "--merge"), ("a.svg", ("--kind", "encoder"), 2, "--kind"),
        ("a.svg", ("--word", "a"), 2, "--word"), ("a.svg", ("--lines",), 2, "--lines"),
        ("no/folder.svg", (), 1, "no/folder.svg"),
    ],
)  # fmt: skip
def test_invalid_options_of_attention_are_rejected(
    fail, colours_run, pictures, tmp_path, output, options, code, mention
):
    words = ("attention", colours_run, pictures["red"], "--output", tmp_path / output)
    fail(*words, *options, code=code, mention=mention)


def test_the_name_of_an_image_may_have_any_bytes(run, colours_run, pictures, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xb0\xa1.png")
    odd.write_bytes(pictures["red"].read_bytes())
    code, _, err = run("attention", colours_run, odd, "--output", tmp_path / "page.html")
    assert (code, r"\udcb0\udca1.png → " in err) == (0, True)
    assert (tmp_path / "page.html").read_text(encoding="utf-8")
