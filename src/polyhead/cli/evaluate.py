"""`polyhead evaluate`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from polyhead.cli.console import counting
from polyhead.data.locate import find_lines
from polyhead.data.parallel import read_references
from polyhead.errors import ConfigError
from polyhead.pipelines.evaluation import (
    Metric,
    MetricConfig,
    TranslationEvaluation,
    evaluate_translation,
)
from polyhead.pipelines.translator import Translator


@dataclass(frozen=True)
class EvaluateWords:
    """What was said on the command line."""

    models: tuple[Path, ...]
    source: tuple[Path, ...]
    target: tuple[Path, ...]
    against: Path | None
    lowercase: bool
    tokenize: str
    changes: dict[str, Any]
    output: Path | None
    as_json: bool
    device: str
    rounds: int | None = None
    metric: str = "bleu"
    encoding: str = "utf-8"


def run_evaluation(words: EvaluateWords) -> None:
    """Translate, score, print."""
    if words.metric not in get_args(Metric):
        raise ConfigError(f"--metric {words.metric}: expected bleu or wer")
    sources, references = read_references(words.source, words.target, words.encoding)
    translator = Translator.from_dir(*words.models, device=words.device)
    if words.rounds is not None:
        translator.set_eval_rounds(words.rounds)
    against = _other(words)
    n = len(sources) * (2 if isinstance(against, Translator) else 1)
    with counting("translating", n) as progress:
        options = translator.defaults.with_options(words.changes)
        found = evaluate_translation(
            translator,
            sources,
            references,
            metric=MetricConfig(
                "wer" if words.metric == "wer" else "bleu", words.lowercase, words.tokenize
            ),
            options=options,
            against=against,
            progress=progress,
        )
    if words.output is not None:
        text = "".join(" ".join(line.split("\n")) + "\n" for line in found.outputs)
        words.output.write_text(text, encoding="utf-8")
    print(as_json(found) if words.as_json else as_text(found, str(words.against)))


def _other(words: EvaluateWords) -> Translator | list[str] | None:
    """The system to compare with: a model's folder, or a file of its translations."""
    if words.against is None:
        return None
    if words.against.is_file():
        return find_lines(words.against, words.encoding)
    return Translator.from_dir(words.against, device=words.device)


def as_text(found: TranslationEvaluation, against: str) -> str:
    """Scores for people."""
    lines = [str(score) for score in found.scores]
    for test in found.against:
        verdict = "different" if test.p_value < 0.05 else "not significantly different"
        lines.append(
            f"{test.name}: {test.system:.2f} against {test.baseline:.2f} of {against}, "
            f"p = {test.p_value:.4f} ({verdict})"
        )
    return "\n".join(lines)


def as_json(found: TranslationEvaluation) -> str:
    """Scores for programs."""
    return json.dumps(
        {
            "scores": [asdict(score) for score in found.scores],
            "against": [asdict(test) for test in found.against],
        },
        indent=2,
    )
