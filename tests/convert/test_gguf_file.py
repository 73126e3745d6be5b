"""Files for llama.cpp, read by the package gguf and by transformers."""

import json
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from sentencepiece import sentencepiece_model_pb2

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.convert import gguf_file, sentencepiece_file
from polyhead.convert.sentencepiece_file import sentencepiece_model
from polyhead.convert.targets import find_target
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer
from polyhead.tokenizers.storage import TokenizerPair, train_tokenizers

gguf = pytest.importorskip("gguf")
hf = pytest.importorskip("transformers")
reader = pytest.importorskip("transformers.modeling_gguf_pytorch_utils")
STACK = StackConfig(2, 24, 3, 40, norm="pre", activation="gelu_tanh", norm_eps=1e-3)
CONFIG = GPTConfig(vocab=0, max_length=17, stack=STACK)
TEXT = TextConfig(vocab=300)


def saved_gpt(tokenizers, **changes):
    torch.manual_seed(1)
    config = replace(CONFIG, vocab=len(tokenizers.source), **changes)
    model = GPT(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    return SavedModel("gpt", config, model, tokenizers)


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizers(["한국어와 English < 3", "a b c"] * 4, [], TEXT)


def gpt2_of(folder):
    """Return the model as transformers reads it, without the package accelerate."""
    values = reader.load_gguf_checkpoint(folder / "model.gguf")["config"]
    sizes = {"n_positions": CONFIG.max_length, "n_inner": STACK.d_ff}  # which it does not read
    model = hf.GPT2LMHeadModel(hf.GPT2Config(**values | sizes))
    read = reader.load_gguf_checkpoint(
        folder / "model.gguf", return_tensors=True, model_to_load=model
    )
    missing = model.load_state_dict(read["tensors"], strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    if missing.missing_keys:
        model.lm_head.weight = model.transformer.wte.weight
    return model.eval()


def neox_of(folder, config):
    """Return transformers' GPT-NeoX with the tensors of a file; there, q, k and v alternate."""
    names = {
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "attn_qkv": "attention.query_key_value", "attn_output": "attention.dense",
        "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
        "token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm",
    }  # fmt: skip
    stack, state = config.stack, {}
    for tensor in gguf.GGUFReader(folder / "model.gguf").tensors:
        *block, part, kind = tensor.name.split(".")
        value = torch.tensor(tensor.data)
        if part == "attn_qkv":
            value = value.unflatten(0, (3, stack.n_heads, -1)).transpose(0, 1).flatten(0, 2)
        prefix = f"gpt_neox.layers.{block[1]}." if block else ""
        state[f"{prefix}{names.get(part, 'lm_head' if part == 'output' else part)}.{kind}"] = value
    values = hf.GPTNeoXConfig(
        vocab_size=config.vocab, hidden_size=stack.d_model, num_hidden_layers=stack.n_layers,
        num_attention_heads=stack.n_heads, intermediate_size=stack.d_ff, hidden_act="gelu_new",
        use_parallel_residual=False, layer_norm_eps=stack.norm_eps, rotary_pct=1.0,
    )  # fmt: skip
    model = hf.GPTNeoXForCausalLM(values)
    assert not any(model.load_state_dict(state, strict=False))
    return model.eval()


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("tie", [True, False])
def test_logits_are_those_of_transformers(tmp_path, bpe, positions, tie):
    saved = saved_gpt(bpe, positions=positions, tie=tie)
    written = gguf_file.write(saved, tmp_path, "float32")
    assert written.architecture == {"learned": "gpt2", "rotary": "gptneox"}[positions]
    theirs = gpt2_of(tmp_path) if positions == "learned" else neox_of(tmp_path, saved.config)
    ids = torch.randint(1, saved.config.vocab, (2, 13))
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, saved.model(ids), rtol=0, atol=1e-4)
    target = find_target("gguf")
    half = tmp_path / "half"
    half.mkdir()
    target.write(saved, half, target.compute_types[1], print)
    types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(half / "model.gguf").tensors}
    assert (types["blk.1.ffn_up.weight"], types["blk.1.ffn_up.bias"]) == ("F16", "F32")


def fields_of(folder):
    fields = gguf.GGUFReader(folder / "model.gguf").fields
    return {name: field.contents() for name, field in fields.items()}


@pytest.mark.parametrize(("kind", "model"), [("bpe", "llama"), ("unigram", "t5")])
def test_the_vocabulary_is_that_of_sentencepiece(tmp_path, monkeypatch, kind, model):
    for module in (sentencepiece_file, gguf_file):
        monkeypatch.setattr(module, "reading_rules", lambda *_: {"\t": " "})  # short
    pair = train_tokenizers(["한국어와 English < 3", "a b c"] * 4, [], replace(TEXT, kind=kind))
    gguf_file.write(saved_gpt(pair), tmp_path, "float32")
    fields = fields_of(tmp_path)
    tokenizer = {n.removeprefix("tokenizer.ggml."): value for n, value in fields.items()}
    spec = sentencepiece_model_pb2.ModelProto.FromString(sentencepiece_model(pair.source))
    assert tokenizer["model"] == model
    assert tokenizer["tokens"] == [piece.piece for piece in spec.pieces]
    assert tokenizer["scores"] == pytest.approx([piece.score for piece in spec.pieces])
    assert tokenizer["token_type"] == [piece.type for piece in spec.pieces]
    assert (tokenizer["bos_token_id"], tokenizer["eos_token_id"]) == (1, 2)
    if kind == "unigram":
        assert bytes(tokenizer["precompiled_charsmap"]) == spec.normalizer_spec.precompiled_charsmap
    assert fields["gpt2.context_length"] == 17


@pytest.mark.parametrize("whole", [True, False])
def test_an_imported_gpt2_has_its_own_ids(tmp_path, whole):
    tokens = ["a", "b", "c", "ab", "Ġ", "<|endoftext|>", "À", "Á", "õ"]
    vocab = {token: id for id, token in enumerate(tokens)}
    end = {"id": 5, "content": "<|endoftext|>", "special": True}
    model = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]}
    files = {"tokenizer.json": json.dumps({"model": model, "added_tokens": [end]}).encode()}
    if not whole:
        files = {"vocab.json": json.dumps(vocab).encode(), "merges.txt": b"#version: 0.2\na b\n"}
    tokenizer = HuggingFaceTokenizer("fast", files, (6, 7, 5, 8, 0, 1, 2, 3, 4))
    saved = saved_gpt(TokenizerPair(tokenizer, tokenizer, TEXT))
    gguf_file.write(saved, tmp_path, "float32")
    fields = fields_of(tmp_path)
    assert fields["tokenizer.ggml.tokens"] == tokens
    assert fields["tokenizer.ggml.merges"] == ["a b"]
    assert fields["tokenizer.ggml.eos_token_id"] == 5
    assert fields["tokenizer.ggml.token_type"][4:6] == [1, 3]
    theirs = gpt2_of(tmp_path)
    ids = torch.tensor([[4, 5, 8]])
    with torch.no_grad():
        ours = saved.model(ids)[..., [4, 5, 6, 7, 8, 2, 0, 1, 3]]
        mapped = theirs(torch.tensor([[0, 1, 4]])).logits
    torch.testing.assert_close(mapped, ours, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (TransformerConfig(), TEXT), (replace(CONFIG, positions="sinusoidal"), TEXT),
        (replace(CONFIG, stack=replace(STACK, norm="post")), TEXT),
        (replace(CONFIG, stack=replace(STACK, activation="relu")), TEXT),
        (replace(CONFIG, stack=replace(STACK, d_k=5)), TEXT),
        (replace(CONFIG, stack=replace(STACK, attention=("local", "full"))), TEXT),
        (CONFIG, replace(TEXT, kind="words")), (CONFIG, replace(TEXT, byte_fallback=False)),
        (CONFIG, None),
    ],
)  # fmt: skip
def test_other_models_are_refused(config, text):
    with raises(CheckpointError, "not_exportable"):
        gguf_file.architecture("gpt", config, text)


def test_a_model_without_a_tokenizer_is_refused(tmp_path, bpe):
    with raises(CheckpointError, "not_exportable", "this kind of tokenizer"):
        gguf_file.write(replace(saved_gpt(bpe), tokenizers=None), tmp_path, "float32")
