"""`polyhead evaluate`: scores of a model of any task on a test set."""

import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Exit, Option

from polyhead.atomic_file import write_text
from polyhead.cli.classify import read_size
from polyhead.cli.options import (
    ARGUMENTS,
    Beam,
    Device,
    Encoding,
    Images,
    ImageSize,
    Json,
    Labelled,
    LengthPenalty,
    Models,
    Pairs,
    given_options,
)
from polyhead.cli.streams import counting, say
from polyhead.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from polyhead.training.processes import Processes

BOOTSTRAP_P = 0.05  # below it, two systems are reported as different
METRIC_HELP = "bleu, also chrF; chrf; wer: share of inexact lines, edit distance; or a plug-in's."
AS_GENERATED = "Score a language model token by token, as generate computes; takes longer."
PROCESSES = "Processes on this machine that share the batches; same scores."
SHARED_STDIN = "standard input cannot be shared by several processes; write it to a file first"
DAY = 86400  # seconds that a process waits for the others
INPUTS = ("source", "target", "text", "data", "pairs", "images")
NO_INPUT = (
    "expected one of: --source FILE and --target FILE, or --pairs FILE, for a translator, --text "
    "FILE for a language model, --data FILE for a text classifier, a tagger or question answering, "
    "--pairs FILE for a sentence encoder, --images PATH for an image classifier"
)
OF_LABELS = ("--data FILE", "data encoding")
USED = {  # by task: the input, and the options that have an effect beside those of every task
    "translation": (
        "--source FILE --target FILE",
        "source target pairs against lowercase tokenize metric beam length_penalty rounds output "
        "encoding",
    ),
    "language_modeling": ("--text FILE", "text rounds as_generated encoding"),
    "masked_lm": ("--text FILE", "text encoding"),
    "replaced_token": ("--text FILE", "text encoding"),
    "text_classification": OF_LABELS,
    "token_classification": OF_LABELS,
    "question_answering": OF_LABELS,
    "sentence_embedding": ("--pairs FILE", "data pairs encoding"),
    "image_classification": ("--images PATH", "images size"),
}
OF_ALL = ("device", "processes")
Scores = tuple[Any, str]  # for JSON, and as text


def evaluate(
    models: Models,
    source: list[Path] | None = Option(None, help="Sentences to translate; repeatable."),
    target: list[Path] | None = Option(None, help="Reference translations; repeatable."),
    text: list[Path] | None = Option(None, help="Text for a language model; repeatable."),
    data: Labelled = None,
    pairs: Pairs = None,
    images: Images = None,
    against: Path | None = Option(
        None, help="Another model, or a file of its translations, for a paired test."
    ),
    lowercase: bool = Option(False, "--lowercase", help="Ignore case."),
    tokenize: str = Option("13a", help="Tokenizer of sacreBLEU."),
    metric: str = Option("bleu", help=METRIC_HELP),
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    rounds: int | None = Option(None, help="LSH hashing rounds (default: the model's)."),
    as_generated: bool = Option(False, "--as-generated", help=AS_GENERATED),
    size: ImageSize = None,
    output: Path | None = Option(None, help="Write the translations to this file."),
    json_out: Json = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
    processes: int = Option(1, min=1, help=PROCESSES),
) -> None:
    """Score a model on a test set.

    BLEU and chrF with 95 % intervals for translators; loss, perplexity and bits per character for
    language models; accuracy on masked tokens for BERT and ELECTRA; accuracy, F1
    and a confusion matrix for classifiers, micro and macro F1 of several labels, correlations and
    errors of numbers; how often a sentence encoder finds the partner of a text.

    polyhead evaluate runs/mine --source test.ko --target test.en
    polyhead evaluate runs/mine --source test.ko --target test.en --against runs/other
    polyhead evaluate runs/mine --pairs test.tsv --metric chrf
    polyhead evaluate runs/g2p --source words.ko --target words.ipa --metric wer
    polyhead evaluate runs/writer --text test.txt
    polyhead evaluate runs/reformer --text test.txt --rounds 8
    polyhead evaluate runs/reformer --text test.txt --as-generated
    polyhead evaluate runs/reviews --data test.tsv
    polyhead evaluate runs/names --data test.conll
    polyhead evaluate runs/embed --pairs test.tsv
    polyhead evaluate runs/photos --images test-photos/
    polyhead evaluate runs/mine --source test.ko --target test.en --processes 2
    """
    if [bool(files) for files in (source, text, data, pairs, images)].count(True) != 1 or (
        bool(source) != bool(target)
    ):
        raise ConfigError(NO_INPUT, "no_input")
    task = check_options(models[0])
    if task != "translation" and len(models) != 1:
        raise ConfigError(f"{len(models)} models were given; expected one", "one_model")
    score: Callable[[Processes], Scores]
    if task == "translation":
        score = partial(
            translation_scores, models, (source or (), target or (), pairs or ()), against=against,
            output=output, rounds=rounds, metric=(metric, lowercase, tokenize),
            encoding=encoding, device=device,
            changes={"beam": beam, "length_penalty": length_penalty},
        )  # fmt: skip
    elif images:
        score = partial(image_scores, models[0], images, size=size, device=device)
    elif task != "language_modeling":
        files = (data or text or (), pairs or ())
        score = partial(label_scores, models[0], files, encoding=encoding, device=device)
    else:
        score = partial(
            text_scores, models[0], text or (), encoding=encoding, rounds=rounds,
            as_generated=as_generated, device=device,
        )  # fmt: skip
    given = [path for files in (source, target, text, data, pairs) for path in files or ()]
    print_scores(score, processes, from_stdin=Path("-") in given, as_json=json_out)


def check_options(model: Path) -> str:
    """Return the model's task; refuse the first option without effect on it."""
    from polyhead.checkpoint.model_dir import read_family_config
    from polyhead.checkpoint.model_files import resolve
    from polyhead.models.registry import FAMILIES

    task = FAMILIES[read_family_config(resolve(model))["family"]].task
    given = given_options(evaluate)
    usual, used = USED.get(task, ("", " ".join(given)))
    useless = {name: given[name] for name in given if name not in (*OF_ALL, *used.split())}
    if any(name in INPUTS for name in useless):
        raise CheckpointError(
            f"{model} is a model for {task.replace('_', ' ')}. Evaluate it with: polyhead evaluate "
            f"{shlex.quote(str(model))} {usual}",
            "wrong_task",
        )
    for option in useless.values():
        raise ConfigError(
            f"{option} has no effect on a model for {task.replace('_', ' ')}. Leave it out.",
            "no_effect",
        )
    return task


def print_scores(
    score: Callable[["Processes"], Scores], n_processes: int, *, from_stdin: bool, as_json: bool
) -> None:
    """Compute scores in several processes; the first one prints them."""
    from polyhead.training.processes import is_started_by_torchrun, join_processes, launch

    if n_processes > 1 and not is_started_by_torchrun():
        raise Exit(launch(ARGUMENTS.get(), n_processes))

    def scored() -> Scores:
        if team.world > 1 and from_stdin:
            raise ConfigError(SHARED_STDIN, "conflicting_options")
        return score(team)

    with join_processes(DAY) as team:
        content, lines = team.each(scored)
        if team.is_first:
            shown = json.dumps(content, indent=2, ensure_ascii=False, default=asdict)
            print(shown if as_json else lines)


def counting_share(
    team: "Processes", activity: str, total: int
) -> AbstractContextManager[Callable[[int], None]]:
    """Show a bar for the share of the first process; the others are as fast."""
    if team.is_first:
        return counting(activity, total // team.world)
    return nullcontext(lambda _: None)


def translation_scores(
    models: Sequence[Path], files: Sequence[Sequence[Path]], team: "Processes", *,
    against: Path | None, output: Path | None, metric: tuple[str, bool, str], encoding: str,
    device: str, rounds: int | None, changes: dict[str, Any],
) -> Scores:  # fmt: skip
    """Translate; return the scores of the translations, and paired tests against another system."""
    from polyhead.data.parallel import read_references
    from polyhead.data.text_files import read_lines
    from polyhead.pipelines.evaluation import NAMES, MetricConfig, evaluate_translation
    from polyhead.pipelines.translator import Translator

    name = metric[0].lower() if metric[0].lower() in NAMES else metric[0]  # also chrF
    scoring = MetricConfig(name, *metric[1:])
    translator = Translator.from_dir(*models, device=device)
    options = translator.defaults.with_options(changes)
    searches = {"beam": not options.sample, "length_penalty": options.beam > 1}
    for name, has_effect in searches.items():
        if changes[name] is not None and not (has_effect and not options.sample):
            raise ConfigError(
                f"--{name.replace('_', '-')} has no effect "
                f"{'on sampling' if options.sample else 'with a beam of 1'}. Leave it out.",
                "no_effect",
            )
    source, target, pairs = files
    if pairs:
        examples = translator.read_pairs(pairs, encoding)
        sources, references = examples.sources, examples.targets
        for notice in examples.notices if team.is_first else ():
            say(notice)
    else:
        sources, references = read_references(source, target, encoding)
    other: Translator | list[str] | None = None
    if against is not None and against.is_file():
        other = read_lines(against, encoding)
    elif against is not None:
        other = Translator.from_dir(against, device=device)
    for system in (translator, other):
        if rounds is not None and isinstance(system, Translator):
            system.set_eval_rounds(rounds)
    n_lines = len(sources) * (2 if isinstance(other, Translator) else 1)
    with counting_share(team, "translating", n_lines) as progress:
        result = evaluate_translation(
            translator, sources, references, metric=scoring,
            options=options, against=other, progress=progress, map_batches=team.map,
        )  # fmt: skip
    if output is not None and team.is_first:
        lines = "".join(line.replace("\n", " ") + "\n" for line in result.outputs)
        write_text(output, lines)
    rows = [str(score) for score in result.scores]
    for test in result.against:
        verdict = "different" if test.p_value < BOOTSTRAP_P else "not significantly different"
        rows.append(
            f"{test.name}: {test.system:.2f} against {test.baseline:.2f} of {against}, "
            f"p = {test.p_value:.4f} ({verdict})"
        )
    content, decoded = asdict(result), {"decoding": asdict(options)}
    if isinstance(other, Translator):
        search = f"a beam of {options.beam}, length penalty {options.length_penalty:g}"
        rows.append(f"both decoded with {'samples' if options.sample else search}")
        decoded["decoding_of_against"] = asdict(options)
    del content["outputs"]
    return content | decoded, "\n".join(rows)


def text_scores(
    model_dir: Path, texts: Sequence[Path], team: "Processes", *, encoding: str,
    rounds: int | None, as_generated: bool, device: str,
) -> Scores:  # fmt: skip
    """Return how well a language model predicts a text."""
    from polyhead.pipelines.load import load
    from polyhead.pipelines.result_list import as_lines
    from polyhead.pipelines.text_generator import TextGenerator

    if as_generated and rounds is not None:
        raise ConfigError("--rounds has no effect with --as-generated", "no_effect")
    lines = as_lines(texts, "evaluate", encoding)
    model = load(model_dir, device=device, engine="torch")
    if not isinstance(model, TextGenerator):
        model = TextGenerator.from_saved(  # raises, and names the right command
            model.saved, model.name, model.device
        )
    if rounds is not None:
        model.set_eval_rounds(rounds)
    windows = model.windows(lines)
    with counting_share(team, "reading", windows.n_tokens) as progress:
        score = model.score_windows(
            windows, progress, as_generated=as_generated, map_batches=team.map
        )
    if score.n_unknown and team.is_first:
        say(
            f"polyhead: {score.n_unknown:,} tokens are unknown to the vocabulary; the model did "
            "not have to spell them, so the scores are too good"
        )
    return asdict(score), (
        f"loss                {score.loss:.4f} nats per token\n"
        f"perplexity          {score.perplexity:.3f} per token\n"
        f"bits per character  {score.bits_per_character:.4f}\n"
        f"over {score.n_tokens:,} tokens, {score.n_characters:,} characters"
    )


def label_scores(
    model_dir: Path, files: tuple[Sequence[Path], Sequence[Path]], team: "Processes", *,
    encoding: str, device: str,
) -> Scores:  # fmt: skip
    """Return the scores of a model of any task with one way to read its examples."""
    from polyhead.pipelines.load import load
    from polyhead.pipelines.task_pipeline import SentenceEmbedder, TaskPipeline, TextClassifier

    model = load(model_dir, device=device, engine="torch")
    labelled, pairs = files
    if pairs or not isinstance(model, TaskPipeline):
        kind = SentenceEmbedder if pairs else TextClassifier
        model = kind.from_saved(model.saved, model.name, model.device)  # or an error
    examples, notices = model.read(pairs or labelled, encoding, of_pairs=bool(pairs))
    with counting_share(team, "reading", len(examples)) as progress:
        result = model.evaluate_examples(examples, notices, progress, team.map)
    for notice in notices if team.is_first else ():
        say(notice)
    return result, str(result)


def image_scores(
    model_dir: Path, images: Sequence[Path], team: "Processes", *, size: str | None, device: str
) -> Scores:
    """Return how often an image classifier is right; `digits` is the embedded test set."""
    from polyhead.pipelines.image_classifier import ImageClassifier

    classifier = ImageClassifier.from_dir(model_dir, device=device)
    embedded = [str(path) for path in images] == ["digits"] and not images[0].exists()
    result = classifier.evaluate(
        () if embedded else images, corpus="digits" if embedded else None, size=read_size(size),
        map_batches=team.map,
    )  # fmt: skip
    for notice in result.notices if team.is_first else ():
        say(notice)
    return asdict(result.report), str(result.report)
