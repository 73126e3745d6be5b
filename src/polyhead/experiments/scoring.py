"""Scoring of trained systems: the same sentences, search and metrics for each.

quality    greedy and with a beam; BLEU lower-cased and cased, chrF; or WER and PER
speed      sentences per second of CPU time
memory     the parameters, and the decoding state of one sentence
cost       FLOPs of training: on a sentence pair of average length, and on real batches
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.checkpoint.atomic_dir import follow
from polyhead.checkpoint.train_state import read_progress
from polyhead.cost.counter import count_flops
from polyhead.data.batches.base import IndexedBatches
from polyhead.data.batches.translation import TranslationBatches, collate
from polyhead.decoding.options import DecodeConfig
from polyhead.experiments.budget import UpdateTimer
from polyhead.experiments.plan import ComparePlan
from polyhead.experiments.results import (
    DECODINGS,
    CurvePoint,
    DecodingCost,
    ExpertBalance,
    SystemResult,
    TrainingCost,
    read_json,
    write_file,
)
from polyhead.experiments.systems import System
from polyhead.layers.attention_hooks import has_cross_attention
from polyhead.metrics.bleu import SAMPLES, Score, score
from polyhead.metrics.error_rates import error_rates
from polyhead.models.registry import FAMILIES
from polyhead.pipelines.evaluation import Metric
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import EOS, PAD, UNK
from polyhead.tasks.losses import Objective, TranslationLoss
from polyhead.training.config import RunConfig, build
from polyhead.training.run_log import read_metrics
from polyhead.training.tasks.translation import EncodedPairs, objective_of

MEASURED_BATCHES = 3


def score_system(
    plan: ComparePlan,
    pairs: EncodedPairs,
    system: System,
    seed: int,
    folders: Sequence[Path],
    progress: Callable[[int], None],
) -> SystemResult:
    """Score a trained system on the test set, and measure its cost.

    pairs: the encoded training pairs; folders: its run directories, one for each stage.
    """
    translator = Translator.from_dir(folders[-1])
    model, options = translator.saved.model, translator.defaults
    scores, speeds = translate_test_set(plan, translator, f"{system.name}-{seed}", progress)
    shortest_first = pairs.source.lengths.argsort(kind="stable").tolist()
    median = pairs.source[shortest_first[len(shortest_first) // 2]].tolist()
    metrics = [read_metrics(folder) for folder in folders]
    balances = [entry for entry in metrics[-1] if "experts_used" in entry]
    return SystemResult(
        system=system.name,
        seed=seed,
        parameters=sum(p.numel() for p in model.parameters()),
        training=total_cost(training_cost(folder, pairs) for folder in folders),
        decoding=DecodingCost(
            decoding_state_bytes(model, median, options),
            len(median),
            options.beam,
            options.length_penalty,
            speeds,
        ),
        scores=scores,
        curve=learning_curve(metrics, [stage.share for stage in system.stages]),
        experts=ExpertBalance(balances[-1]["experts_used"], balances[-1]["experts_most"])
        if balances
        else None,
    )


def score_ensemble(
    plan: ComparePlan, name: str, members: Sequence[SystemResult], progress: Callable[[int], None]
) -> SystemResult:
    """Score an ensemble of trained systems; it costs what its members cost together."""
    translator = Translator.from_dir(*(plan.folder / "runs" / member.key for member in members))
    seed = f"ensemble{len(members)}"
    costs = [member.decoding for member in members if member.decoding is not None]
    scores, speeds = translate_test_set(plan, translator, f"{name}-{seed}", progress)
    return SystemResult(
        system=name,
        seed=seed,
        parameters=sum(member.parameters for member in members),
        training=total_cost(member.training for member in members),
        decoding=replace(
            costs[0],
            remembered_bytes=sum(cost.remembered_bytes for cost in costs),
            sentences_per_second=speeds,
        ),
        scores=scores,
        curve=[],
        members=[member.key for member in members],
    )


def translate_test_set(
    plan: ComparePlan, translator: Translator, key: str, progress: Callable[[int], None]
) -> tuple[dict[str, dict[str, Score]], dict[str, float]]:
    """Translate the test set greedily and with the recipe's beam, and write the outputs.

    Returns scores and sentences per second of both searches. Options that need attention are left
    out if no model attends.
    """
    assert plan.test is not None
    usual = replace(translator.defaults, n_best=1, sample=False)
    if not any(has_cross_attention(saved.model) for saved in translator.models):
        usual = replace(usual, coverage=0.0, replace_unknown=False)
    sources, scores, speeds = plan.test.sources, {}, {}
    for decoding, options in zip(DECODINGS, (replace(usual, beam=1), usual), strict=True):
        timing = UpdateTimer(on_cpu=translator.torch.device.type == "cpu")
        started = timing.now()
        best = translator.n_best(sources, options=options, progress=progress)
        speeds[decoding] = len(sources) / max(timing.now() - started, 1e-9)
        outputs = [" ".join(candidates[0].text.split("\n")) for candidates in best]
        scores[decoding] = score_outputs(
            outputs, plan.test.references, plan.metric, interval=decoding == DECODINGS[0]
        )
        lines = "".join(f"{line}\n" for line in outputs)
        write_file(plan.folder / "outputs" / f"{key}.{decoding}.txt", lines)
    return scores, speeds


def score_outputs(
    outputs: Sequence[str], references: Sequence[str], metric: Metric, *, interval: bool = True
) -> dict[str, Score]:
    """Return scores by name; the first one has an interval if requested."""
    samples = SAMPLES if interval else 0
    if metric == "wer":
        return {rate.name: rate for rate in error_rates(outputs, references, bootstrap=samples)}
    lower = score(outputs, references, lowercase=True, bootstrap=samples)[0]
    bleu, chrf = score(outputs, references, bootstrap=0)
    return {"BLEU lower-cased": lower, "BLEU cased": bleu, "chrF": chrf}


def learning_curve(
    metrics: Sequence[Sequence[dict[str, Any]]], shares: Sequence[float]
) -> list[CurvePoint]:
    """Return the validations of all stages, over the share of the whole budget."""
    curve: list[CurvePoint] = []
    steps, spent = 0, 0.0
    for entries, share in zip(metrics, shares, strict=True):
        last = max((entry["step"] for entry in entries), default=1)
        for entry in entries:
            if entry["kind"] == "valid":
                done = spent + share * entry["step"] / last
                others = {k: v for k, v in entry.items() if k not in ("kind", "step", "loss")}
                point = CurvePoint(done, steps + entry["step"], entry.get("loss"), others)
                curve.append(point)
        steps, spent = steps + last, spent + share
    return curve


def decoding_state_bytes(model: Any, source: list[int], options: DecodeConfig) -> int:
    """Return the bytes that decoding one sentence holds after its first step."""
    ids = torch.tensor([source], device=next(model.parameters()).device)
    with torch.inference_mode():
        state = model.begin(ids, width=options.beam, max_length=options.limit(len(source)))
        model.step(torch.ones(1, options.beam, dtype=torch.int64, device=ids.device), state)
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    storages = [tensor.untyped_storage() for tensor in tensors_in(state)]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(size for address, size in sizes.items() if address not in own)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield all tensors inside a state."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        yield from tensors_in([getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)


def total_cost(costs: Iterable[TrainingCost]) -> TrainingCost:
    """Return the sum of several trainings."""
    columns = zip(*(vars(cost).values() for cost in costs), strict=True)
    return TrainingCost(*map(sum, columns))


def training_cost(folder: Path, pairs: EncodedPairs) -> TrainingCost:
    """Return steps, tokens, time and FLOPs of one run of a translator."""
    translator, spent = Translator.from_dir(folder), time_and_tokens(folder)
    run = build(translator.saved.about["run"])
    # without subword sampling, unlike those of the training
    batches = TranslationBatches(pairs.source, pairs.target, run.train.max_tokens, run.train.seed)
    flops = flops_per_token(run, pairs)
    measured = measured_flops_per_token(translator.saved.model, objective_of(run), batches)
    return replace(spent, flops=flops * spent.tokens, flops_measured=measured * spent.tokens)


def time_and_tokens(folder: Path) -> TrainingCost:
    """Return steps, tokens and time of one run, without its FLOPs."""
    progress = read_progress(follow(folder / "last"))["progress"]
    timing = read_json(folder / "time.json", dict)
    per_step = timing["seconds"] / timing["steps"] if timing["steps"] else 0.0
    seconds = per_step * progress["step"] or progress["seconds"]  # if killed: wall-clock time
    return TrainingCost(progress["step"], progress["tokens"], seconds, 0.0, 0.0)


def flops_per_token(run: RunConfig, pairs: EncodedPairs) -> float:
    """Return the FLOPs per token of training a new model on a sentence pair of average length."""
    source, target = (round(side.lengths.mean()) for side in (pairs.source, pairs.target))
    batch = collate([([UNK] * (source - 1) + [EOS], [UNK] * (target - 1) + [EOS])])
    with torch.random.fork_rng(devices=[]):
        model = FAMILIES[run.family].model(run.model)
        return training_flops(model, TranslationLoss(PAD), [batch]) / (source + target)


def measured_flops_per_token(model: Any, objective: Objective, every: IndexedBatches[Any]) -> float:
    """Return the FLOPs per token on a few of its training batches, padding included."""
    n, device = every.n_batches(0), next(model.parameters()).device
    places = sorted({round(i * (n - 1) / MEASURED_BATCHES) for i in range(MEASURED_BATCHES)})
    batches = [every[(0, place)].to(device) for place in places]
    model.train()
    with torch.random.fork_rng(devices=[]):
        flops = training_flops(model, objective, batches)
    model.eval()
    return flops / sum(batch.n_tokens for batch in batches)


def training_flops(model: Any, objective: Objective, batches: Sequence[Any]) -> int:
    """Return the FLOPs of forward and backward on these batches."""

    def learn() -> None:
        for batch in batches:
            objective(model, batch).total.backward()
            model.zero_grad(set_to_none=True)

    return count_flops(learn)
