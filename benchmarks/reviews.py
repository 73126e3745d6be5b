"""Does reading first help? Korean film reviews, with and without pre-training, few labels and many.

    pre-training    BERT and ELECTRA read the unlabelled reviews, both for the same time
    fine-tuning     each of them, and the same net with random weights, on 2,000 labels and more
    peer            TF-IDF of character 1- to 3-grams and logistic regression (scikit-learn)

All nets have the same encoder and the same vocabulary, learned from the unlabelled reviews. Which
checkpoint of a fine-tuning is used is decided on the validation set; accuracy is that on the test
set, which is looked at once. Equal compute means equal time of this machine's processors, whatever
else it does meanwhile: how many steps that are is measured first, and the schedule is made for
them.
"""

import argparse
import random
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import measuring
import torch

from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import collect, stream_labelled
from polyhead.data.line_spool import Examples
from polyhead.data.locate import find
from polyhead.data.text_files import read_lines
from polyhead.errors import ConfigError, DataError, MissingError
from polyhead.pipelines.task_pipeline import TextClassifier
from polyhead.training.callbacks import Callback, TrainingStep
from polyhead.training.config import read_run
from polyhead.training.result import TrainResult
from polyhead.training.trainer import train

HEADING = "Pre-training on Korean film reviews"
PRETRAINED = {"BERT": "bert-nsmc", "ELECTRA": "electra-nsmc"}
SCRATCH, PEER = "from scratch", "TF-IDF + logistic regression"
SYSTEMS = {"peer": PEER, "scratch": SCRATCH, "bert": "BERT", "electra": "ELECTRA"}
PROBE_STEPS = 30
EPOCHS = {2_000: 10, 20_000: 4}  # up to so many labels; more labels need fewer
MOST_EPOCHS = 3
SMALL = (
    "model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
    "model.stack.d_ff=32", "model.d_embed=8", "text.vocab=1500", "train.max_tokens=512",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Amounts of data, time and seeds."""

    runs: Path
    minutes: float
    labels: tuple[int, ...]
    seeds: int
    pretrainings: int
    quick: bool
    systems: tuple[str, ...]
    bf16: bool = False

    @property
    def cut(self) -> int | None:
        """Maximum number of lines per file, or None for all."""
        return 300 if self.quick else None


def files(plan: Plan) -> dict[str, Path]:
    """Return the four files, shortened for a trial; an error if they are missing."""
    names = {
        "unlabelled": "unlabelled.txt.gz", "train": "train.tsv.gz", "valid": "valid.tsv.gz",
        "test": "test.tsv.gz",
    }  # fmt: skip
    try:
        results = {name: find(Path("nsmc") / file) for name, file in names.items()}
    except DataError as error:
        raise MissingError(
            f"this benchmark needs the corpus nsmc below $POLYHEAD_DATA: {error}"
        ) from None
    if plan.cut is None:
        return results
    short = {}
    for name, path in results.items():
        short[name] = plan.runs / path.name.removesuffix(".gz")
        text = "".join(f"{line}\n" for line in read_lines(path)[: plan.cut])
        short[name].write_text(text, encoding="utf-8")
    return short


class Watch(Callback):
    """A callback that only looks at the processors' clock, and divides it by their number."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def on_step(self, step: TrainingStep) -> None:  # noqa: ARG002
        """One more step is done."""
        self.moments.append(time.process_time() / torch.get_num_threads())

    @property
    def seconds(self) -> float:
        """Seconds of a step, over the second half, because the first steps are slower."""
        half = self.moments[len(self.moments) // 2 :]
        return (half[-1] - half[0]) / (len(half) - 1)


def pretrain(plan: Plan, recipe: str, text: Path, seed: int) -> Path:
    """Pre-train for the time given, or resume; return the run directory."""
    folder = plan.runs / f"{recipe}-{seed}"
    fixed = [*(SMALL if plan.quick else ()), f"train.seed={seed}"]
    fixed += ["train.bf16=true"] if plan.bf16 else []
    steps = steps_of(folder) or steps_in_time(plan, recipe, text, fixed)
    settings = [*fixed, f"train.steps={steps}", f"train.schedule.warmup={max(1, steps // 10)}",
                f"train.validate_every={max(1, steps // 5)}"]  # fmt: skip
    result = train(read_run(recipe, settings, {"text": [str(text)]}), folder)
    stop_if_interrupted(result)
    said_value = "  ".join(f"{name} {value:.3f}" for name, value in result.metrics.items())
    print(f"{recipe}, seed {seed}: {steps:,} steps; {said_value}")
    return folder


def stop_if_interrupted(result: TrainResult) -> None:
    """Raise an error if a run was interrupted."""
    if result.signal is not None:
        raise KeyboardInterrupt


def steps_of(folder: Path) -> int | None:
    """Return the number of steps of an existing run, or None."""
    path = folder / "config.toml"
    if not path.is_file():
        return None
    return int(tomllib.loads(path.read_text(encoding="utf-8"))["train"]["steps"])


def steps_in_time(plan: Plan, recipe: str, text: Path, fixed: list[str]) -> int:
    """Return how many steps this machine makes in the time given."""
    n = 4 if plan.quick else PROBE_STEPS
    settings = [*fixed, f"train.steps={n}", "train.validate_every=100000"]
    watch, folder = Watch(), plan.runs / f"{recipe}-probe"
    run = read_run(recipe, settings, {"text": [str(text)]})
    train(run, folder, fresh=True, callbacks=[watch])
    return max(4, round(60 * plan.minutes / watch.seconds))


def untrained(plan: Plan, text: Path) -> Path:
    """Create a run of the same network and vocabulary with random weights."""
    folder = plan.runs / "untrained"
    settings = [*(SMALL if plan.quick else ()), "train.steps=1", "train.schedule.rate=1e-12"]
    train(read_run(PRETRAINED["BERT"], settings, {"text": [str(text)]}), folder)
    return folder


def finetune(plan: Plan, init: Path, data: dict[str, Path], n_labels: int, seed: int) -> float:
    """Return the accuracy on the test set after fine-tuning on so many labels."""
    folder = plan.runs / f"{init.name}-{n_labels}-{seed}"
    part = plan.runs / f"labels-{n_labels}-{seed}.tsv"
    if not part.exists():
        part.write_text(rows(sample(data["train"], n_labels, seed)), encoding="utf-8")
    epochs = next((e for most, e in EPOCHS.items() if n_labels <= most), MOST_EPOCHS)
    n_tokens = 1024 if n_labels <= 20_000 else 2048
    settings = [
        f"train.init={init}", f"train.seed={seed}", f"train.epochs={1 if plan.quick else epochs}",
        f"train.max_tokens={n_tokens}", f"train.schedule.warmup={min(300, n_labels // 50 + 1)}",
        f"train.validate_every={max(50, n_labels // 200)}",
    ]  # fmt: skip
    given = {"labelled": [str(part)], "valid_labelled": [str(data["valid"])]}
    result = train(read_run("classify-nsmc", settings, given), folder)
    stop_if_interrupted(result)
    return TextClassifier.from_dir(result.best).evaluate([data["test"]]).report.accuracy


def examples(path: Path) -> Examples:
    """Reviews and their labels."""
    return collect(stream_labelled([path], DataConfig(text_key="document", label_key="label"), []))


def sample(path: Path, n: int, seed: int) -> Examples:
    """Return some of them, drawn by a seed; all if there are no more."""
    results = examples(path)
    chosen = random.Random(seed).sample(range(len(results)), min(n, len(results)))
    return Examples([results.texts[i] for i in chosen], [results.labels[i] for i in chosen])


def rows(results: Examples) -> str:
    """Return the examples as the text of a file."""
    pairs = zip(results.texts, results.labels, strict=True)
    return "document\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in pairs)


def peer(data: dict[str, Path], n_labels: int, seed: int) -> float | None:
    """Return the accuracy of the usual quick way, None without scikit-learn."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return None
    known, options = sample(data["train"], n_labels, seed), examples(data["test"])
    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), min_df=2, sublinear_tf=True)
    model = LogisticRegression(C=4, max_iter=1000)
    model.fit(vectors.fit_transform(known.texts), known.labels)
    said_value = model.predict(vectors.transform(options.texts))
    return float(mean(a == b for a, b in zip(said_value, options.labels, strict=True)))


def compare(plan: Plan) -> list[str]:
    """Everything, as a table of accuracies on the test set."""
    data = files(plan)
    inits = {SCRATCH: [untrained(plan, data["unlabelled"])]} if SCRATCH in plan.systems else {}
    for name, recipe in PRETRAINED.items():
        if name in plan.systems:
            seeds = range(1, plan.pretrainings + 1)
            inits[name] = [pretrain(plan, recipe, data["unlabelled"], seed) for seed in seeds]
    scores: dict[str, dict[int, list[float]]] = {name: {} for name in plan.systems}
    for n in plan.labels:
        for seed in range(1, plan.seeds + 1):
            results = {PEER: peer(data, n, seed)} if PEER in plan.systems else {}
            for name, folders in inits.items():
                folder = folders[(seed - 1) % len(folders)]
                results[name] = finetune(plan, folder, data, n, seed)
            for name, accuracy in results.items():
                if accuracy is not None:
                    scores[name].setdefault(n, []).append(accuracy)
                    print(f"{n:,} labels, seed {seed}, {name}: {accuracy:.4f}")
    table = [
        [name, *(spoken(by_size.get(n, [])) for n in plan.labels)]
        for name, by_size in scores.items()
    ]
    return measuring.table(["accuracy on test", *(f"{n:,} labels" for n in plan.labels)], table)


def spoken(values: Sequence[float]) -> str:
    """Return a mean, and the range if there are several."""
    if not values:
        return "not measured"
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def main(argv: Sequence[str]) -> int:
    """Measure, print, and record if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of each pre-training")
    parser.add_argument("--labels", type=int, nargs="+", default=[2_000, 20_000, 150_000])
    parser.add_argument("--seeds", type=int, default=3, help="of each fine-tuning")
    parser.add_argument("--pretrainings", type=int, default=1, help="of each kind, in turn")
    parser.add_argument("--bf16", action="store_true", help="pre-train in mixed precision")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
    parser.add_argument("--runs", type=Path, default=Path("runs/reviews"), help="where to work")
    parser.add_argument("--quick", action="store_true", help="only try it out, in a minute")
    parser.add_argument("--record", action="store_true", help="add the table to RESULTS.md")
    words = parser.parse_args(argv)
    if words.quick and words.record:
        raise ConfigError("--record: what --quick measures is not for the record")
    if min(words.seeds, words.pretrainings, *words.labels) < 1 or words.minutes <= 0:
        raise ConfigError("--seeds, --pretrainings, --labels and --minutes: expected more than 0")
    words.runs.mkdir(parents=True, exist_ok=True)
    labels = (60,) if words.quick else tuple(words.labels)
    plan = Plan(
        words.runs,
        0.02 if words.quick else words.minutes,
        labels,
        1 if words.quick else words.seeds,
        words.pretrainings,
        words.quick,
        tuple(SYSTEMS[name] for name in words.systems),
        words.bf16,
    )
    lines = measuring.environment("reviews.py", argv)
    lines += [f"- {plan.minutes:g} minutes for each pre-training; {plan.seeds} seeds, range", ""]
    lines += compare(plan)
    print("\n".join(lines))
    if words.record:
        measuring.record(measuring.RESULTS, HEADING, lines)
    return 0


if __name__ == "__main__":
    measuring.run(main)
