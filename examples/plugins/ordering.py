"""A task of its own in one file: put the characters of a text in order.

Every character gets its rank. Labels of the training data are the characters of a text in order.

    polyhead train tagger-small --plugin ordering.py --data words.tsv train.judge_by=accuracy \
        model.family=orderer --run runs/order
    polyhead order runs/order --plugin ordering.py "polyhead"
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyhead.data.labelled_text import TEXTS
from polyhead.data.token_store import TokenSequences
from polyhead.metrics.predictions import score_report
from polyhead.models.tagging_model import TaggerConfig, TaggingModel
from polyhead.plugins import register_family, register_task
from polyhead.render import notebook
from polyhead.special_tokens import BOS, EOS
from polyhead.tasks.base import Facts, Measured, Outputs, Task, map_parts
from polyhead.tasks.losses import TagLoss
from polyhead.tasks.words import WordEncoder, position_batches


@dataclass(frozen=True)
class Ordered:
    """A text, and its characters in order."""

    text: str
    ordered: str

    def __str__(self):
        return self.ordered

    def _repr_html_(self):
        return notebook.plain(self.ordered)


@dataclass(frozen=True)
class Characters:
    """The first characters of a text, each one id, and the rank of each, from 1 on."""

    text: str
    ids: list[int]
    ranks: list[int]

    @property
    def parts(self) -> list["Characters"]:
        return [self]


def characters(tokenizers: Any, text: str, max_length: int) -> Characters:
    """Return a text as the model reads it."""
    text, encoder = text[: max_length - 2], WordEncoder(tokenizers.source)
    order = sorted(range(len(text)), key=lambda place: text[place])
    ids = [BOS, *(encoder(character)[0].id for character in text), EOS]
    return Characters(text, ids, (np.argsort(order) + 1).tolist())


@register_task("ordering", "Put the characters of every line in order.")
class Ordering(Task[Characters, list[list[float]], Ordered]):
    """Give every character its rank."""

    name, verb, tag = "ordering", "order", "token-classification"
    metrics, outputs, result_class = ("loss", "accuracy"), True, Ordered
    form, when_long = TEXTS._replace(problem="spans"), "truncated"  # labels are texts, no classes

    def facts(self, data):
        config = data.config
        encoder = replace(config.model.encoder, vocab=len(data.tokenizers.source))
        model = replace(config.model, encoder=encoder, classes=config.data.max_length)
        return Facts(replace(config, model=model), {})

    def encode(self, tokenizers, columns, form):
        read = [characters(tokenizers, text, form.max_length) for text in columns[0]]
        ids_and_ranks = [text.ids for text in read], [[0, *text.ranks, 0] for text in read]
        sides = zip(ids_and_ranks, form.sizes(tokenizers), strict=True)
        n_long = sum(len(text) + 2 > form.max_length for text in columns[0])
        return [TokenSequences.of(*side) for side in sides], n_long

    def batches(self, data):
        return position_batches(data)

    def loss(self, config, _about):
        return TagLoss(config.train.smoothing)

    def read(self, used, rows):
        return [characters(used.tokenizers, text, used.max_length) for (text,) in rows]

    def run(self, used, inputs, _options, map_batches, progress):
        def compute(ids, parts):
            log_p = used.model(ids).float().log_softmax(-1).cpu()
            return [log_p[row, 1 : len(part.ids) - 1].tolist() for row, part in enumerate(parts)]

        return [rows for (rows,) in map_parts(compute, used, inputs, map_batches, progress)]

    def result(self, _used, given, output, _options):
        ranks = [float(np.exp(row) @ np.arange(len(row))) for row in output]  # the expected ones
        order = np.argsort(ranks, kind="stable")
        return Ordered(given.text, "".join(given.text[place] for place in order))

    def measure(self, used, inputs, labels, _stage, map_batches, progress):
        rows = self.run(used, inputs, None, map_batches, progress)
        both = list(zip(inputs, rows, strict=True))
        lines = [self.result(used, given, row, None).ordered for given, row in both]
        losses = [
            -row[rank] for given, of in both for rank, row in zip(given.ranks, of, strict=True)
        ]
        right = np.array([line == label for line, label in zip(lines, labels, strict=True)])
        figures = {"loss": float(np.mean(losses)), "accuracy": float(right.mean())}
        report = score_report(lambda column: {"accuracy": float(column.mean())}, right)
        return Measured(figures, report, Outputs(lines, [*labels], "accuracy"))

    def row(self, result, _options):
        return f"{result}\n"


register_family("orderer", config=TaggerConfig, task="ordering")(TaggingModel)
