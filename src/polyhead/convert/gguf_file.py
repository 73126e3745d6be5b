"""The target `gguf`: a file model.gguf for llama.cpp and the programs built on it.

    learned positions    arch gpt2
    rotary positions     arch gptneox without the parallel residual

The rows of W_q and W_k are reordered for its rotation (`gpt_neox.py`); q, k and v lie below each
other in one matrix.

Tokenizers: bpe as "llama", unigram as "t5", the byte-level BPE of an imported GPT-2 as "gpt2". Of
these, only "t5" normalises a text; for "llama" it must be in NFC, with single spaces.
"""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy
from torch import Tensor

from polyhead.checkpoint.model_dir import SavedModel, weights_of
from polyhead.convert import special_ids as ids
from polyhead.convert.exporter import specials_for
from polyhead.convert.gpt_neox import ROTATED, paired
from polyhead.convert.sentencepiece_file import (
    charsmap,
    kept_escapes,
    piece_names,
    reading_rules,
)
from polyhead.convert.target_types import Written
from polyhead.convert.weight_names import WeightTable, reordered, require_exportable
from polyhead.errors import CheckpointError
from polyhead.models.gpt import GPTConfig
from polyhead.special_tokens import BOS, EOS, PAD, UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer

FILE = "model.gguf"
ARCHITECTURES = {"learned": "gpt2", "rotary": "gptneox"}  # by kind of positions
BLOCK = {
    "self_residual.norm": "attn_norm", "self_attention.w_q": "attn_qkv.0",
    "self_attention.w_k": "attn_qkv.1", "self_attention.w_v": "attn_qkv.2",
    "self_attention.w_o": "attn_output", "feed_residual.norm": "ffn_norm",
    "feed_forward.w_1": "ffn_up", "feed_forward.w_2": "ffn_down",
}  # fmt: skip
OTHERS = {
    "embed.tokens": "token_embd", "embed.positions.table": "position_embd",
    "stack.norm": "output_norm", "to_logits": "output",
}  # fmt: skip
BLOCKS = {f"stack.blocks.{{}}.{ours}": f"blk.{{}}.{theirs}" for ours, theirs in BLOCK.items()}
WEIGHTS = WeightTable(BLOCKS | OTHERS, fused=".attn_qkv")
FLOATS = {"float32": numpy.float32, "float16": numpy.float16}
NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6  # types of tokens
ENDS_LINE = "EOS ends a line: llama.cpp stops there"
NOTES = {  # by tokenizer
    "llama": ("llama.cpp does not normalise: give texts in NFC, with single spaces", ENDS_LINE),
    "t5": ("llama.cpp has no byte fallback for unigram: new characters are UNK", ENDS_LINE),
    "gpt2": (),
}


def architecture(family: str, config: Any, text: TextConfig | None) -> str:
    """Return the name of the architecture in llama.cpp; CheckpointError if there is none."""
    if not isinstance(config, GPTConfig) or config.positions not in ARCHITECTURES:
        given = f"{config.positions} positions" if isinstance(config, GPTConfig) else family
        raise _refused(given, "a gpt with learned or rotary positions")
    activation = (config.stack.activation, "gelu_tanh")
    require_exportable(config.stack, "pre", {"activation": activation})
    if text is None or text.kind not in ("bpe", "unigram"):
        raise _refused("this kind of tokenizer", "bpe or unigram")
    if text.kind == "bpe" and not text.byte_fallback:
        raise _refused("bpe without byte_fallback", "text.byte_fallback = true")
    return ARCHITECTURES[config.positions]


def _refused(given: str, expected: str) -> CheckpointError:
    return CheckpointError(f"llama.cpp has no {given}; expected {expected}", "not_exportable")


def write(saved: SavedModel, folder: Path, compute_type: str) -> Written:
    """Write model.gguf and read it again; CheckpointError if a tensor differs."""
    gguf: Any = import_module("gguf")
    config, stack = saved.config, saved.config.stack
    tokenizer = None if saved.tokenizers is None else saved.tokenizers.source
    if not isinstance(tokenizer, HuggingFaceTokenizer | SentencePieceTokenizer):
        raise _refused("this kind of tokenizer", "bpe or unigram")
    name, specials = ARCHITECTURES[config.positions], specials_for(saved)
    weights = {n: t.cpu() for n, t in weights_of(saved.model).items()}
    if specials is not None:
        weights = dict(ids.restored(saved.family, weights, specials))
    arrays = tensors(config, weights, compute_type)
    values: dict[str, Any] = {
        "context_length": config.max_length, "embedding_length": stack.d_model,
        "block_count": stack.n_layers, "feed_forward_length": stack.d_ff,
        "head_count": stack.n_heads, "layer_norm_eps": stack.norm_eps,
        "file_type": list(FLOATS).index(compute_type), "add_bos_token": False,
    }  # fmt: skip
    if name == "gptneox":
        values |= {"rope_dimension_count": stack.d_key, "parallel_residual": False}
    if isinstance(tokenizer, HuggingFaceTokenizer):
        values |= byte_level(tokenizer, len(arrays["token_embd.weight"]))
    else:
        values |= subwords(tokenizer)
    writer = gguf.GGUFWriter(folder / FILE, name)
    for key, value in values.items():
        getattr(writer, f"add_{key}")(value)
    for key, array in arrays.items():
        writer.add_tensor(key, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = {tensor.name: tensor.data for tensor in gguf.GGUFReader(folder / FILE).tensors}
    broken = [key for key in arrays if not numpy.array_equal(arrays[key], read.get(key, ()))]
    if broken:
        raise CheckpointError(f"{FILE}: {broken[0]} is not what was written", "parity_failed")
    obstacle = f"llama.cpp is not run here; {len(read)} tensors were read again and are equal"
    notes = NOTES[values["tokenizer_model"]]
    return Written(name, f"{len(tokenizer):,} ids, in {FILE}", notes, obstacle=obstacle)


def tensors(
    config: GPTConfig, weights: Mapping[str, Tensor], compute_type: str
) -> dict[str, numpy.ndarray]:
    """Return the tensors by their names in llama.cpp; vectors and positions have 32 bits."""
    named, wide = dict(weights), {"position_embd.weight"}
    if config.positions == "rotary":
        named = reordered(named, ROTATED, paired(config.stack).argsort())
        named.setdefault("to_logits.weight", named["embed.tokens.weight"])  # gptneox cannot tie it
    return {
        name: tensor.numpy().astype(
            FLOATS[compute_type if tensor.dim() > 1 and name not in wide else "float32"]
        )
        for name, tensor in WEIGHTS.to_theirs(named).items()
    }


def subwords(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Return the entries of a SentencePiece tokenizer."""
    pieces, numbers = tokenizer.processor, range(len(tokenizer))
    types = {UNK: UNKNOWN, **dict.fromkeys((PAD, BOS, EOS), CONTROL)}
    types |= dict.fromkeys(tokenizer.bytes, BYTE)
    values = {
        "tokenizer_model": "llama", "tokenizer_pre": "default",
        "token_list": piece_names(tokenizer),
        "token_scores": [pieces.GetScore(id) for id in numbers],
        "token_types": [types.get(id, NORMAL) for id in numbers],
        "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "unk_token_id": UNK,
        "add_eos_token": False, "add_space_prefix": True,
    }  # fmt: skip
    if tokenizer.config.kind == "bpe":
        return values
    rules = charsmap(reading_rules(tokenizer.config.lowercase, kept_escapes(tokenizer)))
    spaces = {"remove_extra_whitespaces": True, "precompiled_charsmap": rules}
    return values | {"tokenizer_model": "t5", **spaces}


def byte_level(tokenizer: HuggingFaceTokenizer, vocab: int) -> dict[str, Any]:
    """Return the entries of GPT-2's tokenizer, from either form of its files."""
    files = tokenizer.files
    if "tokenizer.json" in files:
        whole = json.loads(files["tokenizer.json"])
        model, added = whole["model"], {t["id"]: t["content"] for t in whole["added_tokens"]}
        if model["type"] != "BPE" or model.get("byte_fallback"):
            raise _refused("this tokenizer", "the byte-level BPE of GPT-2")
        numbers, pairs = model["vocab"], model["merges"]
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]
    else:
        numbers, added = json.loads(files["vocab.json"]), {}
        lines = files["merges.txt"].decode().splitlines()
        merges = [line for line in lines if line and not line.startswith("#version")]
    names = {id: name for name, id in numbers.items()} | added
    special = {*added, tokenizer.ids[EOS]}
    return {
        "tokenizer_model": "gpt2", "tokenizer_pre": "gpt-2", "token_merges": merges,
        "token_list": [names.get(id, f"[PAD{id}]") for id in range(vocab)],
        "token_types": [
            CONTROL if id in special else NORMAL if id in names else UNUSED for id in range(vocab)
        ],
        "bos_token_id": tokenizer.ids[EOS], "eos_token_id": tokenizer.ids[EOS],
    }  # fmt: skip
