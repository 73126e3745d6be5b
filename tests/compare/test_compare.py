"""`polyhead compare` and `polyhead ladder`: training, resuming, data and budgets."""

import base64
import hashlib
import json
import random
import re
import signal
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from expected_errors import raises
from pydantic import TypeAdapter

from polyhead.cli.main import main
from polyhead.compare import runner
from polyhead.compare.budget import (
    TimeBudget,
    TimingReporter,
    affordable_steps,
    read_budget,
    with_steps,
)
from polyhead.compare.corpus import prepare
from polyhead.compare.page import render
from polyhead.compare.results import ComparisonTable
from polyhead.compare.scoring import decoding_state_bytes, score_outputs
from polyhead.compare.systems import CONTESTS, HOME, LADDER, TABLE, select_systems, system_values
from polyhead.config import read
from polyhead.cost.breakdown import cache_size
from polyhead.cost.formulas import Shape
from polyhead.cost.published import TABLE_2, PublishedSystem
from polyhead.decoding.config import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tokenizers.base import UNKNOWN
from polyhead.training.config import build, find_recipe
from polyhead.training.trainer import TrainResult

SHORT = (
    "text.kind=words", "text.vocab=60", "decode.max_length=6", "decode.beam=2",
    "train.bleu_sentences=2", "train.max_tokens=200", "train.device=cpu",
)  # fmt: skip


def write_corpus(folder, n=60):
    """A few letters, and the same backwards."""
    dice = random.Random(1)
    lines = [dice.sample("abcdefghij", dice.randint(2, 5)) for _ in range(n)]
    for name, rows in (("train.ko", lines), ("train.en", [line[::-1] for line in lines])):
        text = "".join(f"{' '.join(row)}\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")


TINY = (
    "model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
    "model.stack.d_ff=16",
)  # fmt: skip


def shrunk(system):
    """Return a small version of a system."""
    small = ("model.d_model=16",) if system.recipe else TINY
    return replace(system, changes=(*system.changes, *small))


@pytest.fixture(scope="module", autouse=True)
def _small_systems():
    with pytest.MonkeyPatch.context() as patch:
        for name, contest in list(CONTESTS.items()):
            small = replace(contest, systems=tuple(map(shrunk, contest.systems)))
            patch.setitem(CONTESTS, name, small)
        yield


def words_of(folder, *more, contest="compare", flops="1e6"):
    files = {"source": folder / "train.ko", "target": folder / "train.en"}
    named = [word for name, path in files.items() for word in (f"--{name}", path)]
    words = [contest, *SHORT, *named, "--flops", flops, "--run", folder / contest, *more]
    return [str(word) for word in words if word is not None]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two systems, two seeds, an ensemble of both; do not change it."""
    folder = tmp_path_factory.mktemp("compared")
    write_corpus(folder)
    more = ("--systems", "lstm,transformer", "--seeds", "2", "--lang", "en")
    assert main(words_of(folder, *more, "--ensemble", "lstm+transformer")) == 0
    return folder


def read_table(folder, contest="compare"):
    values = table_of(folder, contest)
    paper = {key: PublishedSystem(**row) for key, row in values["paper"].items()}
    return TypeAdapter(ComparisonTable).validate_python(values | {"paper": paper})


def table_of(folder, contest="compare"):
    return json.loads((folder / contest / "table.json").read_text(encoding="utf-8"))


def test_every_system_has_a_row_with_all_its_figures(compared):
    table = table_of(compared)
    assert [row["system"] for row in table["rows"]] == ["lstm", "transformer", "lstm+transformer"]
    for row in table["rows"]:
        assert set(row["scores"]) == {"greedy", "beam"}
        assert all(
            set(found) == {"BLEU lower-cased", "BLEU cased", "chrF"}
            for found in row["scores"].values()
        )
        assert row["training"]["flops"] > 0
        assert row["training"]["flops_measured"] > 0
        assert row["decoding"]["remembered_bytes"] > 0
        assert row["parameters"] > 0
    lstm, transformer, team = table["rows"]
    assert lstm["p_value"] is not None
    assert transformer["p_value"] is None
    assert team["parameters"] == lstm["parameters"] + transformer["parameters"]
    assert team["members"] == ["lstm-1", "transformer-1"]
    assert len(lstm["curves"]) == len(lstm["seeds"]) == 2
    assert any("case:lc" in signature for signature in table["signatures"])


def test_markdown_and_page_show_every_row_and_the_papers_own(compared):
    text = (compared / "compare" / "table.md").read_text(encoding="utf-8")
    page = (compared / "compare" / "table.html").read_text(encoding="utf-8")
    assert "LSTM, no attention (Sutskever et al. 2014)" in text
    assert "LSTM, no attention<small>Sutskever et al. 2014</small>" in page
    assert "Transformer (base) (Vaswani et al. 2017)" in text
    assert "Transformer (base)<small>Vaswani et al. 2017</small>" in page
    assert all(row.name in text for row in TABLE_2.values())
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines[:5]}) == 1


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_page_has_no_script_and_makes_no_request(compared, language):
    page = render(read_table(compared), language)
    tags = Tags()
    tags.feed(page)
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for _, attributes in tags.seen:
        assert not {"src", "href", "srcset", "data"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import", page)
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"sha256-{digest}" in page.replace("&#x27;", "'")
    assert [a["lang"] for tag, a in tags.seen if tag == "html"] == [language]
    assert page.count("<svg") == 4  # ours, learning curves, the paper's two
    assert ("예산" in page) == (language == "ko")


def test_names_are_escaped_in_the_page(compared):
    table = read_table(compared)
    rows = [replace(row, title='"><img src=x>') for row in table.rows]
    table = replace(table, data="<script>alert(1)</script>", rows=rows)
    tags = Tags()
    tags.feed(render(table))
    assert not {"script", "img"} & {tag for tag, _ in tags.seen}


def test_every_run_has_the_same_vocabulary_and_text(compared):
    runs = sorted((compared / "compare" / "runs").iterdir())
    assert [run.name for run in runs] == ["lstm-1", "lstm-2", "transformer-1", "transformer-2"]
    for name in ("data.json", "tokenizer/tokenizer.json"):
        assert len({(run / name).read_bytes() for run in runs}) == 1
    data = compared / "compare" / "data"
    sides = [
        set((data / f"{n}.source").read_text().splitlines()) for n in ("train", "valid", "test")
    ]
    assert all(sides)
    assert not (sides[0] & sides[1])
    assert not (sides[0] & sides[2])
    assert not (sides[1] & sides[2])


def test_finished_systems_are_not_run_again(compared, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("this has been done")

    for name in ("train", "score_system", "read_shared"):
        monkeypatch.setattr(runner, name, refuse)
    before = table_of(compared)
    assert main(words_of(compared, "--systems", "lstm,transformer", "--seeds", "2")) == 0
    assert table_of(compared)["rows"] == before["rows"][:2]


def test_a_deleted_result_is_scored_again_without_training(compared):
    path = compared / "compare" / "results" / "lstm-2.json"
    before = json.loads(path.read_text())
    weights = sorted((compared / "compare" / "runs" / "lstm-2").rglob("*.safetensors"))
    written = [file.stat().st_mtime_ns for file in weights]
    path.unlink()
    assert main(words_of(compared, "--systems", "lstm,transformer", "--seeds", "2")) == 0
    after = json.loads(path.read_text())
    assert after["scores"] == before["scores"]
    assert after["curve"] == before["curve"]
    assert after["training"] == before["training"]
    assert [file.stat().st_mtime_ns for file in weights] == written


def test_an_interrupted_comparison_says_how_to_resume(compared, monkeypatch, capsys):
    def interrupted(_, folder, **__):
        return TrainResult(folder, folder, 1, signal.SIGINT, {})

    monkeypatch.setattr(runner, "train", interrupted)
    assert main(words_of(compared, "--systems", "gru")) == 130
    assert "again to resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--systems", "lstm,transfomer"), "--systems transfomer: no such system; did you mean"),
        (("--budget", "20m"), "give either --budget 20m"),
        (("--seeds", "0"), "--seeds 0: expected at least 1"),
        (("--ensemble", "lstm"), "--ensemble lstm: expected seeds, or at least two"),
        (("--ensemble", "seeds"), "--ensemble seeds: needs several seeds"),
        (("--metric", "chrf"), "--metric chrf: expected bleu or wer"),
        (("trian.steps=3",), "polyhead: trian.steps=3: write an override as"),
        (("--ensemble", "lstm+lstm", "--systems", "lstm"), "lstm+lstm lists the same system twice"),
        (("train.steps=3",), "train.steps cannot be set in a comparison: use --budget or --flops"),
        (
            ("train.seed=3",),
            "train.seed cannot be set in a comparison: seeds are 1, 2, …; use",
        ),
        (("train.validate_every=3",), "every system is validated and saved ten times"),
        (("model.family=gpt",), "model.family cannot be set in a comparison: systems are chosen"),
        (("g2p-ko", "small"), "small: expected an override"),
        (("bert-tiny",), "bert-tiny: the family bert does not translate"),
        (("--systems", "lstm", "model.d_modle=8"), "no such option; did you mean d_model?"),
        (("--systems", ","), "--systems ',': no systems named"),
        (("--systems", ""), "--systems '': no systems named"),
        (
            ("--systems", "lstm,transformer", "model.d_model=8"),
            "polyhead: transformer: model.d_model: no such option",
        ),
    ],
)
def test_invalid_options_are_refused_in_one_line(compared, capsys, more, said):
    assert main(words_of(compared, *more)) == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.split())
    assert error.count("\n") == 1


def test_the_recipe_may_stand_behind_the_overrides(tmp_path, capsys):
    words = ["compare", "train.max_tokens=200", "g2p-ko", "--flops", "1e6", "--seeds", "0"]
    assert main([*words, "--run", str(tmp_path / "run")]) == 2
    assert "--seeds 0" in capsys.readouterr().err
    words = ["compare", "train.max_tokens=200", "gp2-ko", "--flops", "1e6"]
    assert main([*words, "--run", str(tmp_path / "run")]) == 2
    assert "there is no recipe 'gp2-ko'; did you mean g2p-ko?" in capsys.readouterr().err


def test_the_error_for_text_instead_of_a_recipe_names_the_options(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.ko", "a.en"):
        (tmp_path / name).write_text("저는 강사입니다\n", encoding="utf-8")
    assert main(["compare", "a.ko", "a.en", "--flops", "1e6"]) == 2
    assert "write --source a.ko --target a.en" in capsys.readouterr().err
    assert main(["compare", "a.ko", "--flops", "1e6"]) == 2
    assert "write --source a.ko --target FILE" in capsys.readouterr().err
    (tmp_path / "mine.toml").write_text("no recipe", encoding="utf-8")
    assert main(["compare", "mine.toml", "--flops", "1e6"]) == 2
    assert "--source" not in capsys.readouterr().err


@pytest.mark.parametrize("name", CONTESTS)
def test_the_list_marks_systems_that_must_be_named(name, capsys):
    assert main([name, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    contest = CONTESTS[name]
    for system, line in zip(contest.systems, lines, strict=True):
        assert line.startswith(f"{system.name} ")
        assert line.endswith("; only if named with --systems") == (system.name not in contest.usual)


def test_too_little_text_for_a_held_out_set_is_an_error(tmp_path, capsys):
    write_corpus(tmp_path, 1)
    assert main(words_of(tmp_path, "--systems", "lstm")) == 4
    assert "1 training pair is too few to hold out some for" in capsys.readouterr().err
    write_corpus(tmp_path, 2)
    assert main(words_of(tmp_path, "--systems", "lstm")) == 4
    said = capsys.readouterr().err
    assert "2 training pairs are too few to hold out some for the test and validation." in said
    write_corpus(tmp_path, 4)
    assert main(words_of(tmp_path, "--systems", "lstm", flops="1e4")) == 0


@pytest.mark.parametrize("given", [(), ("valid",), ("test",), ("valid", "test")])
def test_files_may_have_another_encoding(tmp_path, given):
    """All of them, those that are given and those that are held out."""
    write_corpus(tmp_path)
    files = []
    for side, name in (("source", "train.ko"), ("target", "train.en")):
        old = (tmp_path / name).read_text(encoding="utf-8").replace("a", "가")
        (tmp_path / name).write_bytes(old.encode("cp949"))
        files += [word for kind in given for word in (f"--{kind}-{side}", tmp_path / name)]
    words = words_of(tmp_path, *files, "--systems", "lstm", "--encoding", "cp949", "--lang", "en")
    assert main(words) == 0
    assert table_of(tmp_path)["test"]["sentences"] == (60 if "test" in given else 3)
    if len(given) < 2:
        kept = (tmp_path / "compare" / "data" / "train.source").read_text(encoding="utf-8")
        assert "가" in kept


def test_another_budget_needs_another_folder(compared, capsys):
    assert main(words_of(compared, "--systems", "lstm", flops="2e6")) == 2
    assert "started with another budget (1e+06 FLOPs, not 2e+06 FLOPs)" in capsys.readouterr().err


def test_other_files_need_another_folder(compared, tmp_path, capsys):
    write_corpus(tmp_path, 50)
    words = words_of(tmp_path, "--systems", "lstm", "--run", compared / "compare")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "was started with other files" in said
    assert f"not --source {tmp_path / 'train.ko'} --target {tmp_path / 'train.en'})." in said
    words = words_of(compared, "--systems", "lstm", "train.clip_norm=2")
    assert main(words) == 2
    assert "with other overrides (train." in capsys.readouterr().err


def test_a_comparison_that_never_started_can_be_changed(tmp_path):
    write_corpus(tmp_path)
    too_long = words_of(tmp_path, "--systems", "lstm", "data.max_length=1")
    assert main(too_long) == 4
    assert (tmp_path / "compare" / "contest.json").exists()
    assert main(words_of(tmp_path, "--systems", "lstm")) == 0


def test_a_changed_training_text_is_an_error(compared, capsys):
    path = compared / "compare" / "data" / "train.source"
    before = path.read_text(encoding="utf-8")
    path.write_text("z" + before[1:], encoding="utf-8")
    try:
        assert main(words_of(compared, "--systems", "luong")) == 4
        assert "the training text changed since" in capsys.readouterr().err
    finally:
        path.write_text(before, encoding="utf-8")


def test_a_directory_with_other_files_is_refused(compared, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(words_of(compared, "--systems", "lstm", "--run", tmp_path)) == 2
    assert "is not a comparison's directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_ladder_has_a_table_too(tmp_path):
    write_corpus(tmp_path)
    words = words_of(tmp_path, "--systems", "none,dot,additive", contest="ladder")
    assert main(words) == 0
    table = table_of(tmp_path, "ladder")
    assert [row["system"] for row in table["rows"]] == ["none", "dot", "additive"]
    assert [row["p_value"] is None for row in table["rows"]] == [True, False, False]
    assert table["paper"] == {}


def test_gnmt_is_trained_by_likelihood_and_then_by_reward(tmp_path):
    write_corpus(tmp_path)
    assert main(words_of(tmp_path, "--systems", "gnmt-rl")) == 0
    runs = tmp_path / "compare" / "runs"
    first, then = (read(runs / name / "config.toml") for name in ("gnmt-rl-1-stage-1", "gnmt-rl-1"))
    assert first["train"]["reward"]["samples"] == 0 < then["train"]["reward"]["samples"]
    assert then["train"]["init"] == str(runs / "gnmt-rl-1-stage-1")
    steps = first["train"]["steps"] + then["train"]["steps"]
    assert table_of(tmp_path)["rows"][0]["training"]["steps"] == steps


def test_options_that_need_attention_are_ignored_without_it(tmp_path):
    """PosUnk and coverage are set for all systems; one without attention must not fail."""
    write_corpus(tmp_path)
    told = ("text.vocab=8", "decode.replace_unknown=true", "decode.coverage=0.2")
    systems = ("--systems", "lstm,gru-attention", "--lang", "en")
    assert main(words_of(tmp_path, *told, *systems, flops="2e8")) == 0
    outputs = tmp_path / "compare" / "outputs"
    for way in ("greedy", "beam"):
        blind, seeing = (
            (outputs / f"{name}-1.{way}.txt").read_text(encoding="utf-8")
            for name in ("lstm", "gru-attention")
        )
        assert UNKNOWN in blind
        assert UNKNOWN not in seeing
    text = (tmp_path / "compare" / "table.md").read_text(encoding="utf-8")
    assert "a coverage penalty of 0.2 for the systems that attend" in text
    assert "(PosUnk) for the systems that attend" in text


def test_the_balance_of_experts_is_that_of_the_last_validation(tmp_path):
    write_corpus(tmp_path)
    small = ("model.d_ff=8", "--systems", "moe", "--seeds", "2", "--lang", "en")
    assert main(words_of(tmp_path, *small, flops="1e4")) == 0
    lasts = []
    for seed in (1, 2):
        lines = (tmp_path / "compare" / "runs" / f"moe-{seed}" / "metrics.jsonl").read_text()
        entries = [json.loads(line) for line in lines.splitlines()]
        shares = [entry for entry in entries if entry["kind"] == "experts"][-1]
        lasts += [layer["load"] for layer in shares.values() if isinstance(layer, dict)]
    used = sum(load > 0 for layer in lasts for load in layer) / sum(map(len, lasts))
    most = max(load for layer in lasts for load in layer)
    table = table_of(tmp_path)
    assert table["rows"][0]["experts"] == pytest.approx({"used": used, "most": most}, abs=1e-4)
    text = (tmp_path / "compare" / "table.md").read_text(encoding="utf-8")
    assert f"Experts of MoE: {100 * used:.3g} % of them were used" in text


def test_pronunciations_are_scored_by_wer(tmp_path):
    pairs = [("가 나 다", "k a"), ("각", "k a k"), ("나", "n a"), ("간", "k a n"), ("낙", "n a k")]
    text = "".join(f"{source}{i}\t{target}\n" for i in range(9) for source, target in pairs)
    (tmp_path / "words.tsv").write_text(text, encoding="utf-8")
    (tmp_path / "test.tsv").write_text("각\tk a k\n낙\tn a k\n", encoding="utf-8")
    words = ["compare", "g2p-ko", "--pairs", tmp_path / "words.tsv", "--test-pairs",
             tmp_path / "test.tsv", "--flops", "1e6", "--run", tmp_path / "out", "--systems",
             "gru-attention,transformer", "decode.max_length=5", "train.device=cpu"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    table = json.loads((tmp_path / "out" / "table.json").read_text())
    assert table["metric"] == "wer"
    assert table["test"]["sentences"] == 2
    assert set(table["rows"][0]["scores"]["greedy"]) == {"WER", "PER"}


# Budgets


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("20m", 1200), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("2m5s", 125)],
)
def test_budgets_are_parsed(given, seconds):
    assert read_budget(given, None) == TimeBudget(seconds=float(seconds))


@pytest.mark.parametrize("given", ["20", "20 minutes", "m", "", "-5m", "0s", "30m1h"])
def test_a_budget_spelled_wrongly_is_refused(given):
    with raises(ConfigError, "invalid_budget", f"--budget {given}:"):
        read_budget(given, None)


@pytest.mark.parametrize("given", ["lots", "0", "-1", "inf", "nan"])
def test_flops_spelled_wrongly_are_refused(given):
    with raises(ConfigError, "invalid_budget", f"--flops {given}:"):
        read_budget(None, given)


def test_a_budget_buys_as_many_steps_as_fit():
    cost = {"seconds_per_step": 0.25, "flops_per_step": 2e9}
    assert affordable_steps(TimeBudget(seconds=100.0), 1.0, cost) == 400
    assert affordable_steps(TimeBudget(seconds=100.0), 0.25, cost) == 100
    assert affordable_steps(TimeBudget(flops=1e12), 1.0, cost) == 500


def test_the_schedule_is_made_for_the_steps():
    values = {"train": {"schedule": {"kind": "linear", "warmup": 400}}}
    short, long = with_steps(values, 1000)["train"], with_steps(values, 50_000)["train"]
    assert (short["steps"], short["schedule"]["warmup"], short["validate_every"]) == (
        1000,
        100,
        100,
    )
    assert (long["schedule"]["warmup"], long["validate_every"]) == (400, 5000)
    assert values["train"]["schedule"]["warmup"] == 400


def test_timing_leaves_validation_out(monkeypatch):
    clock, now = TimingReporter(), [0.0]
    monkeypatch.setattr(TimingReporter, "now", lambda _: now[0])
    clock.begin(0, 3)
    for seconds, then_validated in ((2.0, False), (2.0, True), (2.0, False)):
        now[0] += seconds
        clock.step({})
        if then_validated:
            now[0] += 100.0
            clock.notice("step 2  loss 1.0")
    assert clock.moments == [2.0, 2.0, 2.0]
    assert clock.seconds_per_step == 2.0


# Systems and data


@pytest.mark.parametrize("system", [*TABLE, *LADDER], ids=lambda s: s.name)
@pytest.mark.parametrize("recipe", [HOME, "g2p-ko"])
def test_every_system_can_be_configured_on_every_data(system, recipe):
    base = read(find_recipe(recipe))
    run = build(system_values(system, base, home=recipe == HOME))
    assert run.data.pairs == tuple(base["data"].get("pairs", ()))
    assert run.text.kind == base["text"].get("kind", "bpe")
    if recipe != HOME:
        assert run.train.max_tokens == base["train"]["max_tokens"]
    assert run.train.epochs is None


def test_the_published_rows_are_those_of_the_paper():
    assert {s.published for s in TABLE if s.published} <= set(TABLE_2)
    assert [s.name for s in select_systems(CONTESTS["compare"], ("moe", "lstm"))] == ["lstm", "moe"]
    assert CONTESTS["compare"].baseline in CONTESTS["compare"].usual
    assert CONTESTS["ladder"].baseline in CONTESTS["ladder"].usual


def test_a_recipes_test_set_lies_beside_its_validation_set(tmp_path, monkeypatch):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("train.de", "train.en", "val.de", "val.en", "test_2016_flickr.de",
                 "test_2016_flickr.en"):  # fmt: skip
        (folder / name).write_text(f"one line of {name}\nand another\n")
    monkeypatch.setenv("POLYHEAD_DATA", str(tmp_path))
    data = {"source": "corpus/train.de", "target": "corpus/train.en",
            "valid_source": "corpus/val.de", "valid_target": "corpus/val.en"}  # fmt: skip
    found = prepare(data, {}, tmp_path / "work", own=False)
    assert found.sources == ["one line of test_2016_flickr.de", "and another"]
    assert found.where == "test_2016_flickr.de"
    assert not (tmp_path / "work").exists()


def test_the_decoding_state_is_as_large_as_the_formula_says():
    stack = StackConfig(n_layers=2, d_model=16, n_heads=2, d_ff=24)
    config = TransformerConfig(30, 30, max_length=64, stack=stack)
    options = DecodeConfig(beam=3, max_length=40)
    source = [5] * 8 + [2]
    shape = Shape(1, options.limit(len(source)), len(source))
    found = decoding_state_bytes(Transformer(config).eval(), source, options)
    assert found == pytest.approx(cache_size("transformer", config, shape, 3), rel=0.01)


def test_scores_are_cased_and_not():
    found = score_outputs(["A dog runs home ."], ["a dog runs home ."], "bleu")
    assert found["BLEU lower-cased"].value == pytest.approx(100.0)
    assert found["BLEU cased"].value < 90
