"""BERT in Hugging Face's names and back: the encoder, its head for blanks, its classifier.

ELECTRA's encoder has the same names; `electra.py` uses this table too.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from polyhead.convert.weight_names import (
    Weights,
    renamed,
    require,
    require_classic,
    stack_from_hf,
    stack_to_hf,
    swapped,
    whole,
    without_prefix,
)
from polyhead.errors import CheckpointError
from polyhead.models.bert import BERTConfig

STACK = {  # ViT's too
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
ENCODER = {
    "embed.embed.tokens": "embeddings.word_embeddings",
    "embed.embed.positions.table": "embeddings.position_embeddings",
    "embed.segments": "embeddings.token_type_embeddings",
    "embed.norm": "embeddings.LayerNorm",
    "widen": "embeddings_project",
    "stack.blocks.{}.self_attention.w_q": "encoder.layer.{}.attention.self.query",
    "stack.blocks.{}.self_attention.w_k": "encoder.layer.{}.attention.self.key",
    "stack.blocks.{}.self_attention.w_v": "encoder.layer.{}.attention.self.value",
    "stack.blocks.{}.self_attention.w_o": "encoder.layer.{}.attention.output.dense",
    "stack.blocks.{}.self_residual.norm": "encoder.layer.{}.attention.output.LayerNorm",
    "stack.blocks.{}.feed_forward.w_1": "encoder.layer.{}.intermediate.dense",
    "stack.blocks.{}.feed_forward.w_2": "encoder.layer.{}.output.dense",
    "stack.blocks.{}.feed_residual.norm": "encoder.layer.{}.output.LayerNorm",
}
BLANKS = {f"encoder.{ours}": f"bert.{theirs}" for ours, theirs in ENCODER.items()} | {
    "transform.0": "cls.predictions.transform.dense",
    "transform.2": "cls.predictions.transform.LayerNorm",
    "to_logits": "cls.predictions.decoder",
}
CLASSIFIER = {f"encoder.{ours}": f"bert.{theirs}" for ours, theirs in ENCODER.items()} | {
    "pool.1": "bert.pooler.dense",
    "to_logits": "classifier",
}
BIAS, READ_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"  # one tensor if tied
NOT_OURS = ("position_ids", "token_type_ids")  # buffers of old files
DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "pad_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip
ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def modern(state: Mapping[str, Tensor]) -> Weights:
    """Rename the norms' gamma and beta of old files to weight and bias."""
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): tensor
        for name, tensor in state.items()
    }


def encoder_from_hf(state: Mapping[str, Tensor], prefix: str = "bert.") -> Weights:
    """Return the weights of BertModel, without its pooler, as those of `BERTEncoder`."""
    ignored = (*NOT_OURS, "pooler.dense.weight", "pooler.dense.bias")
    return renamed(without_prefix(modern(state), prefix), swapped(ENCODER), ignored)


def pooler_from_hf(state: Mapping[str, Tensor]) -> Weights:
    """Return the weights of BertModel's pooler as those of `Pooler`."""
    theirs = without_prefix(without_prefix(state, "bert."), "pooler.")
    return {name: tensor for name, tensor in theirs.items() if name.startswith("dense.")}


def from_hf(state: Mapping[str, Tensor], config: BERTConfig) -> Weights:
    """Return the weights of BertForMaskedLM or BertForPreTraining as those of `BERT`."""
    theirs = modern(state)
    bias = theirs.pop(BIAS, None)
    if bias is not None:
        theirs.setdefault(READ_BIAS, bias)  # files of tied models have only the first name
    ignored = [*NOT_OURS, "pooler.dense.weight", "pooler.dense.bias"]
    ignored += ["cls.seq_relationship.weight", "cls.seq_relationship.bias"]
    if config.tie:
        ignored.append("cls.predictions.decoder.weight")
    return renamed(theirs, swapped(BLANKS), ignored)


def to_hf(weights: Mapping[str, Tensor]) -> Weights:
    """Return the weights of `BERT` as BertForMaskedLM's."""
    theirs = renamed(weights, BLANKS)
    theirs[BIAS] = theirs[READ_BIAS].clone()
    if "to_logits.weight" not in weights:
        del theirs[READ_BIAS]
    return theirs


def classifier_from_hf(state: Mapping[str, Tensor]) -> Weights:
    """Return the weights of BertForSequenceClassification as those of `Classifier(head="bert")`."""
    return renamed(modern(state), swapped(CLASSIFIER), NOT_OURS)


def classifier_to_hf(weights: Mapping[str, Tensor]) -> Weights:
    """Return the weights of `Classifier(head="bert")` as BertForSequenceClassification's."""
    return renamed(weights, CLASSIFIER)


def config_from_hf(values: Mapping[str, Any]) -> BERTConfig:
    """Return our configuration from the contents of their config.json."""
    require(values, ONLY)
    values = {**DEFAULTS, **values}
    return BERTConfig(
        vocab=whole(values, "vocab_size"),
        max_length=whole(values, "max_position_embeddings"),
        segments=whole(values, "type_vocab_size"),
        pad=whole(values, "pad_token_id"),
        tie=bool(values["tie_word_embeddings"]),
        stack=stack_from_hf(values, STACK, norm="post"),
    )


def config_to_hf(config: BERTConfig, architecture: str = "BertForMaskedLM") -> dict[str, Any]:
    """Return the contents of a config.json for BERT."""
    stack = config.stack
    if config.embedding_width != stack.d_model:
        raise CheckpointError(
            f"BERT's embedding is as wide as its stack, this one's {config.embedding_width} and "
            f"{stack.d_model}: write it as ELECTRA's generator",
            "not_exportable",
        )
    return {"model_type": "bert", "architectures": [architecture], **described(config)}


def described(config: BERTConfig) -> dict[str, Any]:
    """Return the values that the configurations of BERT and ELECTRA have in common."""
    require_classic(config.stack, norm="post", positions="learned", own=config.positions)
    return stack_to_hf(config.stack, STACK) | {
        "vocab_size": config.vocab,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.segments,
        "pad_token_id": config.pad,
        "tie_word_embeddings": config.tie,
    }
