"""`polyhead attention`."""

from dataclasses import dataclass
from pathlib import Path

from polyhead.api.looking import attention, write_picture
from polyhead.api.translator import load
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
    """Translate, look, write a page or a picture."""
    view = attention(load(words.model, device=words.device), words.text, words.target)
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
