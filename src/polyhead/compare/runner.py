"""Train everybody, one after the other, and write down what came out.

What is finished is not done again; what was interrupted goes on to the last bit where it stopped.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyhead import devices
from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import train_state as training_state
from polyhead.compare import scoring as judging
from polyhead.compare.budget import TimingReporter, affordable, fitted, probe_steps
from polyhead.compare.plan import BUDGETS, ComparePlan, read_json
from polyhead.compare.systems import Stage, System
from polyhead.config import from_dict, set_by_path
from polyhead.data import config as corpus
from polyhead.data.batches.translation import Pair, TranslationBatches
from polyhead.errors import DataError, Diverged
from polyhead.pipelines.translator import load
from polyhead.tokenizers import storage as tokenizer
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import Tokenizers
from polyhead.training import run_dir as runs
from polyhead.training.config import RunConfig, build
from polyhead.training.run_log import METRICS, ProgressReporter, RunLog
from polyhead.training.tasks.base import load_or_train_tokenizers
from polyhead.training.trainer import TrainResult, train

Progress = Callable[[int], None]  # so many more are done
Counting = Callable[[str, int], AbstractContextManager[Progress]]  # of what, and how many


def in_silence(_what: str, _total: int) -> AbstractContextManager[Progress]:
    """Count for nobody."""
    return nullcontext(lambda _: None)


class Interrupted(Exception):
    """Somebody asked to leave; everything is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"signal {signal}")
        self.signal = signal


@dataclass(frozen=True)
class Shared:
    """The same for everybody: the vocabulary, and the training pairs as ids."""

    tokenizers: Tokenizers
    pairs: list[Pair]


def run(
    plan: ComparePlan, watcher: ProgressReporter, counting: Counting = in_silence
) -> list[dict[str, Any]]:
    """All results, finished ones included, in the order of the table."""
    for notice in plan.material.notices:
        watcher.notice(notice)
    entries = [(system, seed) for system in plan.systems for seed in range(1, plan.seeds + 1)]
    found: list[dict[str, Any]] = []
    shared: Shared | None = None
    for number, (system, seed) in enumerate(entries, start=1):
        path = result_file(plan, system.name, seed)
        if path.exists():
            found.append(read_json(path))
            continue
        if shared is None:
            shared = share(plan, watcher)
        seed_words = f", seed {seed}" if plan.seeds > 1 else ""
        others = entries[number - 1 :]
        left = hours(plan, sum(not result_file(plan, s.name, n).exists() for s, n in others))
        watcher.stage(f"[{number}/{len(entries)}] {system.title}{seed_words}{left}")
        folders = [
            train_stage(plan, shared, system, seed, stage, watcher)
            for stage in range(len(system.stages))
        ]
        watcher.stage(f"[{number}/{len(entries)}] examining {system.title}")
        with counting("examining", judging.n_examined(plan.material.sources)) as progress:
            result = judge(plan, shared, (system, seed), folders, progress)
        write_json(path, result)
        found.append(result)
    return found


def hours(plan: ComparePlan, n_left: int) -> str:
    """How much training is left in all, if that is known."""
    if plan.budget.seconds is None:
        return ""
    minutes = round(n_left * plan.budget.seconds / 60)
    plural = "s" * (minutes != 1)
    return f" ({minutes:,} minute{plural} of training left in all)" if minutes else ""


def share(plan: ComparePlan, watcher: ProgressReporter) -> Shared:
    """Learn the vocabulary once, and encode the text with it."""
    watcher.stage("reading the data")
    data = from_dict(corpus.DataConfig, plan.base["data"], "data.")
    text = from_dict(TextConfig, plan.base.get("text", {}), "text.")
    train_pairs = corpus.load(data, seed=1).train
    _check_text(plan, [*train_pairs.sources, *train_pairs.targets])
    journal = RunLog(plan.folder, watcher)
    tokens = load_or_train_tokenizers(
        plan.folder / runs.TOKENIZER, train_pairs.sources, train_pairs.targets, text, journal
    )
    source = tokens.source.encode_batch(train_pairs.sources)
    target = tokens.target.encode_batch(train_pairs.targets)
    pairs = [
        pair for pair in zip(source, target, strict=True) if max(map(len, pair)) <= data.max_length
    ]
    if not pairs:
        raise DataError(
            f"all training pairs are longer than {data.max_length} tokens; raise data.max_length"
        )
    return Shared(tokens, pairs)


def _check_text(plan: ComparePlan, lines: Sequence[str]) -> None:
    """Whoever is trained later must read what the others have read."""
    path, now = plan.folder / "text.json", {"training": runs.fingerprint(lines)}
    if not path.exists():
        write_json(path, now)
    elif read_json(path) != now:
        raise DataError(
            f"{plan.folder}: the training text is no longer the one that this comparison began "
            "with; restore the files, or choose another --run"
        )


def stage_folder(plan: ComparePlan, system: System, seed: int, stage: int) -> Path:
    """The last stage's folder has the system's name; those before it have a number too."""
    last = stage == len(system.stages) - 1
    return plan.folder / "runs" / f"{system.name}-{seed}{'' if last else f'-stage-{stage + 1}'}"


def train_stage(
    plan: ComparePlan,
    shared: Shared,
    system: System,
    seed: int,
    stage: int,
    watcher: ProgressReporter,
) -> Path:
    """One run: timed first, if its like never was, then trained for as long as it may."""
    folder = stage_folder(plan, system, seed, stage)
    values = plan.values(system)
    for change in system.stages[stage].changes:
        set_by_path(values, change)
    values["train"]["seed"] = seed
    if stage:
        values["train"]["init"] = str(stage_folder(plan, system, seed, stage - 1))
    steps = steps_within(plan, shared, (system, stage), values, watcher)
    clock = TimingReporter(watcher, on_cpu=_on_cpu(values))
    try:
        result = _train(build(fitted(values, steps)), folder, shared, clock)
    except Diverged as error:
        who = f"{system.name}, seed {seed}"
        raise Diverged(f"{who}: {error}; or leave it out of --systems") from None
    _remember_time(folder, clock)
    if result.signal is not None:
        raise Interrupted(result.signal)
    return folder


def _train(
    run: RunConfig, folder: Path, shared: Shared, clock: TimingReporter, *, fresh: bool = False
) -> TrainResult:
    """Train in a folder that has the common vocabulary."""
    place = folder / runs.TOKENIZER
    if not place.exists():
        with store.os_errors_as_polyhead_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with store.atomic_dir(place) as draft:
            tokenizer.save(shared.tokenizers, draft)
    return train(run, folder, fresh=fresh, reporter=clock)


def steps_within(
    plan: ComparePlan,
    shared: Shared,
    who: tuple[System, int],
    values: dict[str, Any],
    watcher: ProgressReporter,
) -> int:
    """How many steps the budget allows: measured once for each system and stage, then kept."""
    system, number = who
    stage: Stage = system.stages[number]
    path = plan.folder / BUDGETS
    known = read_json(path) if path.exists() else {}
    key = system.name if len(system.stages) == 1 else f"{system.name}, stage {number + 1}"
    if key not in known:
        found = (
            timed(plan, shared, values, watcher)
            if plan.budget.flops is None
            else counted(build(values), shared)
        )
        known[key] = found | {"steps": affordable(plan.budget, stage.share, found)}
        write_json(path, known)
    return int(known[key]["steps"])


def timed(
    plan: ComparePlan, shared: Shared, values: dict[str, Any], watcher: ProgressReporter
) -> dict[str, float]:
    """What a step takes, from a few of them that are thrown away."""
    watcher.stage(f"timing {values['description']}")
    folder, clock = plan.folder / "probe", TimingReporter(on_cpu=_on_cpu(values))
    if folder.exists():
        shutil.rmtree(folder)
    probe = fitted(values, probe_steps(plan.budget))
    probe["train"] |= {
        "validate_every": 10**9, "save_every": 10**9, "bleu_sentences": 0, "judge_by": "loss",
    }  # fmt: skip
    result = _train(build(probe), folder, shared, clock)
    shutil.rmtree(folder)
    if result.signal is not None:
        raise Interrupted(result.signal)
    return {"seconds_per_step": clock.seconds_per_step}


def counted(run: RunConfig, shared: Shared) -> dict[str, float]:
    """What a step costs: the tokens of an average batch, times FLOPs of a token.

    Training by reward has no formula: it is measured on the model that it begins from.
    """
    vocab = shared.tokenizers
    sizes = {"source_vocab": len(vocab.source), "target_vocab": len(vocab.target)}
    run = replace(run, model=replace(run.model, **sizes))
    n_batches = TranslationBatches(
        lambda _: shared.pairs, run.train.max_tokens, run.train.seed
    ).n_batches(0)
    n_tokens = sum(len(source) + len(target) for source, target in shared.pairs)
    if run.train.reward.samples and run.train.init is not None:
        model = load(run.train.init).models[0].model
        per_token = judging.measured_flops_per_token(model, run, shared.pairs)
    else:
        per_token = judging.flops_per_token(run, shared.pairs)
    return {"flops_per_step": per_token * n_tokens / n_batches * run.train.accumulate}


def _on_cpu(values: dict[str, Any]) -> bool:
    return devices.choose(values["train"].get("device", "auto")).type == "cpu"


def _remember_time(folder: Path, clock: TimingReporter) -> None:
    """Add the time of this session's updates to that of earlier ones."""
    path = folder / "time.json"
    before = read_json(path) if path.exists() else {"steps": 0, "seconds": 0.0}
    write_json(
        path,
        {
            "steps": before["steps"] + len(clock.moments),
            "seconds": before["seconds"] + sum(clock.moments),
        },
    )


def judge(
    plan: ComparePlan,
    shared: Shared,
    who: tuple[System, int],
    folders: Sequence[Path],
    progress: Progress,
) -> dict[str, Any]:
    """Everything about one finished system, as JSON knows it; its translations go to files."""
    system, seed = who
    material = plan.material
    translator = load(folders[-1])
    model: Any = translator.models[0].model
    examined = judging.examine(
        translator, material.sources, material.references, plan.metric, progress
    )
    for way, one in examined.items():
        path = output_file(plan, system.name, seed, way)
        with store.os_errors_as_polyhead_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        store.write_text(path, "".join(f"{line}\n" for line in one.outputs))
    middle = sorted(shared.pairs, key=lambda pair: len(pair[0]))[len(shared.pairs) // 2]
    trained = [training_of(folder, shared.pairs) for folder in folders]
    return {
        "system": system.name,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "training": {
            name: sum(stage[name] for stage in trained)
            for name in ("steps", "tokens", "seconds", "flops", "flops_measured")
        },
        "decoding": {
            "remembered_bytes": judging.remembered_bytes(model, middle[0], translator.defaults),
            "source_tokens": len(middle[0]),
            "beam": translator.defaults.beam,
            "length_penalty": translator.defaults.length_penalty,
            "sentences_per_second": {
                way: len(material.sources) / max(one.seconds, 1e-9) for way, one in examined.items()
            },
        },
        "scores": {way: one.scores for way, one in examined.items()},
        "curve": curve_of(folders, [stage.share for stage in system.stages]),
        "experts": experts_of(folders[-1]),
    }


def training_of(folder: Path, pairs: Sequence[Pair]) -> dict[str, int | float]:
    """Steps, tokens, time and FLOPs of one run."""
    progress = training_state.read_progress(folder / "last")["progress"]
    saved = load(folder).models[0]
    run = build(dict(saved.about["run"]))
    timed = read_json(folder / "time.json")
    per_step = timed["seconds"] / timed["steps"] if timed["steps"] else 0.0
    counted = judging.flops_per_token(run, pairs)
    measured = judging.measured_flops_per_token(saved.model, run, pairs)
    return {
        "steps": progress["step"],
        "tokens": progress["tokens"],
        "seconds": per_step * progress["step"] or progress["seconds"],  # killed: the wall's clock
        "flops": counted * progress["tokens"],
        "flops_measured": measured * progress["tokens"],
    }


def curve_of(folders: Sequence[Path], shares: Sequence[float]) -> list[dict[str, Any]]:
    """What every validation of every stage found, and after which share of the whole budget."""
    curve: list[dict[str, Any]] = []
    steps, spent = 0, 0.0
    for folder, share in zip(folders, shares, strict=True):
        entries = metrics_of(folder)
        last = max((entry["step"] for entry in entries), default=1)
        for entry in entries:
            if entry["kind"] == "valid":
                found = {name: entry.get(name) for name in ("loss", "bleu")}
                done = spent + share * entry["step"] / last
                curve.append({"share": done, "step": steps + entry["step"], **found})
        steps, spent = steps + last, spent + share
    return curve


def experts_of(folder: Path) -> dict[str, float] | None:
    """How evenly the last validation found experts to be asked; None where there are none.

    `used` is the share of them that were asked at all, `most` the largest share of the questions
    of one layer that one of them got.
    """
    for entry in reversed(metrics_of(folder)):
        if "experts_used" in entry:
            return {"used": entry["experts_used"], "most": entry["experts_most"]}
    return None


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """What a run wrote down while it was trained."""
    lines = (folder / METRICS).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def result_file(plan: ComparePlan, name: str, seed: int | str) -> Path:
    """Where the findings about one finished system lie."""
    return plan.folder / "results" / f"{name}-{seed}.json"


def output_file(plan: ComparePlan, name: str, seed: int | str, way: str) -> Path:
    """Where translations of the test set lie."""
    return plan.folder / "outputs" / f"{name}-{seed}.{way}.txt"


def write_json(path: Path, values: dict[str, Any]) -> None:
    """All at once, or not at all."""
    with store.os_errors_as_polyhead_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(path, json.dumps(values, ensure_ascii=False, indent=1) + "\n")
