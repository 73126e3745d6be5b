"""Masked and replaced tokens: the tasks `masked_lm` (BERT) and `replaced_token` (ELECTRA).

    training       BOS ids EOS, several of a long line and none of an empty one, with new masks in
                   every epoch
    validation     the same, with masks that depend on the number of a sequence only
    fill           a text with [MASK]: only ids that fit are allowed, after a space those that begin
                   a word, else those that continue one
    detect         a text without [MASK]: the probability of every token that it was replaced

An ELECTRA does both, with two models: its generator fills, its discriminator detects.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np

from polyhead.data.config import DataConfig
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import Examples
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError
from polyhead.plugin_registry import resolve
from polyhead.render import notebook
from polyhead.special_tokens import BOS, EOS, MASK, PAD
from polyhead.tasks.base import (
    Facts,
    Measured,
    Output,
    Result,
    Stage,
    Task,
    TrainingCorpus,
    Used,
    map_parts,
)
from polyhead.tasks.verbs import DetectOptions, FillOptions
from polyhead.tokenizers.base import encode_lines
from polyhead.tokenizers.mask_tokens import MaskedText, candidates, encode_masked, word_of
from polyhead.tokenizers.normalize import words_of
from polyhead.tokenizers.storage import TokenizerPair

if TYPE_CHECKING:
    from polyhead.metrics.perplexity import MapBatches

VALIDATION_SEED = 0
MIN_BEAM = 5  # hypotheses of a joint filling, even if fewer are returned
Best = list[tuple[int, str, float]]  # ids, words and log-probabilities
Hypotheses = list[tuple[float, list[int], list[str]]]  # log-probabilities, ids, words
Choices = tuple[list[Best], Hypotheses]  # of each mask alone, and of all together


# Results


@dataclass(frozen=True)
class Guess:
    """A word for a masked token, and its probability among all that are allowed there."""

    text: str
    probability: float


@dataclass(frozen=True)
class Filling:
    """All masked tokens filled together; `log_p` sums over them, each given those to its left."""

    text: str
    words: tuple[str, ...]
    log_p: float


@dataclass(frozen=True)
class Filled:
    """The likeliest guesses for each masked token alone, and the best fillings of all together."""

    text: str
    blanks: list[list[Guess]]
    together: list[Filling]

    def __repr__(self) -> str:
        return f"Filled({self.together[0].text!r}, log_p={self.together[0].log_p:.2f})"

    def _repr_html_(self) -> str:
        rows = [
            [f"[MASK] {number}", notebook.escape(guess.text), notebook.bar(guess.probability)]
            for number, blank in enumerate(self.blanks, start=1)
            for guess in blank
        ]
        best = notebook.escape(self.together[0].text)
        return f"<p>{best}</p>" + notebook.table(["", "word", "probability"], rows)


@dataclass(frozen=True)
class Suspicion:
    """A word or a token, and the probability that it was replaced."""

    text: str
    probability: float


@dataclass(frozen=True)
class Detected:
    """The probabilities of all tokens of a text, and of its words: the largest of their tokens."""

    text: str
    words: tuple[Suspicion, ...]
    tokens: tuple[Suspicion, ...]

    def __repr__(self) -> str:
        likeliest = max(self.words, key=lambda word: word.probability)
        return f"Detected({self.text!r}, {likeliest.text!r}: {likeliest.probability:.3f})"

    def _repr_html_(self) -> str:
        kept = ((f"{word.text} ", 1 - word.probability) for word in self.words)
        return f"<p>{notebook.words(kept, 'probability of being original')}</p>"


# Inputs


class MaskedSequence(NamedTuple):
    """A sequence with the places to predict, and the ids that the model sees there."""

    ids: list[int]
    places: list[int]
    seen: list[int]


Part = MaskedText | MaskedSequence


@dataclass(frozen=True)
class MaskInput:
    """A text of a user in one part; or, with "", all sequences of a text that is scored."""

    text: str
    parts: Sequence[Part]


def parts_of(lines: Iterable[Sequence[int]], max_length: int) -> Iterator[list[int]]:
    """Yield parts BOS ids EOS of at most `max_length` ids of encoded lines (closed by EOS)."""
    room = max(1, max_length - 2)
    for ids in lines:
        for start in range(0, len(ids) - 1, room):
            yield [BOS, *ids[start : min(start + room, len(ids) - 1)], EOS]


def masked_copy(ids: Any, parts: Sequence[MaskedSequence]) -> tuple[Any, Any]:
    """Return a batch as the model sees it, and which positions it predicts."""
    import torch

    rows = [row for row, part in enumerate(parts) for _ in part.places]
    columns = list(chain.from_iterable(part.places for part in parts))
    seen = list(chain.from_iterable(part.seen for part in parts))
    blanked, chosen = ids.clone(), torch.zeros_like(ids, dtype=torch.bool)
    blanked[rows, columns] = torch.tensor(seen, dtype=ids.dtype, device=ids.device)
    chosen[rows, columns] = True
    return blanked, chosen


def predictions(logits: Any, labels: Any, parts: Sequence[MaskedSequence]) -> list[list[Any]]:
    """Return of every place of every sequence -log p, and whether its token is the likeliest."""
    from torch.nn import functional as F

    losses = F.cross_entropy(logits.float(), labels, reduction="none").tolist()
    rows = iter(zip(losses, (logits.argmax(-1) == labels).tolist(), strict=True))
    return [list(islice(rows, len(part.places))) for part in parts]


# The tasks


class MaskedTokens(Task[MaskInput, Output, Result], Generic[Output, Result]):
    """Masks are drawn in texts, and a model predicts what was there.

    masking: the place of the shares of masked tokens.
    """

    tag, option, store, masking = "fill-mask", "text", "parts", ""

    def masker(self, tokenizers: TokenizerPair, vocab: int, data: DataConfig) -> Any:
        """Return the masker of a vocabulary, where [MASK] is the id after the tokenizer's last."""
        from polyhead.data.batches.masked import Masker

        config = replace(resolve(self.masking), share=data.blanks)
        return Masker(config, mask=len(tokenizers.source), vocab=vocab)

    def facts(self, data: TrainingCorpus) -> Facts:
        model = replace(data.config.model, vocab=len(data.tokenizers.source) + 1)
        text = data.stores["text"]
        size = f" in {len(text):,} sequences of {text.lengths.sum():,} tokens"
        return Facts(replace(data.config, model=model), {}, of_what=size)

    def encode(
        self, tokenizers: TokenizerPair, columns: Sequence[Sequence[str]], form: StoreForm
    ) -> tuple[list[TokenSequences], int]:
        lines = encode_lines(tokenizers.source, columns[0])
        return [TokenSequences.of(parts_of(lines, form.max_length), len(tokenizers.source))], 0

    def batches(self, data: TrainingCorpus) -> Any:
        from polyhead.data.batches.masked import MaskedBatches

        config, text = data.config, data.stores["text"]
        masker = self.masker(data.tokenizers, len(data.tokenizers.source) + 1, config.data)
        return MaskedBatches(text, masker, config.train.max_tokens, config.train.seed)

    def example(self, used: Used, examples: Examples) -> list[MaskInput]:
        """Return one input with all sequences, of which each has the same masks every time."""
        import torch

        from polyhead.data.batches.base import mix

        masker = self.masker(used.tokenizers, used.sizes.vocab, used.data)
        length, sequences = min(used.data.max_length, used.max_length), list[MaskedSequence]()
        lines = encode_lines(used.tokenizers.source, examples.texts)
        for number, ids in enumerate(parts_of(lines, length)):
            drawn = masker.draw(torch.tensor([ids]), mix(VALIDATION_SEED, number))
            places = drawn.chosen[0].nonzero()[:, 0]
            seen = drawn.blanked[0, places].tolist()
            sequences.append(MaskedSequence(ids, places.tolist(), seen))
        if not sequences:
            raise DataError("all lines are empty; give at least one line of text", "no_text")
        if not any(sequence.places for sequence in sequences):  # its loss would be 0
            raise DataError(
                "the validation text has no token of the vocabulary that could be masked; give "
                "other text",
                "nothing_to_mask",
            )
        return [MaskInput("", sequences)]

    def check_length(self, used: Used, ids: Sequence[int]) -> None:
        """Raise if a text has more tokens than the model reads."""
        if len(ids) > used.max_length:
            raise DataError(
                f"a text of {len(ids)} tokens; {used.name} reads at most {used.max_length}",
                "text_too_long",
            )


class MaskedLM(MaskedTokens[Choices, Filled]):
    """Predict masked tokens; `used.model` is a BERT, or the generator of an ELECTRA."""

    name, verb = "masked_lm", "fill"
    metrics = ("loss", "perplexity", "accuracy")
    result_class = Filled
    pipeline = "polyhead.pipelines.task_pipeline:MaskFiller"
    masking = "polyhead.data.batches.masked:BERT_MASKING"

    def loss(self, _config: Any, _about: Mapping[str, Any]) -> Any:
        from polyhead.tasks.losses import MaskedTokenLoss

        return MaskedTokenLoss()

    def read(self, used: Used, rows: Sequence[tuple[str, ...]]) -> list[MaskInput]:
        tokenizer, inputs = used.tokenizers.source, []
        for (text,) in rows:
            masked = encode_masked(tokenizer, text, len(tokenizer))
            self.check_length(used, masked.ids)
            inputs.append(MaskInput(text, [masked]))
        return inputs

    def run(
        self, used: Used, inputs: Sequence[MaskInput], options: FillOptions,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> list[Choices]:  # fmt: skip
        """Return the best ids of every mask alone, and the best ones of all, by beam search."""
        import torch

        from polyhead.decoding.hypotheses import log_normaliser

        if "candidates" not in used.kept:  # by whether they begin a word
            used.kept["candidates"] = {
                begins: torch.tensor(candidates(used.tokenizers.source, begins))
                for begins in (True, False)
            }
        device = next(used.model.parameters()).device

        def log_p(rows: list[list[int]], places: list[int]) -> Any:
            """Return the log-probabilities at some places of texts of equal length."""
            states = used.model.hidden(torch.tensor(rows, device=device))[:, places]
            logits = used.model.to_logits(used.model.transform(states)).float()
            log_normaliser(logits)  # raises if they are not finite
            return logits.log_softmax(-1).cpu()

        def best(row: Any, begins: bool, top: int) -> Best:
            ids = used.kept["candidates"][begins]
            shares, places = row[ids].log_softmax(-1).topk(min(top, len(ids)))
            numbers = ids[places].tolist()
            words = [word_of(used.tokenizers.source, number) for number in numbers]
            return list(zip(numbers, words, shares.tolist(), strict=True))

        def fill(given: MaskInput) -> Choices:
            (text,), width = given.parts, max(options.top, MIN_BEAM)
            assert isinstance(text, MaskedText)
            rows = zip(log_p([text.ids], text.places)[0], text.begins, strict=True)
            alone = [best(row, begins, options.top) for row, begins in rows]
            beams: Hypotheses = [(0.0, text.ids, [])]
            for place, begins in zip(text.places, text.begins, strict=True):
                grown = [
                    (total + share, [*ids[:place], id, *ids[place + 1 :]], [*words, word])
                    for (total, ids, words), row in zip(
                        beams, log_p([ids for _, ids, _ in beams], [place]), strict=True
                    )
                    for id, word, share in best(row[0], begins, width)
                ]
                beams = sorted(grown, key=lambda beam: -beam[0])[:width]
            progress(1)
            return alone, beams[: options.top]

        with torch.inference_mode():
            return map_batches(fill, inputs)

    def result(
        self, _used: Used, given: MaskInput, output: Choices, _options: FillOptions
    ) -> Filled:
        alone, together = output
        return Filled(
            given.text,
            [[Guess(word, math.exp(log_p)) for _, word, log_p in blank] for blank in alone],
            [
                Filling(fill_masks(given.text, words), tuple(words), log_p)
                for log_p, _, words in together
            ],
        )

    def measure(
        self, used: Used, inputs: Sequence[MaskInput], _labels: Sequence[str], _stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return loss, perplexity and accuracy (the likeliest token is the true one)."""

        def compute(ids: Any, parts: list[MaskedSequence]) -> list[list[Any]]:
            blanked, chosen = masked_copy(ids, parts)
            return predictions(used.model.fill(blanked, chosen), ids[chosen], parts)

        (rows,) = map_parts(compute, used, inputs, map_batches, progress)
        losses, hits = zip(*chain.from_iterable(rows), strict=True)
        loss = sum(losses) / len(losses)
        figures = {
            "loss": loss,
            "perplexity": math.exp(min(700.0, loss)),
            "accuracy": sum(hits) / len(hits),
        }
        return Measured(figures, notebook.MetricTable(figures))

    def row(self, result: Filled, _options: FillOptions) -> str:
        """Return a probability and a filled text per line; of several masks each alone first."""
        if len(result.blanks) == 1:
            pairs = zip(result.blanks[0], result.together, strict=True)
            return "".join(f"{guess.probability:.4f}\t{full.text}\n" for guess, full in pairs)
        lines = []
        for number, guesses in enumerate(result.blanks, start=1):
            shown = "  ".join(f"{guess.text} {guess.probability:.4f}" for guess in guesses)
            lines.append(f"[MASK] {number}: {shown}\n")
        lines += [f"{full.log_p:.4f}\t{full.text}\n" for full in result.together]
        return "".join(lines)


def fill_masks(text: str, words: Sequence[str]) -> str:
    """Return the text with each [MASK] replaced by a word; its spaces stay as they are."""
    first, *others = text.split(MASK)
    return first + "".join(word + part for word, part in zip(words, others, strict=True))


class ReplacedToken(MaskedTokens[list[float], Detected]):
    """Detect which tokens were replaced; the generator's are those that replace."""

    name, verb = "replaced_token", "detect"
    metrics = ("loss", "generator_accuracy", "precision", "recall", "auc")
    result_class = Detected
    pipeline = "polyhead.pipelines.task_pipeline:ReplacedTokenDetector"
    masking = "polyhead.data.batches.masked:ELECTRA_MASKING"
    encoder, logits = "discriminator", "suspect"

    def loss(self, _config: Any, _about: Mapping[str, Any]) -> Any:
        from polyhead.tasks.losses import ReplacedTokenLoss

        return ReplacedTokenLoss(PAD)

    def read(self, used: Used, rows: Sequence[tuple[str, ...]]) -> list[MaskInput]:
        tokenizer, inputs = used.tokenizers.source, []
        for (text,) in rows:
            if MASK in text:
                raise DataError(
                    f"{MASK} in the text: expected a complete text; predict it with polyhead fill",
                    "mask_in_text",
                )
            pieces = tokenizer.pieces(tokenizer.normalise(text))
            if not pieces:
                raise DataError("the text is empty", "empty_text")
            ids = [BOS, *(piece.id for piece in pieces), EOS]
            self.check_length(used, ids)
            inputs.append(MaskInput(text, [MaskedText(ids, [], [])]))
        return inputs

    def run(
        self, used: Used, inputs: Sequence[MaskInput], _options: DetectOptions,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> list[list[float]]:  # fmt: skip
        """Return of every token the probability that it was replaced."""

        def compute(ids: Any, parts: list[MaskedText]) -> list[list[float]]:
            rows = used.model.suspect(ids).float().sigmoid().tolist()
            return [row[1 : len(part.ids) - 1] for row, part in zip(rows, parts, strict=True)]

        return [row for (row,) in map_parts(compute, used, inputs, map_batches, progress)]

    def result(
        self, used: Used, given: MaskInput, output: list[float], _options: DetectOptions
    ) -> Detected:
        tokenizer, words = used.tokenizers.source, dict[int, list[Suspicion]]()
        pieces = tokenizer.pieces(tokenizer.normalise(given.text))
        tokens = [Suspicion(piece.text, p) for piece, p in zip(pieces, output, strict=True)]
        for token, word in zip(tokens, words_of(pieces), strict=True):
            words.setdefault(word, []).append(token)
        joined = [
            Suspicion("".join(token.text for token in word).strip(" "),
                      max(token.probability for token in word))
            for word in words.values()
        ]  # fmt: skip
        return Detected(given.text, tuple(joined), tuple(tokens))

    def measure(
        self, used: Used, inputs: Sequence[MaskInput], _labels: Sequence[str], _stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return the metrics of generator and discriminator, with the same samples every time.

        precision, recall: of the tokens classified as replaced; most are original.
        auc: how often a replaced token has a higher logit than an original one.
        """
        import torch
        from torch.nn import functional as F

        from polyhead.metrics.classification import detection_scores

        def compute(ids: Any, parts: list[MaskedSequence]) -> list[tuple[Any, ...]]:
            draws = [
                np.random.default_rng(part.ids).random(len(part.places), np.float32)
                for part in parts
            ]
            u = torch.from_numpy(np.concatenate(draws)).to(ids.device)
            blanked, chosen = masked_copy(ids, parts)
            output = used.model(ids, blanked, chosen, u)
            generated = predictions(output.generated, ids[chosen], parts)
            suspicion, replaced = output.suspicion.float().tolist(), output.replaced.tolist()
            rows = zip(parts, generated, suspicion, replaced, strict=True)
            return [(row, z[: len(part.ids)], y[: len(part.ids)]) for part, row, z, y in rows]

        (rows,) = map_parts(compute, used, inputs, map_batches, progress)
        generated, suspicion, replaced = (
            list(chain.from_iterable(column)) for column in zip(*rows, strict=True)
        )
        losses, hits = zip(*generated, strict=True)
        logits, labels = np.array(suspicion, np.float32), np.array(replaced, np.bool_)
        spotted = F.binary_cross_entropy_with_logits(
            torch.from_numpy(logits), torch.from_numpy(labels).float()
        ).item()
        figures = {
            "loss": sum(losses) / len(losses) + used.model.spotting * spotted,
            "generator_accuracy": sum(hits) / len(hits),
            **detection_scores(logits, labels),
        }
        return Measured(figures, notebook.MetricTable(figures))

    def row(self, result: Detected, options: DetectOptions) -> str:
        shown = (
            f"{word.text}[{word.probability:.2f}]" if word.probability >= options.threshold
            else word.text
            for word in result.words
        )  # fmt: skip
        return " ".join(shown) + "\n"
