"""What a model's heads looked at: one explicit second pass over a finished translation, or a text.

Translation runs on PyTorch's fused kernel, which never shows its weights. To see them, the source
and the translation are read once more, with hooks at the kernels that compute softmax(Q Kᵀ / √d) in
the open (`polyhead.layers.attention_hooks`). Nothing in the model knows about it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.data.batches.base import pad
from polyhead.errors import ConfigError, PolyheadError
from polyhead.layers.attention_hooks import AttentionWeights, record_attention
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator
from polyhead.tokenizers.storage import BOS, EOS, SPECIALS, Piece, words_of
from polyhead.viz import draw_text as drawing
from polyhead.viz import page
from polyhead.viz.views import KINDS, AttentionMap, AttentionView, Token, TokenizedText


def look(model: Translator | TextGenerator, text: str, target: str | None = None) -> AttentionView:
    """All weights of all heads of whatever `polyhead.load` has loaded."""
    if isinstance(model, Translator):
        return attention(model, text, target)
    if not isinstance(model, TextGenerator):
        raise ConfigError(f"a {type(model).__name__} cannot be looked at in this way")
    if target is not None:
        raise ConfigError("a language model has no target; leave --target out")
    return reading(model, text)


def reading(writer: TextGenerator, text: str, most: int | None = None) -> AttentionView:
    """All weights of all heads of a language model that reads a text.

    Each row is named by the token that follows: what the model had to predict there. The last row
    is named by the model's own likeliest next token. Of a text longer than the model reads at once,
    or than `most` tokens, the end is read, as when it is written; the title then begins with "…".
    """
    tokenizer = writer.tokenizer
    text = tokenizer.normalise(text)
    if not text:
        raise ConfigError("the text is empty: there is nothing to look at")
    ids, pieces = [EOS, *tokenizer.encode(text)[:-1]], tokenizer.pieces(text)
    n_read = min(writer.context, most or writer.context)
    if len(ids) <= n_read:
        read = as_tokens(pieces, before=EOS)
    else:
        ids, read = ids[-n_read:], as_tokens(pieces[-n_read:])
        text = f"… {tokenizer.decode(ids)}"
    model: Any = writer.saved.model
    with torch.inference_mode(), record_attention(model) as found:
        logits = model(torch.tensor([ids], device=writer.device))[0, -1]
    likeliest = tokenizer.symbol(int(logits.argmax()))  # ▁ begins a word, which is not shown
    maps = [
        as_map("decoder", int(name.split(".")[-2]) + 1, found, name, text_only=True)
        for name in found
    ]
    return AttentionView(
        title=text,
        model=writer.name,
        source=TokenizedText(text, read),
        target=None,
        predictions=(*(token.text for token in read[1:]), likeliest.removeprefix("▁") or likeliest),
        maps=tuple(sorted(maps, key=lambda one: one.layer)),
    )


def attention(translator: Translator, text: str, target: str | None = None) -> AttentionView:
    """All weights of all heads for one sentence and its translation (the model's own, or given)."""
    tokenizer = translator.tokenizers
    text = tokenizer.source.normalise(text)
    if not text.strip():
        raise ConfigError("the text is empty: there is nothing to look at")
    if translator.is_long(text):
        raise ConfigError(
            f"the text is longer than the model's {translator.max_length} tokens; give one sentence"
        )
    source_ids = tokenizer.source.encode(text)
    if target is None:
        target_ids = [*translator.n_best([text])[0][0].ids, EOS]
    else:
        target_ids = tokenizer.target.encode(target)
    maps = record(translator.models[0].model, source_ids, target_ids)
    written = tokenizer.target.pieces_of_ids(target_ids[:-1])
    target_text = tokenizer.target.decode(target_ids)
    read = as_tokens(written, before=BOS)
    return AttentionView(
        title=f"{text} → {target_text}",
        model=translator.names[0],
        source=TokenizedText(text, as_tokens(tokenizer.source.pieces(text), after=EOS)),
        target=TokenizedText(target_text, read),
        predictions=(*(token.text for token in read[1:]), SPECIALS[EOS]),
        maps=tuple(maps),
    )


def record(model: Any, source: Sequence[int], target: Sequence[int]) -> list[AttentionMap]:
    """Read both sentences once more and collect the weights of every layer."""
    device = next(model.parameters()).device
    with torch.inference_mode(), record_attention(model) as found:
        model.hidden(pad([list(source)]).to(device), pad([[BOS, *target[:-1]]]).to(device))
    if not found:
        raise ConfigError(
            "this model has no attention: there is nothing to look at; give one that attends, "
            "such as a transformer"
        )
    maps = []
    for name in found:
        *stack, which = name.split(".")  # decoder.blocks.0.cross_attention, or without a stack
        kind = "cross" if which == "cross_attention" else stack[-3]
        maps.append(as_map(kind, int(stack[-1]) + 1 if stack else 1, found, name))
    return sorted(maps, key=lambda one: (KINDS.index(one.kind), one.layer))


def alignment(
    translator: Translator, sources: Sequence[str], outputs: Sequence[Sequence[int]]
) -> list[list[tuple[int, int, float]]]:
    """Which source word each target word took most from: (source, target, weight) by word number.

    The mean over the heads of all cross-attention layers, summed over the pieces of a word.
    """
    tokenizers = translator.tokenizers
    links: list[list[tuple[int, int, float]]] = []
    for text, ids in zip(sources, outputs, strict=True):
        text = tokenizers.source.normalise(text)
        if not text.strip() or not ids or translator.is_long(text):
            links.append([])
            continue
        maps = record(translator.models[0].model, tokenizers.source.encode(text), list(ids))
        weights = torch.stack(
            [torch.from_numpy(one.weights).mean(0) for one in maps if one.kind == "cross"]
        ).mean(0)
        source_words = words_of(tokenizers.source.pieces(text))
        target_words = words_of(tokenizers.target.pieces_of_ids(ids))
        links.append(_link(weights, source_words, target_words))
    return links


def _link(
    weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]
) -> list[tuple[int, int, float]]:
    if not source_words or not target_words:
        return []
    first_source, first_target = source_words[0], target_words[0]
    table = torch.zeros(target_words[-1] - first_target + 1, source_words[-1] - first_source + 1)
    rows = torch.tensor(target_words) - first_target
    columns = torch.tensor(source_words) - first_source
    real = weights[: len(rows), : len(columns)]  # without the closing </s>
    by_row = torch.zeros(len(table), real.size(1)).index_add_(0, rows, real)
    table.index_add_(1, columns, by_row)
    share = table / torch.bincount(rows, minlength=len(table))[:, None]
    best = share.max(dim=1)
    return [
        (int(place), target, round(float(value), 4))
        for target, (value, place) in enumerate(zip(best.values, best.indices, strict=True))
    ]


def as_map(
    kind: Any, layer: int, found: AttentionWeights, name: str, *, text_only: bool = False
) -> AttentionMap:
    """What one attention module did with the only sentence, as numpy has it."""
    queries: Any = "source" if kind == "encoder" or text_only else "target"
    keys: Any = "target" if kind == "decoder" and not text_only else "source"
    seen, buckets = found.seen.get(name), found.buckets.get(name)
    return AttentionMap(
        kind,
        layer,
        found[name][0].float().cpu().numpy(),
        queries,
        keys,
        None if seen is None else seen[0].cpu().numpy(),
        None if buckets is None else buckets[:, 0].short().cpu().numpy(),
    )


def as_tokens(
    pieces: Sequence[Piece], *, before: int | None = None, after: int | None = None
) -> tuple[Token, ...]:
    """Pieces as tokens to be shown, between the special tokens that the model reads with them."""
    words = words_of(pieces)
    shift = 1 if before is not None else 0
    tokens = [Token(SPECIALS[before], 0, special=True)] if before is not None else []
    first = words[0] if words else 0
    for piece, word in zip(pieces, words, strict=True):
        shown = piece.text.strip(" ").replace("\n", "↵")
        tokens.append(Token(shown, word - first + shift))
    if after is not None:
        tokens.append(Token(SPECIALS[after], tokens[-1].word + 1 if tokens else 0, special=True))
    return tuple(tokens)


def write_picture(
    view: AttentionView,
    path: Path,
    *,
    kind: str | None = None,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    word: str | None = None,
    lines: bool = False,
    merge: bool = False,
) -> None:
    """Write a page (.html), a picture (.svg, .png) or the numbers (.json), by the file's ending."""
    style = "lines" if lines or word is not None else "heatmap"
    choices = (kind, layer, heads, word, style, merge)
    ending = path.suffix.lower()
    if ending not in (".html", ".htm", ".svg", ".png", ".json"):
        raise ConfigError(f"{path}: the ending must be .html, .svg, .png or .json")
    try:
        if ending in (".html", ".htm"):
            page.write(view, path)
        elif ending == ".svg":
            path.write_text(drawing.svg(view, *choices), encoding="utf-8")
        elif ending == ".png":
            path.write_bytes(drawing.png(view, *choices))
        else:
            path.write_text(view.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise PolyheadError(f"cannot write {path}: {error.strerror}") from None
