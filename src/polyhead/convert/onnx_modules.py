"""Modules in the form of ONNX graphs: tensors in, tensors out, no state, no branches.

    translation       encoder_model, and decoder_model_merged with a cache
    language model    model, with a cache
    others            model

Names and axes are those that transformers.js expects. A cache has length 0 at first. Keys and
values of the source are computed for the positions that the cache lacks: all of them in the first
step, none afterwards. So one decoder graph serves all steps.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.layers.attention import KV, Mask
from polyhead.layers.kv_cache import BlockCache, Memory
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.electra import Electra
from polyhead.models.registry import TaskName
from polyhead.models.text_classifier import Classifier

Axes = tuple[int | str, ...]  # sizes, or names of those that vary
Ports = dict[str, Axes]  # inputs or outputs by name
ENCODER, DECODER, MODEL, CACHE = "encoder_model", "decoder_model_merged", "model", "past_key_values"
BATCH, LENGTH = "batch_size", "sequence_length"  # transformers.js looks for the first name
PAST, TOTAL = "past_sequence_length", "total_sequence_length"
SOURCE, PAST_SOURCE = "encoder_sequence_length", "past_encoder_sequence_length"
# Lengths of the example that is traced. They and all that is derived from them are at least 2: the
# exporter would write lengths of 0 and 1 into the graph as constants.
EXAMPLE = {BATCH: 2, LENGTH: 3, PAST: 5, TOTAL: 8, SOURCE: 7, PAST_SOURCE: 4}
FLOATS = ("encoder_hidden_states", "pixel_values", CACHE)
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Graph:
    """A module, the name of its file, its inputs, and its outputs with their first axes."""

    file: str
    module: nn.Module
    inputs: Ports
    outputs: Ports

    def example(self) -> Inputs:
        """Return inputs whose lengths stand for any length."""
        return tuple(
            torch.ones(
                [EXAMPLE[axis] if isinstance(axis, str) else axis for axis in axes],
                dtype=torch.float32 if name.startswith(FLOATS) else torch.int64,
            )
            for name, axes in self.inputs.items()
        )


class GrowingCache(BlockCache):
    """Cache without buffers: new keys and values are concatenated."""

    def extend(self, new: KV) -> KV:
        """Append `new` and return all keys and values."""
        assert self.past is not None
        self.past = concatenate(self.past, new)
        return self.past


def concatenate(past: KV, new: KV) -> KV:
    """Return the keys and values of both."""
    return KV(*(torch.cat(pair, dim=2) for pair in zip(past, new, strict=True)))


class GraphModule(nn.Module):
    """A model, called with the inputs of a graph."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


class SourceEncoder(GraphModule):
    """Encoder of a translator."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.model.embed_source(input_ids)
        return self.model.encoder(x, Mask(keys=attention_mask.bool()))


class TargetDecoder(GraphModule):
    """Decoder of a translator; its cache has four tensors per layer."""

    def forward(self, input_ids: Tensor, mask: Tensor, states: Tensor, *cache: Tensor) -> Inputs:
        model, past = self.model, cache[0].size(2)
        slots = []
        for layer, block in enumerate(model.decoder.blocks):
            keys, values, *source = cache[4 * layer : 4 * layer + 4]
            rest = block.cross_attention.project(states[:, source[0].size(2) :])
            memory = concatenate(KV(*source), rest)
            slots.append(GrowingCache(past=KV(keys, values), memory=memory))
        total = past + input_ids.size(1)
        places = torch.arange(past, total)
        seen = (torch.arange(total) <= places[:, None]).expand(len(input_ids), -1, -1)
        x = model.decoder(
            model.embed_target(input_ids, past),
            Mask(pairs=seen), Memory(states, Mask(keys=mask.bool())), slots, places,
        )  # fmt: skip
        present = [t for slot in slots for pair in (slot.past, slot.memory) for t in pair or ()]
        return model.to_logits(x), *present


class CachedLanguageModel(GraphModule):
    """Language model; padding may be on the left if `position_ids` do not count it."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, *cache: Tensor
    ) -> Inputs:
        model, past = self.model, cache[0].size(2)
        slots = [GrowingCache(past=KV(*pair)) for pair in zip(cache[::2], cache[1::2], strict=True)]
        total = past + input_ids.size(1)
        places = torch.arange(past, total)
        key, query = torch.arange(total), places[:, None]
        # padding sees itself: a softmax over nothing is not a number
        seen = (key < query) & attention_mask.bool()[:, None] | (key == query)
        codes = model.embed.positions(total)[position_ids]
        x = model.embed.scale * model.embed.tokens(input_ids) + codes
        x = model.stack(x, Mask(pairs=seen), cache=slots, places=places)
        return model.to_logits(x), *(t for slot in slots for t in slot.past or ())


class TextReader(GraphModule):
    """Encoder of a text with its head: BERT, the discriminator of ELECTRA or a classifier."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        model, real = self.model, attention_mask.bool()
        encoder = model.discriminator if isinstance(model, Electra) else model.encoder
        x = encoder.widen(encoder.embed(input_ids, token_type_ids))
        x = encoder.stack(x, Mask(keys=real))
        if isinstance(model, Electra):
            return model.spot(x)[..., 0]
        if not isinstance(model, Classifier):
            return model.to_logits(model.transform(x))
        shares = real / real.sum(dim=1, keepdim=True)
        mean = (shares.to(x.dtype).unsqueeze(1) @ x).squeeze(1)
        return model.to_logits(model.pool(mean if model.pooling == "mean" else x[:, 0]))


class PixelReader(GraphModule):
    """Image classifier, for images of the model's own size."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        states = self.model.hidden(pixel_values)
        first = self.model.n_extra
        pooled = states[:, :first].flatten(1) if first else states.mean(1)
        return self.model.to_logits(pooled)


def make_graphs(task: TaskName, model: Any, config: Any) -> list[Graph]:
    """Return the graphs of a model in evaluation mode."""
    text, source = (BATCH, LENGTH), (BATCH, SOURCE)
    if task == "translation":
        states = (*source, config.stack.d_model)
        lengths = {".decoder": (PAST, TOTAL), ".encoder": (PAST_SOURCE, SOURCE)}
        past, present = _cache(config.stack, len(model.decoder.blocks), lengths)
        inputs = {
            "input_ids": text, "encoder_attention_mask": source, "encoder_hidden_states": states,
        }  # fmt: skip
        return [
            Graph(
                ENCODER, SourceEncoder(model), {"input_ids": source, "attention_mask": source},
                {"last_hidden_state": states},
            ),
            Graph(DECODER, TargetDecoder(model), inputs | past, {"logits": text} | present),
        ]  # fmt: skip
    if task == "language_modeling":
        past, present = _cache(config.stack, config.stack.n_layers, {"": (PAST, TOTAL)})
        inputs = {"input_ids": text, "attention_mask": (BATCH, TOTAL), "position_ids": text}
        return [Graph(MODEL, CachedLanguageModel(model), inputs | past, {"logits": text} | present)]
    if task == "image_classification":
        inputs = {"pixel_values": (BATCH, config.channels, config.height, config.width)}
        return [Graph(MODEL, PixelReader(model), inputs, {"logits": (BATCH,)})]
    inputs = {"input_ids": text, "attention_mask": text}
    if (config.encoder if task == "text_classification" else config).segments > 1:
        inputs["token_type_ids"] = text
    axes = (BATCH,) if task == "text_classification" else text
    return [Graph(MODEL, TextReader(model), inputs, {"logits": axes})]


def _cache(
    stack: StackConfig, n_layers: int, parts: dict[str, tuple[str, str]]
) -> tuple[Ports, Ports]:
    """Return the caches that a decoder reads and writes, given the axes of their lengths."""
    past: Ports = {}
    present: Ports = {}
    for layer in range(n_layers):
        for part, (before, after) in parts.items():
            for kind, width in (("key", stack.d_key), ("value", stack.d_value)):
                name = f"{layer}{part}.{kind}"
                past[f"{CACHE}.{name}"] = (BATCH, stack.n_heads, before, width)
                present[f"present.{name}"] = (BATCH, stack.n_heads, after, width)
    return past, present
