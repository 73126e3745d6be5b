"""The fast engine has the options and the outputs of decoding with torch."""

import math
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from expected_errors import raises
from saved_models import build_model, save_model
from tiny_gpt import train_gpt

import polyhead
from polyhead.checkpoint.model_dir import load_model
from polyhead.checkpoint.model_files import resolve
from polyhead.cli.main import main
from polyhead.decoding.options import DecodeConfig
from polyhead.engines import obstacles
from polyhead.engines.ctranslate2_engine import CTranslate2Backend
from polyhead.errors import ConfigError, MissingError
from polyhead.pipelines.text_generator import FastGenerator, TextGenerator
from polyhead.pipelines.translator import FastTranslator, Translator
from polyhead.special_tokens import BOS, EOS, PAD

pytest.importorskip("ctranslate2")
LINES = ["민준 씨는 내일 부산에 가요. 회의는 3시에 시작해요.", "", "회의는 3시에 시작해요.", "🙂",
         "<s> </s>", "내일 부산에 가요?"]  # fmt: skip


@pytest.fixture(scope="module")
def both(tiny_run):
    return Translator.from_dir(tiny_run, device="cpu"), FastTranslator(tiny_run, n_workers=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"beam": 1},
        {"beam": 4, "length_penalty": 0.0},
        {"beam": 4, "n_best": 4},
        {"beam": 3, "length_penalty": 1.0, "max_length": 7},  # every output is cut off
        {"beam": 2, "max_ratio": 0.3, "max_extra": 2, "max_length": 30},  # each at its own limit
        {"beam": 2, "split_sentences": False, "max_length": 20},
    ],
)
def test_translations_and_their_scores_are_those_of_torch(both, changes):
    slow, fast = both
    options = replace(DecodeConfig(max_length=12), **changes)
    expected, found = (one.n_best(LINES, options=options) for one in (slow, fast))
    for theirs, ours in zip(expected, found, strict=True):
        assert [t.text for t in ours] == [t.text for t in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert (a.ids, a.score) == (b.ids, pytest.approx(b.score, abs=1e-4))
            assert a.log_p == pytest.approx(b.log_p, abs=1e-4)
            for one, other in zip(a.sentences, b.sentences, strict=True):
                assert one.token_log_p == pytest.approx(other.token_log_p, abs=1e-4)
                assert one.ended == other.ended
    assert fast.translate(LINES, options=options) == slow.translate(LINES, options=options)


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_that_are_not_read_are_left_out(both, tiny_run, beam):
    slow, _ = both
    fast = FastTranslator(tiny_run)
    options = DecodeConfig(beam=beam, max_length=12)
    parts = [part for line in fast.split_lines(LINES) for part in line]
    expected = slow.decode_parts(parts, options, prefixes=[[]] * len(parts))
    for turn, scores in enumerate(("none", "none", "outputs")):
        found = fast.decode_parts(parts, options, prefixes=[[]] * len(parts), scores=scores)
        has_scores = turn != 1 or beam > 1  # the first search of a model checks its scores
        for (theirs,), (ours,) in zip(expected, found, strict=True):
            assert (ours.ids, ours.ended, ours.token_log_p) == (theirs.ids, theirs.ended, [])
            assert math.isnan(ours.log_p) is not has_scores
            assert not has_scores or ours.log_p == pytest.approx(theirs.log_p, abs=0.1)
    (line,) = fast.translate_parts(fast.split_lines(LINES[:1]), options=options, scores="outputs")
    ((best,),) = slow.n_best(LINES[:1], options=options)
    assert line[0].confidence == pytest.approx(best.confidence, abs=0.01)
    assert best.confidence == pytest.approx(
        math.exp(fmean(p for sentence in best.sentences for p in sentence.token_log_p))
    )


def test_a_prefix_begins_the_translation_and_counts_in_its_score(both):
    slow, fast = both
    options = DecodeConfig(beam=3, n_best=2, max_length=12)
    prefixes = ["Minjun", "", "The", "", "", ""]
    expected, found = (
        one.n_best(LINES, options=options, prefixes=prefixes) for one in (slow, fast)
    )
    assert found[0][0].text.startswith("Minjun")
    for theirs, ours in zip(expected, found, strict=True):
        assert [t.ids for t in ours] == [t.ids for t in theirs]
        assert [t.score for t in ours] == pytest.approx([t.score for t in theirs], abs=1e-4)


def test_both_report_progress_languages_and_limits(both):
    slow, fast = both
    n_parts = []
    fast.n_best(LINES, options=DecodeConfig(beam=1, max_length=4), progress=n_parts.append)
    assert sum(n_parts) == sum(map(len, fast.split_lines(LINES)))
    assert (fast.languages, fast.max_length) == (slow.languages, slow.max_length)
    assert fast.defaults == slow.defaults
    assert fast.translate([]) == []


@pytest.mark.parametrize(
    "changes", [{"coverage": 0.2}, {"replace_unknown": True}, {"sample": True}]
)
def test_options_that_it_lacks_need_torch(both, tiny_run, changes):
    options = replace(DecodeConfig(beam=2, max_length=5), **changes)
    with raises(ConfigError, "unsupported_engine"):
        both[1].translate(LINES, options=options)
    loaded = polyhead.load(tiny_run, engine="ctranslate2", device="cpu")
    assert loaded.translate(LINES, options=options) == both[0].translate(LINES, options=options)


def zero_in_place(layer):
    with torch.no_grad():
        layer.weight.zero_()


def zero_data(layer):
    layer.weight.data[:] = 0


def zero_output(layer):
    layer.register_forward_hook(lambda _layer, _inputs, output: output * 0)


def zero_input(layer):
    layer.register_forward_pre_hook(lambda _layer, inputs: (inputs[0] * 0,))


def replaced(layer):
    layer.weight = torch.nn.Parameter(torch.zeros_like(layer.weight))


@pytest.mark.parametrize("change", [zero_in_place, zero_data, zero_output, zero_input, replaced])
def test_a_changed_model_is_decoded_by_torch(tiny_run, writers, change):
    """Ablations and hooks have their effect, also where the engine would decode."""
    options = DecodeConfig(beam=1, max_length=6)
    for path in (tiny_run, writers[0].name):
        fast, slow = (polyhead.load(path, engine=e, device="cpu") for e in ("ctranslate2", "torch"))
        assert fast.engine.startswith("ctranslate2")
        for pipeline in (fast, slow):
            change(next(m for m in pipeline.model.modules() if isinstance(m, torch.nn.Linear)))
        found, expected = (
            p.translate(LINES, options=options) if hasattr(p, "translate")
            else p.generate(LINES[2], options=options) for p in (fast, slow)
        )  # fmt: skip
        assert found == expected
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fast.ctranslate2, "decode", None)
            patch.setattr(fast.ctranslate2, "generate", None)
            assert (fast.translate if hasattr(fast, "translate") else fast.generate)(LINES[2])


@pytest.mark.parametrize("change", [zero_in_place, zero_data, zero_output, zero_input])
def test_a_changed_model_that_gets_an_engine_later_is_decoded_by_torch(tiny_run, change):
    translator = polyhead.load(tiny_run, engine="torch", device="cpu")
    change(next(m for m in translator.model.modules() if isinstance(m, torch.nn.Linear)))
    later = translator.with_engine("ctranslate2")
    later.ctranslate2.decode = None
    assert later.translate(LINES) == translator.translate(LINES)


@pytest.mark.parametrize("options", [("--sample",), ("--coverage", "0.1"), ("--replace-unknown",)])
def test_translating_by_torch_converts_nothing(tiny_run, tmp_path, monkeypatch, options):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["translate", str(tiny_run), LINES[2], *options]) == 0
    assert not (tmp_path / "cache").exists()


def test_load_uses_the_engine_where_it_can(tiny_run, tmp_path, monkeypatch):
    loaded = polyhead.load(tiny_run, device="cpu")
    assert loaded.engine == "ctranslate2 float32"
    assert not loaded.files.is_loaded
    assert polyhead.load(tiny_run, engine="torch").engine == "torch"
    with raises(ConfigError, "unknown_engine"):
        polyhead.load(tiny_run, engine="onnx")
    lsh = save_model(build_model(LINES, {}, attention="lsh"), tmp_path / "lsh")
    assert polyhead.load(lsh).engine == "torch"
    with raises(ConfigError, "unsupported_engine"):
        polyhead.load(lsh, engine="ctranslate2")
    with raises(ConfigError, "unsupported_engine"):
        FastTranslator(lsh)
    monkeypatch.setattr(sys.modules["ctranslate2"], "__version__", "4.8.0")
    assert "too old" in loaded.obstacle()
    with raises(MissingError, "missing_package"):
        CTranslate2Backend("translate", resolve(tiny_run))


@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_may_be_empty(tmp_path, beam):
    saved = build_model(LINES, {}, tie="none")
    with torch.no_grad():  # EOS is the likeliest token everywhere
        norm = saved.model.decoder.blocks[-1].feed_residual.norm
        norm.weight.zero_()
        norm.bias.fill_(1.0)
        saved.model.to_logits.weight.zero_()
        saved.model.to_logits.weight[EOS] = 1.0
    path = save_model(saved, tmp_path / "model")
    options = DecodeConfig(beam=beam, max_length=5)
    assert Translator.from_dir(path, device="cpu").translate(["민준"], options=options) == [""]
    assert FastTranslator(path).translate(["민준"], options=options) == [""]


def test_gpus_are_left_to_torch(monkeypatch):
    assert obstacles.device_obstacle("cpu") is None
    assert obstacles.device_obstacle("auto") is None
    assert "cuda" in obstacles.device_obstacle("cuda")
    monkeypatch.setattr(sys.modules["ctranslate2"], "get_cuda_device_count", lambda: 1)
    assert "GPU" in obstacles.device_obstacle("auto")


def test_int8_is_smaller_and_close(both, tiny_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    FastTranslator(tiny_run)
    fast = FastTranslator(tiny_run, compute_type="int8")
    options = DecodeConfig(beam=1, max_length=6)
    (exact,), (rounded,) = (one.n_best(LINES[2:3], options=options)[0] for one in (both[0], fast))
    assert rounded.log_p == pytest.approx(exact.log_p, abs=0.5)
    assert rounded.log_p != exact.log_p
    places = {path.name.split("-")[2]: path for path in (tmp_path / "polyhead/engines").iterdir()}
    sizes = {name: (place / "model.bin").stat().st_size for name, place in places.items()}
    assert sizes["int8"] < sizes["float32"]
    with raises(ConfigError, "invalid_option"):
        FastTranslator(tiny_run, compute_type="float3")


def test_outputs_beyond_its_positions_are_refused(both):
    long = DecodeConfig(beam=1, max_length=10**6, max_ratio=1000.0)
    with raises(ConfigError, "too_long"):
        both[1].translate(LINES, options=long)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.usefixtures("both")  # which has converted the model
def test_translating_from_the_shell_loads_no_heavy_packages(tiny_run):
    FastTranslator(tiny_run)  # converts
    code = (
        "import sys; from polyhead.cli.main import main; "
        f"main(['translate', {str(tiny_run)!r}, {LINES[2]!r}]); "
        "heavy = {'torch', 'numpy', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy; print(open('/proc/self/status').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = Translator.from_dir(tiny_run, device="cpu").translate([LINES[2]])[0]
    assert done.stdout.split("\n")[0] == expected
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
    assert int(peak[1]) < 120_000


def test_a_translator_without_torch_installed(tiny_run):
    code = (
        "import sys; sys.modules['torch'] = None; import polyhead; "
        f"print(polyhead.FastTranslator({str(tiny_run)!r}).translate([{LINES[2]!r}])[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip()


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    path = train_gpt(tmp_path_factory.mktemp("gpt"))
    return TextGenerator.from_dir(path, device="cpu"), FastGenerator(path)


@pytest.mark.parametrize("n_tokens", [5, 40])  # within the context, and beyond it
@pytest.mark.parametrize("prompt", ["", "내일 부", "회의는 3시에\n부산 " * 9])
def test_greedy_texts_are_those_of_torch(writers, prompt, n_tokens):
    slow, fast = writers
    options = DecodeConfig(max_length=n_tokens, sample=False)
    expected = slow.generate(prompt, options=options)
    assert fast.generate(prompt, options=options) == expected
    stop = expected[3:5]
    stopped = fast.generate(prompt, options=options, stop=[stop])
    assert stopped == slow.generate(prompt, options=options, stop=[stop])


def test_sampling_depends_on_its_seed_and_keeps_to_top_k(writers):
    slow, fast = writers
    options = DecodeConfig(max_length=12, sample=True, temperature=2.0)
    texts = [fast.generate("내일", options=options, seed=seed) for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    one = replace(options, top_k=1)
    greedy = slow.generate("내일", options=replace(options, sample=False))
    assert fast.generate("내일", options=one, seed=5) == greedy
    with raises(ConfigError, "unsupported_engine"):
        fast.generate("내일", options=replace(options, top_p=0.5))


def test_first_tokens_are_drawn_from_the_distribution_of_torch(writers):
    """Compare 300 draws of the engine with the probabilities that torch computes."""
    slow, fast = writers
    options = DecodeConfig(max_length=1, sample=True, temperature=0.7, top_k=4)
    steps = slow.generate_tokens("내일", options=options)
    assert steps.tokens[0].sampling_probability is not None
    ids = fast.encode("내일")
    draws = [fast.ctranslate2.generate(ids, options, seed, 16) for seed in range(300)]
    drawn = [next(steps).chosen.id for steps in draws]
    expected = {}
    for id in sorted(set(drawn)):
        forced = slow.generate_tokens("내일", options=options, forced=[id])
        expected[id] = forced.tokens[0].sampling_probability
    assert sum(expected.values()) == pytest.approx(1, abs=0.02)
    for id, p in expected.items():
        assert drawn.count(id) / 300 == pytest.approx(p, abs=5 * (p * (1 - p) / 300) ** 0.5)


def test_load_uses_the_engine_for_greedy_search_only(writers, monkeypatch):
    slow, fast = writers
    loaded, texts = polyhead.load(slow.name, device="cpu"), []
    generate = loaded.ctranslate2.generate
    monkeypatch.setattr(
        loaded.ctranslate2, "generate", lambda *a, **b: texts.append(a) or generate(*a, **b)
    )
    greedy, sampled = DecodeConfig(max_length=9), DecodeConfig(max_length=9, sample=True)
    assert loaded.generate("내일", options=greedy) == slow.generate("내일", options=greedy)
    assert len(texts) == 1
    expected, found = (each.generate_tokens("내일", options=greedy) for each in (slow, loaded))
    probabilities = [[token.probability for token in one.tokens] for one in (found, expected)]
    assert probabilities[0] == pytest.approx(probabilities[1], rel=1e-4)
    assert len(texts) == 2
    for options, forced in ((sampled, ()), (greedy, (5, 6))):
        answers = [
            each.generate_tokens("내일", options=options, seed=4, forced=forced)
            for each in (slow, loaded)
        ]
        assert answers[0] == answers[1]
    assert len(texts) == 2
    assert polyhead.load(slow.name, engine="torch").engine == "torch"
    with raises(ConfigError, "unsupported_engine"):
        fast.generate_tokens("내일", options=greedy, forced=(5,))


@pytest.mark.parametrize("never", [PAD, BOS])
def test_tokens_that_are_never_written_may_be_the_likeliest(writers, tmp_path, never):
    saved = load_model(resolve(Path(writers[0].name)), "cpu")
    options = DecodeConfig(max_length=20)
    ids = [token.id for token in writers[0].generate_tokens("내일", options=options).tokens]
    with torch.no_grad():
        saved.model.to_logits.weight[never] = 1.5 * saved.model.to_logits.weight[ids[0]]
    path = save_model(saved, tmp_path / "model")
    slow, fast = TextGenerator.from_dir(path, device="cpu"), FastGenerator(path)
    with torch.inference_mode():
        logits = slow.model(torch.tensor([slow.encode("내일")]))[0, -1]
    assert logits.argmax() == never
    expected, found = (each.generate_tokens("내일", options=options) for each in (slow, fast))
    assert [token.id for token in found.tokens] == [token.id for token in expected.tokens]
    assert len(found.tokens) == 20


def test_texts_of_a_seed_do_not_depend_on_others_at_the_same_time(writers):
    _, fast = writers
    options = DecodeConfig(max_length=12, sample=True, temperature=2.0)

    def text(seed):
        return fast.generate("내일", options=options, seed=seed)

    alone = [text(seed) for seed in range(12)]
    assert len(set(alone)) > 6
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(text, range(12))) == alone


@pytest.mark.parametrize("last", ["next(texts)", "list(texts)"])
def test_a_program_may_end_while_a_text_is_generated(writers, last):
    """CTranslate2 aborts if its threads call a callback after the interpreter has ended."""
    code = (
        "import polyhead; from polyhead import DecodeConfig; "
        f"texts = polyhead.FastGenerator({writers[1].name!r}).stream("
        f"'내일', options=DecodeConfig(max_length=2000)); {last}; print('end')"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
