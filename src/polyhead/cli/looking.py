"""`polyhead attention`."""

from dataclasses import dataclass
from pathlib import Path

from polyhead.api.image_labeller import ImageLabeller
from polyhead.api.loading import load
from polyhead.api.looking import look, write_picture
from polyhead.api.looking_at_images import look_at_image, write_view
from polyhead.cli.screen import say


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
    if isinstance(reader, ImageLabeller):  # its text is the name of a file
        picture = look_at_image(reader, words.text)
        write_view(picture, words.output)
        say(picture.title)
        say(f"written to {words.output}")
        return
    view = look(reader, words.text, words.target)
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
