"""What `polyhead compare` tells while it works and in its table: right numbers, right words."""

import json
from contextlib import nullcontext

import pytest

from polyhead.cli import comparison as contests
from polyhead.cli.main import main
from polyhead.compare import runner as running
from polyhead.compare.budget import TimeBudget
from polyhead.compare.data import CompareData
from polyhead.compare.page import powers, render, shortened
from polyhead.compare.plan import ComparePlan
from polyhead.compare.runner import curve_of, hours
from polyhead.compare.systems import CONTESTS, TABLE
from polyhead.compare.table import lead, markdown, notes, title_of
from polyhead.cost.published import TABLE_2
from polyhead.training.run_log import METRICS, NullReporter

LSTM, GRU, *_ = TABLE


def plan_of(folder, seconds):
    """Two systems, one seed, two sentences to be examined with."""
    return ComparePlan(
        CONTESTS["compare"], folder, TimeBudget(seconds=seconds), "own text", {}, False, (),
        CompareData({}, ["a", "b"], ["c", "d"], "held out"), (LSTM, GRU), 1, "bleu",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1.0, "1 second"), (20.0, "20 seconds"), (60.0, "1 minute"), (90.0, "1.5 minutes")],
)
def test_a_budget_is_told_in_good_english(seconds, said):
    assert str(TimeBudget(seconds=seconds)) == said


@pytest.mark.parametrize(
    ("seconds", "n", "said"),
    [
        (20.0, 3, " (1 minute of training left in all)"),
        (1200.0, 9, " (180 minutes of training left in all)"),
        (5.0, 1, ""),
    ],
)
def test_what_is_left_is_told_in_good_english(tmp_path, seconds, n, said):
    assert hours(plan_of(tmp_path, seconds), n) == said


class Listener(NullReporter):
    """Remembers what was begun."""

    def __init__(self):
        self.stages = []

    def stage(self, what):
        self.stages.append(what)


def test_what_is_finished_is_not_counted_as_left(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "gru-1.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(running, "share", lambda *_: None)
    monkeypatch.setattr(running, "train_stage", lambda *_: tmp_path)
    monkeypatch.setattr(running, "judge", lambda *_: {})
    listener, counted = Listener(), []

    def counting(what, total):
        counted.append((what, total))
        return nullcontext(lambda _: None)

    running.run(plan_of(tmp_path, 600.0), listener, counting)
    assert "(10 minutes of training left in all)" in listener.stages[0]
    assert counted == [("examining", 4)]  # two sentences, greedily and with a beam


def write_metrics(folder, steps):
    folder.mkdir()
    entries = [{"kind": "valid", "step": step, "loss": 1.0 / step} for step in steps]
    lines = [json.dumps(entry) + "\n" for entry in entries]
    (folder / METRICS).write_text("".join(lines), encoding="utf-8")


def test_the_curve_of_two_stages_goes_through_the_whole_budget(tmp_path):
    folders = [tmp_path / "first", tmp_path / "then"]
    write_metrics(folders[0], (5, 10))
    write_metrics(folders[1], (2, 4))
    curve = curve_of(folders, [0.75, 0.25])
    assert [point["share"] for point in curve] == [0.375, 0.75, 0.875, 1.0]
    assert [point["step"] for point in curve] == [5, 10, 12, 14]


def table_with(rows, **more):
    """The least that notes and names need."""
    return {
        "contest": "ladder", "data": "own text", "metric": "bleu", "at_home": False, "paper": {},
        "baseline": "none", "signatures": [], "budget": "1 minute", "seeds": 1, "beam": 4,
        "length_penalty": 0.6, "coverage": 0.0, "replace_unknown": False,
        "test": {"where": "held out", "sentences": 9}, "rows": rows, **more,
    }  # fmt: skip


def row_of(system, title, p_value=None):
    score = {"mean": 1.0, "low": 1.0, "high": 1.0}
    scores = {"BLEU lower-cased": score, "BLEU cased": score}
    return {
        "system": system, "title": title, "paper": "", "published": None, "bar": None,
        "seeds": [1], "scores": {"greedy": scores, "beam": scores}, "p_value": p_value,
        "interval": None, "parameters": 9, "experts": None,
        "curves": [[{"share": 0.5, "loss": 2.0}, {"share": 1.0, "loss": 1.0}]],
        "training": {"flops": 1e9, "flops_measured": 1e9, "steps": 3, "seconds": 60.0},
        "decoding": {"sentences_per_second": {"greedy": 2.0, "beam": 1.0},
                     "parameter_bytes": 36, "remembered_bytes": 9},
    }  # fmt: skip


def test_without_a_baseline_nothing_is_said_about_p():
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
    paper = {key: one._asdict() for key, one in TABLE_2.items()}
    table = table_with([row_of("one", "One") | {"published": published}], paper=paper)
    (line,) = (line for line in markdown(table).splitlines() if "**One**" in line)
    assert line.endswith(said)
    for cell in said.strip("| ").split(" | "):
        assert f"<td>{cell.strip()}</td>" in render(table)


def test_the_papers_pictures_are_of_both_languages():
    """Deep-Att was measured in French alone; what ByteNet cost nobody knows."""
    paper = {key: one._asdict() for key, one in TABLE_2.items()}
    page = render(table_with([row_of("one", "One")], paper=paper), "en")
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
def test_no_difference_is_called_impossible_by_chance(p_value, said):
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
    teams = [row | {"members": ["a-1", "a-2"], "names": ["a"]} for row in (one, two)]
    told = notes(table_with([one, two, *teams]), "en")
    assert "Ensembles of seeds are tested against that of “last state”." in told


def test_korean_tables_and_pictures_name_the_rungs_in_korean():
    table = table_with([row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)])
    assert "1분" in lead(table, "ko")
    for shown in (markdown(table, "ko"), render(table, "ko")):
        assert "마지막 상태" in shown
        assert "last state" not in shown
        assert "lower-cased" not in shown


def test_an_ensemble_says_so_in_both_languages():
    team = {"members": ["lstm-1", "gru-1"], "names": ["last state", "GRU"]}
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


def test_ctrl_c_between_two_trainings_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(contests, "compete", interrupted)
    assert main(["compare", "multi30k-de-en", "--budget", "1m"]) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_a_terminal_gets_what_fits_and_whoever_reads_on_gets_all(monkeypatch, capsys):
    table = table_with([row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)])
    monkeypatch.setenv("COLUMNS", "100")
    contests.show(table, "en")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    (shown,) = (line.split() for line in lines if "sᵀh" in line)
    assert shown == ["dot,", "sᵀh", "1.00", "1.00", "0.200", "3", "1.0", "0.00", "M", "2", "/", "1"]


def test_the_best_models_are_named_so_that_they_can_be_used(tmp_path):
    one, team = row_of("dot", "dot, sᵀh"), row_of("none+dot", "") | {"members": ["none-1", "dot-1"]}
    runs = tmp_path / "runs"
    assert contests.models_of(one, tmp_path) == [runs / "dot-1"]
    assert contests.models_of(team, tmp_path) == [runs / "none-1", runs / "dot-1"]


def test_little_training_is_told_in_the_table_and_on_the_screen(monkeypatch, capsys):
    few, many = row_of("none", "last state"), row_of("dot", "dot, sᵀh")
    many["training"] = many["training"] | {"steps": 4000}
    said = "The shortest training had 3 steps: too few for the order of the rows to mean much."
    monkeypatch.setenv("COLUMNS", "200")
    for rows, told in (([few, many], True), ([many], False)):
        table = table_with(rows)
        contests.show(table, "en")
        for shown in (markdown(table, "en"), render(table, "en"), capsys.readouterr().out):
            assert (said in shown) == told
    assert "3스텝" in markdown(table_with([few]), "ko")


def test_the_median_is_spoken_of_only_where_there_are_several_seeds():
    rows = [row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)]
    for seeds, told in ((1, False), (3, True)):
        said = " ".join(notes(table_with(rows, seeds=seeds), "en"))
        assert "by chance" in said
        assert ("median" in said) == told


@pytest.mark.parametrize(("seconds", "said"), [(3.0, "0.05"), (59.0, "0.98"), (1200.0, "20.0")])
def test_costs_are_written_as_the_papers_are_and_no_training_took_no_time(seconds, said):
    row = row_of("dot", "dot, sᵀh")
    row["training"] = row["training"] | {"flops": 9.43e11, "seconds": seconds}
    assert f"| 9.43e11 | 1.00e9 | 3 | {said} |" in markdown(table_with([row]))


def test_text_without_a_name_is_named_in_the_readers_language():
    table = table_with([row_of("dot", "dot, sᵀh")])
    assert "held out of the training text, 9 lines" in lead(table, "en")
    assert "on your own text" in markdown(table, "en")
    korean = markdown(table, "ko")
    assert "held out" not in korean
    assert "own text" not in korean
    named = table_with([row_of("dot", "dot")], data="lead", test={"where": "p.en", "sentences": 1})
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
    table = table_with([row_of("dot", "dot, sᵀh") | {"interval": [0.5, 1.75]}])
    text = markdown(table, "en")
    assert "| 1.00 (0.50 – 1.75) | 1.00 |" in text
    assert "95 %" in text
