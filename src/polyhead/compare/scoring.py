"""Scoring of trained systems: the same sentences, search and metrics for each.

quality    greedy and with a beam; BLEU lower-cased and cased, chrF; or WER and PER
speed      sentences per second of CPU time
memory     the parameters, and the decoding state of one sentence
cost       FLOPs of training: by formula, and measured on real batches
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.checkpoint.train_state import read_progress
from polyhead.compare.budget import TimingReporter
from polyhead.compare.plan import ComparePlan
from polyhead.compare.results import (
    DECODINGS,
    CurvePoint,
    DecodingCost,
    ExpertBalance,
    SystemResult,
    TrainingCost,
    output_file,
    read_json,
    write_file,
)
from polyhead.compare.systems import System
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
from polyhead.metrics.bleu import SAMPLES, Comparison, Score, compare, score
from polyhead.metrics.error_rates import compare_errors, error_rates
from polyhead.models.registry import FAMILIES
from polyhead.pipelines.evaluation import Metric
from polyhead.pipelines.translator import Translator
from polyhead.special_tokens import EOS, PAD, UNK
from polyhead.training.config import RunConfig, build
from polyhead.training.losses import Objective, TranslationLoss
from polyhead.training.run_log import METRICS
from polyhead.training.tasks.translation import objective_of

MEASURED_BATCHES = 3
Scores = dict[str, dict[str, Score]]  # greedy, beam; then by the score's name
Speeds = dict[str, float]  # sentences per second; greedy, beam


def score_system(
    plan: ComparePlan,
    pairs: Sequence[Pair],
    system_and_seed: tuple[System, int],
    folders: Sequence[Path],
    progress: Callable[[int], None],
) -> SystemResult:
    """Score a trained system on the test set, and measure its cost.

    pairs: the encoded training pairs; folders: its run directories, one for each stage.
    """
    system, seed = system_and_seed
    translator = Translator.from_dir(folders[-1])
    model: Any = translator.model
    scores, speeds = translate_test_set(plan, translator, (system.name, seed), progress)
    median = sorted(pairs, key=lambda pair: len(pair[0]))[len(pairs) // 2][0]
    options = translator.defaults
    costs = [training_cost(folder, pairs) for folder in folders]
    return SystemResult(
        system=system.name,
        seed=seed,
        parameters=sum(p.numel() for p in model.parameters()),
        training=TrainingCost(
            **{f.name: sum(getattr(cost, f.name) for cost in costs) for f in fields(TrainingCost)}
        ),
        decoding=DecodingCost(
            decoding_state_bytes(model, median, options),
            len(median),
            options.beam,
            options.length_penalty,
            speeds,
        ),
        scores=scores,
        curve=learning_curve(folders, [stage.share for stage in system.stages]),
        experts=expert_balance(folders[-1]),
    )


def translate_test_set(
    plan: ComparePlan,
    translator: Translator,
    name_and_seed: tuple[str, int | str],
    progress: Callable[[int], None],
) -> tuple[Scores, Speeds]:
    """Translate the test set greedily and with the recipe's beam; write outputs, return scores."""
    usual = decode_options(translator)
    sources, scores, speeds = plan.test.sources, {}, {}
    for decoding, options in zip(DECODINGS, (replace(usual, beam=1), usual), strict=True):
        timing = TimingReporter(on_cpu=translator.device.type == "cpu")
        started = timing.now()
        best = translator.n_best(sources, options=options, progress=progress)
        speeds[decoding] = len(sources) / max(timing.now() - started, 1e-9)
        outputs = [" ".join(candidates[0].text.split("\n")) for candidates in best]
        scores[decoding] = score_outputs(
            outputs, plan.test.references, plan.metric, interval=decoding == DECODINGS[0]
        )
        lines = "".join(f"{line}\n" for line in outputs)
        write_file(output_file(plan.folder, *name_and_seed, decoding), lines)
    return scores, speeds


def decode_options(translator: Translator) -> DecodeConfig:
    """Return the recipe's options, without those that need attention if no model attends."""
    usual = replace(translator.defaults, n_best=1, sample=False)
    if any(has_cross_attention(saved.model) for saved in translator.models):
        return usual
    return replace(usual, coverage=0.0, replace_unknown=False)


def n_translations(sources: Sequence[str]) -> int:
    """Return how many translations `translate_test_set` computes."""
    return len(DECODINGS) * len(sources)


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


def significance_test(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str], metric: Metric
) -> Comparison:
    """Compare the first score of two systems."""
    if metric == "wer":
        return compare_errors(baseline, system, references)[0]
    return compare(baseline, system, references, lowercase=True)[0]


def training_cost(folder: Path, pairs: Sequence[Pair]) -> TrainingCost:
    """Return steps, tokens, time and FLOPs of one run."""
    progress = read_progress(folder / "last")["progress"]
    saved = Translator.from_dir(folder).models[0]
    run = build(dict(saved.about["run"]))
    timing = read_json(folder / "time.json")
    per_step = timing["seconds"] / timing["steps"] if timing["steps"] else 0.0
    tokens = progress["tokens"]
    return TrainingCost(
        steps=progress["step"],
        tokens=tokens,
        seconds=per_step * progress["step"] or progress["seconds"],  # if killed: wall-clock time
        flops=flops_per_token(run, pairs) * tokens,
        flops_measured=measured_flops_per_token(saved.model, run, pairs) * tokens,
    )


def learning_curve(folders: Sequence[Path], shares: Sequence[float]) -> list[CurvePoint]:
    """Return the validations of all stages, over the share of the whole budget."""
    curve: list[CurvePoint] = []
    steps, spent = 0, 0.0
    for folder, share in zip(folders, shares, strict=True):
        entries = read_metrics(folder)
        last = max((entry["step"] for entry in entries), default=1)
        for entry in entries:
            if entry["kind"] == "valid":
                done = spent + share * entry["step"] / last
                step = steps + entry["step"]
                curve.append(CurvePoint(done, step, entry.get("loss"), entry.get("bleu")))
        steps, spent = steps + last, spent + share
    return curve


def expert_balance(folder: Path) -> ExpertBalance | None:
    """Return the balance of experts at the last validation; None for a model without experts."""
    for entry in reversed(read_metrics(folder)):
        if "experts_used" in entry:
            return ExpertBalance(entry["experts_used"], entry["experts_most"])
    return None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of a run's metrics file."""
    lines = (folder / METRICS).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def decoding_state_bytes(model: Any, source: list[int], options: DecodeConfig) -> int:
    """Return the bytes that decoding one sentence holds after its first step."""
    ids = torch.tensor([source], device=next(model.parameters()).device)
    limit = options.limit(len(source))
    with torch.inference_mode():
        state = model.begin(ids, width=options.beam, max_length=limit)
        model.step(torch.ones(1, options.beam, dtype=torch.int64, device=ids.device), state)
    return sum(_storages(state, {}, known=_addresses(model)).values())


def _addresses(model: nn.Module) -> set[int]:
    """Return the addresses of the model's own tensors."""
    own = [*model.parameters(), *model.buffers()]
    return {tensor.untyped_storage().data_ptr() for tensor in own}


def _storages(value: Any, sizes: dict[int, int], known: set[int]) -> dict[int, int]:
    """Collect the bytes of all tensors inside a state, each storage once."""
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
    elif isinstance(value, dict):
        for item in value.values():
            _storages(item, sizes, known)
    elif isinstance(value, list | tuple):
        for item in value:
            _storages(item, sizes, known)
    elif is_dataclass(value):
        for field in fields(value):
            _storages(getattr(value, field.name), sizes, known)
    return sizes


def _learn(objective: Objective, model: Any, batch: TranslationBatch) -> None:
    """Run forward and backward."""
    objective(model, batch).total.backward()


def measured_flops_per_token(model: Any, run: RunConfig, pairs: Sequence[Pair]) -> float:
    """Return the FLOPs per token on a few of its training batches, padding included."""
    batches = TranslationBatches(lambda _: pairs, run.train.max_tokens, run.train.seed)
    n, device = batches.n_batches(0), next(model.parameters()).device
    places = sorted({round(i * (n - 1) / MEASURED_BATCHES) for i in range(MEASURED_BATCHES)})
    objective, work, tokens = objective_of(run), 0, 0
    model.train()
    with torch.random.fork_rng(devices=[]):
        for place in places:
            batch = batches[(0, place)].to(device)
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
