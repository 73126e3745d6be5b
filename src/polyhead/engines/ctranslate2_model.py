"""Conversion of our model directories to models of CTranslate2, without torch.

    config.json, model.safetensors → ctranslate2.specs → model.bin, config.json, vocabularies

Translators become a `Translator` of CTranslate2, GPTs a `Generator`, BERT, ELECTRA's discriminator
and classifiers an `Encoder`. Their layers differ from a copy of our weights in:

    W_q, W_k, W_v     below each other; heads as wide as the wider of d_k and d_v, filled with zeros
    score             dot: a scale of 1; general: qᵀ W k is (Wᵀ q)ᵀ k, so W goes into W_q
    rotary            ours turns by minus the angle: features 2k and 2k+1 of queries and keys swap
    positions         a table, also of sinusoids (CTranslate2 orders its own differently) and zeros
    PAD, BOS          never written: their logits get a bias of -1e4

Configuration and shapes are not trusted: a size is used after a tensor of that size was found.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple

import numpy

from polyhead.checkpoint.arrays import Array, ArrayFile, open_tensors
from polyhead.checkpoint.model_files import WEIGHTS, read_config
from polyhead.engines.obstacles import (
    ACTIVATIONS,
    MAX_POSITIONS,
    POSITION_CODES,
    SCORES,
    obstacle,
)
from polyhead.errors import CheckpointError, ConfigError, MissingError, install_command
from polyhead.special_tokens import BOS, EOS, PAD, UNK

COMPUTE_TYPES = (
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16",
    "int8_bfloat16",
)  # fmt: skip
POSITIONS = 1024  # rows of a computed table, unless the configuration has more
MAX_HEADS = 2**15 - 1  # an int16 there
NEVER = -1e4  # finite in float16 too
Names = Sequence[str]


def load_specs() -> Any:
    """Import `ctranslate2.specs`, which would load torch, with torch hidden from this thread."""
    thread = get_ident()

    class TorchBlocker:
        """A finder of modules that refuses torch."""

        @staticmethod
        def find_spec(name: str, _path: Any = None, _target: Any = None) -> None:
            if name == "torch" and get_ident() == thread:
                raise ModuleNotFoundError("torch is not needed here", name=name)

    sys.meta_path.insert(0, TorchBlocker)
    try:
        return import_module("ctranslate2.specs")
    except ImportError:
        raise MissingError(
            f"CTranslate2 is not installed; run: {install_command('fast')}", "missing_package"
        ) from None
    finally:
        sys.meta_path.remove(TorchBlocker)


def refuse(name: str, value: Any, expected: str) -> CheckpointError:
    """Return the error for a value of config.json."""
    return CheckpointError(
        f"config.json: {name} = {str(value)[:80]!r}: expected {expected}", "bad_config"
    )


def whole(values: Mapping[str, Any], name: str, most: int = 2**31) -> int:
    """Return a whole number of a configuration."""
    value = values.get(name)
    if type(value) is not int or not 0 < value <= most:
        raise refuse(name, value, f"a whole number from 1 to {most}")
    return value


def choice(values: Mapping[str, Any], name: str, choices: Sequence[str]) -> str:
    """Return one of the values that a configuration may have."""
    value = values.get(name)
    if not isinstance(value, str) or value not in choices:
        raise refuse(name, value, f"one of {', '.join(choices)}")
    return value


class StackSizes(NamedTuple):
    """Checked sizes of a stack; `d_key` and `d_value` are widths of one head."""

    d_model: int
    n_heads: int
    d_ff: int
    d_key: int
    d_value: int
    norm: str
    norm_eps: float
    activation: str
    score: str


def read_sizes(stack: Mapping[str, Any]) -> StackSizes:
    """Read the sizes of a stack; CheckpointError if one is impossible."""
    d_model, n_heads = whole(stack, "d_model"), whole(stack, "n_heads", MAX_HEADS)
    width, eps = d_model // n_heads, stack.get("norm_eps")
    if type(eps) is not float or not 0 <= eps <= 1:
        raise refuse("norm_eps", eps, "a number from 0 to 1")
    d_key, d_value = (width if stack.get(n) is None else whole(stack, n) for n in ("d_k", "d_v"))
    return StackSizes(
        d_model, n_heads, whole(stack, "d_ff"), d_key, d_value,
        choice(stack, "norm", ("pre", "post")), eps,
        choice(stack, "activation", tuple(ACTIVATIONS)),
        choice(stack, "score", SCORES),
    )  # fmt: skip


class SpecFiller:
    """Copies arrays of a file into layers of `ctranslate2.specs`."""

    def __init__(
        self,
        arrays: ArrayFile,
        model: Mapping[str, Any],
        about: Mapping[str, Any],
        masks_specials: bool,
    ) -> None:
        self.arrays, self.model, self.specs = arrays, model, load_specs()
        self.masks_specials = masks_specials
        part = model.get("encoder", model)
        self.part: Mapping[str, Any] = part
        self.sizes = read_sizes(part["stack"])
        self.positions = choice(part, "positions", POSITION_CODES)
        decode = (about.get("run") or {}).get("decode", {})  # read_config found tables there
        limits = [n for n in (part.get("max_length"), decode.get("max_length")) if type(n) is int]
        self.n_positions = min(max(POSITIONS, *limits, 0), MAX_POSITIONS)  # of computed tables

    def stack_spec(self, kind: Any, depth: str, options: Mapping[str, Any]) -> Any:
        """Return an empty encoder or decoder; `depth` is an option before the stack's n_layers."""
        sizes, n_layers = self.sizes, self.model.get(depth) or self.part["stack"].get("n_layers")
        width = max(sizes.d_key, sizes.d_value)
        return kind(
            whole({depth: n_layers}, depth, len(self.arrays.shapes)),
            sizes.n_heads,
            pre_norm=sizes.norm == "pre",
            activation=self.specs.Activation[ACTIVATIONS[sizes.activation]],
            head_dim=width if width * sizes.n_heads != sizes.d_model else None,
            rotary_dim=sizes.d_key if self.positions == "rotary" else None,
            **options,
        )

    def linear(self, spec: Any, name: str, n_out: int, n_in: int) -> None:
        """Fill a linear layer."""
        spec.weight = self.arrays.read(f"{name}.weight", n_out, n_in)
        spec.bias = self.arrays.read(f"{name}.bias", n_out)

    def norm(self, spec: Any, name: str) -> None:
        """Fill a layer norm."""
        spec.gamma = self.arrays.read(f"{name}.weight", self.sizes.d_model)
        spec.beta = self.arrays.read(f"{name}.bias", self.sizes.d_model)

    def layers(self, spec: Any, name: str) -> None:
        """Fill the blocks of an encoder or decoder, and its last norm."""
        d_model, d_ff = self.sizes.d_model, self.sizes.d_ff
        for number, layer in enumerate(spec.layer):
            block = f"{name}.blocks.{number}"
            self.attention(
                layer.self_attention, f"{block}.self_attention", rotary=self.positions == "rotary"
            )
            self.norm(layer.self_attention.layer_norm, f"{block}.self_residual.norm")
            if hasattr(layer, "attention"):
                self.attention(layer.attention, f"{block}.cross_attention", rotary=False)
                self.norm(layer.attention.layer_norm, f"{block}.cross_residual.norm")
            self.linear(layer.ffn.linear_0, f"{block}.feed_forward.w_1", d_ff, d_model)
            self.linear(layer.ffn.linear_1, f"{block}.feed_forward.w_2", d_model, d_ff)
            self.norm(layer.ffn.layer_norm, f"{block}.feed_residual.norm")
        if self.sizes.norm == "pre":
            self.norm(spec.layer_norm, f"{name}.norm")

    def attention(self, spec: Any, name: str, *, rotary: bool) -> None:
        """Fill self-attention, of two linear layers there, or cross-attention, of three."""
        sizes, n_heads = self.sizes, self.sizes.n_heads
        d_key, d_value, d_model = sizes.d_key, sizes.d_value, sizes.d_model
        q, k, v = (
            self._heads(f"{name}.{part}", width)
            for part, width in (("w_q", d_key), ("w_k", d_key), ("w_v", d_value))
        )
        if sizes.score == "general":
            w = self.arrays.read(f"{name}.kernel.score.w", n_heads, d_key, d_key)
            q = numpy.einsum("hij,hid->hjd", w, q)
        if rotary:
            q, k = (
                x.reshape(n_heads, -1, 2, d_model + 1)[:, :, ::-1].reshape(x.shape) for x in (q, k)
            )
        width = max(d_key, d_value)
        rows = [_widen(x, 1, width).reshape(n_heads * width, d_model + 1) for x in (q, k, v)]
        groups = [rows] if len(spec.linear) == 2 else [rows[:1], rows[1:]]
        for linear, group in zip(spec.linear, groups, strict=False):
            joined = numpy.concatenate(group)
            linear.weight, linear.bias = joined[:, :-1].copy(), joined[:, -1].copy()
        out = self.arrays.read(f"{name}.w_o.weight", d_model, n_heads * d_value)
        out = _widen(out.reshape(d_model, n_heads, d_value), 2, width)
        spec.linear[-1].weight = out.reshape(d_model, n_heads * width)
        spec.linear[-1].bias = self.arrays.read(f"{name}.w_o.bias", d_model)
        scaled = sizes.score == "scaled_dot"
        if not scaled or width != d_key:
            spec.queries_scale = 1 / math.sqrt(d_key) if scaled else 1.0

    def _heads(self, name: str, width: int) -> Array:
        """Return weight and bias of a projection as (head, width, d_model + 1)."""
        n_heads, d_model = self.sizes.n_heads, self.sizes.d_model
        weight = self.arrays.read(f"{name}.weight", n_heads * width, d_model)
        bias = self.arrays.read(f"{name}.bias", n_heads * width)
        return numpy.hstack([weight, bias[:, None]]).reshape(n_heads, width, d_model + 1)

    def embed(
        self, spec: Any, tokens: Any, name: str, vocab: int, *, shared: Array | None = None
    ) -> Array:
        """Fill the embedding of an encoder or decoder and its positions; return the embedding."""
        d_model = self.sizes.d_model
        table = shared
        if table is None:
            table = self.arrays.read(f"{name}.tokens.weight", vocab, d_model)
        elif len(table) != vocab:
            raise refuse("target_vocab", vocab, f"{len(table)}, as source_vocab")
        tokens.weight = table
        if self.positions != "rotary":
            spec.position_encodings.encodings = self._positions(f"{name}.positions")
        return table

    def _positions(self, name: str) -> Array:
        """Return the table of positions that are added to embeddings."""
        d_model, n = self.sizes.d_model, self.n_positions
        if self.positions == "none":
            return numpy.zeros((n, d_model), numpy.float32)
        if self.positions == "sinusoidal":
            # As our layers add them, in single precision: sin and cos of w_k t, alternating.
            rates = -numpy.arange(0, d_model, 2).astype(numpy.float32) / numpy.float32(d_model)
            angles = numpy.arange(n, dtype=numpy.float32)[:, None] * numpy.float32(10000) ** rates
            return numpy.stack([numpy.sin(angles), numpy.cos(angles)], axis=-1).reshape(n, d_model)
        shapes = self.arrays.shapes
        if self.positions == "learned":
            n = shapes.get(f"{name}.table.weight", (0,))[0]
            self.n_positions = n
            return self.arrays.read(f"{name}.table.weight", n, d_model)
        axes = [
            self.arrays.read(key, *shapes[key])
            for key in sorted(shapes)
            if key.startswith(f"{name}.axes.")
        ]
        self.n_positions = n = min(n, math.prod(len(axis) for axis in axes))
        places = numpy.unravel_index(numpy.arange(n), [len(axis) for axis in axes])
        table = numpy.hstack([axis[place] for axis, place in zip(axes, places, strict=True)])
        if table.shape[1] != d_model:
            raise refuse("d_model", d_model, f"{table.shape[1]}, the width of its positions")
        return table

    def output(self, spec: Any, weight: Array, vocab: int, *, bias: bool) -> None:
        """Fill the output layer; PAD and BOS become impossible if so wanted."""
        spec.weight = weight
        values = numpy.zeros(vocab, numpy.float32)
        if bias:
            values[:] = self.arrays.read("to_logits.bias", vocab)
        if self.masks_specials:
            values[[PAD, BOS]] = NEVER
        spec.bias = values

    def name_tokens(self, config: Any, names: Names | None, vocab: int) -> list[str]:
        """Return the tokens by id; the configuration gets the names of the special ones."""
        tokens = [str(id) for id in range(vocab)] if names is None else list(names)
        if len(tokens) != vocab or len(set(tokens)) != vocab or vocab <= UNK:
            raise CheckpointError(
                f"{len(set(tokens))} different names of tokens; expected {vocab}, more than {UNK}",
                "vocabulary_size",
            )
        config.bos_token, config.eos_token, config.unk_token = tokens[BOS], tokens[EOS], tokens[UNK]
        return tokens


def _widen(x: Array, axis: int, width: int) -> Array:
    """Append zeros along an axis."""
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, width - x.shape[axis])
    return numpy.pad(x, padding)


def convert(
    directory: Path,
    output: Path,
    compute_type: str = "float32",
    names: tuple[Names, Names] | None = None,
    *,
    masks_specials: bool = True,
) -> None:
    """Write a model of CTranslate2 into an existing directory.

    directory: a model directory whose manifest was verified.
    compute_type: type of the weights, such as "float32" or "int8", by CTranslate2's names.
    names: tokens of source and target by id; unless given, ids written as decimal numbers.
    masks_specials: make PAD and BOS impossible in the output layer; without it, the
        log-probabilities are ours, and the caller of the search must suppress these tokens.
    """
    if compute_type not in COMPUTE_TYPES:
        raise ConfigError(
            f"compute type {compute_type!r}: expected one of {', '.join(COMPUTE_TYPES)}",
            "invalid_option",
        )
    values = read_config(directory)
    family, model = str(values.get("family")), values["model"]
    reason = obstacle(family, model)
    if reason is not None:
        raise CheckpointError(
            f"{directory} cannot be converted to CTranslate2: {reason}", "not_convertible"
        )
    with open_tensors(directory / WEIGHTS, "np") as file:
        filler = SpecFiller(
            ArrayFile(directory / WEIGHTS, file), model, values["about"], masks_specials
        )
        spec = BUILDERS[family](filler, names)
    for name in filler.arrays.unread:
        if ".blocks." in name and not name.startswith("generator."):
            raise CheckpointError(f"{filler.arrays.path} has the unknown {name}", "wrong_tensors")
    spec.config.layer_norm_epsilon = filler.sizes.norm_eps
    spec.config.add_attribute("max_positions", filler.n_positions)
    spec.validate()
    halves = compute_type.endswith("bfloat16")  # CTranslate2 would need torch for them
    spec.optimize(compute_type.replace("bfloat16", "float32") if halves else compute_type)
    if halves:
        _to_bfloat16(spec)
    spec.save(str(output))


def _to_bfloat16(spec: Any) -> None:
    """Round all remaining float32 arrays but the scales of integers to bfloat16."""
    module = import_module("ctranslate2.specs.model_spec")
    halves = type("Halves", (module.NumpyVariable,), {"dtype": "bfloat16"})

    def round_variable(layer: Any, name: str, value: Any) -> None:
        leaf = name.rpartition("/")[2]
        stored = isinstance(value, module.NumpyVariable) and not value.is_scalar()
        if stored and value.dtype == "float32" and not leaf.endswith("_scale"):
            bits = value.numpy().view(numpy.uint32)
            rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            setattr(layer, leaf, halves(rounded.astype(numpy.uint16)))

    module.visit_spec(spec, round_variable)


def _translator(filler: SpecFiller, names: tuple[Names, Names] | None) -> Any:
    """Return the specification of an encoder and a decoder."""
    specs, model, sizes = filler.specs, filler.model, filler.sizes
    tie = choice(model, "tie", ("none", "target", "all"))
    n_source, n_target = whole(model, "source_vocab"), whole(model, "target_vocab")
    encoder = filler.stack_spec(specs.TransformerEncoderSpec, "n_layers", {})
    decoder = filler.stack_spec(specs.TransformerDecoderSpec, "decoder_layers", {})
    spec = specs.TransformerSpec(encoder, decoder)
    source = filler.embed(encoder, encoder.embeddings[0], "embed_source", n_source)
    target = filler.embed(
        decoder, decoder.embeddings, "embed_target", n_target,
        shared=source if tie == "all" else None,
    )  # fmt: skip
    if tie == "none":
        target = filler.arrays.read("to_logits.weight", n_target, sizes.d_model)
    filler.output(decoder.projection, target, n_target, bias=bool(model.get("output_bias")))
    for part, name in ((encoder, "encoder"), (decoder, "decoder")):
        part.scale_embeddings = math.sqrt(sizes.d_model)
        filler.layers(part, name)
    sides = names or (None, None)
    spec.register_source_vocabulary(filler.name_tokens(spec.config, sides[0], n_source))
    spec.register_target_vocabulary(filler.name_tokens(spec.config, sides[1], n_target))
    spec.config.decoder_start_token, spec.config.add_source_eos = spec.config.bos_token, True
    return spec


def _generator(filler: SpecFiller, names: tuple[Names, Names] | None) -> Any:
    """Return the specification of a decoder without cross-attention."""
    specs, model, sizes = filler.specs, filler.model, filler.sizes
    vocab = whole(model, "vocab")
    options = {"with_encoder_attention": False}
    decoder = filler.stack_spec(specs.TransformerDecoderSpec, "n_layers", options)
    spec = specs.TransformerDecoderModelSpec(decoder)
    table = filler.embed(decoder, decoder.embeddings, "embed", vocab)
    if not model.get("tie"):
        table = filler.arrays.read("to_logits.weight", vocab, sizes.d_model)
    filler.output(decoder.projection, table, vocab, bias=False)
    scaled = filler.positions == "sinusoidal"  # as in our GPT
    decoder.scale_embeddings = math.sqrt(sizes.d_model) if scaled else False
    filler.layers(decoder, "stack")
    spec.register_vocabulary(filler.name_tokens(spec.config, names and names[0], vocab))
    return spec


def _encoder(filler: SpecFiller, names: tuple[Names, Names] | None) -> Any:
    """Return the specification of an encoder; a classifier's first layer is the pooling layer."""
    specs, part, sizes = filler.specs, filler.part, filler.sizes
    vocab, d_model = whole(part, "vocab"), sizes.d_model
    sharing = part.get("sharing")  # of ELECTRA: shared tensors have the generator's names
    name = {"None": "encoder", "all": "generator.encoder"}.get(str(sharing), "discriminator")
    embed = "generator.encoder.embed" if sharing in ("embeddings", "all") else f"{name}.embed"
    options = {
        "layernorm_embedding": True, "num_source_embeddings": 2,
        "embeddings_merge": specs.EmbeddingsMerge.ADD,
    }  # fmt: skip
    encoder = filler.stack_spec(specs.TransformerEncoderSpec, "n_layers", options)
    pooled = filler.model.get("pooling") == "first"
    activation = "Tanh" if filler.model.get("head") == "bert" else "GELU"
    spec = specs.TransformerEncoderModelSpec(encoder, pooled, specs.Activation[activation])
    filler.embed(encoder, encoder.embeddings[0], f"{embed}.embed", vocab)
    segments = filler.arrays.read(f"{embed}.segments.weight", whole(part, "segments"), d_model)
    encoder.embeddings[1].weight = segments
    encoder.scale_embeddings = False
    filler.norm(encoder.layernorm_embedding, f"{embed}.norm")
    filler.layers(encoder, f"{name}.stack")
    if pooled:
        filler.linear(spec.pooler_dense, "pool.1", d_model, d_model)
    spec.register_vocabulary(filler.name_tokens(spec.config, names and names[0], vocab))
    return spec


BUILDERS: dict[str, Callable[[SpecFiller, tuple[Names, Names] | None], Any]] = {
    "transformer": _translator,
    "gpt": _generator,
    "bert": _encoder,
    "electra": _encoder,
    "classifier": _encoder,
}
