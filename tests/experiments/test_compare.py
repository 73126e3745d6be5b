"""`polyhead compare` and `polyhead ladder`: training, resuming, data and budgets."""

import json
import random
import signal
from dataclasses import replace
from itertools import combinations
from unittest.mock import Mock

import pytest
from expected_errors import raises

from polyhead.atomic_file import write_text
from polyhead.cli.main import main
from polyhead.config import read
from polyhead.cost.breakdown import cache_size, cost_of
from polyhead.cost.formulas import Shape
from polyhead.cost.published import TABLE_2
from polyhead.data.token_store import TokenSequences
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.experiments import plan, results, runner
from polyhead.experiments.budget import Budget, UpdateTimer, read_budget, with_steps
from polyhead.experiments.configuration import deviations
from polyhead.experiments.corpus import prepare
from polyhead.experiments.scoring import decoding_state_bytes, flops_per_token
from polyhead.experiments.systems import CONTESTS, HOME, select_systems, system_values
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tokenizers.base import UNKNOWN
from polyhead.training.callbacks import TrainingStart, TrainingStep
from polyhead.training.config import build, find_recipe
from polyhead.training.result import TrainResult
from polyhead.training.tasks.translation import EncodedPairs

SYSTEMS = [system for contest in CONTESTS.values() for system in contest.systems]
SHORT = (
    "text.kind=words", "text.vocab=60", "decode.max_length=6", "decode.beam=2",
    "train.bleu_sentences=2", "train.max_tokens=200", "train.device=cpu",
)  # fmt: skip
TINY = (
    "model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
    "model.stack.d_ff=16",
)  # fmt: skip


def write_corpus(folder, n=60):
    """A few letters, and the same backwards."""
    dice = random.Random(1)
    lines = [dice.sample("abcdefghij", dice.randint(2, 5)) for _ in range(n)]
    for name, rows in (("train.ko", lines), ("train.en", [line[::-1] for line in lines])):
        text = "".join(f"{' '.join(row)}\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _small_systems():
    with pytest.MonkeyPatch.context() as patch:
        for name, contest in list(CONTESTS.items()):
            narrow = {"": TINY, "convs2s": ()}  # others have one width
            small = [
                replace(s, changes=(*s.changes, *narrow.get(s.recipe, ("model.d_model=16",))))
                for s in contest.systems
            ]
            patch.setitem(CONTESTS, name, replace(contest, systems=tuple(small)))
        yield


def compare(folder, *more, contest="compare", steps="4"):
    """Run the command on the corpus of a folder; return the exit code."""
    words = [contest, *SHORT, "--source", folder / "train.ko", "--target", folder / "train.en",
             "--steps", steps, "--run", folder / contest, "--lang", "en", *more]  # fmt: skip
    return main([str(word) for word in words])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two systems, two seeds, an ensemble of both; do not change it."""
    folder = tmp_path_factory.mktemp("compared")
    write_corpus(folder)
    more = ("--systems", "lstm,transformer", "--seeds", "2", "--ensemble", "lstm+transformer")
    assert compare(folder, *more) == 0
    return folder


@pytest.fixture
def corpus(tmp_path):
    write_corpus(tmp_path)
    return tmp_path


@pytest.fixture
def refused(capsys):
    """Return a check that the last command printed one line with this text."""

    def refused(text):
        error = capsys.readouterr().err
        assert text in " ".join(error.split())
        assert error.splitlines()[-1].startswith("polyhead: ")

    return refused


def table_of(folder, contest="compare"):
    return json.loads((folder / contest / "table.json").read_text(encoding="utf-8"))


def text_of(folder):
    return (folder / "compare" / "table.md").read_text(encoding="utf-8")


def test_every_system_has_a_row_with_all_its_figures(compared):
    table = table_of(compared)
    for row in table["rows"]:
        assert set(row["scores"]) == {"greedy", "beam"}
        for scores in row["scores"].values():
            assert set(scores) == {"BLEU lower-cased", "BLEU cased", "chrF"}
        assert row["training"]["flops"] > 0
        assert row["training"]["flops_measured"] > 0
        assert row["decoding"]["remembered_bytes"] > 0
    lstm, transformer, team = table["rows"]
    assert [row["system"] for row in table["rows"]] == ["lstm", "transformer", "lstm+transformer"]
    assert lstm["p_value"] is not None
    assert transformer["p_value"] is None
    assert team["parameters"] == lstm["parameters"] + transformer["parameters"] > 0
    assert team["members"] == ["lstm-1", "transformer-1"]
    assert len(lstm["curves"]) == len(lstm["seeds"]) == 2
    assert any("case:lc" in signature for signature in table["signatures"])


def test_markdown_and_page_show_every_row_and_the_papers_own(compared):
    text = text_of(compared)
    page = (compared / "compare" / "table.html").read_text(encoding="utf-8")
    for title, paper in (
        ("LSTM, no attention, 2 layers of 16", "Sutskever et al. 2014"),
        ("Transformer, 1 layer of 16, pre-norm", "Vaswani et al. 2017"),
    ):
        assert f"{title} ({paper})" in text
        assert f"{title}<small>{paper}</small>" in page
    assert all(row.name in text for row in TABLE_2.values())
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines[:5]}) == 1


def test_a_row_lists_the_options_that_differ_from_its_paper(compared):
    """Table 3 and section 5 of Vaswani et al. 2017; nothing is called base that is not."""
    rows = {row["system"]: row for row in table_of(compared)["rows"]}
    differing = {d["name"]: (d["value"], d["published"]) for d in rows["transformer"]["deviations"]}
    expected = {
        "n_layers": ("1", "6"), "d_model": ("16", "512"), "n_heads": ("2", "8"),
        "d_ff": ("16", "2048"), "norm": ("pre", "post"), "clip_norm": ("1", "0"),
        "schedule.kind": ("linear", "noam"), "max_tokens": ("200", "50000"),
    }  # fmt: skip
    assert differing == differing | expected
    assert not {"tie", "positions", "dropout", "smoothing", "optimizer.beta_2"} & set(differing)
    assert {"n_layers", "d_model", "dropout"} <= {d["name"] for d in rows["lstm"]["deviations"]}
    shown = text_of(compared).split("## The paper's own")[0]
    assert "Transformer (base)" not in shown
    assert "n_layers 1 (6), d_model 16 (512)" in shown


def test_recipes_follow_their_papers_where_nothing_forces_a_difference():
    """Wu et al. 2016, section 3: the past state. Only Sutskever and Luong reverse the source."""
    base = read(find_recipe(HOME))
    models = {s.name: build(system_values(s, base, home=True)).model for s in SYSTEMS if s.preset}
    assert models["gnmt"].query == models["gnmt-rl"].query == "past"
    turned = {name for name, model in models.items() if vars(model).get("reverse_source")}
    assert turned == {"lstm", "luong"}


def test_the_published_configurations_can_be_compared(corpus, refused, monkeypatch):
    monkeypatch.setattr(plan, "memory_size", lambda: 2**30)
    for system in (system for system in SYSTEMS if system.preset):
        values = system_values(system, {"text": {"vocab": 99}}, home=True, scale="paper")
        run = build(values, any_size=True)
        names = [deviation.name for deviation in deviations(system, run)]
        assert names == ["source_vocab", "target_vocab"], system.name
    assert compare(corpus, "--scale", "paper", "--systems", "gnmt") == 2
    refused("polyhead: gnmt: model: ")
    small = TransformerConfig(stack=StackConfig(2, 16, 2, 32))
    monkeypatch.setitem(FAMILIES["transformer"].presets, "transformer-base", small)
    assert compare(corpus, "--scale", "paper", "--systems", "transformer", steps="2") == 0
    (row,) = table_of(corpus)["rows"]
    assert row["sizes"] == {"layers": [2], "width": "16", "norm": "post", "experts": 0}
    assert "Transformer (base), 2 layers of 16 (Vaswani" in text_of(corpus)
    assert compare(corpus, "--systems", "transformer", steps="2") == 2
    refused("was started with another scale (paper, not none)")


def test_every_run_has_the_same_vocabulary_and_text(compared):
    runs = sorted((compared / "compare" / "runs").iterdir())
    assert [run.name for run in runs] == ["lstm-1", "lstm-2", "transformer-1", "transformer-2"]
    for name in ("data.json", "tokenizer/tokenizer.json"):
        assert len({(run / name).read_bytes() for run in runs}) == 1
    texts = [compared / "compare" / "data" / f"{n}.source" for n in ("train", "valid", "test")]
    sets = [set(text.read_text().splitlines()) for text in texts]
    assert all(sets)
    assert all(one.isdisjoint(other) for one, other in combinations(sets, 2))


def test_finished_systems_are_not_run_again(compared, monkeypatch):
    for name in ("train", "score_system", "read_shared"):
        monkeypatch.delattr(runner, name)
    before = table_of(compared)["rows"][:2]
    assert compare(compared, "--systems", "lstm,transformer", "--seeds", "2") == 0
    after = table_of(compared)["rows"]
    for row in (*before, *after):  # which depends on the number of rows
        del row["p_value"], row["p_seeds"]
    assert after == before


def test_a_deleted_result_is_scored_again_without_training(compared):
    path = compared / "compare" / "results" / "lstm-2.json"
    before = json.loads(path.read_text())
    weights = sorted((compared / "compare" / "runs" / "lstm-2").rglob("*.safetensors"))
    written = [file.stat().st_mtime_ns for file in weights]
    path.unlink()
    assert compare(compared, "--systems", "lstm,transformer", "--seeds", "2") == 0
    after = json.loads(path.read_text())
    for part in ("scores", "curve", "training"):
        assert after[part] == before[part]
    assert [file.stat().st_mtime_ns for file in weights] == written


def test_an_interrupted_comparison_says_how_to_resume(compared, monkeypatch, capsys):
    def interrupted(_, folder, **__):
        return TrainResult(folder, folder, 1, signal.SIGINT, {})

    monkeypatch.setattr(runner, "train", interrupted)
    assert compare(compared, "--systems", "gru") == 130
    assert "again to resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--systems", "lstm,transfomer"), "--systems transfomer: no such system; did you mean"),
        (("--budget", "20m"), "give either --budget or --steps"),
        (("--seeds", "0"), "--seeds 0: expected at least 1"),
        (("--ensemble", "lstm"), "--ensemble lstm: expected seeds, or at least two"),
        (("--ensemble", "seeds"), "--ensemble seeds: needs several seeds"),
        (("--ensemble", "lstm+lstm", "--systems", "lstm"), "lstm+lstm lists the same system twice"),
        (("--scale", "large"), "--scale large: expected small or paper"),
        (("--metric", "chrf"), "--metric chrf: expected bleu or wer"),
        (("trian.steps=3",), "polyhead: trian.steps=3: write an override as"),
        (("train.steps=3",), "train.steps cannot be set in a comparison: use --budget or --steps"),
        (("train.seed=3",), "train.seed cannot be set in a comparison: seeds are 1, 2, …; use"),
        (("train.validate_every=3",), "every system is validated and saved ten times"),
        (("model.family=gpt",), "model.family cannot be set in a comparison: systems are chosen"),
        (("g2p-ko", "small"), "was started with another contest (compare, not g2p-ko+small)"),
        (("bert-tiny",), "bert-tiny: the family bert does not translate"),
        (("--systems", "lstm", "model.d_modle=8"), "no such option; did you mean d_model?"),
        (("--systems", ","), "--systems ',': no systems named"),
        (("--systems", ""), "--systems '': no systems named"),
        (
            ("--systems", "lstm,transformer", "model.d_model=8"),
            "polyhead: transformer: model.d_model: no such option",
        ),
        (
            ("--systems", "lstm", "--steps", "5"),
            "started with another budget (4 steps, not 5 steps)",
        ),
        (("--systems", "lstm", "train.clip_norm=2"), "with other overrides (train."),
    ],
)
def test_invalid_options_are_refused_in_one_line(compared, refused, more, said):
    assert compare(compared, *more) == 2
    refused(said)


def test_other_files_need_another_folder(compared, corpus, refused):
    assert compare(corpus, "--systems", "lstm", "--run", compared / "compare") == 2
    refused(f"not --source {corpus / 'train.ko'} --target {corpus / 'train.en'}).")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train.max_tokens=200", "g2p-ko", "--seeds", "0"), "--seeds 0"),
        (("train.max_tokens=200", "gp2-ko"), "no recipe 'gp2-ko'; did you mean g2p-ko?"),
        (("a.ko", "a.en"), "write --source a.ko --target a.en"),
        (("a.ko",), "write --source a.ko --target FILE"),
        (("mine.toml",), "not valid TOML"),
    ],
)
def test_recipes_and_overrides_stand_in_any_order_and_files_need_an_option(
    tmp_path, monkeypatch, refused, words, said
):
    monkeypatch.chdir(tmp_path)
    for name in ("a.ko", "a.en", "mine.toml"):
        (tmp_path / name).write_text("저는 강사입니다\n", encoding="utf-8")
    assert main(["compare", *words, "--steps", "4"]) == 2
    refused(said)


@pytest.mark.parametrize("name", CONTESTS)
def test_the_list_marks_systems_that_must_be_named(name, capsys):
    assert main([name, "--list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    contest = CONTESTS[name]
    for system, line in zip(contest.systems, lines, strict=True):
        assert line.startswith(f"{system.name} ")
        assert line.endswith("; only if named with --systems") == (system.name not in contest.usual)


def test_too_little_text_for_a_held_out_set_is_an_error(tmp_path, refused):
    for n, said in ((1, "1 training pair is"), (2, "2 training pairs are")):
        write_corpus(tmp_path, n)
        assert compare(tmp_path, "--systems", "lstm") == 4
        refused(f"{said} too few to hold out some for the test and validation.")
    write_corpus(tmp_path, 20)
    assert compare(tmp_path, "--systems", "lstm", steps="2") == 0


@pytest.mark.parametrize("given", [(), ("valid",), ("test",), ("valid", "test")])
def test_files_may_have_another_encoding(corpus, given):
    """All of them, those that are given and those that are held out."""
    files = []
    for side, name in (("source", "train.ko"), ("target", "train.en")):
        old = (corpus / name).read_text(encoding="utf-8").replace("a", "가")
        (corpus / name).write_bytes(old.encode("cp949"))
        files += [word for kind in given for word in (f"--{kind}-{side}", corpus / name)]
    assert compare(corpus, *files, "--systems", "lstm", "--encoding", "cp949") == 0
    assert table_of(corpus)["test"]["sentences"] == (60 if "test" in given else 3)
    if len(given) < 2:
        kept = (corpus / "compare" / "data" / "train.source").read_text(encoding="utf-8")
        assert "가" in kept


def test_a_comparison_that_never_started_can_be_changed(corpus):
    assert compare(corpus, "--systems", "lstm", "data.max_length=1") == 4
    assert (corpus / "compare" / "contest.json").exists()
    assert compare(corpus, "--systems", "lstm") == 0


@pytest.mark.parametrize("n_files", range(4))
def test_a_comparison_that_was_killed_before_its_plan_can_be_repeated(corpus, monkeypatch, n_files):
    written = []

    def dying(path, text):
        if len(written) == n_files:
            raise KeyboardInterrupt  # replaces SIGKILL
        written.append(path)
        write_text(path, text)

    (corpus / "compare").mkdir()
    (corpus / "compare" / ".tmp-99-contest.json").write_text("{")
    with monkeypatch.context() as patch:
        patch.setattr(results, "write_text", dying)
        assert compare(corpus, "--systems", "lstm") == 130
    assert len(written) == n_files
    assert compare(corpus, "--systems", "lstm", "data.max_length=1") == 4


def test_a_changed_training_text_is_an_error(compared, refused):
    path = compared / "compare" / "data" / "train.source"
    before = path.read_text(encoding="utf-8")
    path.write_text("z" + before[1:], encoding="utf-8")
    try:
        assert compare(compared, "--systems", "luong") == 4
        refused("the training text changed since")
    finally:
        path.write_text(before, encoding="utf-8")


def test_a_directory_with_other_files_is_refused(compared, tmp_path, refused):
    (tmp_path / "thesis.txt").write_text("mine")
    assert compare(compared, "--systems", "lstm", "--run", tmp_path) == 2
    refused("is not a comparison's directory")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_ladder_has_a_table_too(corpus):
    assert compare(corpus, "--systems", "none,dot,additive", contest="ladder") == 0
    table = table_of(corpus, "ladder")
    assert [row["system"] for row in table["rows"]] == ["none", "dot", "additive"]
    assert [row["p_value"] is None for row in table["rows"]] == [True, False, False]
    assert table["paper"] == {}


def test_gnmt_is_trained_by_likelihood_and_then_by_reward(corpus):
    assert compare(corpus, "--systems", "gnmt-rl") == 0
    runs = corpus / "compare" / "runs"
    first, then = (read(runs / name / "config.toml") for name in ("gnmt-rl-1-stage-1", "gnmt-rl-1"))
    assert first["train"]["reward"]["samples"] == 0 < then["train"]["reward"]["samples"]
    assert then["train"]["init"] == str(runs / "gnmt-rl-1-stage-1")
    steps = first["train"]["steps"] + then["train"]["steps"]
    assert table_of(corpus)["rows"][0]["training"]["steps"] == steps


def test_options_that_need_attention_are_ignored_without_it(corpus):
    """PosUnk and coverage are set for all systems; one without attention must not fail."""
    options = ("text.vocab=8", "decode.replace_unknown=true", "decode.coverage=0.2")
    assert compare(corpus, *options, "--systems", "lstm,gru-attention", steps="40") == 0
    for decoding in ("greedy", "beam"):
        for name, attends in (("lstm", False), ("gru-attention", True)):
            outputs = corpus / "compare" / "outputs" / f"{name}-1.{decoding}.txt"
            assert (UNKNOWN not in outputs.read_text(encoding="utf-8")) == attends
    assert "a coverage penalty of 0.2 for the systems that attend" in text_of(corpus)
    assert "(PosUnk) for the systems that attend" in text_of(corpus)


def test_the_balance_of_experts_is_that_of_the_last_validation(corpus):
    small = ("model.d_ff=8", "--systems", "moe", "--seeds", "2")
    assert compare(corpus, *small, steps="2") == 0
    lasts = []
    for seed in (1, 2):
        lines = (corpus / "compare" / "runs" / f"moe-{seed}" / "metrics.jsonl").read_text()
        entries = [json.loads(line) for line in lines.splitlines()]
        shares = [entry for entry in entries if entry["kind"] == "experts"][-1]
        lasts += [layer["load"] for layer in shares.values() if isinstance(layer, dict)]
    used = sum(load > 0 for layer in lasts for load in layer) / sum(map(len, lasts))
    most = max(load for layer in lasts for load in layer)
    balance = table_of(corpus)["rows"][0]["experts"]
    assert balance == pytest.approx({"used": used, "most": most}, abs=1e-4)
    assert (
        f"Experts of MoE, 3 + 2 layers of 16, 8 experts: {100 * used:.3g} % of them were used"
        in text_of(corpus)
    )


def test_pronunciations_are_scored_by_wer(tmp_path):
    pairs = [("가 나 다", "k a"), ("각", "k a k"), ("나", "n a"), ("간", "k a n"), ("낙", "n a k")]
    text = "".join(f"{source}{i}\t{target}\n" for i in range(9) for source, target in pairs)
    (tmp_path / "words.tsv").write_text(text, encoding="utf-8")
    (tmp_path / "test.tsv").write_text("각\tk a k\n낙\tn a k\n", encoding="utf-8")
    words = ["compare", "g2p-ko", "--pairs", tmp_path / "words.tsv", "--test-pairs",
             tmp_path / "test.tsv", "--steps", "4", "--run", tmp_path / "compare", "--systems",
             "gru-attention,transformer", "decode.max_length=5", "train.device=cpu",
             "data.hold_out_by=source"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    table = table_of(tmp_path)
    assert table["metric"] == "wer"
    assert table["test"]["sentences"] == 2
    assert set(table["rows"][0]["scores"]["greedy"]) == {"WER", "PER"}


# Budgets


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("20m", 1200), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("2m5s", 125)],
)
def test_budgets_are_parsed(given, seconds):
    assert read_budget(given) == Budget(float(seconds), "seconds")


@pytest.mark.parametrize("given", ["20", "20 minutes", "m", "", "-5m", "0s", "30m1h"])
def test_a_budget_spelled_wrongly_is_refused(given):
    with raises(ConfigError, "invalid_budget", f"--budget {given}:"):
        read_budget(given)


def test_a_budget_buys_as_many_steps_as_fit():
    assert Budget(100.0, "seconds").n_steps(1.0, cost=0.25) == 400
    assert Budget(100.0, "seconds").n_steps(0.25, cost=0.25) == 100


def test_the_schedule_is_made_for_the_steps():
    values = {"train": {"schedule": {"kind": "linear", "warmup": 400}}}
    for steps, warmup, every in ((1000, 100, 100), (50_000, 400, 5000)):
        train = with_steps(values, steps)["train"]
        got = train["steps"], train["schedule"]["warmup"], train["validate_every"]
        assert got == (steps, warmup, every)
    assert values["train"]["schedule"]["warmup"] == 400


def test_timing_leaves_validation_out(monkeypatch):
    clock, now = UpdateTimer(), [0.0]
    monkeypatch.setattr(UpdateTimer, "now", lambda _: now[0])
    clock.on_start(Mock(TrainingStart))
    for seconds, then_validated in ((2.0, False), (2.0, True), (2.0, False)):
        now[0] += seconds
        clock.on_step(Mock(TrainingStep))
        if then_validated:
            now[0] += 100.0
            clock.on_notice("step 2  loss 1.0")
    assert clock.moments == [2.0, 2.0, 2.0]
    assert clock.seconds_per_step == 2.0


# Systems and data


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda s: s.name)
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
    assert {system.published for system in SYSTEMS if system.published} <= set(TABLE_2)
    assert [s.name for s in select_systems(CONTESTS["compare"], ("moe", "lstm"))] == ["lstm", "moe"]
    for contest in CONTESTS.values():
        assert contest.baseline in contest.usual
        assert set(contest.usual) <= {system.name for system in contest.systems}


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


def test_the_counted_cost_of_the_transformer_is_that_of_the_formula():
    """On a sentence pair of average length."""
    run = build({"model": {"stack": {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 24}}})
    source, target = ([[5] * n + [2] for n in lengths] for lengths in ((3, 5), (5, 3)))
    sides = (TokenSequences.of(side, 9) for side in (source, target))
    pairs = EncodedPairs(*sides, texts=())
    cost = cost_of(run.family, run.model, Shape(1, 5, 5)).total.training
    assert flops_per_token(run, pairs) == cost / (5 + 5)


def test_the_decoding_state_is_as_large_as_the_formula_says():
    stack = StackConfig(n_layers=2, d_model=16, n_heads=2, d_ff=24)
    config = TransformerConfig(30, 30, max_length=64, stack=stack)
    options = DecodeConfig(beam=3, max_length=40)
    source = [5] * 8 + [2]
    shape = Shape(1, options.limit(len(source)), len(source))
    found = decoding_state_bytes(Transformer(config).eval(), source, options)
    assert found == pytest.approx(cache_size("transformer", config, shape, 3), rel=0.01)
