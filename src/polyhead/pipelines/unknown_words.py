"""Replacement of unknown words in a translation (PosUnk).

The source word that got most of the attention when <unk> was written is looked up in a dictionary
and, if it is not found, copied, as names and numbers should be (Luong et al. 2015b; Zhou et al.
2016). Hooks at the attention record it while the outputs are read once more.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.checkpoint.atomic_dir import CHECKPOINTS
from polyhead.checkpoint.model_files import resolve
from polyhead.data.batches.base import pad
from polyhead.data.bilingual_dictionary import FILE, read_dictionary
from polyhead.decoding.batch import MAX_ROWS
from polyhead.decoding.options import Output
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import CROSS_ATTENTION, has_cross_attention, record_attention
from polyhead.special_tokens import BOS, UNK
from polyhead.tokenizers.base import UNKNOWN
from polyhead.tokenizers.storage import TokenizerPair


def replace_unknown(
    models: Sequence[Any],
    tokenizers: TokenizerPair,
    lines: Sequence[str],
    outputs: Sequence[list[Output]],
    dictionary: Mapping[str, str],
) -> list[list[Output]]:
    """Return the outputs; those with unknown words get a `text` with replacements."""
    attentive = [model for model in models if has_cross_attention(model)]
    if not attentive:
        raise ConfigError(
            "decode.replace_unknown requires a model with cross-attention; set it to false",
            "no_cross_attention",
        )
    replaced = [list(best) for best in outputs]
    places = [(i, n) for i, best in enumerate(replaced) for n, o in enumerate(best) if UNK in o.ids]
    for start in range(0, len(places), MAX_ROWS):
        batch = places[start : start + MAX_ROWS]
        sources = [tokenizers.source.encode(lines[i]) for i, _ in batch]
        targets = [replaced[i][n].ids for i, n in batch]
        attention = cross_attention(attentive, sources, targets)
        for (i, n), weights in zip(batch, attention, strict=True):
            words = [piece.text.strip() for piece in tokenizers.source.pieces(lines[i])]
            text = spell(tokenizers, replaced[i][n].ids, words, weights, dictionary)
            replaced[i][n] = replaced[i][n]._replace(text=text)
    return replaced


@torch.inference_mode()
def cross_attention(
    models: Sequence[Any], sources: Sequence[list[int]], outputs: Sequence[list[int]]
) -> Float[Tensor, "batch target source"]:
    """Return the weights of each output token over its source, averaged over heads and models."""
    recorded = []
    for model in models:
        device = next(model.parameters()).device
        with record_attention(model, CROSS_ATTENTION) as maps:
            model.hidden(
                pad(sources).to(device), pad([[BOS, *ids[:-1]] for ids in outputs]).to(device)
            )
        recorded.append(torch.stack([weights.float().mean(1) for weights in maps.values()]).mean(0))
    return torch.stack(recorded).mean(0).cpu()


def spell(
    tokenizers: TokenizerPair,
    ids: Sequence[int],
    words: Sequence[str],
    weights: Float[Tensor, "target source"],
    dictionary: Mapping[str, str],
) -> str:
    """Return the text of an output, with its unknown words replaced by source words."""
    pieces = [piece.text for piece in tokenizers.target.pieces_of_ids(ids)]
    for place, id in enumerate(ids):
        if id == UNK and words:
            word = words[int(weights[place, : len(words)].argmax())]
            pieces[place] = pieces[place].replace(UNKNOWN, dictionary.get(word, word))
    return "".join(pieces)


def find_dictionary(path: Path) -> dict[str, str]:
    """Return the dictionary that training saved beside a model of words; empty if there is none."""
    model = resolve(path)
    run = [model.parents[1]] if model.parent.name == CHECKPOINTS else []
    for folder in (path, model, *run):
        if (folder / FILE).is_file():
            return read_dictionary(folder / FILE)
    return {}
