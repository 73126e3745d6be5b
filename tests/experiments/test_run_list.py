"""`polyhead runs`: states, filters, sorting, formats and damaged runs."""

import csv
import io
import json
import shutil
import subprocess
import sys

import pytest
from expected_errors import raises

import polyhead
from polyhead.checkpoint.model_dir import load_model
from polyhead.cli.main import main
from polyhead.errors import ConfigError
from polyhead.experiments.run_list import compare_runs
from polyhead.training.config import read_run
from polyhead.training.run_dir import RunDir
from polyhead.training.trainer import train

TINY = [
    "model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
    "model.stack.d_ff=16", "train.device=cpu", "train.steps=2", "train.judge_by=accuracy",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run, and copies of it in all other states; do not change them."""
    folder = tmp_path_factory.mktemp("runs")
    train(read_run("vit-digits", TINY), folder / "finished")
    train(read_run("vit-digits", [*TINY, "model.stack.n_layers=2"]), folder / "deep" / "two")
    for name in ("interrupted", "running", "diverged"):
        shutil.copytree(folder / "finished", folder / name, symlinks=True)
        path = folder / name / "last" / "training.json"
        numbers = json.loads(path.read_text())
        numbers["progress"]["step"] = 1
        path.write_text(json.dumps(numbers))
    with (folder / "diverged" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "diverged", "step": 2}\n')
    for name, broken in (("no state", "last/training.json"), ("no config", "last/config.json")):
        shutil.copytree(folder / "finished", folder / "bad" / name, symlinks=True)
        (folder / "bad" / name / broken).write_text("{")
    (folder / "bad" / "empty" / "checkpoints").mkdir(parents=True)
    return folder


def lock_of(folder):
    """Hold the lock of a run in another process; end it with its standard input."""
    words = (
        "import sys; from pathlib import Path; from polyhead.training.run_dir import RunDir\n"
        "with RunDir(Path(sys.argv[1])).exclusive_lock(): print(1, flush=True); sys.stdin.read()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", words, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_a_translator_is_listed_with_its_bleu(tiny_run):
    (run,) = polyhead.list_runs(tiny_run.parent)
    assert (run.metric, run.score) == ("bleu", load_model(tiny_run / "best").about["valid"]["bleu"])


def test_electra_is_listed_with_its_auc(runs, tmp_path):
    shutil.copytree(runs / "finished", tmp_path / "run", symlinks=True)
    for path in (tmp_path / "run").rglob("config.json"):
        saved = json.loads(path.read_text())
        saved["about"]["run"]["train"]["judge_by"] = "loss"
        saved["about"]["valid"] = {"loss": 19.14, "auc": 0.7}
        path.write_text(json.dumps(saved))
    (run,) = polyhead.list_runs(tmp_path)
    assert (run.metric, run.score) == ("auc", 0.7)


def test_every_run_has_a_row_with_its_state(runs):
    with lock_of(runs / "running") as process:
        process.stdout.readline()
        listed = {str(run.path.relative_to(runs)): run for run in polyhead.list_runs(runs)}
        process.stdin.close()
    states = {name: run.state for name, run in listed.items()}
    assert states == {
        "finished": "finished", "deep/two": "finished", "interrupted": "interrupted",
        "running": "running", "diverged": "diverged", "bad/no state": "damaged",
        "bad/no config": "damaged", "bad/empty": "damaged",
    }  # fmt: skip
    with RunDir(runs / "running").exclusive_lock():  # of this process
        running = polyhead.list_runs(runs, filters=["state=running"])
        assert [run.path.name for run in running] == ["running"]
        with lock_of(runs / "running") as second:
            assert second.stdout.read() == b""
        assert second.returncode
    run, saved = listed["finished"], load_model(runs / "finished")
    assert run.parameters == sum(p.numel() for p in saved.model.parameters())
    assert (run.task, run.family, run.step, run.all_steps) == ("image_classification", "vit", 2, 2)
    assert (run.metric, run.score) == ("accuracy", saved.about["valid"]["accuracy"])
    assert "<td>accuracy " in polyhead.list_runs(runs)._repr_html_()


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (["state=finished"], {"finished", "two"}),
        (["model.stack.n_layers>=2"], {"two"}),
        (["model.stack.n_layers=1", "state!=finished"], {"interrupted", "running", "diverged"}),
        (["task=image classification", "steps<2"], {"interrupted", "running", "diverged"}),
        (["model.positions=rotary"], set()),
        (["model.positions<3"], set()),
    ],
)
def test_filters_are_conditions_on_columns_and_settings(runs, filters, names):
    assert {run.path.name for run in polyhead.list_runs(runs, filters=filters)} == names


def test_rows_are_sorted_and_damaged_ones_come_last(runs):
    listed = polyhead.list_runs(runs, sort="-parameters")
    assert listed[0].path.name == "two"
    assert {run.state for run in polyhead.list_runs(runs, sort="train.steps")[-3:]} == {"damaged"}
    with raises(ConfigError, "unknown_column"):
        polyhead.list_runs(runs, sort="size")
    with raises(ConfigError, "invalid_filter"):
        polyhead.list_runs(runs, filters=["x"])
    with raises(ConfigError, "no_directory"):
        polyhead.list_runs(runs / "none")


def test_two_runs_are_compared_by_settings_and_scores(runs):
    rows = {key: values for key, *values in compare_runs(runs / "finished", runs / "deep" / "two")}
    assert rows["model.stack.n_layers"] == ["1", "2"]
    assert "train.steps" not in rows
    with raises(ConfigError, "not_a_run"):
        compare_runs(runs / "finished", runs / "bad" / "empty")


def test_the_command_prints_tables_csv_json_and_a_page_without_torch(runs, capsys):
    for form in ("table", "csv", "json", "html"):
        assert main(["runs", str(runs), "--format", form]) == 0
        out = capsys.readouterr().out
        assert "interrupted" in out
        if form == "csv":
            rows = list(csv.DictReader(io.StringIO(out)))
            assert len(rows) == 8
            assert {row["state"] for row in rows} >= {"damaged", "finished"}
        if form == "json":
            assert len(json.loads(out)) == 8
    words = "import sys; from polyhead.cli.main import main; main(['runs', sys.argv[1]]); "
    words += "assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", words, runs], check=True, stdout=subprocess.DEVNULL)
