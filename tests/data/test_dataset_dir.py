"""Directories with splits, as the `datasets` library reads and writes them."""

import json

import pytest
from expected_errors import raises
from loading import load, load_texts

from polyhead.data.config import DataConfig
from polyhead.data.dataset_dir import evaluation_files, with_splits
from polyhead.data.labelled_text import load_labelled
from polyhead.data.parallel import load_parallel
from polyhead.data.plain_text import load_plain
from polyhead.errors import DataError

ROWS = {"train": ["good film", "bad film", "good cast"], "validation": ["bad cast"],
        "test": ["good plot", "bad plot"]}  # fmt: skip


def labels(texts):
    return [int(text.startswith("good")) for text in texts]


def write_csv(folder, name, texts):
    rows = "".join(f"{text},{label}\n" for text, label in zip(texts, labels(texts), strict=True))
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"text,label\n{rows}")


def expand(folder, option="labelled"):
    return with_splits({option: [str(folder)]})


def names(folder, data):
    return {key: [str(p).removeprefix(f"{folder}/") for p in paths] for key, paths in data.items()}


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "disk", "dict"])
def test_everything_that_datasets_writes_is_read_with_its_splits(kind, tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    splits = datasets.DatasetDict({
        name: datasets.Dataset.from_dict({"text": texts, "label": labels(texts)}, features)
        for name, texts in ROWS.items()
    })  # fmt: skip
    if kind == "dict":
        splits.save_to_disk(tmp_path, num_shards={"train": 2, "validation": 1, "test": 1})
    for name, split in splits.items():
        if kind == "disk":
            split.save_to_disk(tmp_path / name)
        elif kind == "parquet":
            (tmp_path / "data").mkdir(exist_ok=True)
            split.to_parquet(tmp_path / "data" / f"{name}-00000-of-00001.parquet")
        elif kind != "dict":
            suffix = {"csv": "csv", "json": "jsonl"}[kind]
            getattr(split, f"to_{kind}")(tmp_path / f"{name}.{suffix}")
    data = expand(tmp_path)
    assert len(data["labelled"]) == (2 if kind == "dict" else 1)
    config = DataConfig(**{key: tuple(files) for key, files in data.items()})
    corpus = load(load_labelled, config, seed=1)
    assert corpus.train.texts == ROWS["train"]
    assert corpus.valid.texts == ROWS["validation"]
    assert corpus.classes == (("0", "1") if kind in ("csv", "json") else ("bad", "good"))
    (test,) = evaluation_files([tmp_path], "labelled")
    assert "test" in test.removeprefix(str(tmp_path))
    config = DataConfig(**{k: tuple(v) for k, v in expand(tmp_path, "text").items()}
                        | ({"text_key": "text"} if kind == "csv" else {}))  # fmt: skip
    assert load_texts(load_plain, config)[:2] == (ROWS["train"], ROWS["validation"])


def test_a_folder_of_pairs(tmp_path):
    for name in ("train", "dev"):
        rows = [{"translation": {"ko": f"가 {name} {i}", "en": f"a {name} {i}"}} for i in range(3)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {key: tuple(files) for key, files in expand(tmp_path, "pairs").items()}
    corpus = load(load_parallel, DataConfig(source_key="ko", target_key="en", **data), seed=1)
    assert corpus.train.labels == [f"a train {i}" for i in range(3)]
    assert corpus.valid.labels == [f"a dev {i}" for i in range(3)]


def test_shards_are_joined_and_given_validation_data_wins(tmp_path):
    for number in range(2):
        write_csv(tmp_path, f"train-{number:05d}-of-00002.csv", ROWS["train"])
    write_csv(tmp_path, "val.csv", ROWS["validation"])
    write_csv(tmp_path, "sample_submission.csv", ROWS["test"])
    shards = [f"train-{number:05d}-of-00002.csv" for number in range(2)]
    assert names(tmp_path, expand(tmp_path)) == {"labelled": shards, "valid_labelled": ["val.csv"]}
    given = {"labelled": [str(tmp_path)], "valid_labelled": ["mine.csv"]}
    assert names(tmp_path, with_splits(given))["valid_labelled"] == ["mine.csv"]
    only = tmp_path / "one"
    write_csv(only, "reviews.csv", ROWS["train"])
    assert names(only, expand(only)) == {"labelled": ["reviews.csv"]}


@pytest.mark.parametrize(
    "files",
    [
        ("a.csv", "b.csv"),
        ("train.csv", "train.tsv"),
        ("train.csv", "validation_matched.csv", "validation_mismatched.csv"),
        ("train/a.csv", "val/a.csv", "dev/a.csv"),
        ("ko-en/train.csv", "en-ko/train.csv"),
        ("notes.md",),
    ],
)
def test_ambiguity_lists_the_candidates(files, tmp_path):
    for name in files:
        write_csv(tmp_path, name, ROWS["train"])
    mentioned = [files[-1].split("/")[0]] if files != ("notes.md",) else []
    with raises(DataError, "ambiguous_directory", *mentioned):
        expand(tmp_path)


def test_a_missing_split_names_those_that_exist(tmp_path):
    write_csv(tmp_path, "test.csv", ROWS["test"])
    with raises(DataError, "no_split", "train", "test"):
        expand(tmp_path)


def test_images_have_splits_only_if_every_directory_is_one(tmp_path):
    for name in ("train/cat", "train/dog", "validation/cat", "test/dog"):
        (tmp_path / name).mkdir(parents=True)
    assert names(tmp_path, expand(tmp_path, "images")) == {
        "images": ["train"], "valid_images": ["validation"],
    }  # fmt: skip
    assert evaluation_files([tmp_path], "images") == [str(tmp_path / "test")]
    (tmp_path / "car").mkdir()  # "train" is a class beside it
    assert expand(tmp_path, "images") == {"images": [str(tmp_path)]}


def test_other_values_and_missing_files_are_left_to_the_configuration():
    for data in ({"pairs": 5}, {"text": [1]}, {"images": []}, {"labelled": ["missing.tsv"]}):
        assert with_splits(data) == data
