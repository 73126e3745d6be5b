"""CTranslate2 as a backend of translators and language models.

Translators have the options and outputs of decoding with torch. CTranslate2 searches by
log P(y | x); our length penalty ranks its n-best list:

    score(y | x) = log P(y | x) / ((5 + |y|) / 6)^α        (Wu et al. 2016, eq. 14)

Greedy search of language models gives the texts of decoding with torch. Sampling draws from the
same distribution, but with other random numbers: equal seeds give equal texts with one engine, not
with both.

The tokens of a converted model are the ids, written as numbers. Converted models are kept in the
user's cache directory:

    ~/.cache/polyhead/engines/ctranslate2-4.8.1-float32-1f0c…/      files, and their manifest

CTranslate2 trusts its files, so files of others must never reach it: nothing is read from, or
written into, the directory of a model. The digits are a hash of the model's manifest and of
Polyhead's version. Where nothing can be written, a model is converted for one process.
"""

import hashlib
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet, finalize

from polyhead import __version__
from polyhead.atomic_file import remove
from polyhead.checkpoint.atomic_dir import atomic_dir, read_manifest, verify
from polyhead.data.locate import home
from polyhead.decoding.options import (
    NOT_FINITE,
    Choice,
    DecodeConfig,
    DecodingStep,
    Output,
    Scores,
    check_seed,
)
from polyhead.engines.obstacles import PACKAGE, missing
from polyhead.errors import CheckpointError, ConfigError, MissingError
from polyhead.special_tokens import BOS, EOS, PAD

END = str(EOS)
NEVER_WRITTEN = [[str(PAD)], [str(BOS)]]
BLOCK = 1024  # sentences between two reports of progress
FEW_ROWS, MAX_ROWS = 16, 32  # sentences in one batch of a worker; beam search has few
MAX_SEED = 2**32
MAX_TEXTS_AT_ONCE = 16  # workers of greedy search, which share one copy of the weights
SEEDING = threading.Lock()  # the seed is that of the process


UNUSED = 30 * 86_400  # seconds after which a converted model is removed
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


class Hypothesis(NamedTuple):
    """The tokens of an output, with EOS if it has ended, and their log-probabilities, if known."""

    tokens: list[str]
    log_p: float
    token_log_p: list[float]


def converted_model(directory: Path, name: str, convert: Callable[[Path], None]) -> Path:
    """Return the converted form of a model, which is made if there is none.

    directory: a model directory. name: of the engine with everything the result depends on.
    convert: writes the files of the engine into an empty directory.
    """
    facts = json.dumps([read_manifest(directory), __version__]).encode()
    folder = home() / "engines"
    place = folder / f"{name}-{hashlib.sha256(facts).hexdigest()[:32]}"
    with suppress(CheckpointError, OSError):
        verify(place)
        with suppress(OSError):  # a cache that can only be read
            os.utime(place)
        return place
    verify(directory)
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        temporary = tempfile.TemporaryDirectory(prefix="polyhead-")
        _TEMPORARY.append(temporary)
        convert(Path(temporary.name))
        return Path(temporary.name)
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - UNUSED:
                remove(path)
    with atomic_dir(place) as draft:
        convert(draft)
    return place


def open_model(kind: str, folder: Path, compute_type: str, n_workers: int) -> Any:
    """Load a converted model as a `Translator` or `Generator` of CTranslate2."""
    try:
        return getattr(import_module(PACKAGE), kind)(
            str(folder), device="cpu", compute_type=compute_type, inter_threads=n_workers,
            intra_threads=1,
        )  # fmt: skip
    except ValueError as error:  # a type that this processor lacks
        raise ConfigError(f"compute type {compute_type!r}: {error}", "invalid_option") from None


class CTranslate2Backend:
    """A converted model, ready to decode; see `polyhead.pipelines.backends.Backend`.

    Batches of a translator are shared among `n_parallel` workers of one thread each.
    """

    def __init__(
        self, use: str, directory: Path, compute_type: str = "auto", n_workers: int | None = None
    ) -> None:
        """Convert the model of a directory, unless that was done before.

        use: "translate", for which the model is loaded now, or "generate".
        """
        if problem := missing():
            raise MissingError(problem, "missing_package")
        self.compute_type = number = "float32" if compute_type == "auto" else compute_type
        self.name = f"{PACKAGE} {number}"

        def write(draft: Path) -> None:
            from polyhead.engines.ctranslate2_model import convert  # numpy, only needed here

            convert(directory, draft, number, masks_specials=False)

        version = import_module(PACKAGE).__version__
        self._folder = converted_model(directory, f"{PACKAGE}-{version}-{number}", write)
        settings = json.loads((self._folder / "config.json").read_text(encoding="utf-8"))
        self.n_positions: int = settings["max_positions"]
        # Its search ends when `patience` times the beam have ended, ours when none can be better.
        # With 2, outputs were equal in all cases tried; int8 rounds anyway: 1 is faster.
        self.patience = 2 if number == "float32" else 1
        self._is_usable = False  # until a search gave finite scores
        self.n_parallel = n_workers or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._models: list[Any] = []  # that of greedy search, once it is needed
        self._open: WeakSet[Generator[DecodingStep]] = WeakSet()
        if use == "translate":
            self.translator = open_model("Translator", self._folder, number, self.n_parallel)
        else:
            finalize(self, _end, self._open, self._models)  # also before the interpreter ends

    def decode(
        self,
        sources: Sequence[list[int]],
        options: DecodeConfig,
        *,
        prefixes: Sequence[list[int]],
        seed: int = 0,  # noqa: ARG002 (sampling is refused)
        scores: Scores = "tokens",
        progress: Callable[[int], None] = lambda _: None,
        is_cancelled: Callable[[], bool] | None = None,  # noqa: ARG002 (a block is short)
    ) -> list[list[Output]]:
        """Return the `n_best` best outputs for every source, in the order of the sources.

        Log-probabilities of tokens take another pass; without any, greedy search is faster.
        """
        outputs: list[list[Output]] = []
        starts = prefixes if any(prefixes) else None
        for at in range(0, len(sources), BLOCK):
            rows = list(sources[at : at + BLOCK])
            pools = self._search_all(
                rows, options, starts and starts[at : at + BLOCK], with_scores=scores != "none"
            )
            if starts is None:  # else they are ranked by scores that lack the prefix
                pools = [rank(pool, options) for pool in pools]
            if scores == "tokens" or starts is not None:
                pools = [rank(pool, options) for pool in self._scored(rows, pools)]
            outputs += [[as_output(hypothesis, options) for hypothesis in pool] for pool in pools]
            progress(len(rows))
        return outputs

    def running_search(self, options: DecodeConfig) -> None:
        """Return None: its batches are whole ones."""

    def _search_all(
        self,
        sources: Sequence[list[int]],
        options: DecodeConfig,
        prefixes: Sequence[list[int]] | None,
        *,
        with_scores: bool,
    ) -> list[list[Hypothesis]]:
        """Search with one limit for all; outputs that reach their own limit are searched again."""
        limits = [options.limit(len(source)) for source in sources]
        longest = max(*limits, *map(len, sources))
        if longest > self.n_positions:
            raise ConfigError(
                f"{longest} tokens: the converted model has {self.n_positions} positions. Lower "
                "max_length, or use the engine torch.",
                "too_long",
            )
        # Beams are ranked by scores; also, a model is unusable if its scores are not finite.
        with_scores = with_scores or options.beam > 1 or not self._is_usable
        results = self._search(sources, options, max(limits), prefixes, with_scores)
        self._is_usable = True
        for i, limit in enumerate(limits):
            if limit < max(limits) and any(len(h.tokens) >= limit for h in results[i]):
                start = None if prefixes is None else [prefixes[i]]
                (results[i],) = self._search([sources[i]], options, limit, start, with_scores)
        return results

    def _search(
        self,
        sources: Sequence[list[int]],
        options: DecodeConfig,
        limit: int,
        prefixes: Sequence[list[int]] | None,
        with_scores: bool,
    ) -> list[list[Hypothesis]]:
        n_hypotheses = options.beam * (1 if options.beam == 1 else self.patience)
        results = self.translator.translate_batch(
            [[*map(str, source[:-1])] for source in sources],  # it adds EOS itself
            target_prefix=None if prefixes is None else [[*map(str, ids)] for ids in prefixes],
            suppress_sequences=NEVER_WRITTEN,
            max_batch_size=self._n_rows(len(sources), options.beam),
            beam_size=options.beam,
            num_hypotheses=n_hypotheses,
            patience=n_hypotheses / options.beam,
            length_penalty=0,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=0,
            return_scores=with_scores,
            return_end_token=True,
        )
        if not all(math.isfinite(score) for result in results for score in result.scores):
            raise CheckpointError(NOT_FINITE, "not_finite")
        return [
            [
                Hypothesis(tokens, score, [])
                for tokens, score in zip(
                    result.hypotheses, result.scores or [math.nan], strict=True
                )
            ]
            for result in results
        ]

    def _n_rows(self, n_sentences: int, beam: int = 1) -> int:
        """Return the size of batches: work for all workers, twice if there is enough of it."""
        share = -(-n_sentences // self.n_parallel)
        most = MAX_ROWS if beam == 1 else FEW_ROWS
        return min(most, share if share <= FEW_ROWS else max(FEW_ROWS, share // 2))

    def _scored(
        self, sources: Sequence[list[int]], pools: Sequence[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses with the log-probabilities of their tokens."""
        texts = [[*map(str, source[:-1])] for source in sources]
        sides = [(text, h) for text, pool in zip(texts, pools, strict=True) for h in pool]
        results = self.translator.score_batch(
            [text for text, _ in sides],
            [h.tokens[:-1] if h.tokens[-1:] == [END] else h.tokens for _, h in sides],
            max_batch_size=self._n_rows(len(sides)),
            max_input_length=0,
        )
        scores = iter(results)

        def scored(hypothesis: Hypothesis) -> Hypothesis:
            log_p = next(scores).log_probs[: len(hypothesis.tokens)]  # without an end not reached
            return Hypothesis(hypothesis.tokens, math.fsum(log_p), log_p)

        return [[scored(hypothesis) for hypothesis in pool] for pool in pools]

    def generate(
        self, prompt: Sequence[int], options: DecodeConfig, seed: int, context: int, *,
        forced: Sequence[int] = (), top: int = 0,
    ) -> Iterator[DecodingStep]:  # fmt: skip
        """Yield `options.max_length` tokens that follow the prompt, of which `context` are read.

        A full window is continued with its newer half, as in `polyhead.decoding.generate`. Several
        texts can be generated at once, in threads.
        """
        assert not forced and not top  # see `TextGenerator.option_obstacle`
        check_seed(seed)
        steps = self._steps(prompt, options, seed, context)
        self._open.add(steps)
        return steps

    def _steps(
        self, prompt: Sequence[int], options: DecodeConfig, seed: int, context: int
    ) -> Generator[DecodingStep]:
        model = self._seeded_model(seed) if options.sample else self._greedy_model()
        window, n_generated, must_avoid = list(prompt[-context:]), 0, options.sample
        while n_generated < options.max_length:
            room = min(context - len(window) + 1, options.max_length - n_generated)
            n_before = n_generated
            for step in model.generate_tokens(
                [*map(str, window)],
                max_length=room if options.sample or not must_avoid else 1,
                sampling_topk=options.top_k if options.sample else 1,
                sampling_topp=options.top_p if options.sample else 1,
                sampling_temperature=options.temperature if options.sample else 1,
                suppress_sequences=NEVER_WRITTEN if must_avoid else None,
                end_token=[str(PAD), str(BOS)],  # so that EOS is a token like any other
                return_log_prob=True,
            ):
                if not math.isfinite(step.log_prob):
                    raise CheckpointError(NOT_FINITE, "not_finite")
                if step.token_id in (PAD, BOS):
                    break
                window.append(step.token_id)
                n_generated += 1
                log_p = min(0.0, step.log_prob)
                yield DecodingStep(Choice(step.token_id, log_p, math.exp(log_p), None), False, ())
            if must_avoid and n_generated == n_before:
                raise CheckpointError(NOT_FINITE, "not_finite")
            # Greedy search avoids PAD and BOS only where they are likeliest: probabilities without
            # them would be higher than the model's.
            must_avoid = options.sample or n_generated == n_before
            if len(window) > context:
                window = window[-max(1, context // 2) :]

    def _greedy_model(self) -> Any:
        with self._lock:
            if not self._models:
                model = open_model("Generator", self._folder, self.compute_type, MAX_TEXTS_AT_ONCE)
                self._models.append(model)
            return self._models[0]

    def _seeded_model(self, seed: int) -> Any:
        """Return a model of its own: the thread of a new one reads the seed when it first draws."""
        with SEEDING:
            import_module(PACKAGE).set_random_seed(seed % MAX_SEED)
            model = open_model("Generator", self._folder, self.compute_type, 1)
            model.generate_batch([[END]], max_length=1, sampling_topk=2)
        return model


def rank(pool: Sequence[Hypothesis], options: DecodeConfig) -> list[Hypothesis]:
    """Return the `n_best` best hypotheses by our length penalty."""
    return sorted(pool, key=lambda h: -penalized(h, options))[: options.n_best]


def penalized(hypothesis: Hypothesis, options: DecodeConfig) -> float:
    """Return the score of a hypothesis; greedy search has no length penalty."""
    alpha = options.length_penalty if options.beam > 1 else 0.0
    return hypothesis.log_p / float(((5 + len(hypothesis.tokens)) / 6) ** alpha)


def as_output(hypothesis: Hypothesis, options: DecodeConfig) -> Output:
    """Return a hypothesis as decoding with torch does, without EOS."""
    tokens, log_p, token_log_p = hypothesis
    ended = tokens[-1:] == [END]
    ids = [*map(int, tokens[:-1] if ended else tokens)]
    return Output(ids, penalized(hypothesis, options), log_p, ended, token_log_p)


def _end(searches: WeakSet[Generator[DecodingStep]], models: list[Any]) -> None:
    """End what runs: CTranslate2 aborts a process whose interpreter ends before its threads."""
    for search in list(searches):
        with suppress(ValueError):  # it runs in a thread
            search.close()
    models.clear()
