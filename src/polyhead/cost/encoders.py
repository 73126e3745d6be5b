"""The bills of families that only read: BERT, ELECTRA, text and image classifiers.

What they are asked is less than what they read: BERT and ELECTRA's generator answer at the blanks,
a classifier once for each text or image. Nothing but attention and the pooling of a classifier
mixes positions, so that a head costs what linear layers at so many positions cost, and so does the
last feed-forward network before it.
"""

from dataclasses import replace

from polyhead.cost.bills import Bill, position_tables
from polyhead.cost.parts import (
    FLOAT,
    INTEGER,
    NOTHING,
    Cost,
    dropout,
    embedding,
    layer_norm,
    linear,
    output_layer,
    product,
    table,
)
from polyhead.cost.stack import Shape, stack_cost
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.electra import ElectraConfig
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.vit import ViTConfig

BLANKS = 0.15  # the share of tokens that are asked for, in both papers


def n_blanks(shape: Shape, share: float) -> int:
    """How many tokens are asked for: a share of all but each text's two ends, at least one."""
    return max(shape.batch, round(share * shape.batch * max(0, shape.length - 2)))


def bert_bill(config: BERTConfig, shape: Shape, share: float = BLANKS) -> Bill:
    """Devlin et al. 2019: the encoder everywhere, the head and the output layer at the blanks."""
    blanks, d_embed = n_blanks(shape, share), config.embedding_width
    parts = {
        "embeddings": _embed(config, shape) + _widen(config, shape),
        "encoder": stack_cost(config.stack, shape, asked=blanks),
        "head": _transform(config, blanks),
        "output": output_layer(blanks, d_embed, config.vocab, tied=config.tie, bias=True),
    }
    return Bill(shape, parts, vocab=config.vocab, predictions=blanks)


def electra_bill(config: ElectraConfig, shape: Shape, share: float = BLANKS) -> Bill:
    """Clark et al. 2020: a small BERT at the blanks, a large encoder and a yes or no everywhere.

    Its loss keeps what the generator said whole: one number for each blank and word.
    """
    small, large = config.generator, config.discriminator
    blanks, n, d_model = n_blanks(shape, share), shape.positions, config.stack.d_model
    saying = linear(blanks, small.embedding_width, config.vocab)
    tied = Cost(config.vocab, saying.forward, saying.backward, saying.kept)  # only a bias is its
    spot = linear(n, d_model, d_model) + _activation(config.stack, n * d_model)
    embed, widen = _embed(large, shape), _widen(large, shape)
    stack = stack_cost(large.stack, shape)
    if config.sharing != "none":
        embed = replace(embed, parameters=0)
    if config.sharing == "all":
        widen, stack = replace(widen, parameters=0), replace(stack, parameters=0)
    parts = {
        "embeddings": _embed(small, shape),
        "generator": _widen(small, shape)
        + stack_cost(small.stack, shape, asked=blanks)
        + Cost(kept=INTEGER * blanks)  # the true words
        + _transform(small, blanks),
        "output": tied + Cost(kept=FLOAT * blanks * config.vocab),
        "discriminator": embed + widen + stack,
        "spotting": spot + linear(n, d_model, 1),
    }
    return Bill(shape, parts, predictions=blanks)


def classifier_bill(config: ClassifierConfig, shape: Shape) -> Bill:
    """An encoder, and two linear layers on one vector of each text."""
    encoder, batch, d_model = config.encoder, shape.batch, config.encoder.stack.d_model
    asked = batch if config.pooling == "first" else None
    head = _classes(batch, d_model, config.classes) + linear(batch, d_model, d_model)
    head += dropout(batch * d_model, config.dropout) + Cost(kept=FLOAT * batch * d_model)
    if config.head == "electra":
        head += dropout(batch * d_model, config.dropout)
    if config.pooling == "mean":  # a product with shares, which need no gradient
        work = product(batch, shape.length, d_model)
        head += Cost(forward=work, backward=work, kept=FLOAT * shape.positions)
    parts = {
        "embeddings": _embed(encoder, shape) + _widen(encoder, shape),
        "encoder": stack_cost(encoder.stack, shape, asked=asked),
        "head": head,
    }
    return Bill(shape, parts, predictions=batch)


def vit_bill(config: ViTConfig, shape: Shape) -> Bill:
    """Dosovitskiy et al. 2021: one linear map for all patches, a stack, one for the classes.

    Pixels need no gradient: the way back through the first of stem and patches costs as much as the
    way there, and through all that follows twice as much.
    """
    rows, columns = config.grid
    d_model, side = config.stack.d_model, config.patch >> len(config.stem)
    size = side**2 * (config.stem or (config.channels,))[-1]  # of a patch
    work = product(shape.batch * rows * columns, size, d_model)
    back = 2 * work if config.stem else work
    kept = FLOAT * shape.batch * rows * columns * size
    patches = Cost(size * d_model + d_model, work, back, kept)
    patches += _stem(config, shape.batch)
    asked = shape.batch if config.pooling == "class" else None
    if config.pooling == "class":
        patches += table(1, d_model)
    patches += position_tables(config.positions, d_model, tokens_of_image(config))
    parts = {
        "patches": patches + dropout(shape.positions * d_model, config.stack.dropout),
        "stack": stack_cost(config.stack, shape, asked=asked),
        "output": _classes(shape.batch, d_model, config.classes),
    }
    return Bill(shape, parts, predictions=shape.batch)


def _stem(config: ViTConfig, batch: int) -> Cost:
    """Convolutions that look at 3 x 3 places each and halve the image, with their norms."""
    found, height, width, n_in = NOTHING, config.height, config.width, config.channels
    for number, n_out in enumerate(config.stem):
        kept = FLOAT * batch * n_in * height * width
        height, width = height // 2, width // 2
        work = product(batch * height * width, 9 * n_in, n_out)
        found += Cost(9 * n_in * n_out + n_out, work, 2 * work if number else work, kept)
        found += layer_norm(batch * height * width, n_out)
        n_in = n_out
    return found


def tokens_of_image(config: ViTConfig) -> int:
    """How many positions a model makes of one image."""
    rows, columns = config.grid
    return rows * columns + int(config.pooling == "class")


def _embed(config: BERTConfig, shape: Shape) -> Cost:
    """Tokens, positions, segments and their norm: what ELECTRA's players may share."""
    d_embed = config.embedding_width
    tables = table(config.vocab, d_embed) + table(config.segments, d_embed)
    tables += position_tables(config.positions, d_embed, config.max_length)
    looking_up = embedding(shape.batch, shape.length, d_embed, config.stack.dropout)
    return tables + looking_up + layer_norm(shape.positions, d_embed)


def _widen(config: BERTConfig, shape: Shape) -> Cost:
    """From the width of the embedding to that of the stack, where they differ."""
    d_embed, d_model = config.embedding_width, config.stack.d_model
    return NOTHING if d_embed == d_model else linear(shape.positions, d_embed, d_model)


def _transform(config: BERTConfig, n: int) -> Cost:
    """The first half of BERT's head: a linear layer, the activation, a norm."""
    d_embed = config.embedding_width
    first = linear(n, config.stack.d_model, d_embed) + layer_norm(n, d_embed)
    return first + _activation(config.stack, n * d_embed)


def _activation(config: StackConfig, numbers: int) -> Cost:
    """What an activation keeps: ReLU its output, which the next layer keeps anyway."""
    return NOTHING if config.activation == "relu" else Cost(kept=FLOAT * numbers)


def _classes(n: int, d_model: int, classes: int) -> Cost:
    """Logits of n things, whose loss keeps their log-probabilities."""
    return linear(n, d_model, classes) + Cost(kept=FLOAT * n * classes)
