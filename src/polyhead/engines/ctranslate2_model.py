"""Conversion of our model directories to models of CTranslate2, without torch.

    config.json, model.safetensors → ctranslate2.specs → model.bin, config.json, vocabularies

Translators become a `Translator` of CTranslate2, GPTs a `Generator`, BERT, ELECTRA's discriminator
and classifiers an `Encoder`. The layers are in ctranslate2_layers.py.
"""

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy

from polyhead.checkpoint.arrays import ArrayFile, open_tensors
from polyhead.checkpoint.model_files import WEIGHTS, read_config
from polyhead.engines.ctranslate2_layers import Names, SpecFiller, choice, whole
from polyhead.engines.obstacles import obstacle
from polyhead.errors import CheckpointError, ConfigError

COMPUTE_TYPES = (
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16",
    "int8_bfloat16",
)  # fmt: skip


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
