"""Alignment of the words of a translation with those of its source, by cross-attention."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.pipelines.translator import Translation, Translator
from polyhead.tokenizers.normalize import words_of
from polyhead.viz.capture import translation_maps

Link = tuple[int, int, float]  # number of the source word, of the target word, and the weight


def alignment(translator: Translator, translations: Sequence[Translation]) -> list[list[Link]]:
    """Return for each target word of a translation the source word with the largest weight.

    The weight is the mean over the heads of all cross-attention layers, summed over the pieces of
    a source word. Words are numbered through all sentences of a text.
    """
    tokenizers = translator.tokenizers
    links: list[list[Link]] = []
    for translation in translations:
        links.append([])
        n_sources = n_targets = 0
        for sentence in translation.sentences:
            if not sentence.ids:
                continue
            text, ids = tokenizers.source.normalise(sentence.source), list(sentence.ids)
            maps = translation_maps(translator.model, tokenizers.source.encode(text), ids)
            cross = [torch.from_numpy(m.weights).mean(0) for m in maps if m.kind == "cross"]
            source_words = words_of(tokenizers.source.pieces(text))
            target_words = words_of(tokenizers.target.pieces_of_ids(ids))
            links[-1] += [
                (source + n_sources, target + n_targets, weight)
                for source, target, weight in _links(
                    torch.stack(cross).mean(0), source_words, target_words
                )
            ]
            n_sources += len(sentence.source.split())
            n_targets += len(sentence.text.split())
    return links


def _links(
    weights: Float[Tensor, "target source"],
    source_words: Sequence[int],
    target_words: Sequence[int],
) -> list[Link]:
    if not source_words or not target_words:
        return []
    rows = torch.tensor(target_words) - target_words[0]
    columns = torch.tensor(source_words) - source_words[0]
    n_rows, n_columns = int(rows[-1]) + 1, int(columns[-1]) + 1
    pieces = weights[: len(rows), : len(columns)]  # without the final EOS
    by_row = torch.zeros(n_rows, len(columns)).index_add_(0, rows, pieces)
    table = torch.zeros(n_rows, n_columns).index_add_(1, columns, by_row)
    best = (table / torch.bincount(rows, minlength=n_rows)[:, None]).max(dim=1)
    return [
        (int(source), target, round(float(weight), 4))
        for target, (weight, source) in enumerate(zip(best.values, best.indices, strict=True))
    ]
