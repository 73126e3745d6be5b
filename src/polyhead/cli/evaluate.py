"""`polyhead evaluate`: scores of a model of any task on a test set."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from polyhead.cli.classify import read_size
from polyhead.cli.options import (
    Beam,
    Device,
    Encoding,
    Images,
    ImageSize,
    Json,
    Labelled,
    LengthPenalty,
    Models,
)
from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from polyhead.pipelines.evaluation import TranslationEvaluation

BOOTSTRAP_P = 0.05  # below it, two systems are reported as different


def evaluate(
    models: Models,
    source: Annotated[
        list[Path] | None, typer.Option(help="Sentences to translate; repeatable.")
    ] = None,
    target: Annotated[
        list[Path] | None, typer.Option(help="Reference translations; repeatable.")
    ] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="Text for a language model; repeatable.")
    ] = None,
    data: Labelled = None,
    images: Images = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Another model, or a file of its translations, for a paired test."),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    tokenize: Annotated[str, typer.Option(help="Tokenizer of sacreBLEU.")] = "13a",
    metric: Annotated[
        str,
        typer.Option(help="bleu; or wer: share of lines that are not exact, and edit distance."),
    ] = "bleu",
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    rounds: Annotated[
        int | None, typer.Option(help="LSH hashing rounds (default: the model's).")
    ] = None,
    size: ImageSize = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the translations to this file.")
    ] = None,
    json_out: Json = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Score a model: BLEU and chrF with 95 % intervals for translators; loss, perplexity and bits
    per character for language models; accuracy on masked tokens for BERT and ELECTRA; accuracy, F1
    and a confusion matrix for classifiers.

    polyhead evaluate runs/mine --source test.ko --target test.en
    polyhead evaluate runs/mine --source test.ko --target test.en --against runs/other
    polyhead evaluate runs/g2p --source words.ko --target words.ipa --metric wer
    polyhead evaluate runs/writer --text test.txt
    polyhead evaluate runs/reformer --text test.txt --rounds 8
    polyhead evaluate runs/reviews --data test.tsv
    polyhead evaluate runs/photos --images test-photos/
    """
    if size is not None and not images:
        raise ConfigError("--size is for --images only", "conflicting_options")
    if rounds is not None and not (text or source):
        raise ConfigError(ROUNDS, "conflicting_options")
    if [bool(source and target), bool(text), bool(data), bool(images)].count(True) != 1 or (
        bool(source) != bool(target)
    ):
        raise ConfigError(
            "expected one of: --source FILE and --target FILE for a translator, --text FILE for a "
            "language model, --data FILE for a text classifier, --images PATH for an image "
            "classifier",
            "no_input",
        )
    if images:
        scores = image_scores(models, images, size=size, as_json=json_out, device=device)
    elif data:
        scores = label_scores(models, data, encoding=encoding, as_json=json_out, device=device)
    elif text:
        scores = text_scores(
            models, text, encoding=encoding, rounds=rounds, as_json=json_out, device=device
        )
    else:
        scores = translation_scores(
            models, source or (), target or (), against=against, lowercase=lowercase,
            tokenize=tokenize, metric=metric, beam=beam, length_penalty=length_penalty,
            rounds=rounds, output=output, encoding=encoding, as_json=json_out, device=device,
        )  # fmt: skip
    print(scores)


ROUNDS = "--rounds is for translators and language models with LSH attention only"


def translation_scores(
    models: Sequence[Path], source: Sequence[Path], target: Sequence[Path], *, against: Path | None,
    lowercase: bool, tokenize: str, metric: str, beam: int | None, length_penalty: float | None,
    rounds: int | None, output: Path | None, encoding: str, as_json: bool, device: str,
) -> str:  # fmt: skip
    """Translate, and return the scores of the translations."""
    from polyhead.cli.console import counting
    from polyhead.data.locate import find_lines
    from polyhead.data.parallel import read_references
    from polyhead.pipelines.evaluation import Metric, MetricConfig, evaluate_translation
    from polyhead.pipelines.translator import Translator

    if metric not in get_args(Metric):
        raise ConfigError(f"--metric {metric}: expected bleu or wer", "unknown_metric")
    sources, references = read_references(source, target, encoding)
    translator = Translator.from_dir(*models, device=device)
    if rounds is not None:
        translator.set_eval_rounds(rounds)
    other: Translator | list[str] | None = None
    if against is not None:
        is_text = against.is_file()
        other = (
            find_lines(against, encoding)
            if is_text
            else Translator.from_dir(against, device=device)
        )
    changes = {"beam": beam, "length_penalty": length_penalty}
    options = translator.defaults.with_options(changes)
    n_lines = len(sources) * (2 if isinstance(other, Translator) else 1)
    with counting("translating", n_lines) as progress:
        result = evaluate_translation(
            translator,
            sources,
            references,
            metric=MetricConfig("wer" if metric == "wer" else "bleu", lowercase, tokenize),
            options=options,
            against=other,
            progress=progress,
        )
    if output is not None:
        lines = "".join(line.replace("\n", " ") + "\n" for line in result.outputs)
        output.write_text(lines, encoding="utf-8")
    return describe_translations(result, str(against), as_json=as_json)


def describe_translations(result: "TranslationEvaluation", against: str, *, as_json: bool) -> str:
    """Return scores and paired tests as lines or as JSON."""
    if as_json:
        scores, tests = [
            [asdict(item) for item in items] for items in (result.scores, result.against)
        ]
        return json.dumps({"scores": scores, "against": tests}, indent=2)
    lines = [str(score) for score in result.scores]
    for test in result.against:
        verdict = "different" if test.p_value < BOOTSTRAP_P else "not significantly different"
        lines.append(
            f"{test.name}: {test.system:.2f} against {test.baseline:.2f} of {against}, "
            f"p = {test.p_value:.4f} ({verdict})"
        )
    return "\n".join(lines)


def text_scores(
    models: Sequence[Path],
    texts: Sequence[Path],
    *,
    encoding: str,
    rounds: int | None,
    as_json: bool,
    device: str,
) -> str:
    """Return how well a language model predicts a text, or a masked LM its masked tokens."""
    from polyhead.cli.console import counting, say
    from polyhead.data.locate import find_lines
    from polyhead.pipelines.load import load
    from polyhead.pipelines.mask_filler import MaskFiller
    from polyhead.pipelines.text_generator import TextGenerator

    lines = [line for path in texts for line in find_lines(path, encoding)]
    model = load(one_model(models), device=device)
    if isinstance(model, MaskFiller):
        if rounds is not None:
            raise ConfigError(ROUNDS, "conflicting_options")
        scores = model.score(lines)
        rows = [f"{name.replace('_', ' '):<20}{value:.4f}" for name, value in scores.items()]
        return json.dumps(scores, indent=2) if as_json else "\n".join(rows)
    if not isinstance(model, TextGenerator):
        model = TextGenerator.from_saved(  # raises, and names the right command
            model.saved, model.name, model.device
        )
    if rounds is not None:
        model.set_eval_rounds(rounds)
    windows = model.windows(lines)
    with counting("reading", windows.n_tokens) as progress:
        score = model.score_windows(windows, progress)
    if score.n_unknown:
        say(
            f"polyhead: {score.n_unknown:,} tokens are unknown to the vocabulary; the model did "
            "not have to spell them, so the scores are too good"
        )
    if as_json:
        return json.dumps(asdict(score), indent=2)
    return "\n".join(
        [
            f"loss                {score.loss:.4f} nats per token",
            f"perplexity          {score.perplexity:.3f} per token",
            f"bits per character  {score.bits_per_character:.4f}",
            f"over {score.n_tokens:,} tokens, {score.n_characters:,} characters",
        ]
    )


def one_model(models: Sequence[Path]) -> Path:
    """Return the only model, or raise: just translators form ensembles."""
    if len(models) != 1:
        raise ConfigError(f"{len(models)} models were given; expected one", "one_model")
    return models[0]


def label_scores(
    models: Sequence[Path], files: Sequence[Path], *, encoding: str, as_json: bool, device: str
) -> str:
    """Return how often a text classifier is right on labelled texts."""
    from polyhead.cli.console import counting, say
    from polyhead.pipelines.text_classifier import TextClassifier

    classifier = TextClassifier.from_dir(one_model(models), device=device)
    examples, notices = classifier.read(files, encoding)
    with counting("classifying", len(examples)) as progress:
        result = classifier.evaluate_examples(examples, notices, progress)
    for notice in result.notices:
        say(notice)
    return json.dumps(asdict(result), indent=2, ensure_ascii=False) if as_json else str(result)


def image_scores(
    models: Sequence[Path], images: Sequence[Path], *, size: str | None, as_json: bool, device: str
) -> str:
    """Return how often an image classifier is right; `digits` is the embedded test set."""
    from polyhead.cli.console import say
    from polyhead.pipelines.image_classifier import ImageClassifier

    classifier = ImageClassifier.from_dir(one_model(models), device=device)
    embedded = [str(path) for path in images] == ["digits"] and not images[0].exists()
    result, notices = classifier.evaluate(
        () if embedded else images,
        corpus="digits" if embedded else None,
        size=read_size(size),
    )
    for notice in notices:
        say(notice)
    return json.dumps(asdict(result), indent=1, ensure_ascii=False) if as_json else str(result)
