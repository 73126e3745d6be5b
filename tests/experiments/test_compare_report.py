"""The progress, the table and the page of `polyhead compare`."""

import base64
import hashlib
import re
from contextlib import nullcontext
from dataclasses import replace
from html.parser import HTMLParser
from unittest.mock import Mock

import pytest
from expected_errors import raises

from polyhead.cli import compare as command
from polyhead.cli.main import main
from polyhead.cost.published import TABLE_2
from polyhead.errors import ConfigError
from polyhead.experiments import runner
from polyhead.experiments.budget import Budget
from polyhead.experiments.configuration import Deviation, ModelSizes
from polyhead.experiments.corpus import CompareData
from polyhead.experiments.page import powers, render, shortened
from polyhead.experiments.plan import ComparePlan, CompareRequest
from polyhead.experiments.results import (
    ComparisonTable,
    CurvePoint,
    DecodingCost,
    EvaluationSet,
    RowDecoding,
    ScoreRange,
    SystemResult,
    TableRow,
    TrainingCost,
    read_json,
    write_json,
)
from polyhead.experiments.scoring import learning_curve
from polyhead.experiments.systems import CONTESTS
from polyhead.experiments.table import lead, markdown, notes, title_of
from polyhead.metrics.bleu import Score
from polyhead.render.html import write
from polyhead.training.callbacks import Callback

COST = TrainingCost(steps=3, tokens=9, seconds=60.0, flops=1e9, flops_measured=1e9)
RESULT = SystemResult(
    "gru", 1, 9, COST, DecodingCost(9, 5, 4, 0.6, {"greedy": 2.0, "beam": 1.0}),
    {"greedy": {"BLEU": Score("BLEU", 1.0, 0.5, 1.5, "sig")}}, [],
)  # fmt: skip


def plan_of(folder, seconds):
    """The first two systems, LSTM and GRU, one seed, two test sentences."""
    contest = CONTESTS["compare"]
    request = CompareRequest(contest, folder, Budget(seconds, "seconds"))
    test = CompareData({}, ["a", "b"], ["c", "d"], "held out")
    return ComparePlan(request, {}, False, (), test, contest.systems[:2], "bleu")


def table_with(*rows, **more):
    return ComparisonTable(**{
        "contest": "ladder", "data": "own text", "metric": "bleu", "at_home": False, "paper": {},
        "baseline": "none", "signatures": [], "budget": "1 minute", "seeds": 1, "beam": 4,
        "length_penalty": 0.6, "coverage": 0.0, "replace_unknown": False,
        "test": EvaluationSet("held out", 9), "rows": list(rows), **more,
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


NONE, DOT = row_of("none", "last state"), row_of("dot", "dot, sᵀh", 0.2)


# Progress and results


def test_finished_systems_are_not_counted_as_left(tmp_path, monkeypatch):
    write_json(tmp_path / "results" / "gru-1.json", RESULT)
    monkeypatch.setattr(runner, "read_shared", lambda *_: Mock(runner.SharedData, pairs=[]))
    monkeypatch.setattr(runner, "train_system", lambda *_: [tmp_path])
    monkeypatch.setattr(runner, "score_system", lambda *_: RESULT)
    reporter, counting = Mock(Callback), Mock(return_value=nullcontext())
    runner.run_systems(plan_of(tmp_path, 600.0), reporter, counting)
    assert "(10 minutes of training left in all)" in reporter.on_stage.call_args_list[0].args[0]
    counting.assert_called_once_with("evaluating", 4)  # two sentences, greedily and with a beam


def test_the_curve_of_two_stages_covers_the_whole_budget():
    metrics = [
        [{"kind": "valid", "step": step, "loss": 1.0 / step} for step in steps]
        for steps in ((5, 10), (2, 4))
    ]
    curve = learning_curve(metrics, [0.75, 0.25])
    assert [point.share for point in curve] == [0.375, 0.75, 0.875, 1.0]
    assert [point.step for point in curve] == [5, 10, 12, 14]


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results" / "x.json"
    ensemble = replace(RESULT, members=["a-1", "b-1"], curve=[CurvePoint(0.5, 1, 2.0)])
    for result in (RESULT, ensemble):
        write_json(path, result)
        assert read_json(path, SystemResult) == result
        assert ("members" in path.read_text()) == (result is ensemble)
    for text in ("{}", "[", "[1]"):
        path.write_text(text, encoding="utf-8")
        with raises(ConfigError, "damaged_file", "x.json"):
            read_json(path, SystemResult)


def test_ctrl_c_between_two_trainings_says_how_to_resume(monkeypatch, capsys):
    monkeypatch.setattr(runner, "compare_systems", Mock(side_effect=KeyboardInterrupt))
    assert main(["compare", "multi30k-de-en", "--budget", "1m"]) == 130
    assert "again to resume" in capsys.readouterr().err


# Table


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
    table = table_with(row_of("one", "One", published=published), paper=TABLE_2)
    (line,) = (line for line in markdown(table).splitlines() if "**One**" in line)
    assert line.endswith(said)
    for cell in said.strip("| ").split(" | "):
        assert f"<td>{cell.strip()}</td>" in render(table)


@pytest.mark.parametrize(
    ("p_value", "said"), [(1e-12, "< 0.001"), (0.001, "0.001"), (0.25, "0.250"), (None, "")]
)
def test_small_p_values_are_not_shown_as_zero(p_value, said):
    table = table_with(row_of("dot", "dot", p_value))
    lines = [line for line in markdown(table).splitlines() if line.startswith(("| s", "| *"))]
    head, row = (line.split(" | ") for line in lines)
    assert row[head.index("p")] == said
    assert f"<td>{said.replace('<', '&lt;')}</td>" in render(table)


@pytest.mark.parametrize(("seconds", "said"), [(3.0, "0.05"), (59.0, "0.98"), (1200.0, "20.0")])
def test_costs_and_minutes_are_formatted(seconds, said):
    row = replace(DOT, training=replace(COST, flops=9.43e11, seconds=seconds))
    assert f"| 9.43e11 | 1.00e9 | 3 | {said} |" in markdown(table_with(row))


TEAMS = [replace(row, members=["a-1", "a-2"], names=["a"]) for row in (NONE, DOT)]


@pytest.mark.parametrize(
    ("rows", "more", "note", "told"),
    [
        ([row_of("dot", "dot")], {}, "by chance", False),  # no baseline, no test
        ([NONE, DOT], {}, "by chance", True),
        ([NONE, DOT], {"seeds": 3}, "by chance", True),
        ([NONE, DOT], {}, "median over seeds", False),
        ([NONE, DOT], {"seeds": 3}, "median over seeds", True),
        ([NONE, DOT], {}, "Ensembles", False),
        ([NONE, DOT, *TEAMS], {}, "Ensembles of seeds are tested against that of “last state”.",
         True),
        ([DOT], {}, "95 %", True),
    ],
)  # fmt: skip
def test_notes_explain_only_what_the_table_has(rows, more, note, told):
    assert any(note in text for text in notes(table_with(*rows, **more), "en")) == told


def test_a_score_of_one_seed_has_its_interval():
    text = markdown(table_with(replace(DOT, interval=(0.5, 1.75))), "en")
    assert "| 1.00 (0.50 – 1.75) | 1.00 |" in text


def test_too_few_steps_are_a_warning_in_table_and_terminal(monkeypatch, capsys):
    many = replace(DOT, training=replace(COST, steps=4000))
    said = "The shortest training had 3 steps: too few for the order of the rows to mean much."
    monkeypatch.setenv("COLUMNS", "200")
    for rows, told in (([NONE, many], True), ([many], False)):
        table = table_with(*rows)
        command.print_table(table, "en")
        for shown in (markdown(table, "en"), part_of(render(table)), capsys.readouterr().out):
            assert (said in shown) == told
    assert "3스텝" in markdown(table_with(NONE), "ko")


def test_korean_tables_and_charts_translate_titles_and_unnamed_data():
    table = table_with(NONE, DOT)
    assert "1분" in lead(table, "ko")
    for shown in (markdown(table, "ko"), part_of(render(table), "ko")):
        assert "마지막 상태" in shown
        for english in ("last state", "lower-cased", "held out", "own text"):
            assert english not in shown
    assert "held out of the training text, 9 lines" in lead(table, "en")
    assert "on your own text" in markdown(table, "en")
    named = table_with(DOT, data="lead", test=EvaluationSet("p.en", 1))
    assert "on lead" in markdown(named, "en")  # a recipe's name is no key of ours
    assert "p.en, 1 lines" in lead(named, "en")


def test_titles_have_the_real_sizes():
    sizes = ModelSizes((3, 2), "256", "pre", 8)
    row = row_of("a", "Transformer, wider", sizes=sizes, preset="transformer-big",
                 deviations=[Deviation("d_ff", "512", "4096")])  # fmt: skip
    assert title_of(row, "en") == "Transformer, wider, 3 + 2 layers of 256, pre-norm, 8 experts"
    assert (
        title_of(row, "ko") == "더 넓은 Transformer, 256차원 레이어 3 + 2개, pre-norm, 전문가 8개"
    )
    for language, text in (("en", "Deviations of Tr"), ("ko", "논문의 설정")):
        for shown in (
            markdown(table_with(row), language),
            part_of(render(table_with(row)), language),
        ):
            assert "d_ff 512 (4096)" in shown
            assert text in shown


def test_titles_of_ensembles_are_translated():
    team = row_of("a+b", "", members=["lstm-1", "gru-1"], names=["last state", "GRU"])
    assert title_of(team, "en") == "last state + GRU, ensemble of 2"
    assert title_of(team, "ko") == "마지막 상태 + GRU, 2개의 앙상블"


def test_a_terminal_gets_the_columns_that_fit(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    command.print_table(table_with(NONE, DOT), "en")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    (shown,) = (line.split() for line in lines if "sᵀh" in line)
    assert shown == ["dot,", "sᵀh", "1.00", "1.00", "0.200", "3", "1.0", "0.00", "M", "2", "/", "1"]


def test_the_best_models_are_named_so_that_they_can_be_used(tmp_path):
    team = row_of("none+dot", "", members=["none-1", "dot-1"])
    runs = tmp_path / "runs"
    assert command.model_dirs(DOT, tmp_path) == [runs / "dot-1"]
    assert command.model_dirs(team, tmp_path) == [runs / "none-1", runs / "dot-1"]


# Page


def part_of(page, language="en"):
    """Return what a page shows in a language."""
    return re.search(rf"<main class='{language}'.*?</main>", page, re.DOTALL)[0]


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.seen = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_page_has_no_script_makes_no_request_and_escapes_names(language):
    row = replace(DOT, title='"><img src=x>')
    table = table_with(NONE, row, data="<script>alert(1)</script>", paper=TABLE_2)
    page = render(table, language)
    tags = Tags(page).seen
    names = {tag for tag, _ in tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in tags:
        assert not {"src", "href", "srcset", "data"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import", page)
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"sha256-{digest}" in page.replace("&#x27;", "'")
    assert [a["lang"] for tag, a in tags if tag == "html"] == [language]
    for one in ("en", "ko"):
        part = part_of(page, one)
        assert part.count("<svg") == 4  # ours, learning curves, the paper's two
        assert ("예산" in part) == (one == "ko")


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_page_opens_in_a_language_and_switches_to_the_other(tmp_path, windows, language):
    path = write(render(table_with(NONE, DOT), language), tmp_path / "table.html")
    page = windows.open(path.as_uri())
    shown = [page.locator(f"main.{one}") for one in ("en", "ko")]
    assert [part.is_visible() for part in shown] == [language == "en", language == "ko"]
    page.locator(f"main.{language} >> text={'한국어' if language == 'en' else 'English'}").click()
    assert [part.is_visible() for part in shown] == [language == "ko", language == "en"]


def test_the_papers_pictures_are_of_both_languages():
    """Deep-Att has figures for French only, ByteNet no cost."""
    page = part_of(render(table_with(row_of("one", "One"), paper=TABLE_2)))
    german, french = page.split("The same in the paper (EN-DE)")[1].split("(EN-FR)")
    french = french.split("</figure>")[0]
    for name, in_german, in_french in (
        ("Deep-Att + PosUnk<", 0, 1), ("GNMT + RL<", 1, 1), ("ByteNet<", 0, 0),
    ):  # fmt: skip
        assert (german.count(f">{name}"), french.count(f">{name}")) == (in_german, in_french)
    assert "in the paper" not in render(table_with(row_of("one", "One")), "en")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Transformer (base)", "Transformer (base)"),
        ("additive, vᵀ tanh(W s + U h)", "additive, vᵀ tanh(W s + U h)"),
        ("Transformer (base) + GRU with attention, ensemble of 2", "Transformer…, ensemble of 2"),
        ("Transformer (base), ensemble of 3", "Transformer…, ensemble of 3"),
        ("LSTM, 어텐션 없음 + Transformer (base), 2개의 앙상블", "LSTM, 어텐션…, 2개의 앙상블"),
        ("GRU, 매번 문맥을 읽음", "GRU, 매번 문맥을 읽음"),
    ],
)
def test_names_beside_a_chart_are_cut_where_they_would_leave_it(name, short):
    assert shortened(name) == short


@pytest.mark.parametrize("length", [0.3, 0.4, 0.7, 1.0, 2.1, 6.0])
def test_a_logarithmic_axis_has_at_least_two_numbers_and_not_too_many(length):
    for hundredths in range(1100, 1200):
        low, high = hundredths / 100, hundredths / 100 + length
        ticks = powers(low, high)
        assert 2 <= len(ticks) <= 10
        assert all(low <= place <= high for place in ticks)
        assert [float(told) for told in ticks.values()] == pytest.approx([10**at for at in ticks])
