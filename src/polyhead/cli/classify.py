"""`polyhead classify`, and `polyhead evaluate MODEL --data FILE`: texts in, their classes out."""

import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from polyhead.cli.console import counting, say
from polyhead.cli.stdin import UTF8, piped
from polyhead.cli.translate import PROMPT
from polyhead.data.locate import find_lines
from polyhead.errors import ConfigError
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.load import load
from polyhead.pipelines.text_classifier import Classification, TextClassifier


@dataclass(frozen=True)
class ClassifyWords:
    """What was said on the command line."""

    scores: bool = False
    jsonl: bool = False
    top: int = 1
    size: str | None = None
    device: str = "auto"
    encoding: str = UTF8


def run_classify(model: Path, files: Sequence[Path], words: ClassifyWords) -> int:
    """Classify texts or images, whichever the model is for; the exit code."""
    labeller = load(model, device=words.device)
    if isinstance(labeller, ImageClassifier):
        if words.scores:
            raise ConfigError(f"--scores is for texts; for images say --top {words.top}")
        from polyhead.cli.classify_images import run_images  # which loads what reads images

        return run_images(
            labeller,
            files,
            top=words.top,
            size=words.size,
            jsonl=words.jsonl,
        )
    if words.size is not None or words.top != 1:
        raise ConfigError("--top and --size are for images; for texts there is --scores")
    if not isinstance(labeller, TextClassifier):
        labeller = TextClassifier.from_saved(labeller.saved, labeller.name, labeller.device)
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n", write_through=True)
    try:
        for lines in _given(files, words.encoding):
            _classify(labeller, words, lines, out)
    finally:
        with suppress(BrokenPipeError):
            out.detach()
    return 0


def _given(files: Sequence[Path], encoding: str) -> Iterator[list[str]]:
    """The lines of files, or of standard input; on a terminal one by one."""
    if files:
        yield from (find_lines(path, encoding) for path in files)
    elif not sys.stdin.isatty():
        yield from piped(encoding)
    else:
        say("One text a line; Ctrl-D ends.")
        while True:
            try:
                yield [input(PROMPT)]
            except EOFError:
                return


def _classify(
    labeller: TextClassifier, words: ClassifyWords, lines: Sequence[str], out: io.TextIOWrapper
) -> None:
    with counting("classifying", len(lines)) as progress:
        found = labeller.classify(lines, progress=progress)
    for line, label in zip(lines, found, strict=True):
        out.write(as_json(line, label) if words.jsonl else as_line(label, words.scores))
        out.write("\n")
    out.flush()


def as_line(label: Classification, scores: bool) -> str:
    """The label; after tabs, if asked for, every class and its probability."""
    shares = (f"{name}={share:.4f}" for name, share in label.probabilities.items())
    return "\t".join([label.label, *shares]) if scores else label.label


def as_json(line: str, label: Classification) -> str:
    """Everything about one line."""
    return json.dumps({"text": line, **asdict(label)}, ensure_ascii=False)


def run_label_evaluation(
    models: Sequence[Path], files: Iterable[Path], encoding: str, json_out: bool, device: str
) -> None:
    """Classify texts whose classes are known, and tell how often that was right."""
    if len(models) != 1:
        raise ConfigError(f"{len(models)} models were given; one classifier at a time")
    labeller = TextClassifier.from_dir(models[0], device=device)
    examples, notices = labeller.read(list(files), encoding)
    with counting("classifying", len(examples)) as progress:
        found = labeller.evaluate_examples(examples, notices, progress)
    for notice in found.notices:
        say(notice)
    print(json.dumps(asdict(found), indent=2, ensure_ascii=False) if json_out else found)
