"""Models of CTranslate2 compute the same outputs from the same weights."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from expected_errors import raises
from foreign_models import change_config, write_ours

from polyhead.checkpoint.model_dir import weights_of
from polyhead.checkpoint.tensors import save_tensors
from polyhead.config import plain
from polyhead.decoding.batch import decode_all
from polyhead.decoding.options import DecodeConfig
from polyhead.engines.ctranslate2_model import BUILDERS, COMPUTE_TYPES, convert
from polyhead.engines.obstacles import CONVERTIBLE, obstacle
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.electra import ElectraConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig, summarize
from polyhead.models.transformer import TransformerConfig

ctranslate2 = pytest.importorskip("ctranslate2")
CLOSE, CPU = 1e-4, torch.device("cpu")
STACK = StackConfig(n_layers=2, d_model=12, n_heads=3, d_ff=20)
PRE = replace(STACK, norm="pre", norm_eps=1e-3)
TINY = TransformerConfig(source_vocab=31, target_vocab=31, max_length=40, stack=STACK)
GPT = GPTConfig(vocab=31, max_length=40, stack=PRE)
BERT = BERTConfig(vocab=31, max_length=40, stack=replace(STACK, activation="gelu"))
ELECTRA = ElectraConfig(vocab=31, max_length=40, d_embed=None, generator_size=0.5, stack=BERT.stack)
TRANSLATORS = {
    "post": TINY,
    "pre": replace(TINY, stack=PRE),
    "rotary": replace(TINY, positions="rotary", stack=PRE),
    "learned": replace(TINY, positions="learned", source_vocab=23, tie="target"),
    "axial": replace(TINY, positions="axial", tie="none", source_vocab=23),
    "none": replace(TINY, positions="none"),
    "gelu": replace(TINY, stack=replace(STACK, activation="gelu")),
    "gelu_tanh": replace(TINY, stack=replace(PRE, activation="gelu_tanh")),
    "silu": replace(TINY, stack=replace(STACK, activation="silu")),
    "deep encoder": replace(TINY, decoder_layers=1, output_bias=True),
    "dot": replace(TINY, stack=replace(STACK, score="dot")),
    "general": replace(TINY, stack=replace(STACK, score="general")),
    "narrow values": replace(TINY, positions="rotary", stack=replace(STACK, d_k=6, d_v=3)),
    "narrow keys": replace(TINY, positions="rotary", stack=replace(STACK, d_k=2, d_v=5)),
    "wide heads": replace(TINY, stack=replace(STACK, n_heads=5, d_k=8, d_v=8)),
}
GENERATORS = {
    "learned": GPT,
    "sinusoidal": replace(GPT, positions="sinusoidal", tie=False),
    "rotary": replace(GPT, positions="rotary", stack=replace(PRE, activation="gelu_tanh")),
    "post": replace(GPT, stack=STACK),
}
ENCODERS = {
    "bert": ("bert", BERT),
    "rotary": ("bert", replace(BERT, positions="rotary", stack=PRE)),
    "electra": ("electra", ELECTRA),
    "apart": ("electra", replace(ELECTRA, sharing="none")),
    "whole": ("electra", replace(ELECTRA, sharing="all", generator_size=1.0)),
    "classifier": ("classifier", ClassifierConfig(encoder=BERT)),
    "electra head": ("classifier", ClassifierConfig(encoder=BERT, head="electra")),
    "mean": ("classifier", ClassifierConfig(encoder=BERT, pooling="mean")),
}


def converted(tmp_path, family, config, compute_type="float32"):
    """Return one of our models, never trained, and the folder of its conversion."""
    torch.manual_seed(5)
    model = write_ours(tmp_path / "model", family, config)
    if family in ("transformer", "gpt"):  # PAD and BOS are impossible; ours counts them in log p
        never = torch.zeros(31).index_fill(0, torch.tensor([0, 1]), -1e4)
        model.to_logits.register_forward_hook(lambda _, _inputs, logits: logits + never)
    assert obstacle(family, plain(config)) is None
    (tmp_path / "out").mkdir()
    convert(tmp_path / "model", tmp_path / "out", compute_type)
    return model, str(tmp_path / "out")


def drawn(n, vocab=23):
    return torch.randint(4, vocab, (1, n))


def named(ids):
    return [str(id) for id in ids]


def log_p(logits, ids):
    return logits.log_softmax(-1)[0].take_along_dim(ids[0, :, None], 1)[:, 0]


@torch.inference_mode()
@pytest.mark.parametrize("config", TRANSLATORS.values(), ids=TRANSLATORS)
def test_translators_have_the_same_probabilities_and_outputs(tmp_path, config):
    model, folder = converted(tmp_path, "transformer", config)
    translator = ctranslate2.Translator(folder)
    for n in (1, 7, 30):
        source, target, end = drawn(n), drawn(n + 2), torch.tensor([[2]])
        closed = torch.cat([source, end], 1)
        logits = model(closed, torch.cat([torch.tensor([[1]]), target], 1))
        [scored] = translator.score_batch([named(source[0].tolist())], [named(target[0].tolist())])
        ours = log_p(logits, torch.cat([target, end], 1))
        assert (torch.tensor(scored.log_probs) - ours).abs().max() < CLOSE
    sources = [drawn(n)[0].tolist() for n in range(1, 12)]
    for beam in (1, 4):
        options = DecodeConfig(beam=beam, length_penalty=0.0, max_length=20, max_extra=20)
        ours = [
            out[0].ids for out in decode_all(model, [[*s, 2] for s in sources], options, device=CPU)
        ]
        theirs = translator.translate_batch(
            [named(source) for source in sources], beam_size=beam, length_penalty=0,
            min_decoding_length=0, max_decoding_length=20,
        )  # fmt: skip
        assert [named(ids) for ids in ours] == [result.hypotheses[0] for result in theirs]


@torch.inference_mode()
@pytest.mark.parametrize("config", GENERATORS.values(), ids=GENERATORS)
def test_generators_have_the_same_probabilities(tmp_path, config):
    model, folder = converted(tmp_path, "gpt", config)
    ids = drawn(30)
    [scored] = ctranslate2.Generator(folder).score_batch([named(ids[0].tolist())])
    ours = log_p(model(ids[:, :-1]), ids[:, 1:])
    assert (torch.tensor(scored.log_probs) - ours).abs().max() < CLOSE


@torch.inference_mode()
@pytest.mark.parametrize(("family", "config"), ENCODERS.values(), ids=ENCODERS)
def test_encoders_have_the_same_states(tmp_path, family, config):
    model, folder = converted(tmp_path, family, config)
    encoder = model.discriminator if family == "electra" else model.encoder
    ids, segments = drawn(20), torch.arange(20)[None] // 12
    output = ctranslate2.Encoder(folder).forward_batch(
        ids.tolist(), token_type_ids=segments.tolist()
    )
    states = torch.tensor(np.array(output.last_hidden_state))
    assert (states - encoder(ids, segments)).abs().max() < CLOSE
    if family == "classifier" and config.pooling == "first":
        pooled = torch.tensor(np.array(output.pooler_output))
        assert (
            pooled - model.pool(summarize(model.encoder, config.pooling, ids, segments))
        ).abs().max() < CLOSE


@torch.inference_mode()
@pytest.mark.parametrize("compute_type", COMPUTE_TYPES)
def test_weights_are_stored_in_every_type(tmp_path, compute_type):
    wide = replace(TINY, stack=replace(STACK, d_model=48, d_ff=96))
    model, folder = converted(tmp_path, "transformer", wide, compute_type)
    n_weights = sum(p.numel() for p in model.parameters())
    size = (tmp_path / "out" / "model.bin").stat().st_size - 4 * 1024 * 48  # without positions
    width = {"float32": 4, "float16": 2, "bfloat16": 2, "int16": 2}.get(compute_type, 1)
    assert size < 1.5 * width * n_weights + 20_000
    translator = ctranslate2.Translator(folder)  # in a type that this processor has
    ids = drawn(9)
    [scored] = translator.score_batch([named(ids[0].tolist())], [named(ids[0].tolist())])
    end, start = torch.tensor([[2]]), torch.tensor([[1]])
    logits = model(torch.cat([ids, end], 1), torch.cat([start, ids], 1))
    difference = torch.tensor(scored.log_probs) - log_p(logits, torch.cat([ids, end], 1))
    assert difference.abs().max() < (CLOSE if compute_type == "float32" else 0.3)


def test_other_models_are_refused():
    windows = {"attention": ("full", "local")}
    kinds = [
        *({"stack": replace(PRE, **change)} for change in (
            windows, {"attention": "lsh"}, {"reversible": True}, {"score": "additive"},
            {"experts": ExpertsConfig(n=2)},
        )),
        {"encoder_attention": "local"},
        {"positions": "rotary", "stack": replace(STACK, score="general")},
    ]  # fmt: skip
    assert all(obstacle("transformer", plain(replace(TINY, **kind))) for kind in kinds)
    assert obstacle("bert", plain(replace(BERT, d_embed=6)))
    assert BUILDERS.keys() == set(CONVERTIBLE)
    others = FAMILIES.keys() - BUILDERS.keys()
    assert all(obstacle(name, plain(FAMILIES[name].config())) for name in others)
    assert others >= {"reformer", "vit", "gnmt", "convs2s"}


HOSTILE = [
    {"n_layers": 10**9}, {"n_layers": 1}, {"n_layers": "2"}, {"n_layers": 0}, {"d_model": 2**31},
    {"n_heads": 10**12}, {"n_heads": 2**14, "d_k": 1}, {"d_ff": 2**40}, {"d_k": -1}, {"d_v": 2**30},
    {"norm_eps": "x"}, {"norm": []}, {"activation": "tanh"}, {"score": {}}, {"attention": 5},
    {"experts": {"n": "x"}},
]  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE, ids=str)
def test_impossible_sizes_are_refused_before_memory_is_used(tmp_path, change):
    write_ours(tmp_path / "model", "transformer", TINY)
    change_config(tmp_path / "model", model=plain(TINY) | {"stack": plain(STACK) | change})
    with pytest.raises(CheckpointError) as info:
        convert(tmp_path / "model", tmp_path)
    assert info.value.code in ("bad_config", "wrong_tensors", "not_convertible")
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("family", "config", "change"),
    [
        ("transformer", TINY, {"positions": "axial", "max_length": "x"}),
        ("transformer", TINY, {"positions": [1]}),
        ("transformer", TINY, {"tie": {}, "encoder_attention": 3}),
        ("transformer", TINY, {"target_vocab": 10**9}),
        ("electra", ELECTRA, {"sharing": []}),
        ("gpt", GPT, {"vocab": 2, "stack": 7}),
    ],
    ids=range(6),
)
def test_values_of_other_types_are_refused(tmp_path, family, config, change):
    write_ours(tmp_path / "model", family, config)
    change_config(tmp_path / "model", model=plain(config) | change)
    with pytest.raises(CheckpointError):
        convert(tmp_path / "model", tmp_path)


def test_broken_directories_are_refused(tmp_path):
    model = tmp_path / "model"
    write_ours(model, "transformer", TINY)
    with raises(ConfigError, "invalid_option", "int4"):
        convert(model, tmp_path, "int4")
    with raises(CheckpointError, "vocabulary_size"):
        convert(model, tmp_path, names=(["a"] * 31, ["a"] * 31))
    for values in ({"family": 3}, {"family": "bert", "model": {"encoder": 3}}):
        change_config(model, **values)
        with raises(CheckpointError, "not_convertible"):
            convert(model, tmp_path)
    assert not list(tmp_path.glob("*.bin"))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    model = write_ours(tmp_path / "model", "gpt", GPT)
    torch.nn.init.constant_(model.stack.norm.bias, value)
    save_tensors(weights_of(model), tmp_path / "model" / "model.safetensors")
    with raises(CheckpointError, "not_finite", "stack.norm.bias"):
        convert(tmp_path / "model", tmp_path)


SCRIPT = """
import sys, time
from pathlib import Path
from polyhead.engines.ctranslate2_model import convert
convert(Path(sys.argv[1]), Path(sys.argv[2]), "int8")
assert not {"torch", "transformers"} & sys.modules.keys(), "imported"
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(time.process_time(), int(peak.split()[1]) / 1024)
import torch
"""


def test_conversion_needs_no_torch_and_little_time_and_memory(tmp_path):
    config = replace(TINY, stack=replace(STACK, n_layers=6, d_model=192, d_ff=768))
    write_ours(tmp_path / "model", "transformer", config)
    command = [sys.executable, "-c", SCRIPT, tmp_path / "model", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, result.stdout.split())
    assert seconds < 3
    assert megabytes < 200
