"""Tiny models of transformers, and of ours, for tests of conversion."""

import json

import pytest
import torch

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.models.registry import FAMILIES
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer

SIZES = {
    "vocab_size": 23, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 14,
}  # fmt: skip
TRANSLATOR = {
    "vocab_size": 23, "d_model": 16, "encoder_layers": 2, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 10,
    "decoder_ffn_dim": 10, "max_position_embeddings": 30, "scale_embedding": True,
    "activation_function": "relu",
}  # fmt: skip
ROTARY = {
    "position_embedding_type": "rotary", "emb_layer_norm_before": True, "pad_token_id": 0,
    "mask_token_id": 22,
}  # fmt: skip
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 64}
HOSTILE_PARTS = {
    "panic": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "abort": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
    "regex": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+b$"},
                                "behavior": "Isolated", "invert": False}},
    "bytes": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 30}},
    "replace": {"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 6}},
}  # fmt: skip


def word_tokenizer(n_ids, **parts):
    """Return a tokenizer of the words w0, w1, …, whose file has these parts."""
    words = {"[UNK]": 0} | {f"w{i}": i for i in range(1, n_ids)}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    empty = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    content = {"version": "1.0", "added_tokens": [], "model": model, **empty, **parts}
    files = {"tokenizer.json": json.dumps(content).encode()}
    return HuggingFaceTokenizer("fast", files, (1, 2, 3, 0, *range(4, n_ids)))


def shaken(model, scale=0.2):
    """Add noise to every weight: biases of zero and norms that do nothing would hide a mix-up."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(scale * torch.randn_like(parameter))
    return model.eval()


def write_theirs(model, folder):
    """Write a model of transformers with noise."""
    shaken(model).save_pretrained(folder)
    return folder


def write_ours(folder, family, config, **about):
    """Write one of our models, never trained, with noise, as training would write it."""
    saved = SavedModel(family, config, shaken(FAMILIES[family].model(config)), None, about)
    with store.atomic_dir(folder) as draft:
        model_folder.write_model(draft, saved, "")
    return saved.model


def change_config(folder, **values):
    """Overwrite values of a directory's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def make_gpt(vocab=29, **shape):
    """Return a tiny GPT2LMHeadModel."""
    hf = pytest.importorskip("transformers")
    sizes = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 13}
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=vocab, **(sizes | shape)))


def make_vit(**shape):
    """Return a tiny ViTForImageClassification."""
    hf = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 10, "image_size": [6, 9], "patch_size": 3, "num_channels": 2,
        "num_labels": 5,
    }  # fmt: skip
    return hf.ViTForImageClassification(hf.ViTConfig(**(sizes | shape)))


def make_marian(pad=22, start=22, **shape):
    """Return a tiny MarianMTModel with noise, also in its output bias."""
    hf = pytest.importorskip("transformers")
    sizes = {
        "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10,
        "max_position_embeddings": 30, "pad_token_id": pad, "decoder_start_token_id": start,
        "scale_embedding": True, "vocab_size": 23, "eos_token_id": 0, "forced_eos_token_id": None,
        "bos_token_id": None,
    }  # fmt: skip
    model = shaken(hf.MarianMTModel(hf.MarianConfig(**(sizes | shape))), 0.5)
    model.final_logits_bias = torch.randn_like(model.final_logits_bias)
    return model


def make_pegasus(**shape):
    """Return a tiny PegasusForConditionalGeneration with noise in its output bias."""
    hf = pytest.importorskip("transformers")
    model = hf.PegasusForConditionalGeneration(hf.PegasusConfig(**TRANSLATOR | shape))
    model.final_logits_bias = torch.randn_like(model.final_logits_bias)
    return model


def make_neox(**shape):
    """Return a tiny GPTNeoXForCausalLM that our GPT can be."""
    hf = pytest.importorskip("transformers")
    options = {"rotary_pct": 1.0, "use_parallel_residual": False}
    return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SIZES | options | shape))


def make_esm(kind="EsmForMaskedLM", **shape):
    """Return a tiny ESM that our BERT can be."""
    hf = pytest.importorskip("transformers")
    return getattr(hf, kind)(hf.EsmConfig(**SIZES | ROTARY | shape))


def until(ids, *ends):
    """Return the ids before the first end."""
    return ids[: min([ids.index(end) for end in ends if end in ids], default=len(ids))]
