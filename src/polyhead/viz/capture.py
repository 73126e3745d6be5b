"""Attention of a model on one input: the input is read once more, with hooks at the attention.

    view = attention_view(polyhead.load("runs/mine"), "내일 회의가 있어요.")

PyTorch's fused kernel does not return its weights, so they are computed by the hooks of
`polyhead.layers.attention_hooks`; the model itself is not changed.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.nn.functional import pad

from polyhead.data.batches.labelled import segments_of
from polyhead.data.images.folders import visible
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import AttentionWeights, record_attention
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.step_through import checked_source
from polyhead.pipelines.task_pipeline import TaskPipeline
from polyhead.pipelines.text_generator import TextGenerator, check_forced
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import BOS, EOS, MASK, SPECIALS
from polyhead.tasks.image_classification import PictureInput
from polyhead.tokenizers.base import Tokenizer
from polyhead.viz.rollout import by_patch, rollout
from polyhead.viz.tokens import Token, to_tokens, written_tokens
from polyhead.viz.views import KINDS, AttentionMap, AttentionView, ImageView, Kind, TokenizedText

N_CLASSES = 5  # shown for an image

Pixels = UInt8[Tensor, "channel height width"]
TextPipeline = Translator | TextGenerator | TaskPipeline  # type: ignore[type-arg]


@overload
def attention_view(pipeline: ImageClassifier, content: str | Path | Pixels) -> ImageView: ...


@overload
def attention_view(
    pipeline: TextPipeline,
    content: str,
    *,
    target: str | None = None,
    target_ids: Sequence[int] | None = None,
    ended: bool = True,
    sentence: int = 1,
    max_tokens: int | None = None,
) -> AttentionView: ...


@overload
def attention_view(
    pipeline: Pipeline,
    content: str | Path | np.ndarray,
    *,
    target: str | None = None,
    sentence: int = 1,
) -> AttentionView | ImageView: ...


def attention_view(
    pipeline: Pipeline,
    content: str | Path | np.ndarray | Pixels,
    *,
    target: str | None = None,
    target_ids: Sequence[int] | None = None,
    ended: bool = True,
    sentence: int = 1,
    max_tokens: int | None = None,
) -> AttentionView | ImageView:
    """Return the weights of all heads of all layers for one text or image.

    content: a text; for an image classifier a file, an array, or pixels that it has read.
    target, target_ids: the translation to show instead of the model's own, as text or ids; of a
        language model, `target_ids` follow the text; of a question, `target` is its context.
    ended: False if the translation was cut off, so that the model did not predict its end.
    sentence: of a text in several sentences the one to show, counted from 1, if no target is given.
    max_tokens: raise `ConfigError` for a longer text or target.
    """
    if isinstance(pipeline, ImageClassifier):
        return _image_view(pipeline, content)
    if not isinstance(content, str):
        kind = type(content).__name__
        raise ConfigError(f"attention takes one text, not {kind}", "not_text")
    if isinstance(pipeline, Translator):
        if target is None and target_ids is None:
            content = pipeline.sentence(content, sentence)
        return _translation_view(pipeline, content, target, target_ids, ended, max_tokens)
    if isinstance(pipeline, TaskPipeline) and len(pipeline.task.fields) > 1:
        return _reader_view(pipeline, (content, target or ""), max_tokens)
    if target is not None:
        raise ConfigError("only a translator has a target; leave --target out", "no_target")
    if isinstance(pipeline, TextGenerator):
        return _language_model_view(pipeline, content, target_ids or (), max_tokens)
    if target_ids is not None:
        raise ConfigError("only translators and language models have target_ids", "no_target")
    assert isinstance(pipeline, TaskPipeline)
    return _reader_view(pipeline, (content,), max_tokens)


# Text


def _translation_view(
    translator: Translator,
    text: str,
    target: str | None,
    target_ids: Sequence[int] | None,
    ended: bool,
    max_tokens: int | None,
) -> AttentionView:
    tokenizers = translator.tokenizers
    if target is not None:
        target_ids = tokenizers.target.encode(target)[:-1]
    n_read = len(target_ids or ()) + ended  # BOS, and all but the last token predicted
    longest = min(max_tokens or 10**9, translator.max_output_length)
    if n_read > longest:
        raise ConfigError(
            f"a target of {n_read} tokens; at most {longest} can be looked at", "too_long"
        )
    source_ids = checked_source(translator, text)
    check_forced(target_ids or (), tokenizers.target)
    if target_ids is None:
        best = translator.n_best([text])[0][0]
        target_ids, ended = best.ids, best.sentences[-1].ended
    words = [id for id in target_ids if id != EOS]
    ids = words if words and not ended else [*words, EOS]
    text, target = tokenizers.source.normalise(text), tokenizers.target.decode(words)
    tokens = to_tokens(tokenizers.target.pieces_of_ids(words), before=BOS)
    read, predictions = tokens[: len(ids)], [*(token.text for token in tokens[1:]), SPECIALS[EOS]]
    return AttentionView(
        title=f"{text} → {target}",
        model=translator.name,
        source=TokenizedText(text, tuple(to_tokens(tokenizers.source.pieces(text), after=EOS))),
        target=TokenizedText(target, tuple(read)),
        predictions=tuple(predictions[: len(ids)]),
        maps=tuple(translation_maps(translator.model, source_ids, ids)),
    )


def translation_maps(
    model: Any, source: Sequence[int], target: Sequence[int]
) -> list[AttentionMap]:
    """Return the maps of every layer while a model reads a source and predicts a target."""
    device = next(model.parameters()).device
    source_ids, target_ids = (
        torch.tensor([list(ids)], device=device) for ids in (source, [BOS, *target[:-1]])
    )
    with torch.inference_mode(), record_attention(model) as weights:
        model.hidden(source_ids, target_ids)
    _check_recorded(weights)
    return _maps(weights)


def _check_recorded(weights: AttentionWeights) -> None:
    if not weights:
        raise ConfigError(
            "the model has no attention; expected one with attention, e.g. a transformer",
            "no_attention",
        )


def _language_model_view(
    generator: TextGenerator, text: str, generated: Sequence[int], max_tokens: int | None
) -> AttentionView:
    """Show the last window that a language model read, and the token generated from it.

    Each row is named by the token that follows; without generated tokens, the last one by the
    likeliest. If a part of the text is outside the window, the title starts with "…".
    """
    tokenizer = generator.tokenizer
    if not generated and not tokenizer.normalise(text):
        raise ConfigError("the text is empty", "empty")
    window, n_at_once = generator.window(text, generated)
    read = window[:-1] if generated else window
    if max_tokens is not None and len(read) > max_tokens:
        raise ConfigError(
            f"the model read {len(read)} tokens; at most {max_tokens} can be looked at", "too_long"
        )
    model: Any = generator.saved.model
    ids = torch.tensor([read], device=generator.device)
    with torch.inference_mode(), record_attention(model) as weights:
        logits = model(ids)[0, -1]
    if generated and any(isinstance(module, LSHAttention) for module in model.modules()):
        weights = _recorded_steps(model, ids, n_at_once - 1)
    last = tokenizer.symbol(generated[-1] if generated else int(logits.argmax()))
    tokens = written_tokens(tokenizer, read, newline="↵")
    lines = groupby(read, key=lambda id: id == EOS)
    shown = " ".join(tokenizer.decode(ids) for is_end, ids in lines if not is_end)
    if len(window) < len(generator.encode(text)) + len(generated):
        shown = f"… {shown}"
    return AttentionView(
        title=shown,
        model=generator.name,
        source=TokenizedText(shown, tuple(tokens)),
        target=None,
        predictions=(*(token.text for token in tokens[1:]), last.removeprefix("▁") or " "),
        maps=tuple(_maps(weights, "decoder")),
    )


@torch.inference_mode()
def _recorded_steps(model: Any, ids: Int[Tensor, "1 length"], n_first: int) -> AttentionWeights:
    """Record a generation: the first tokens are read at once, the others step by step.

    A step of LSH attention attends to all tokens, so reading all at once has other weights.
    """
    length = ids.size(1)
    rows: dict[str, list[Tensor]] = {}
    with record_attention(model) as first:
        state = model.begin(ids[:, :n_first], width=1, max_length=length - n_first)
    recorded = [first]
    for place in range(n_first, length):
        with record_attention(model) as step:
            model.step(ids[:, place : place + 1], state)
        recorded.append(step)
    for maps in recorded:
        for name, weights in maps.items():
            rows.setdefault(name, []).append(pad(weights, (0, length - weights.size(-1))))
    result = AttentionWeights()
    result.update({name: torch.cat(parts, dim=-2) for name, parts in rows.items()})
    return result


def _reader_view(
    reader: TaskPipeline[Any, Any], row: tuple[str, ...], max_tokens: int | None
) -> AttentionView:
    """Show a text, a pair, or a question with its context: of a long one, the first part."""
    if len(row) > 1 and not row[-1].strip():
        raise ConfigError("the question has no context; add --target TEXT", "no_target")
    ids, text, title, encoder = reader.attended(row)
    longest = min(reader.max_length, max_tokens or 10**9)
    if len(ids) > longest:
        raise ConfigError(
            f"a text of {len(ids)} tokens; {reader.name} reads at most {longest}", "too_long"
        )
    tokens = _framed_tokens(reader.tokenizer, ids, len(reader.tokenizer))
    return _encoder_view(encoder, ids, tokens, text, title=title, model=reader.name)


def _framed_tokens(tokenizer: Tokenizer, ids: Sequence[int], mask: int) -> tuple[Token, ...]:
    """Return the tokens of BOS text EOS, where the id `mask` is a masked token."""
    tokens = [Token(SPECIALS[BOS], 0, special=True)]
    for id in ids[1:-1]:
        symbol = MASK if id == mask else tokenizer.symbol(id)
        is_special = id == EOS  # between two texts
        starts_word = symbol.startswith("▁") or id in (mask, EOS) or tokens[-1].special
        text = symbol.removeprefix("▁") or " "
        tokens.append(Token(text, tokens[-1].word + starts_word, special=is_special))
    return (*tokens, Token(SPECIALS[EOS], tokens[-1].word + 1, special=True))


def _encoder_view(
    encoder: Any,
    ids: Sequence[int],
    tokens: tuple[Token, ...],
    text: str | None = None,
    *,
    title: str,
    model: str,
) -> AttentionView:
    device = next(encoder.parameters()).device
    with torch.inference_mode(), record_attention(encoder) as weights:
        given = torch.tensor([list(ids)], device=device)
        encoder(given, segments_of(given))
    source = TokenizedText(title if text is None else text, tokens)
    return AttentionView(title, model, source, None, (), tuple(_maps(weights, "encoder")))


def _maps(weights: AttentionWeights, kind: Kind | None = None) -> list[AttentionMap]:
    """Convert what was recorded; `kind` is that of a model with one stack.

    Names are such as decoder.blocks.0.cross_attention, or cross_attention alone.
    """
    maps = []
    for name, batch in weights.items():
        *stack, module = name.split(".")
        own: Any = kind or ("cross" if module == "cross_attention" else stack[-3])
        target: Literal["source", "target"] = "target" if kind is None else "source"
        seen, buckets = weights.seen.get(name), weights.buckets.get(name)
        maps.append(
            AttentionMap(
                kind=own,
                layer=int(stack[-1]) + 1 if stack else 1,
                weights=batch[0].float().cpu().numpy(),
                queries="source" if own == "encoder" else target,
                keys=target if own == "decoder" else "source",
                seen=None if seen is None else seen[0].cpu().numpy(),
                buckets=None if buckets is None else buckets[:, 0].short().cpu().numpy(),
            )
        )
    return sorted(maps, key=lambda attention: (KINDS.index(attention.kind), attention.layer))


# Images


def _image_view(classifier: ImageClassifier, image: str | Path | np.ndarray | Pixels) -> ImageView:
    name = visible(Path(image).name) if isinstance(image, str | Path) else ""
    given = PictureInput("", image)
    if not isinstance(image, Tensor):
        (given,) = classifier.task.read(classifier.used_for(None), [(image,)])
    pixels = given.pixels
    with record_attention(classifier.saved.model) as recorded:
        (label,) = classifier.results([given], N_CLASSES)
    _check_recorded(recorded)
    weights = [maps[0].float().cpu() for maps in recorded.values()]  # in the order of the layers
    config = classifier.saved.config
    grid = pixels.size(1) // config.patch, pixels.size(2) // config.patch
    return ImageView(
        title=f"{name} → {label.label}" if name else label.label,
        model=classifier.name,
        picture=pixels.permute(1, 2, 0).contiguous().numpy(),
        labels=tuple(label.probabilities.items()),
        pooled=config.pooling,
        layers=torch.stack([by_patch(layer, grid) for layer in weights]).numpy(),
        rollout=by_patch(rollout(weights), grid).numpy(),
    )
