"""The parity report of an export: outputs of the exported model and ours on the same texts.

The texts are those that a run has held out, a file's, or random ids.
"""

import json
import math
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.checkpoint.atomic_dir import CHECKPOINTS, HELD_OUT
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.config import from_dict
from polyhead.convert.parity import LIMIT, Parity
from polyhead.convert.special_ids import vocab_sizes
from polyhead.convert.target_types import Example, Reader, token_log_p
from polyhead.data.batches.images import scaled
from polyhead.data.batches.labelled import segments_of
from polyhead.data.config import DataConfig
from polyhead.data.images.dataset import load_images
from polyhead.data.images.files import PixelShape
from polyhead.data.labelled_text import first_text
from polyhead.data.labels import PAIR
from polyhead.data.line_encoder import encode_texts, frame
from polyhead.data.text_files import read_lines
from polyhead.decoding.batch import batches, decode_all, pad_right
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import PolyheadError
from polyhead.metrics.bleu import score
from polyhead.models.registry import FAMILIES, FINE_TUNED, encoder_config, find_task
from polyhead.special_tokens import BOS, EOS, PAD, SPECIALS

NAMES = {1: "greedy search", 4: "beam of 4"}
N_RANDOM, RANDOM_LENGTH = 32, 12


@dataclass(frozen=True)
class ReportTexts:
    """Examples, where they come from, and their translations or labels, if there are any."""

    origin: str
    examples: list[Example]
    references: list[str]


@dataclass(frozen=True)
class ParityReport:
    """Figures of ours and theirs.

    parity: of all outputs: log-probabilities, logits or states.
    equal: the number of texts with equal outputs, by kind.
    scores: ours and theirs by name.
    speed: texts per second of ours and theirs, in one thread, measured once.
    """

    origin: str
    n_texts: int
    parity: Parity
    equal: dict[str, int]
    scores: dict[str, tuple[float, float]]
    megabytes: tuple[float, float]
    speed: tuple[float, float]

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values for people."""
        n = f"{self.n_texts:,}"
        return [
            ("compared on", f"{n} {self.origin}"),
            *((f"equal {kind}", f"{count:,} of {n}") for kind, count in self.equal.items()),
            ("largest difference of outputs", f"{self.parity.difference:.1e}"),
            *((name, f"{a:.2f} here, {b:.2f} there") for name, (a, b) in self.scores.items()),
            ("size in MB", "{:.1f} here, {:.1f} there".format(*self.megabytes)),
            (
                "texts per second, one thread, measured once",
                "{:.0f} here, {:.0f} there".format(*self.speed),
            ),
        ]


def own_reader(saved: SavedModel, *, states: bool) -> Reader:
    """Return our model as a reader."""
    model: Any = saved.model
    task = FAMILIES[saved.family].task
    kind = find_task(task)
    device = next(model.parameters()).device

    def outputs(examples: Sequence[Example]) -> list[Tensor]:
        sources = [example.source for example in examples]
        of_images = task == "image_classification"
        source = (torch.stack if of_images else pad_right)(sources).to(device)
        if task == "translation":
            target = pad_right([[BOS, *example.target[:-1]] for example in examples]).to(device)
            computed = model(source, target)
        elif states:
            computed = model.get_submodule(kind.encoder)(source)
        else:
            of_pairs = task in ("text_classification", "question_answering")
            inputs = (source, segments_of(source)) if of_pairs else (source,)
            computed = attrgetter(kind.logits)(model)(*inputs)
        if examples[0].target:
            return token_log_p(computed, examples)
        if task in ("text_classification", "image_classification") and not states:
            return list(computed)
        return [computed[i, : len(example.source)] for i, example in enumerate(examples)]

    def search(sources: Sequence[list[int]], beam: int, limit: int) -> list[list[int]]:
        options = DecodeConfig(beam, length_penalty=0.0, max_length=limit, max_extra=limit)
        return [best[0].ids for best in decode_all(model, sources, options, device=device)]

    return Reader(outputs, search if task == "translation" else None, states=states)


@dataclass
class Tally:
    """Results of both models so far; every pair has ours first."""

    readers: tuple[Reader, Reader]
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0])
    written: dict[int, list[list[list[int]]]] = field(default_factory=dict)  # by beam
    log_p: list[float] = field(default_factory=lambda: [0.0, 0.0])
    labels: list[list[int]] = field(default_factory=lambda: [[], []])
    differences: list[float] = field(default_factory=list)  # of each text
    largest: float = 0.0
    count: int = 0

    def search(self, sources: Sequence[list[int]], beam: int, limit: int) -> list[list[int]]:
        """Search with both models and return our outputs; greedy search is timed."""
        searched = self.written.setdefault(beam, [[], []])
        for side, reader in enumerate(self.readers):
            if reader.search is None:
                continue
            started = time.perf_counter()
            searched[side] += reader.search(sources, beam, limit)
            self.seconds[side] += (time.perf_counter() - started) if beam == 1 else 0.0
        return searched[0][-len(sources) :]

    def compare(self, examples: Sequence[Example], *, timed: bool) -> None:
        """Compute the outputs of both models, and their differences."""
        outputs = []
        for side, reader in enumerate(self.readers):
            started = time.perf_counter()
            outputs.append(reader.outputs(examples))
            self.seconds[side] += (time.perf_counter() - started) if timed else 0.0
            if examples[0].target:
                self.log_p[side] += sum(float(log_p.double().sum()) for log_p in outputs[side])
            else:
                self.labels[side] += [int(logits.argmax()) for logits in outputs[side]]
        for ours, theirs in zip(*outputs, strict=True):
            self.differences.append(float((ours - theirs).abs().max()))
            self.largest = max(self.largest, float(ours.abs().max()))
            self.count += ours.numel()


def compare_readers(
    saved: SavedModel,
    theirs: Reader,
    texts: ReportTexts,
    megabytes: tuple[float, float],
    progress: Callable[[int], None] = lambda _: None,
) -> ParityReport:
    """Run both models on all texts; `progress` is called with numbers of texts."""
    translates = FAMILIES[saved.family].task == "translation"
    ours = own_reader(saved, states=theirs.states)
    tally, searching = Tally((ours, theirs)), translates and theirs.search is not None
    order, lengths = list[int](), [[0] * len(example.source) for example in texts.examples]
    with one_thread(), torch.inference_mode():
        for chosen in batches(lengths, DecodeConfig()):
            examples = [texts.examples[i] for i in chosen]
            if translates:
                sources = [example.source for example in examples]
                limit = min(theirs.longest - 1, 2 * max(map(len, sources)) + 10)
                beams = theirs.beams if searching else (1,)
                greedy, *_ = [tally.search(sources, beam, limit) for beam in beams]
                examples = [Example(s, [*g, EOS]) for s, g in zip(sources, greedy, strict=True)]
            tally.compare(examples, timed=not searching)
            order += chosen
            progress(len(chosen))
    written = tally.written.items() if searching else ()
    equal = {f"outputs, {NAMES[beam]}": sum(map(list.__eq__, *both)) for beam, both in written}
    equal |= {f"within {LIMIT:g}": sum(d <= LIMIT for d in tally.differences)}
    return ParityReport(
        texts.origin, len(order), Parity(max(tally.differences), tally.largest, tally.count), equal,
        _scores(saved, tally, texts, order), megabytes,
        (len(order) / tally.seconds[0], len(order) / tally.seconds[1]),
    )  # fmt: skip


def _scores(
    saved: SavedModel, tally: Tally, texts: ReportTexts, order: Sequence[int]
) -> dict[str, tuple[float, float]]:
    """Return BLEU and chrF, perplexity, or accuracy, where they can be computed."""
    task = FAMILIES[saved.family].task
    if task == "language_modeling":
        count = sum(len(example.target) for example in texts.examples)
        perplexity = [math.exp(min(700.0, -total / count)) for total in tally.log_p]
        return {"perplexity": (perplexity[0], perplexity[1])}
    if not texts.references:
        return {}
    if task == "translation" and tally.readers[1].search is not None:
        assert saved.tokenizers is not None
        searched = tally.written[max(tally.written)]
        decode = saved.tokenizers.target.decode
        references = [texts.references[i] for i in order]
        lists = [score([decode(ids) for ids in side], references, bootstrap=1) for side in searched]
        return {a.name: (a.value, b.value) for a, b in zip(*lists, strict=True)}
    names = [str(name) for name in saved.about.get("classes") or ()]
    one_class = vars(saved.config).get("problem", "single_label") == "single_label"
    if task not in ("text_classification", "image_classification") or not one_class:
        return {}
    if not set(texts.references) <= set(names):
        return {}
    right = [names.index(texts.references[i]) for i in order]
    shares = [100 * sum(map(int.__eq__, labels, right)) / len(right) for labels in tally.labels]
    return {"accuracy in %": (shares[0], shares[1])}


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def find_texts(
    saved: SavedModel, model: Path, *, longest: int, file: Path | None = None, most: int = 1000
) -> ReportTexts:
    """Return at most `most` texts of less than `longest` ids for a comparison of outputs.

    model: the directory of the model; held-out texts are known only inside a run's.
    file: a text per line, and its translation or label after a tab, if there is one.
    """
    place = model.resolve()
    run = place.parents[1] if place.parent.name == CHECKPOINTS else place
    in_run = (run / "best").exists() or (run / CHECKPOINTS).exists()
    try:
        if saved.family == "vit" and in_run:
            return _images(saved, run, most)
        if saved.tokenizers is None:
            reason = "the model has no tokenizer"
        elif file is not None:
            answers = FAMILIES[saved.family].task == "question_answering"
            n_texts = 2 if answers or saved.about.get("pairs") else 1
            cells = [line.split(PAIR) for line in read_lines(file)]
            rows = [(PAIR.join(row[:n_texts]), PAIR.join(row[n_texts:])) for row in cells]
            return _encoded(saved, f"of {file.name}", rows, most, longest)
        elif in_run:
            return _encoded(saved, "held out by the run", _held_out(saved, run), most, longest)
        else:
            reason = "no --sentences, and not in a run's directory"
    except (PolyheadError, OSError, ValueError, TypeError, RecursionError):
        if file is not None:
            raise
        reason = f"the run's {'images' if saved.family == 'vit' else HELD_OUT} cannot be read"
    return _random(saved, reason, most, longest)


def _held_out(saved: SavedModel, run: Path) -> list[tuple[str, str]]:
    """Read the texts that a run has held out, with their translations or labels."""
    lines = (run / HELD_OUT).read_text(encoding="utf-8").split("\n")[:-1]
    rows = [(str(text), "".join(reference)) for text, *reference in map(json.loads, lines)]
    task = FAMILIES[saved.family].task
    if task in ("translation", "text_classification"):
        return rows
    if task == "sentence_embedding":
        return [(first_text(text), "") for text, _ in rows]
    is_tagger = task == "token_classification"
    return [(text.replace(PAIR, " ") if is_tagger else text, "") for text, _ in rows]


def _images(saved: SavedModel, run: Path, most: int) -> ReportTexts:
    config = saved.config
    values = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    data = from_dict(DataConfig, values.get("data", {}), "data.")
    seed = int(values.get("train", {}).get("seed", 1))
    corpus = load_images(data, PixelShape(config.height, config.width, config.channels), seed)
    pixels = scaled(corpus.valid.pixels[:most])
    labels = [corpus.classes[i] for i in corpus.valid.labels[:most].tolist()]
    return ReportTexts("images held out by the run", [Example(p, []) for p in pixels], labels)


def _encoded(
    saved: SavedModel, origin: str, rows: Sequence[tuple[str, str]], most: int, longest: int
) -> ReportTexts:
    """Encode texts; references are kept if all texts have one."""
    assert saved.tokenizers is not None
    rows = [row for row in rows if row[0].strip()][:most]
    texts, tokenizer = [text for text, _ in rows], saved.tokenizers.source
    if FAMILIES[saved.family].task in FINE_TUNED:
        framed_texts = list(encode_texts(tokenizer, texts, longest))
        ids = [framed for framed, _ in framed_texts]
        fits = [i for i, (_, length) in enumerate(framed_texts) if length <= longest]
    else:
        ids = tokenizer.encode_batch(texts)
        fits = [i for i in range(len(ids)) if len(ids[i]) < longest]
    if not fits:
        return _random(saved, f"no text {origin} has 1 to {longest - 1} tokens", most, longest)
    examples = [_example(saved.family, ids[i], longest) for i in fits]
    references = [rows[i][1] for i in fits]
    return ReportTexts(f"sentences {origin}", examples, references if all(references) else [])


def _example(family: str, ids: list[int], longest: int) -> Example:
    task = FAMILIES[family].task
    if task == "language_modeling":
        return Example([EOS, *ids[:-1]], ids)
    return Example(ids if task == "translation" or ids[0] == BOS else frame([ids], longest), [])


def _random(saved: SavedModel, reason: str, most: int, longest: int) -> ReportTexts:
    """Return random ids, or images, the same every time."""
    drawn, n_texts = torch.Generator().manual_seed(0), min(N_RANDOM, most)
    if saved.family == "vit":
        shape = (saved.config.channels, saved.config.height, saved.config.width)
        images = torch.randn(n_texts, *shape, generator=drawn)
        return ReportTexts(f"random images ({reason})", [Example(i, []) for i in images], [])
    vocab, length = vocab_sizes(saved.config)[0], min(RANDOM_LENGTH, longest - 2)
    first = min(len(SPECIALS), vocab - 1)
    rows = torch.randint(first, vocab, (n_texts, length), generator=drawn).tolist()
    examples = [_example(saved.family, [*row, EOS], longest) for row in rows]
    pad = vars(encoder_config(saved.config)).get("pad", PAD)  # without a tokenizer, as it was there
    other = vocab - 1 if pad != vocab - 1 else first
    examples = [Example([other if i == pad else i for i in e.source], e.target) for e in examples]
    return ReportTexts(f"texts of random ids ({reason})", examples, [])
