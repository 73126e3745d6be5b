"""`polyhead` for images, as one types it: train, classify, evaluate, attention."""

import json
import os

import pytest
from tiny_images import COLOURS, TINY, train_on_pictures, write_pictures

from polyhead.cli.main import main
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


def test_a_model_is_trained_from_a_folder(tmp_path, capsys):
    (tmp_path / "tiny.toml").write_text(to_toml(TINY), encoding="utf-8")
    folder, valid = write_pictures(tmp_path / "a", 3), write_pictures(tmp_path / "b", 2)
    (folder / "red" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    run = tmp_path / "run"
    words = ["train", str(tmp_path / "tiny.toml"), "train.steps=2", "--images", str(folder),
             "--valid-images", str(valid), "--run", str(run)]  # fmt: skip
    assert main(words) == 0
    told = capsys.readouterr().err
    assert "1 bad image skipped: red/broken.png: " in told
    assert "9 training images of 8 x 8 pixels in 3 classes, 6 for validation" in told
    assert f"use it with: polyhead classify {run}" in told
    assert main([*words[:-1], str(tmp_path / "other"), "--on-bad-line", "fail"]) == 4
    assert "red/broken.png: " in capsys.readouterr().err


def test_images_need_a_recipe(tmp_path, capsys):
    assert main(["train", "--images", str(tmp_path)]) == 2
    assert "polyhead train vit-cifar10 --images FOLDER" in capsys.readouterr().err


def test_one_line_for_each_image(colours_run, pictures, capsys):
    assert main(["classify", str(colours_run), *map(str, pictures.values())]) == 0
    lines = capsys.readouterr().out.splitlines()
    for (name, path), line in zip(pictures.items(), lines, strict=True):
        file, label, share = line.split("\t")
        assert (file, label) == (str(path), name)
        assert 0.8 < float(share) <= 1


def test_json_has_all_that_was_asked_for(colours_run, pictures, capsys):
    assert main(["classify", str(colours_run), str(pictures["red"]), "--top", "2", "--jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["image"] == str(pictures["red"])
    assert found["labels"][0]["name"] == "red"
    assert len(found["labels"]) == 2


def test_another_size_is_read_or_refused(colours_run, pictures, capsys):
    assert main(["classify", str(colours_run), str(pictures["blue"]), "--size", "16x12"]) == 0
    assert "\tblue\t" in capsys.readouterr().out
    assert main(["classify", str(colours_run), str(pictures["blue"]), "--size", "13"]) == 2
    assert "both sides must be multiples of 4" in capsys.readouterr().err
    assert main(["classify", str(colours_run), str(pictures["blue"]), "--size", "big"]) == 2
    assert "--size big: expected pixels, such as 56 or 56x48" in capsys.readouterr().err


def test_what_is_no_image_is_named_and_the_others_are_classified(colours_run, pictures, capsys):
    pictures["green"].write_text("no image")
    assert main(["classify", str(colours_run), *map(str, pictures.values())]) == 4
    said = capsys.readouterr()
    assert [line.split("\t")[1] for line in said.out.splitlines()] == ["blue", "red"]
    assert "green.png: not an image" in said.err
    assert main(["classify", str(colours_run)]) == 2
    assert "name at least one image" in capsys.readouterr().err


def test_evaluation_prints_scores_and_confusion(colours_run, tmp_path, capsys):
    folder = write_pictures(tmp_path / "test", 4)
    assert main(["evaluate", str(colours_run), "--images", str(folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("accuracy 1.0000  macro F1 1.0000\n")
    assert main(["evaluate", str(colours_run), "--images", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confusion"] == [[4, 0, 0], [0, 4, 0], [0, 0, 4]]
    assert main(["evaluate", str(colours_run), "--images", str(tmp_path / "nowhere")]) == 4
    capsys.readouterr()
    larger = ["evaluate", str(colours_run), "--images", str(folder), "--size"]
    assert main([*larger, "16"]) == 0
    assert capsys.readouterr().out.startswith("accuracy 1.0000")
    assert main([*larger, "13"]) == 2
    assert "both sides must be multiples of 4" in capsys.readouterr().err
    assert main(["evaluate", str(colours_run), "--text", "x.txt", "--size", "16"]) == 2
    assert "--size is for images; leave it out" in capsys.readouterr().err


def test_a_page_shows_where_the_model_looked(colours_run, pictures, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["attention", str(colours_run), str(pictures["red"]), "--output", str(out)]) == 0
    assert "polyhead-image-attention-1" in out.read_text(encoding="utf-8")
    assert "red.png → red" in capsys.readouterr().err
    numbers = tmp_path / "numbers.json"
    assert (
        main(["attention", str(colours_run), str(pictures["red"]), "--output", str(numbers)]) == 0
    )
    data = json.loads(numbers.read_text(encoding="utf-8"))
    assert (data["rows"], data["columns"], data["n_layers"], data["n_heads"]) == (2, 2, 2, 2)
    for head in (head for layer in data["layers"] for head in layer):
        assert 0 < sum(head) < 1  # the class token keeps a part for itself
    assert main(["attention", str(colours_run), str(pictures["red"]), "--output", "a.gif"]) == 2
    assert "must be .html, .svg, .png or .json" in capsys.readouterr().err


def test_a_picture_shows_where_the_model_looked(colours_run, pictures, tmp_path, capsys):
    look = ["attention", str(colours_run), str(pictures["red"])]
    found = {}
    for name, words in {"all.svg": [], "one.svg": ["--layer", "2", "--head", "1"]}.items():
        assert main([*look, "--output", str(tmp_path / name), *words]) == 0
        found[name] = (tmp_path / name).read_text(encoding="utf-8")
    assert found["all.svg"].count('class="cells"') == 1 + 2 * 2  # the roll-out, and all heads
    assert found["one.svg"].count('class="cells"') == 1
    assert "layer 2, head 1 · 0 to" in found["one.svg"]
    assert "red.png → red" in found["one.svg"]
    assert main([*look, "--output", str(tmp_path / "all.png")]) == 0
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert main([*look, "--output", "a.svg", "--layer", "3"]) == 2
    assert "layer 3: no such layer; there are 1 to 2" in capsys.readouterr().err
    for words in (["--merge"], ["--kind", "encoder"], ["--word", "a"], ["--lines"]):
        assert main([*look, "--output", "a.svg", *words]) == 2
        assert f"{words[0]} is for text; leave it out for an image" in capsys.readouterr().err
    nowhere = tmp_path / "no" / "folder.svg"
    assert main([*look, "--output", str(nowhere)]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_picture_whose_name_is_no_text_can_be_looked_at(colours_run, pictures, tmp_path, capsys):
    odd = tmp_path / os.fsdecode(b"\xb0\xa1.png")
    odd.write_bytes(pictures["red"].read_bytes())
    page = tmp_path / "page.html"
    assert main(["attention", str(colours_run), str(odd), "--output", str(page)]) == 0
    assert r"\udcb0\udca1.png → " in capsys.readouterr().err
    assert page.read_text(encoding="utf-8")
