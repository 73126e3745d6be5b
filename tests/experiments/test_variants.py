"""`polyhead compare --vary` and `--plan`: variants of any task, their statistics and their runs."""

import json
import signal
from pathlib import Path

import pytest
from expected_errors import raises
from scipy import stats
from tiny import SMALL, write_corpus

import polyhead
from polyhead.cli.main import main
from polyhead.config import read
from polyhead.errors import ConfigError
from polyhead.experiments import runner
from polyhead.experiments.comparison import make_request
from polyhead.experiments.plan import make_plan
from polyhead.experiments.variants import expand, find_plan, plan_names, read_vary, split_values
from polyhead.metrics.named_metrics import METRICS, NamedMetric
from polyhead.metrics.seeds import holm, mean_interval, paired_test
from polyhead.training.callbacks import Callback
from polyhead.training.config import build, read_run
from polyhead.training.trainer import train

TINY = (
    "model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
    "model.stack.d_ff=16", "train.device=cpu",
)  # fmt: skip
POSITIONS = ("--vary", "model.positions=rotary,sinusoidal")


def compare(folder, *words):
    """Compare tiny ViTs on digits; return the exit code."""
    return main(["compare", "vit-digits", *TINY, "--run", str(folder), "--lang", "en", *words])


def table_of(folder):
    return json.loads((folder / "table.json").read_text(encoding="utf-8"))


def weights_of(folder):
    return {path.name: path.read_bytes() for path in (folder / "last").glob("*.safetensors")}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two variants, two seeds; do not change it."""
    folder = tmp_path_factory.mktemp("compared") / "run"
    assert compare(folder, *POSITIONS, "--seeds", "2", "--steps", "4") == 0
    return folder


# Values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rotary,learned", ["rotary", "learned"]),
        ("1e-3, 3e-4", ["1e-3", "3e-4"]),
        ("[16,32],[32,64]", ["[16,32]", "[32,64]"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("[[1,2],[3]],[]", ["[[1,2],[3]]", "[]"]),
    ],
)
def test_commas_in_brackets_and_quotes_separate_nothing(text, values):
    assert split_values(text) == values


@pytest.mark.parametrize("text", ["model.positions", "positions=a,b", "model.x=a,,b", "model.x="])
def test_a_varied_setting_without_values_is_refused(text):
    with raises(ConfigError, "invalid_vary", text):
        read_vary([text])


def test_variants_are_all_combinations_and_have_short_names():
    varied = ["model.stack.norm=pre,post", "train.schedule.rate=1e-3,1e-4"]
    request = make_request(["vit-digits"], vary=varied)
    names = [system.name for system in request.contest.systems]
    assert names == ["norm=pre,rate=1e-3", "norm=pre,rate=1e-4", "norm=post,rate=1e-3",
                     "norm=post,rate=1e-4"]  # fmt: skip
    assert {system.baseline for system in request.contest.systems} == {names[0]}


def test_several_recipes_are_tested_against_the_first_with_the_same_values():
    request = make_request(["vit-digits", "resnet-digits"], vary=["data.max_examples=9,99"])
    against = {system.name: system.baseline for system in request.contest.systems}
    assert against["resnet-digits,max_examples=99"] == "vit-digits,max_examples=99"
    assert list(against) == [  # by recipe, then by value
        f"{recipe},max_examples={n}" for recipe in ("vit-digits", "resnet-digits") for n in (9, 99)
    ]
    named = make_request(["vit-digits"], vary=["recipe=resnet-digits"], baseline="resnet-digits")
    assert {system.baseline for system in named.contest.systems} == {"resnet-digits"}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--vary", "model.stack.n_heads=2,3"], "invalid_value", "n_heads=3: "),
        (["--vary", "model.positons=rotary"], "unknown_key", "positons=rotary: model.positons"),
        (["--vary", "train.seed=1,2"], "fixed_in_comparison", "train.seed"),
        (["gpt-tiny"], "several_tasks", "gpt-tiny for language_modeling"),
        ([*POSITIONS, "--baseline", "rotary"], "unknown_baseline", "--baseline rotary"),
    ],
)
def test_a_variant_that_cannot_be_built_is_named_before_training(tmp_path, words, code, text):
    recipes, vary = ["vit-digits"], [w for w in words if "=" in w]
    baseline = words[-1] if "--baseline" in words else None
    with raises(ConfigError, code, text):
        recipes += [w for w in words if w == "gpt-tiny"]
        request = make_request(
            recipes, vary=vary, budget=(None, 4), run=tmp_path / "x", baseline=baseline,
            overrides=TINY if len(recipes) == 1 and "n_heads" not in vary[0] else (),
        )  # fmt: skip
        make_plan(request)
    assert not (tmp_path / "x").exists()


# Statistics


def test_intervals_and_paired_tests_are_those_of_scipy():
    values = [0.61, 0.72, 0.66, 0.9, 0.31, 0.5, 0.77, 0.42, 0.58]
    others = [0.6, 0.75, 0.5, 0.91, 0.2, 0.55, 0.6, 0.4, 0.5]
    for n in range(2, len(values) + 1):
        expected = stats.t.interval(
            0.95, n - 1, loc=stats.tmean(values[:n]), scale=stats.sem(values[:n])
        )
        assert mean_interval(values[:n])[1:] == pytest.approx(expected, rel=1e-9)
        test = stats.ttest_rel(values[:n], others[:n])
        assert paired_test(values[:n], others[:n]) == pytest.approx(test.pvalue, rel=1e-9)


def test_p_values_are_corrected_for_their_number():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.2]) == pytest.approx([0.9, 0.4])
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_a_run_that_is_trained_again_is_tested_again(tmp_path):
    folder = tmp_path / "run"
    words = ("--vary", "model.positions=rotary,sinusoidal,learned", "--steps", "2")
    assert compare(folder, *words) == 0
    raw = json.loads((folder / "significance.json").read_text())
    found = [row["p_value"] for row in table_of(folder)["rows"][1:]]
    assert found == pytest.approx(holm(list(raw.values())))
    assert "Holm 1979" in (folder / "table.md").read_text()
    changed = dict.fromkeys(raw, 0.123)
    (folder / "significance.json").write_text(json.dumps(changed))
    (folder / "results" / "positions=learned-1.json").unlink()
    assert compare(folder, *words) == 0
    assert json.loads((folder / "significance.json").read_text()) == raw


def test_the_table_has_means_intervals_and_tests_over_seeds(compared):
    rows = table_of(compared)["rows"]
    results = [
        [json.loads((compared / "results" / f"{row['system']}-{seed}.json").read_text())
         for seed in (1, 2)] for row in rows
    ]  # fmt: skip
    scores = [[r["scores"]["validation"]["accuracy"]["value"] for r in pair] for pair in results]
    for row, values in zip(rows, scores, strict=True):
        found = row["scores"]["validation"]["accuracy"]
        ends = stats.t.interval(0.95, 1, loc=stats.tmean(values), scale=stats.sem(values))
        assert (found["low"], found["high"]) == pytest.approx(ends)
    assert rows[0]["p_seeds"] is None
    assert rows[1]["p_seeds"] == pytest.approx(stats.ttest_rel(*scores).pvalue)
    assert "Holm" not in (compared / "table.md").read_text()  # one test alone
    outputs = [
        (compared / "outputs" / f"{row['system']}-1.{kind}.txt").read_text().split()
        for row in rows for kind in ("outputs", "references")
    ]  # fmt: skip
    right = [[a == b for a, b in zip(*outputs[n : n + 2], strict=True)] for n in (0, 2)]
    only = sum(a and not b for a, b in zip(*right, strict=True))
    other = sum(b and not a for a, b in zip(*right, strict=True))
    expected = stats.binomtest(only, only + other).pvalue if only + other else 1.0
    known = json.loads((compared / "significance.json").read_text())
    key = f"{rows[1]['system']}-1 / {rows[0]['system']}-1"
    assert known[key] == pytest.approx(expected)


# Runs


def test_a_run_of_a_comparison_is_that_of_polyhead_train(compared, tmp_path):
    run = compared / "runs" / "positions=rotary-2"
    train(read_run(str(run / "config.toml")), tmp_path / "alone")
    assert weights_of(run)
    assert weights_of(tmp_path / "alone") == weights_of(run)
    config = read(run / "config.toml")
    assert (config["model"]["positions"], config["train"]["seed"]) == ("rotary", 2)


def test_a_resumed_comparison_equals_an_uninterrupted_one(compared, tmp_path, monkeypatch, capsys):
    folder, done = tmp_path / "again", []

    def dying(config, path, *, callbacks):
        done.append(path)
        if len(done) == 3:
            callbacks[1].on_step = lambda _: signal.raise_signal(signal.SIGINT)
        return train(config, path, callbacks=callbacks)

    words = (*POSITIONS, "--seeds", "2", "--steps", "4")
    with monkeypatch.context() as patch:
        patch.setattr(runner, "train", dying)
        assert compare(folder, *words) == 130
    assert compare(folder, *words) == 0
    for row, other in zip(table_of(folder)["rows"], table_of(compared)["rows"], strict=True):
        del row["training"]["seconds"], other["training"]["seconds"]
        assert row == other
    assert "Use the best with: polyhead classify" in capsys.readouterr().err
    assert compare(folder, *POSITIONS, "--steps", "5") == 2  # another budget


def test_texts_are_compared_on_a_test_set_in_korean_too(tmp_path):
    lines = [f"{word} 하나 둘 셋 {n}" for n, word in enumerate(["가", "나", "다", "라"] * 10)]
    for name, part in (("train.txt", lines), ("test.txt", lines[:8])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    outcome = polyhead.compare(
        "gpt-tiny", vary={"text.kind": ["characters", "words"], "train.schedule.rate": [1e-3]},
        files={"text": tmp_path / "train.txt", "test_text": tmp_path / "test.txt"},
        steps=2, run=tmp_path / "run",
        overrides=[*TINY, "text.vocab=40", "data.max_length=16", "model.max_length=32"],
    )  # fmt: skip
    table = outcome.table
    assert (table.metric, table.test.where) == ("bits_per_character", "test.txt")
    assert set(table.rows[0].scores) == {"test"}
    assert table.rows[0].training.flops_measured > 0
    assert "bits_per_character" in outcome._repr_html_()
    assert runner.markdown(table, "ko").startswith("# 비교: gpt-tiny")


def test_a_diverged_variant_is_named_below_the_table(tmp_path):
    varied = ("--vary", "train.schedule.rate=1e-3,1e9", "--steps", "12")
    settings = ("train.clip_norm=0", "train.schedule.warmup=1", "train.optimizer.weight_decay=0")
    assert compare(tmp_path / "run", *varied, *settings) == 0
    table = table_of(tmp_path / "run")
    assert [row["changes"] for row in table["rows"]] == [["train.schedule.rate=1e-3"]]
    assert table["diverged"] == ["rate=1e9, seed 1"]


@pytest.mark.parametrize("judge_by", ["bleu", "perplexity", "length"])
def test_variants_are_compared_whatever_judges_their_runs(tmp_path, monkeypatch, judge_by):
    length = NamedMetric(compute=lambda outputs, _: sum(map(len, outputs)))
    monkeypatch.setitem(METRICS._parts, "length", length)
    changes = [word for word in SMALL if word.startswith(("model.", "text.", "data."))]
    outcome = polyhead.compare(
        "small", vary={"model.stack.norm": ["pre", "post"]}, files=write_corpus(tmp_path), steps=2,
        run=tmp_path / "run", overrides=[*changes, f"train.judge_by={judge_by}"],
    )  # fmt: skip
    (scores,) = outcome.table.rows[0].scores.values()
    lines = (tmp_path / "run/outputs/norm=pre-1.outputs.txt").read_text("utf-8").splitlines()
    if judge_by == "length":
        assert outcome.table.metric == "length"
        assert scores["length"].mean == sum(map(len, lines))
    else:
        assert outcome.table.metric == "BLEU lower-cased"


def test_data_in_memory_is_compared_as_that_of_files(tmp_path):
    texts = [f"{word} 영화 {n}" for n, word in enumerate(["좋은", "나쁜"] * 40)]
    rows = [(text, text.split()[0]) for text in texts]
    table = "".join(f"{text}\t{label}\n" for text, label in rows)
    (tmp_path / "a.tsv").write_text(f"text\tlabel\n{table}", encoding="utf-8")
    sizes = {f"encoder.{word.partition('=')[0].removeprefix('model.')}": 16 for word in TINY[1:4]}
    settings = {"model": sizes | {"encoder.stack.n_layers": 1, "encoder.stack.n_heads": 2},
                "text.vocab": 300, "train.device": "cpu"}  # fmt: skip
    notices = []
    reporter = Callback()
    reporter.on_notice = notices.append
    found = [
        polyhead.compare(
            vary={"model.pooling": ["first", "mean"]}, files={"data": data, "test_data": data},
            steps=2, run=tmp_path / f"run{n}", overrides=settings, reporter=reporter,
        )
        for n, data in enumerate([tmp_path / "a.tsv", rows])
    ]  # fmt: skip
    scores = [[row.scores for row in outcome.table.rows] for outcome in found]
    assert scores[0] == scores[1]
    assert len(repr(found[0])) < 120
    once = [text for text in notices if "training examples" in text]
    assert len(once) == 2  # of two comparisons with two runs each
    with raises(ConfigError, "unknown_key", "no such data txt"):
        polyhead.compare(files={"txt": rows}, run=tmp_path / "x")


# Plans


PLAN = """
title = "Two stages"
recipe = "classify-small"
baseline = "scratch"
vary = ["data.max_examples=40,80"]
[[systems]]
name = "scratch"
changes = [{tiny}]
stages = [{{ steps = 3, files = ["labelled"] }}]
[[systems]]
name = "bert"
stages = [
  {{ recipe = "bert-tiny", files = ["text"], changes = [{small}] }},
  {{ steps = 3, files = ["labelled"] }},
]
"""


def test_later_stages_start_from_a_shared_pre_training(tmp_path):
    words = ["좋은", "나쁜", "큰", "작은"]
    rows = [f"{words[n % 4]} 영화 {n}\t{'yes' if n % 2 else 'no'}\n" for n in range(120)]
    (tmp_path / "mine.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    (tmp_path / "mine.txt").write_text("".join(r.split("\t")[0] + "\n" for r in rows), "utf-8")
    sizes = [word.removeprefix("model.stack.") for word in TINY[:-1]]
    words = '"text.vocab=300"'
    small = ", ".join([words, *(f'"model.stack.{size}"' for size in sizes)])
    tiny = ", ".join([words, *(f'"model.encoder.stack.{size}"' for size in sizes)])
    plan = tmp_path / "two.toml"
    plan.write_text(
        PLAN.format(small=f'{small}, "text.vocab=300"', tiny=f'{tiny}, "text.vocab=300"')
    )
    files = ["--text", str(tmp_path / "mine.txt"), "--data", str(tmp_path / "mine.tsv")]
    folder = tmp_path / "run"
    assert main(["compare", "--plan", str(plan), *files, "--steps", "3", "--run", str(folder),
                 "train.device=cpu", "--lang", "en"]) == 0  # fmt: skip
    assert sorted(path.name for path in (folder / "runs").iterdir()) == [
        "bert,max_examples=40-1", "bert,max_examples=80-1", "bert-1-stage-1",
        "scratch,max_examples=40-1", "scratch,max_examples=80-1",
    ]  # fmt: skip
    tuned = read(folder / "runs" / "bert,max_examples=40-1" / "config.toml")
    assert tuned["train"]["init"] == str(folder / "runs" / "bert-1-stage-1")
    rows = {row["system"]: row for row in table_of(folder)["rows"]}
    assert rows["bert,max_examples=40"]["training"]["steps"] == 6
    assert rows["scratch,max_examples=40"]["p_value"] is None
    assert rows["bert,max_examples=40"]["p_value"] is not None


def test_built_in_plans_can_be_built_and_their_baselines_exist():
    assert {"table2", "ladder", "pretraining", "electra", "images"} <= set(plan_names())
    for name in plan_names():
        plan = find_plan(name)
        if plan.translates:
            continue
        contest = expand(plan, read_vary(plan.vary))
        assert {s.baseline for s in contest.systems} <= {s.name for s in contest.systems}
        request = make_request([], plan=name, budget=(None, 10), run=Path("nowhere"))
        for system in request.contest.systems:
            for stage in system.stages:
                values = read_run(stage.recipe or system.recipe).plain()
                build(values, stage.changes)
