"""One examination for everybody: the same sentences, the same search, the same scorer.

quality    greedy and with a beam; BLEU lower-cased and cased, chrF; or WER and PER
speed      sentences a second, of the processors' time
memory     the parameters, and what decoding remembers of one sentence
cost       FLOPs of training: counted from the model, and measured on real batches
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.compare.budget import TimingReporter
from polyhead.cost.breakdown import cost_of
from polyhead.cost.counter import count_flops
from polyhead.cost.formulas import Shape
from polyhead.data.batches.translation import (
    Pair,
    TranslationBatch,
    TranslationBatches,
    collate,
)
from polyhead.decoding.config import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import has_cross_attention
from polyhead.metrics.bleu import SAMPLES, Comparison, compare, score
from polyhead.metrics.error_rates import compare_errors, error_rates
from polyhead.models.registry import FAMILIES
from polyhead.pipelines.evaluate import Metric
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import EOS, PAD, UNK
from polyhead.training.config import RunConfig
from polyhead.training.losses import Objective, TranslationLoss
from polyhead.training.tasks.translation import objective_of

MEASURED_BATCHES = 3
WAYS = ("greedy", "beam")


@dataclass(frozen=True)
class Examined:
    """What one way of decoding gave."""

    outputs: list[str]
    scores: dict[str, Any]
    seconds: float


def examine(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    metric: Metric,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Examined]:
    """Translate the test set twice, greedily and with the beam of the recipe."""
    usual = options_for(translator)
    found = {}
    for way, options in zip(WAYS, (replace(usual, beam=1), usual), strict=True):
        clock = TimingReporter(on_cpu=translator.device.type == "cpu")
        started = clock.now()
        best = translator.n_best(sources, options=options, progress=progress)
        seconds = clock.now() - started
        outputs = [" ".join(one[0].text.split("\n")) for one in best]
        scores = scores_of(outputs, references, metric, interval=way == WAYS[0])
        found[way] = Examined(outputs, scores, seconds)
    return found


def options_for(translator: Translator) -> DecodeConfig:
    """Those of the recipe, less what needs attention where nobody attends."""
    usual = replace(translator.defaults, n_best=1, sample=False)
    if any(has_cross_attention(saved.model) for saved in translator.models):
        return usual
    return replace(usual, coverage=0.0, replace_unknown=False)


def n_examined(sources: Sequence[str]) -> int:
    """How many translations an examination asks for."""
    return len(WAYS) * len(sources)


def scores_of(
    outputs: Sequence[str], references: Sequence[str], metric: Metric, *, interval: bool = True
) -> dict[str, Any]:
    """Scores by name, as JSON knows them; the first one may have an interval."""
    samples = SAMPLES if interval else 0
    if metric == "wer":
        rates = error_rates(outputs, references, bootstrap=samples)
        return {one.name: asdict(one) for one in rates}
    lower = score(outputs, references, lowercase=True, bootstrap=samples)[0]
    bleu, chrf = score(outputs, references, bootstrap=0)
    named = {"BLEU lower-cased": lower, "BLEU cased": bleu, "chrF": chrf}
    return {name: asdict(one) for name, one in named.items()}


def tested(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str], metric: Metric
) -> Comparison:
    """How likely the difference of the first score is by chance."""
    if metric == "wer":
        return compare_errors(baseline, system, references)[0]
    return compare(baseline, system, references, lowercase=True)[0]


def remembered_bytes(model: Any, source: list[int], options: DecodeConfig) -> int:
    """What decoding one sentence holds after its first step: caches, states, what was read."""
    ids = torch.tensor([source], device=next(model.parameters()).device)
    limit = options.limit(len(source))
    with torch.inference_mode():
        state = model.begin(ids, width=options.beam, max_length=limit)
        model.step(torch.ones(1, options.beam, dtype=torch.int64, device=ids.device), state)
    return sum(_storages(state, {}, known=_addresses(model)).values())


def _addresses(model: nn.Module) -> set[int]:
    """Where the model's own tensors lie, which are there anyway."""
    own = [*model.parameters(), *model.buffers()]
    return {tensor.untyped_storage().data_ptr() for tensor in own}


def _storages(thing: Any, found: dict[int, int], known: set[int]) -> dict[int, int]:
    """All tensors inside a state, each storage once, with its bytes."""
    if isinstance(thing, Tensor):
        storage = thing.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
    elif isinstance(thing, dict):
        for value in thing.values():
            _storages(value, found, known)
    elif isinstance(thing, list | tuple):
        for value in thing:
            _storages(value, found, known)
    elif is_dataclass(thing):
        for one in fields(thing):
            _storages(getattr(thing, one.name), found, known)
    return found


def _learn(objective: Objective, model: Any, batch: TranslationBatch) -> None:
    """The way there and back."""
    objective(model, batch).total.backward()


def measured_flops_per_token(model: Any, run: RunConfig, pairs: Sequence[Pair]) -> float:
    """By torch's counter on a few of the batches that it was trained on, padding and all."""
    epochs = TranslationBatches(lambda _: pairs, run.train.max_tokens, run.train.seed)
    n, device = epochs.n_batches(0), next(model.parameters()).device
    places = sorted({round(i * (n - 1) / MEASURED_BATCHES) for i in range(MEASURED_BATCHES)})
    objective, work, tokens = objective_of(run), 0, 0
    model.train()
    with torch.random.fork_rng(devices=[]):
        for place in places:
            batch = epochs[(0, place)].to(device)
            work += count_flops(partial(_learn, objective, model, batch))
            tokens += batch.n_tokens
            model.zero_grad(set_to_none=True)
    model.eval()
    return work / tokens


def flops_per_token(run: RunConfig, pairs: Sequence[Pair]) -> float:
    """Return the FLOPs of training on a sentence pair of average length, per token.

    By formula where the family has one, otherwise by torch's counter on a new model.
    """
    source, target = (round(sum(map(len, side)) / len(pairs)) for side in zip(*pairs, strict=True))
    try:
        work = cost_of(run.family, run.model, Shape(1, target, source)).total.training
    except ConfigError:
        work = _measured_products(run, source, target)
    return work / (source + target)


def _measured_products(run: RunConfig, source: int, target: int) -> int:
    """Return the FLOPs of one training step; the random state is left unchanged."""
    batch = collate([([UNK] * (source - 1) + [EOS], [UNK] * (target - 1) + [EOS])])
    with torch.random.fork_rng(devices=[]):
        model = FAMILIES[run.family].model(run.model)
        return count_flops(lambda: TranslationLoss(PAD)(model, batch).total.backward())
