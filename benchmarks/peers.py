"""The Transformer in other libraries with our weights, to compare speed.

    to_marian   transformers' MarianMTModel
    to_torch    torch.nn.Transformer, with an embedding, sinusoids and an output layer around it

Same sizes, same weights, same logits (tests/benchmarks/test_speed.py): what differs is how
it is computed. Both are given what makes them fastest; where that departs from how their users
build them, it says so below.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.errors import ConfigError, MissingError
from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.transformer_stack import TransformerBlock
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.special_tokens import BOS, EOS, PAD


def to_marian(model: Transformer, config: TransformerConfig, *, attention: str = "sdpa") -> Any:
    """MarianMTModel of transformers with the weights of `model`.

    Marian's positions have the sines in one half and the cosines in the other; ours alternate. The
    table is a part of its weights, so it gets ours.
    """
    refuse_other_than_marian(config)
    try:
        from transformers import MarianConfig, MarianMTModel
        from transformers.utils import logging
    except ImportError:
        raise MissingError(
            "transformers is not installed; add it with: pip install 'polyhead[hf]'"
        ) from None
    logging.set_verbosity_error()
    stack = config.stack
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=config.target_vocab,
            max_position_embeddings=config.max_length,
            d_model=stack.d_model,
            encoder_layers=stack.n_layers,
            decoder_layers=depth_of_decoder(config),
            encoder_attention_heads=stack.n_heads,
            decoder_attention_heads=stack.n_heads,
            encoder_ffn_dim=stack.d_ff,
            decoder_ffn_dim=stack.d_ff,
            dropout=stack.dropout,
            attention_dropout=stack.attention_dropout,
            activation_dropout=stack.activation_dropout,
            activation_function=stack.activation,
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            attn_implementation=attention,  # type: ignore[call-arg]
        )
    )
    _fill_marian(marian, model)
    return marian.train(model.training)


def refuse_other_than_marian(config: TransformerConfig) -> None:
    """Marian is the Transformer of 2017 with one embedding for everything."""
    if config.stack.norm != "post":
        raise ConfigError(
            f"this model has model.stack.norm = {config.stack.norm!r}, but transformers' Marian is "
            'post-norm; choose a model trained with model.stack.norm="post"'
        )
    if config.tie != "all":
        raise ConfigError(
            f"this model has model.tie = {config.tie!r}, but Marian here shares one embedding; "
            'choose a model trained with model.tie="all"'
        )


@torch.no_grad()
def _fill_marian(marian: Any, model: Transformer) -> None:
    inner = marian.model
    inner.shared.weight.copy_(model.embed_target.tokens.weight)
    sides = (
        (inner.encoder, model.embed_source, model.encoder),
        (inner.decoder, model.embed_target, model.decoder),
    )
    for side, embedding, stack in sides:
        table = side.embed_positions.weight
        table.copy_(embedding.positions(len(table)))
        for layer, block in zip(side.layers, stack.blocks, strict=True):
            assert isinstance(block, TransformerBlock)
            _fill_marian_layer(layer, block)


def _fill_marian_layer(layer: Any, block: TransformerBlock) -> None:
    _fill_marian_attention(layer.self_attn, block.self_attention)
    _copy(block.self_residual.norm, layer.self_attn_layer_norm)
    if block.cross_attention is not None and block.cross_residual is not None:
        _fill_marian_attention(layer.encoder_attn, block.cross_attention)
        _copy(block.cross_residual.norm, layer.encoder_attn_layer_norm)
    _copy(block.feed_forward.w_1, layer.fc1)
    _copy(block.feed_forward.w_2, layer.fc2)
    _copy(block.feed_residual.norm, layer.final_layer_norm)


def _fill_marian_attention(theirs: Any, ours: MultiHeadAttention) -> None:
    _copy(ours.w_q, theirs.q_proj)
    _copy(ours.w_k, theirs.k_proj)
    _copy(ours.w_v, theirs.v_proj)
    _copy(ours.w_o, theirs.out_proj)


@torch.no_grad()
def forbid_specials(marian: Any) -> None:
    """Never write PAD and BOS, as our search does not.

    By the bias that Marian adds to its logits in any case: this costs it nothing, where the option
    `suppress_tokens` of `generate` goes over all logits once more at every step. (The probability
    of the two is then shared out among the others. In a model that has learned anything this is too
    little to change the order of hypotheses; in one that has not, use `exact` below.)
    """
    marian.final_logits_bias[:, [PAD, BOS]] = -math.inf


@torch.inference_mode()
def generate(
    marian: Any, source: Int[Tensor, "batch source"], *, beam: int, limit: int, exact: bool = False
) -> Int[Tensor, "batch length"]:
    """Return Marian's output after BOS, at most `limit` tokens; a beam of 1 is greedy search.

    Without a length penalty, because Marian's is not ours; a search continues until no live
    hypothesis can enter the pool (early_stopping=False), as ours does. `exact` forbids PAD and BOS
    in the way that leaves all other probabilities alone, and takes longer.
    """
    from transformers import GenerationConfig  # to_marian has seen to it that it is there

    options = GenerationConfig(
        max_new_tokens=limit,
        num_beams=beam,
        do_sample=False,
        length_penalty=0.0 if beam > 1 else 1.0,
        early_stopping=False,
        use_cache=True,
        suppress_tokens=[PAD, BOS] if exact else None,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )
    real = (source != PAD).long()
    return marian.generate(input_ids=source, attention_mask=real, generation_config=options)[:, 1:]


class TorchTransformer(nn.Module):
    """torch.nn.Transformer as a translator: one embedding for both sides and the output layer.

    It is made lighter than its users would have it, unless `as_built`: dropout only where the paper
    and ours have it (nn.Transformer also drops attention weights and activations), no second norm
    after the last post-norm layer, no padding mask for the target (hiding the future hides it) and
    none for a source without padding.
    """

    positions: Tensor

    def __init__(self, config: TransformerConfig, *, as_built: bool) -> None:
        super().__init__()
        stack = config.stack
        self.as_built = as_built
        self.embedding = nn.Embedding(config.target_vocab, stack.d_model)
        self.scale = math.sqrt(stack.d_model)
        self.dropout = nn.Dropout(stack.dropout)
        self.transformer = nn.Transformer(
            d_model=stack.d_model,
            nhead=stack.n_heads,
            num_encoder_layers=stack.n_layers,
            num_decoder_layers=depth_of_decoder(config),
            dim_feedforward=stack.d_ff,
            dropout=stack.dropout,
            activation=stack.activation,
            batch_first=True,
            norm_first=stack.norm == "pre",
        )
        if not as_built:
            _lighten(self.transformer, config)
        self.register_buffer("positions", torch.zeros(config.max_length, stack.d_model))

    def hidden(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_model"]:
        """Return the input of the output layer."""
        length = target.size(1)
        padding: Tensor | None = source == PAD
        if not self.as_built and not bool((source == PAD).any()):
            padding = None
        return self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_key_padding_mask=_additive(target == PAD) if self.as_built else None,
        )

    def embed(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        """dropout(√d_model · E[token] + PE[position])."""
        return self.dropout(self.scale * self.embedding(ids) + self.positions[: ids.size(1)])

    def forward(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        return nn.functional.linear(self.hidden(source, target), self.embedding.weight)


def to_torch(
    model: Transformer, config: TransformerConfig, *, as_built: bool = False
) -> TorchTransformer:
    """torch.nn.Transformer with the weights of `model`."""
    if config.tie != "all":
        raise ConfigError(f"this model has model.tie = {config.tie!r}; here it must be 'all'")
    theirs = TorchTransformer(config, as_built=as_built)
    with torch.no_grad():
        theirs.embedding.weight.copy_(model.embed_target.tokens.weight)
        theirs.positions.copy_(model.embed_target.positions(config.max_length))
    stacks = (
        (theirs.transformer.encoder, model.encoder),
        (theirs.transformer.decoder, model.decoder),
    )
    for side, stack in stacks:
        for layer, block in zip(side.layers, stack.blocks, strict=True):
            assert isinstance(block, TransformerBlock)
            _fill_torch_layer(layer, block)
        if config.stack.norm == "pre":
            _copy(stack.norm, side.norm)
    return theirs.train(model.training)


def _fill_torch_layer(layer: Any, block: TransformerBlock) -> None:
    norms = [block.self_residual.norm, block.feed_residual.norm]
    _fill_torch_attention(layer.self_attn, block.self_attention)
    if block.cross_attention is not None and block.cross_residual is not None:
        _fill_torch_attention(layer.multihead_attn, block.cross_attention)
        norms.insert(1, block.cross_residual.norm)
    for number, norm in enumerate(norms, start=1):
        _copy(norm, getattr(layer, f"norm{number}"))
    _copy(block.feed_forward.w_1, layer.linear1)
    _copy(block.feed_forward.w_2, layer.linear2)


@torch.no_grad()
def _fill_torch_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    inputs = (ours.w_q, ours.w_k, ours.w_v)
    theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in inputs]))
    theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in inputs]))
    _copy(ours.w_o, theirs.out_proj)


def _lighten(transformer: nn.Transformer, config: TransformerConfig) -> None:
    """Dropout only where we have it, and no norm that we do not have."""
    stack = config.stack
    for side in (transformer.encoder, transformer.decoder):
        for layer in side.layers:
            layer.self_attn.dropout = stack.attention_dropout
            layer.dropout.p = stack.activation_dropout
        if stack.norm == "post":
            side.norm = None
    for layer in transformer.decoder.layers:
        layer.multihead_attn.dropout = stack.attention_dropout


def _additive(hidden: Tensor) -> Tensor:
    """Return a mask in the dtype of the causal one; torch complains about a mixture."""
    return torch.zeros(hidden.shape).masked_fill(hidden, -math.inf)


def _copy(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def depth_of_decoder(config: TransformerConfig) -> int:
    """As many layers as the encoder unless the configuration says otherwise."""
    return config.stack.n_layers if config.decoder_layers is None else config.decoder_layers
