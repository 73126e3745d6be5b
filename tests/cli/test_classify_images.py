"""Commands for images: train, classify, evaluate, attention."""

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


def test_a_model_is_trained_from_a_directory_of_images(tmp_path, capsys):
    (tmp_path / "tiny.toml").write_text(to_toml(TINY), encoding="utf-8")
    folder, valid = write_pictures(tmp_path / "a", 3), write_pictures(tmp_path / "b", 2)
    (folder / "red" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    run = tmp_path / "run"
    words = ["train", str(tmp_path / "tiny.toml"), "train.steps=2", "--images", str(folder),
             "--valid-images", str(valid), "--run", str(run)]  # fmt: skip
    assert main(words) == 0
    err = capsys.readouterr().err
    assert "red/broken.png: " in err
    assert "9 training images of 8 x 8 pixels in 3 classes, 6 for validation" in err
    assert f"use it with: polyhead classify {run}" in err
    assert main([*words[:-1], str(tmp_path / "other"), "--on-bad-line", "fail"]) == 4
    assert "red/broken.png: " in capsys.readouterr().err


def test_every_image_gives_a_line(colours_run, pictures, capsys):
    assert main(["classify", str(colours_run), *map(str, pictures.values())]) == 0
    lines = capsys.readouterr().out.splitlines()
    for (name, path), line in zip(pictures.items(), lines, strict=True):
        file, label, share = line.split("\t")
        assert (file, label) == (str(path), name)
        assert 0.8 < float(share) <= 1


def test_json_has_the_requested_number_of_classes(colours_run, pictures, capsys):
    assert main(["classify", str(colours_run), str(pictures["red"]), "--top", "2", "--jsonl"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["image"] == str(pictures["red"])
    assert result["labels"][0]["name"] == "red"
    assert len(result["labels"]) == 2


def test_images_are_resized_to_a_multiple_of_the_patch(run, fail, colours_run, pictures):
    classify = ("classify", colours_run, pictures["blue"])
    code, out, _ = run(*classify, "--size", "16x12")
    assert (code, out.split("\t")[1]) == (0, "blue")
    code, _, line = fail(*classify, "--size", "13")
    assert code == 2
    assert "13" in line
    assert "4" in line
    assert fail(*classify, "--size", "big")[:2] == (2, "bad_size")
    assert fail(*classify, "--top", "0")[:2] == (2, "out_of_range")
    assert fail(*classify, "--scores")[:2] == (2, "conflicting_options")
    assert fail("classify", colours_run)[:2] == (2, "no_input")


def test_an_unreadable_image_is_reported_and_the_others_are_classified(run, colours_run, pictures):
    pictures["green"].write_text("no image")
    code, out, err = run("classify", colours_run, *pictures.values())
    assert code == 4
    assert [line.split("\t")[1] for line in out.splitlines()] == ["blue", "red"]
    assert "green.png: " in err


def test_evaluation_prints_scores_and_confusion(colours_run, tmp_path, capsys):
    folder = write_pictures(tmp_path / "test", 4)
    assert main(["evaluate", str(colours_run), "--images", str(folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("accuracy 1.0000  macro F1 1.0000\n")
    assert main(["evaluate", str(colours_run), "--images", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["confusion"] == [[4, 0, 0], [0, 4, 0], [0, 0, 4]]
    assert main(["evaluate", str(colours_run), "--images", str(tmp_path / "nowhere")]) == 4
    capsys.readouterr()
    larger = ["evaluate", str(colours_run), "--images", str(folder), "--size"]
    assert main([*larger, "16"]) == 0
    assert capsys.readouterr().out.startswith("accuracy 1.0000")
    assert main([*larger, "13"]) == 2


def test_a_page_shows_the_attention_of_every_head(colours_run, pictures, tmp_path, capsys):
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
    assert ".html" in capsys.readouterr().err


def test_a_picture_shows_all_heads_or_one_of_them(colours_run, pictures, tmp_path, capsys):
    draw = ["attention", str(colours_run), str(pictures["red"])]
    drawings = {}
    for name, words in {"all.svg": [], "one.svg": ["--layer", "2", "--head", "1"]}.items():
        assert main([*draw, "--output", str(tmp_path / name), *words]) == 0
        drawings[name] = (tmp_path / name).read_text(encoding="utf-8")
    assert drawings["all.svg"].count('class="cells"') == 1 + 2 * 2  # the roll-out, and all heads
    assert drawings["one.svg"].count('class="cells"') == 1
    assert "layer 2, head 1 · 0 to" in drawings["one.svg"]
    assert "red.png → red" in drawings["one.svg"]
    assert main([*draw, "--output", str(tmp_path / "all.png")]) == 0
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert main([*draw, "--output", "a.svg", "--layer", "3"]) == 2
    assert "layer 3" in capsys.readouterr().err
    for words in (["--merge"], ["--kind", "encoder"], ["--word", "a"], ["--lines"]):
        assert main([*draw, "--output", "a.svg", *words]) == 2
        assert words[0] in capsys.readouterr().err
    nowhere = tmp_path / "no" / "folder.svg"
    assert main([*draw, "--output", str(nowhere)]) == 1
    assert str(nowhere.parent) in capsys.readouterr().err


def test_the_name_of_an_image_may_have_any_bytes(colours_run, pictures, tmp_path, capsys):
    odd = tmp_path / os.fsdecode(b"\xb0\xa1.png")
    odd.write_bytes(pictures["red"].read_bytes())
    page = tmp_path / "page.html"
    assert main(["attention", str(colours_run), str(odd), "--output", str(page)]) == 0
    assert r"\udcb0\udca1.png → " in capsys.readouterr().err
    assert page.read_text(encoding="utf-8")
