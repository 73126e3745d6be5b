"""Data in memory: files or examples by rule; as the same data in files; errors of one line."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from expected_errors import raises
from tiny import SMALL, write_corpus

import polyhead
from polyhead.data.memory import MemoryData, as_paths, split_data
from polyhead.data.text_files import read_lines
from polyhead.errors import ConfigError, DataError
from polyhead.training.config import read_run
from polyhead.training.trainer import train

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
datasets = pytest.importorskip("datasets")
KOREAN, ENGLISH = ["안녕하세요.", "가\n나", "잘 가."], ["Hello.", "a b", "Bye."]


class Indexed(torch.utils.data.Dataset):
    """A dataset of one's own: items by number, no iterator."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


def write(memory, folder, config):
    return memory.write(folder, config.data, config.task, config.model)


def written(folder, name, examples, recipe="small", *overrides):
    """Return the records of a file that is written for examples in memory."""
    files, memory = split_data({name: examples}, folder / "inputs")
    config = read_run(recipe, overrides, files)
    ((path,),) = write(memory, folder / "inputs", config).values()
    content = Path(path).read_text(encoding="utf-8")
    return [json.loads(line) for line in content.splitlines()] if path.endswith("l") else content


# Files or examples


def test_strings_are_files_or_texts_by_the_documented_rule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("README").write_text("x")
    for files in ("a.txt", Path("두 줄"), ["a.txt", "b/c"], ("x.tsv.gz",), [Path("두 줄"), "가"],
                  ["README"], ["README", "a.txt"]):  # fmt: skip
        assert as_paths("text", files) == [
            str(file) for file in ([files] if isinstance(files, str | Path) else files)
        ]
    for texts in (["가"], ["Hello."], ["and/or", "a b"], ["안녕", ""], iter(["a.txt"]), [1], [None],
                  np.array(["a.txt"]), pandas.Series(["a.txt"])):  # fmt: skip
        assert as_paths("source", texts) is None
    for name in ("pairs", "data", "images"):
        assert as_paths(name, ["가 나", "다"]) == ["가 나", "다"]
    with raises(ConfigError, "mixed_data", "README", "Path"):
        as_paths("text", ["README", "a b"])
    with raises(DataError, "no_text", "text"):
        as_paths("text", [])
    with raises(DataError, "not_found", "missing.txt"):
        polyhead.train("gpt-tiny", text=["missing.txt"], run="run", progress="none")
    assert not Path("run").exists()


def test_one_side_in_memory_is_an_error(tmp_path):
    for given in ({"source": KOREAN, "target": "a.en"}, {"source": KOREAN},
                  {"source": KOREAN, "target": ENGLISH, "pairs": "a.tsv"}):  # fmt: skip
        with raises(ConfigError, "mixed_data", "source"):
            split_data(given, tmp_path)


# Examples of every kind


def test_pairs_of_every_kind_are_the_same_records(tmp_path):
    rows = [{"ko": source, "en": target} for source, target in zip(KOREAN, ENGLISH, strict=True)]
    frame = pandas.DataFrame(rows)
    kinds = [
        rows, iter(rows), (row for row in rows), frame, frame.set_index(pandas.Index([5, 5, 5])),
        polars.DataFrame(rows), polars.LazyFrame(rows), datasets.Dataset.from_list(rows),
        datasets.Dataset.from_list(rows).to_iterable_dataset(), Indexed(rows),
    ]  # fmt: skip
    for kind in kinds:
        assert written(tmp_path, "pairs", kind) == rows
    plain = [{"source": row["ko"], "target": row["en"]} for row in rows]
    pairs = list(zip(KOREAN, ENGLISH, strict=True))
    for kind in (pairs, [*map(list, pairs)], Indexed(pairs), iter(pairs)):
        assert written(tmp_path, "pairs", kind) == plain
    files, memory = split_data({"source": iter(KOREAN), "target": pandas.Series(ENGLISH)}, tmp_path)
    ((path,),) = write(memory, tmp_path / "both", read_run("small", (), files)).values()
    assert [json.loads(line) for line in read_lines(path)] == plain
    nested = datasets.Dataset.from_list([{"translation": row, "id": 1} for row in rows])
    assert written(tmp_path, "pairs", nested)[0]["translation"] == rows[0]


def test_labels_may_be_numbers_truth_values_or_names_of_classes(tmp_path):
    rows = [{"text": "가", "label": 0}, {"text": "나", "label": 1}]
    names = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    dataset = datasets.Dataset.from_list(rows, features=features)
    frame = pandas.DataFrame({"text": ["가", "나"], "label": [0, np.nan]})
    for kind, labels in (
        (rows, [0, 1]), (dataset, ["bad", "good"]), (frame, [0, None]),
        ([("가", True), ("나", np.int64(3))], ["True", 3]), ([("가", torch.tensor(2))], [2]),
    ):  # fmt: skip
        records = written(tmp_path, "data", kind, "classify-small")
        assert [record["label"] for record in records] == labels


def test_only_named_columns_are_written(tmp_path):
    row = {"a": "가", "b": "나", "kind": 1, "other": b""}
    keys = ['data.text_key="a"', 'data.label_key="kind"', 'data.text_pair_key="b"']
    (record,) = written(tmp_path, "data", [row], "classify-small", *keys)
    assert record == {"a": "가", "b": "나", "kind": 1}


def test_texts_keep_their_lines_and_come_from_a_named_or_certain_column(tmp_path):
    expected = "안녕하세요.\n가\n나\n잘 가.\n"
    frame = pandas.DataFrame({"id": [1, 2, 3], "review": KOREAN})
    for kind in (KOREAN, iter(KOREAN), frame, polars.DataFrame({"x": KOREAN}), frame["review"],
                 Indexed(KOREAN)):  # fmt: skip
        assert written(tmp_path, "text", kind, "gpt-tiny") == expected
    frame = frame.rename(columns={"review": "x"})
    for key in ("x", "2"):
        assert written(tmp_path, "text", frame, "gpt-tiny", f'data.text_key="{key}"') == expected
    with raises(DataError, "unclear_columns", "text_column", "'id'"):
        written(tmp_path, "text", frame, "gpt-tiny")
    with raises(DataError, "unknown_column", "'y'"):
        written(tmp_path, "text", frame, "gpt-tiny", 'data.text_key="y"')


@pytest.mark.parametrize(
    ("name", "examples", "code", "words"),
    [
        ("pairs", [("가", "a"), ("나",)], "not_text", ["example 2", "tuple"]),
        ("pairs", [("가", b"a")], "not_text", ["example 1", "bytes"]),
        ("pairs", ["가 나", ("가", "나")], "not_text", ["example 1", "str"]),
        ("pairs", pandas.DataFrame({"ko": [], "en": []}), "no_text", ["pairs"]),
        ("text", [1, 2], "not_text", ["example 1", "int"]),
        ("text", iter(()), "no_text", ["text"]),
    ],
)
def test_unusable_examples_are_one_line(tmp_path, name, examples, code, words):
    recipe = "gpt-tiny" if name == "text" else "small"
    with raises(DataError, code, name, *words) as caught:
        written(tmp_path, name, examples, recipe)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "inputs").iterdir()) == []


def test_things_that_are_not_examples_are_refused(tmp_path):
    with raises(ConfigError, "not_examples", "DatasetDict", '["train"]'):
        written(tmp_path, "pairs", datasets.DatasetDict())
    with raises(ConfigError, "not_examples", "int"):
        written(tmp_path, "pairs", 5)
    for source, target, shorter in (
        (KOREAN, ENGLISH[:2], "target"),
        (KOREAN[:1], ENGLISH, "source"),
    ):
        memory = split_data({"source": source, "target": target}, tmp_path)[1]
        with raises(DataError, "unequal_lengths", f"{shorter} has"):
            write(memory, tmp_path / "inputs", read_run("small"))


# Images


def test_images_of_every_kind_become_the_same_bytes(tmp_path):
    from PIL import Image

    arrays = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    labels = np.array([0, 10, 2, 10])
    tensors = torch.from_numpy(arrays).movedim(-1, 1)
    pictures = [Image.fromarray(array) for array in arrays]
    rows = [{"image": p, "label": int(n)} for p, n in zip(pictures, labels, strict=True)]
    kinds = [
        (arrays, labels), (tensors, torch.from_numpy(labels)), rows,
        ((arrays - 0.4).clip(0) / 255, list(labels)),  # which are rounded
        list(zip(pictures, labels, strict=True)), Indexed(list(zip(tensors, labels, strict=True))),
        datasets.Dataset.from_list(rows),
    ]  # fmt: skip
    paths = set()
    for kind in kinds:
        memory = MemoryData({"images": kind})
        ((path,),) = write(memory, tmp_path, read_run("vit-cifar10")).values()
        paths.add(path)
    (path,) = paths
    assert np.array_equal(np.load(path), tensors.numpy())
    assert json.loads(Path(f"{path}.labels").read_text()) == ["0", "10", "2", "10"]
    for wrong, code, words in (
        ((arrays, labels[:2]), "unequal_lengths", "2 labels"),
        ((arrays - 0.5, labels), "not_an_image", "between 0 and 1"),
        ([(arrays, 1)], "not_an_image", "image 1"),
        ([("a.png", 1)], "not_an_image", "str"),
        ([(arrays[0], 0.5)], "invalid_label", "0.5"),
        ([{"a": arrays[0], "b": 1}], "unclear_columns", "label_column"),
        (iter(()), "no_text", "images"),
    ):
        with raises(DataError, code, words):
            write(MemoryData({"images": wrong}), tmp_path, read_run("vit-cifar10"))


# Runs


def test_a_run_on_lists_is_that_on_files_and_other_data_leaves_it_intact(tmp_path):
    files = write_corpus(tmp_path)
    sources, targets = (read_lines(files[side][0]) for side in ("source", "target"))
    run, overrides = tmp_path / "run", [*SMALL, "train.steps=4", "train.bleu_sentences=0"]

    def train_lists(*sides, **options):
        return polyhead.train(source=sides[0], target=sides[1], run=run, overrides=overrides,
                              progress="none", **options)  # fmt: skip

    result = train_lists(iter(sources), targets)
    on_files = train(read_run("small", overrides, files), tmp_path / "files")
    assert result.metrics == on_files.metrics

    def state():
        return {
            p: hashlib.sha256(p.read_bytes()).hexdigest() for p in run.rglob("*") if p.is_file()
        }

    before = state()
    with raises(DataError, "data_changed"):
        train_lists(sources[:-1], targets[:-1])
    with raises(DataError, "unequal_lengths"):
        train_lists(sources[:-1], targets)
    assert state().keys() == before.keys()
    changed = [path.name for path, digest in state().items() if before[path] != digest]
    assert set(changed) <= {".lock", "train.log"}
    moved = run.rename(tmp_path / "moved")
    again = polyhead.train(source=sources, target=targets, run=moved, overrides=overrides,
                           progress="none")  # fmt: skip
    assert again.metrics == result.metrics
    run = moved
    kept = {path.name for path in (run / "inputs").iterdir()}
    train_lists(sources[:-1], targets[:-1], fresh=True)
    assert len(kept) == len(list((run / "inputs").iterdir())) == 1
    assert {path.name for path in (run / "inputs").iterdir()} != kept
    (run / "inputs" / "mine.txt").write_text("not of polyhead")
    train_lists(sources, targets, fresh=True)
    assert (run / "inputs" / "mine.txt").exists()


def test_missing_values_are_reported_as_empty_cells(tmp_path, capsys):
    frame = pandas.DataFrame(
        {"ko": [f"문장 {n}" for n in range(90)], "en": [f"line {n}" for n in range(90)]}
    )
    frame.loc[1, "ko"], frame.loc[2::3, "en"] = None, np.nan
    polyhead.train(pairs=frame, run=tmp_path / "run", overrides=[*SMALL, "train.steps=1"],
                   progress="lines")  # fmt: skip
    assert "31 bad lines skipped" in (log := capsys.readouterr().err)
    assert ".jsonl:2: the source is empty" in log
    frame["ko"] = np.nan
    with raises(DataError, "no_text", "no usable pair"):
        polyhead.train(pairs=frame, run=tmp_path / "other", source_column="ko", target_column="en")
    assert not (tmp_path / "other").exists()
