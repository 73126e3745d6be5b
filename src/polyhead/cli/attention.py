"""`polyhead attention`."""

from dataclasses import dataclass
from pathlib import Path

from polyhead.cli.console import say
from polyhead.cli.options import as_text
from polyhead.errors import ConfigError
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.load import load
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator
from polyhead.viz.capture_image import look_at_image, write_view
from polyhead.viz.capture_text import look_at_text
from polyhead.viz.capture_translation import look, write_picture


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
        picture = look_at_image(reader, words.text)
        write_view(picture, words.output, layer=words.layer, heads=words.heads)
        say(picture.title)
        say(f"written to {words.output}")
        return
    text = as_text(words.text, "TEXT")
    if isinstance(reader, Translator | TextGenerator):
        view = look(reader, text, words.target and as_text(words.target, "--target"))
    elif words.target is None:
        view = look_at_text(reader, text)
    else:
        raise ConfigError("only a translator has a target; leave --target out")
    write_picture(
        view,
        words.output,
        kind=words.kind,
        layer=words.layer,
        heads=words.heads,
        word=words.word,
        lines=words.lines,
        merge=words.merge,
    )
    say(view.title)
    say(f"written to {words.output}")


def _check_words(words: LookWords) -> None:
    """Refuse what has no meaning for an image."""
    for name in ("target", "kind", "lines", "word", "merge"):
        if vars(words)[name]:
            raise ConfigError(f"--{name} is for text; leave it out for an image")
