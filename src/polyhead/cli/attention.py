"""`polyhead attention`."""

from dataclasses import dataclass
from pathlib import Path

from polyhead.cli.console import say
from polyhead.cli.options import as_text
from polyhead.errors import ConfigError
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.load import load
from polyhead.viz.capture import TextPipeline, attention_view
from polyhead.viz.draw_image import ImageViewOptions
from polyhead.viz.select import ViewOptions
from polyhead.viz.writer import write_view


@dataclass(frozen=True)
class LookWords:
    """What was said on the command line."""

    model: Path
    text: str
    output: Path
    target: str | None
    kind: str | None
    layer: int | None
    heads: tuple[int, ...] | None
    lines: bool
    word: str | None
    merge: bool
    device: str


def run_look(words: LookWords) -> None:
    """Let the model read (and translate, if it does), look, write a page or a picture."""
    reader = load(words.model, device=words.device)
    if isinstance(reader, ImageClassifier):  # its text is the name of a file
        _check_words(words)
        picture = attention_view(reader, words.text)
        write_view(picture, words.output, ImageViewOptions(words.layer, words.heads))
        say(picture.title)
        say(f"written to {words.output}")
        return
    assert isinstance(reader, TextPipeline)
    target = words.target and as_text(words.target, "--target")
    view = attention_view(reader, as_text(words.text, "TEXT"), target=target)
    options = ViewOptions(
        kind=words.kind,
        layer=words.layer,
        heads=words.heads,
        word=words.word,
        style="lines" if words.lines or words.word is not None else "heatmap",
        merge=words.merge,
    )
    write_view(view, words.output, options)
    say(view.title)
    say(f"written to {words.output}")


def _check_words(words: LookWords) -> None:
    """Refuse what has no meaning for an image."""
    for name in ("target", "kind", "lines", "word", "merge"):
        if vars(words)[name]:
            raise ConfigError(f"--{name} is for text; leave it out for an image")
