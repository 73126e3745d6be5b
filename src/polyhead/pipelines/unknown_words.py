"""PosUnk: unknown words of an output, replaced by what the model looked at when it wrote them.

A model of whole words writes <unk> for every word that its vocabulary lacks. Its attention knows
better: the source word that got most of it is looked up in a dictionary, and if it is not there
either, it is copied, as names and numbers should be (Luong et al. 2015b; Zhou et al. 2016).

Any model that attends will do. The outputs are read once more, with hooks at the attention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.atomic_dir import CHECKPOINTS
from polyhead.data import bilingual_dictionary as lexicon
from polyhead.data.batches.base import pad
from polyhead.decoding.batch import MAX_ROWS, Output
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
    """The same outputs, those with unknown words with a `text` that has others in their place."""
    attentive = [model for model in models if has_cross_attention(model)]
    if not attentive:
        raise ConfigError(
            "decode.replace_unknown: no model here attends to its source, so that nobody knows "
            "what an unknown word stands for; set it to false"
        )
    found = [list(best) for best in outputs]
    places = [(i, n) for i, best in enumerate(found) for n, o in enumerate(best) if UNK in o.ids]
    for start in range(0, len(places), MAX_ROWS):
        some = places[start : start + MAX_ROWS]
        read = [tokenizers.source.encode(lines[i]) for i, _ in some]
        written = [found[i][n].ids for i, n in some]
        for (i, n), weights in zip(some, look_again(attentive, read, written), strict=True):
            words = [piece.text.strip() for piece in tokenizers.source.pieces(lines[i])]
            text = spell(tokenizers, found[i][n].ids, words, weights, dictionary)
            found[i][n] = replace(found[i][n], text=text)
    return found


@torch.inference_mode()
def look_again(
    models: Sequence[Any], sources: Sequence[list[int]], outputs: Sequence[list[int]]
) -> Float[Tensor, "batch target source"]:
    """What each token of the outputs took from each of the sources, by the mean of all heads."""
    heard = []
    for model in models:
        device = next(model.parameters()).device
        with record_attention(model, CROSS_ATTENTION) as maps:
            model.hidden(
                pad(sources).to(device), pad([[BOS, *ids[:-1]] for ids in outputs]).to(device)
            )
        heard.append(torch.stack([weights.float().mean(1) for weights in maps.values()]).mean(0))
    return torch.stack(heard).mean(0).cpu()


def spell(
    tokenizers: TokenizerPair,
    ids: Sequence[int],
    words: Sequence[str],
    weights: Float[Tensor, "target source"],
    dictionary: Mapping[str, str],
) -> str:
    """The text of an output, each unknown word by the source word that was looked at most.

    The closing token of the source is no word, and cannot be what was meant.
    """
    pieces = [piece.text for piece in tokenizers.target.pieces_of_ids(ids)]
    for place, id in enumerate(ids):
        if id == UNK and words:
            word = words[int(weights[place, : len(words)].argmax())]
            pieces[place] = pieces[place].replace(UNKNOWN, dictionary.get(word, word))
    return "".join(pieces)


def find_dictionary(path: Path) -> dict[str, str]:
    """The dictionary that training left beside a model of words; empty if there is none."""
    model = model_folder.resolve(path)
    run = [model.parents[1]] if model.parent.name == CHECKPOINTS else []
    for folder in (path, model, *run):
        if (folder / lexicon.FILE).is_file():
            return lexicon.read_dictionary(folder / lexicon.FILE)
    return {}
