"""The progress, the table and the page of `polyhead compare`."""

import json
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import Mock

import pytest
from expected_errors import raises

from polyhead.cli import compare as command
from polyhead.cli.main import main
from polyhead.compare import runner
from polyhead.compare.budget import TimeBudget
from polyhead.compare.corpus import CompareData
from polyhead.compare.page import powers, render, shortened
from polyhead.compare.plan import ComparePlan
from polyhead.compare.results import (
    ComparisonTable,
    CurvePoint,
    DecodingCost,
    EvaluationSet,
    RowDecoding,
    ScoreRange,
    SystemResult,
    TableRow,
    TrainingCost,
    read_result,
    to_json,
    write_json,
)
from polyhead.compare.runner import time_left
from polyhead.compare.scoring import learning_curve
from polyhead.compare.systems import CONTESTS, TABLE
from polyhead.compare.table import lead, markdown, notes, title_of
from polyhead.cost.published import TABLE_2
from polyhead.errors import ConfigError
from polyhead.metrics.bleu import Score
from polyhead.training.run_log import METRICS, NullReporter

LSTM, GRU, *_ = TABLE
COST = TrainingCost(steps=3, tokens=9, seconds=60.0, flops=1e9, flops_measured=1e9)
RESULT = SystemResult(
    "gru", 1, 9, COST, DecodingCost(9, 5, 4, 0.6, {"greedy": 2.0, "beam": 1.0}),
    {"greedy": {"BLEU": Score("BLEU", 1.0, 0.5, 1.5, "sig")}}, [],
)  # fmt: skip


def plan_of(folder, seconds):
    """Two systems, one seed, two test sentences."""
    return ComparePlan(
        CONTESTS["compare"], folder, TimeBudget(seconds=seconds), "own text", {}, False, (),
        CompareData({}, ["a", "b"], ["c", "d"], "held out"), (LSTM, GRU), 1, "bleu",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1.0, "1 second"), (20.0, "20 seconds"), (60.0, "1 minute"), (90.0, "1.5 minutes")],
)
def test_budgets_are_shown_with_the_right_plural(seconds, said):
    assert str(TimeBudget(seconds=seconds)) == said


@pytest.mark.parametrize(
    ("seconds", "n", "said"),
    [
        (20.0, 3, " (1 minute of training left in all)"),
        (1200.0, 9, " (180 minutes of training left in all)"),
        (5.0, 1, ""),
    ],
)
def test_the_time_left_is_shown_with_the_right_plural(tmp_path, seconds, n, said):
    assert time_left(plan_of(tmp_path, seconds), n) == said


class Listener(NullReporter):
    """Records the stages."""

    def __init__(self):
        self.stages = []

    def stage(self, what):
        self.stages.append(what)


def test_finished_systems_are_not_counted_as_left(tmp_path, monkeypatch):
    write_json(tmp_path / "results" / "gru-1.json", to_json(RESULT))
    monkeypatch.setattr(runner, "read_shared", lambda *_: Mock(pairs=[]))
    monkeypatch.setattr(runner, "train_stage", lambda *_: tmp_path)
    monkeypatch.setattr(runner, "score_system", lambda *_: RESULT)
    listener, counted = Listener(), []

    def counting(what, total):
        counted.append((what, total))
        return nullcontext(lambda _: None)

    runner.run_systems(plan_of(tmp_path, 600.0), listener, counting)
    assert "(10 minutes of training left in all)" in listener.stages[0]
    assert counted == [("evaluating", 4)]  # two sentences, greedily and with a beam


def write_metrics(folder, steps):
    folder.mkdir()
    entries = [{"kind": "valid", "step": step, "loss": 1.0 / step} for step in steps]
    lines = [json.dumps(entry) + "\n" for entry in entries]
    (folder / METRICS).write_text("".join(lines), encoding="utf-8")


def test_the_curve_of_two_stages_covers_the_whole_budget(tmp_path):
    folders = [tmp_path / "first", tmp_path / "then"]
    write_metrics(folders[0], (5, 10))
    write_metrics(folders[1], (2, 4))
    curve = learning_curve(folders, [0.75, 0.25])
    assert [point.share for point in curve] == [0.375, 0.75, 0.875, 1.0]
    assert [point.step for point in curve] == [5, 10, 12, 14]


def table_with(rows, **more):
    return ComparisonTable(**{
        "contest": "ladder", "data": "own text", "metric": "bleu", "at_home": False, "paper": {},
        "baseline": "none", "signatures": [], "budget": "1 minute", "seeds": 1, "beam": 4,
        "length_penalty": 0.6, "coverage": 0.0, "replace_unknown": False,
        "test": EvaluationSet("held out", 9), "rows": rows, **more,
    })  # fmt: skip


def row_of(system, title, p_value=None, **more):
    score = ScoreRange(1.0, 1.0, 1.0)
    scores = {"BLEU lower-cased": score, "BLEU cased": score}
    return TableRow(**{
        "system": system, "title": title, "paper": "", "published": None, "bar": None,
        "seeds": [1], "scores": {"greedy": scores, "beam": scores}, "p_value": p_value,
        "interval": None, "parameters": 9, "training": COST,
        "curves": [[CurvePoint(0.5, 1, 2.0), CurvePoint(1.0, 2, 1.0)]],
        "decoding": RowDecoding(9, 36, {"greedy": 2.0, "beam": 1.0}), **more,
    })  # fmt: skip


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results" / "x.json"
    ensemble = replace(RESULT, members=["a-1", "b-1"], curve=[CurvePoint(0.5, 1, 2.0)])
    for result in (RESULT, ensemble):
        write_json(path, to_json(result))
        assert read_result(path) == result
    assert "members" not in to_json(RESULT)
    for text in ("{}", "[", "[1]"):
        path.write_text(text, encoding="utf-8")
        with raises(ConfigError, "damaged_file", "x.json"):
            read_result(path)


def test_there_is_no_note_about_p_without_a_baseline():
    table = table_with([row_of("dot", "dot, sᵀh")])
    assert not any("by chance" in note for note in notes(table, "en"))


@pytest.mark.parametrize(
    ("published", "said"),
    [
        ("Deep-Att", "| – / 39.2 | – / 1.0e20 |"),
        ("GNMT", "| 24.6 / 39.92 | 2.3e19 / 1.4e20 |"),
        ("ByteNet", "| 23.75 / – |  |"),
        (None, "|  |  |"),
    ],
)
def test_the_papers_figures_of_both_languages_stand_beside_ours(published, said):
    table = table_with([row_of("one", "One", published=published)], paper=TABLE_2)
    (line,) = (line for line in markdown(table).splitlines() if "**One**" in line)
    assert line.endswith(said)
    for cell in said.strip("| ").split(" | "):
        assert f"<td>{cell.strip()}</td>" in render(table)


def test_the_papers_pictures_are_of_both_languages():
    """Deep-Att has figures for French only, ByteNet no cost."""
    page = render(table_with([row_of("one", "One")], paper=TABLE_2), "en")
    german, french = page.split("The same in the paper (EN-DE)")[1].split("(EN-FR)")
    french = french.split("</figure>")[0]
    for name, in_german, in_french in (
        ("Deep-Att + PosUnk<", 0, 1), ("GNMT + RL<", 1, 1), ("ByteNet<", 0, 0),
    ):  # fmt: skip
        assert (german.count(f">{name}"), french.count(f">{name}")) == (in_german, in_french)
    assert "in the paper" not in render(table_with([row_of("one", "One")]), "en")


@pytest.mark.parametrize(
    ("p_value", "said"), [(1e-12, "< 0.001"), (0.001, "0.001"), (0.25, "0.250"), (None, "")]
)
def test_small_p_values_are_not_shown_as_zero(p_value, said):
    table = table_with([row_of("dot", "dot", p_value)])
    head, row = (
        line.split(" | ")
        for line in markdown(table).splitlines()
        if line.startswith(("| s", "| *"))
    )
    assert row[head.index("p")] == said
    assert f"<td>{said.replace('<', '&lt;')}</td>" in render(table)


def test_an_ensemble_of_seeds_is_tested_against_another_and_a_note_says_so():
    one, two = row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)
    assert not any("Ensembles" in note for note in notes(table_with([one, two]), "en"))
    teams = [replace(row, members=["a-1", "a-2"], names=["a"]) for row in (one, two)]
    told = notes(table_with([one, two, *teams]), "en")
    assert "Ensembles of seeds are tested against that of “last state”." in told


def test_korean_tables_and_charts_translate_the_titles():
    table = table_with([row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)])
    assert "1분" in lead(table, "ko")
    for shown in (markdown(table, "ko"), render(table, "ko")):
        assert "마지막 상태" in shown
        assert "last state" not in shown
        assert "lower-cased" not in shown


def test_titles_of_ensembles_are_translated():
    team = row_of("a+b", "", members=["lstm-1", "gru-1"], names=["last state", "GRU"])
    assert title_of(team, "en") == "last state + GRU, ensemble of 2"
    assert title_of(team, "ko") == "마지막 상태 + GRU, 2개의 앙상블"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Transformer (base)", "Transformer (base)"),
        ("additive, vᵀ tanh(W s + U h)", "additive, vᵀ tanh(W s + U h)"),
        ("Transformer (base) + GRU with attention, ensemble of 2", "Transformer…, ensemble of 2"),
        ("Transformer (base), ensemble of 3", "Transformer…, ensemble of 3"),
    ],
)
def test_names_beside_a_chart_are_cut_where_they_would_leave_it(name, short):
    assert shortened(name) == short


def test_ctrl_c_between_two_trainings_says_how_to_resume(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "compare_systems", interrupted)
    assert main(["compare", "multi30k-de-en", "--budget", "1m"]) == 130
    assert "again to resume" in capsys.readouterr().err


def test_a_terminal_gets_the_columns_that_fit(monkeypatch, capsys):
    table = table_with([row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)])
    monkeypatch.setenv("COLUMNS", "100")
    command.print_table(table, "en")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    (shown,) = (line.split() for line in lines if "sᵀh" in line)
    assert shown == ["dot,", "sᵀh", "1.00", "1.00", "0.200", "3", "1.0", "0.00", "M", "2", "/", "1"]


def test_the_best_models_are_named_so_that_they_can_be_used(tmp_path):
    one, team = row_of("dot", "dot, sᵀh"), row_of("none+dot", "", members=["none-1", "dot-1"])
    runs = tmp_path / "runs"
    assert command.model_dirs(one, tmp_path) == [runs / "dot-1"]
    assert command.model_dirs(team, tmp_path) == [runs / "none-1", runs / "dot-1"]


def test_too_few_steps_are_a_warning_in_table_and_terminal(monkeypatch, capsys):
    few = row_of("none", "last state")
    many = row_of("dot", "dot, sᵀh", training=replace(COST, steps=4000))
    said = "The shortest training had 3 steps: too few for the order of the rows to mean much."
    monkeypatch.setenv("COLUMNS", "200")
    for rows, told in (([few, many], True), ([many], False)):
        table = table_with(rows)
        command.print_table(table, "en")
        for shown in (markdown(table, "en"), render(table, "en"), capsys.readouterr().out):
            assert (said in shown) == told
    assert "3스텝" in markdown(table_with([few]), "ko")


def test_the_median_is_mentioned_only_with_several_seeds():
    rows = [row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)]
    for seeds, told in ((1, False), (3, True)):
        said = " ".join(notes(table_with(rows, seeds=seeds), "en"))
        assert "by chance" in said
        assert ("median over seeds" in said) == told


@pytest.mark.parametrize(("seconds", "said"), [(3.0, "0.05"), (59.0, "0.98"), (1200.0, "20.0")])
def test_costs_and_minutes_are_formatted(seconds, said):
    row = row_of("dot", "dot, sᵀh", training=replace(COST, flops=9.43e11, seconds=seconds))
    assert f"| 9.43e11 | 1.00e9 | 3 | {said} |" in markdown(table_with([row]))


def test_names_of_unnamed_data_are_translated():
    table = table_with([row_of("dot", "dot, sᵀh")])
    assert "held out of the training text, 9 lines" in lead(table, "en")
    assert "on your own text" in markdown(table, "en")
    korean = markdown(table, "ko")
    assert "held out" not in korean
    assert "own text" not in korean
    named = table_with([row_of("dot", "dot")], data="lead", test=EvaluationSet("p.en", 1))
    assert "on lead" in markdown(named, "en")  # a recipe's name is no key of ours
    assert "p.en, 1 lines" in lead(named, "en")


def test_korean_names_beside_a_chart_are_cut_by_their_width():
    name = "LSTM, 어텐션 없음 + Transformer (base), 2개의 앙상블"
    assert shortened(name) == "LSTM, 어텐션…, 2개의 앙상블"
    assert shortened("GRU, 매번 문맥을 읽음") == "GRU, 매번 문맥을 읽음"


@pytest.mark.parametrize("length", [0.3, 0.4, 0.7, 1.0, 2.1, 6.0])
def test_a_logarithmic_axis_has_at_least_two_numbers_and_not_too_many(length):
    for hundredths in range(1100, 1200):
        low, high = hundredths / 100, hundredths / 100 + length
        ticks = powers(low, high)
        assert 2 <= len(ticks) <= 10
        assert all(low <= place <= high for place in ticks)
        assert [float(told) for told in ticks.values()] == pytest.approx([10**at for at in ticks])


def test_a_score_of_one_seed_has_its_interval_and_a_note_says_so():
    table = table_with([row_of("dot", "dot, sᵀh", interval=(0.5, 1.75))])
    text = markdown(table, "en")
    assert "| 1.00 (0.50 – 1.75) | 1.00 |" in text
    assert "95 %" in text
