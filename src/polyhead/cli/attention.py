"""`polyhead attention`: a page or a picture of what the heads attend to."""

from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import Device, Model, check_text
from polyhead.errors import ConfigError


def attention(
    model: Model,
    text: Annotated[str, typer.Argument(help="Sentence, or image file for an image classifier.")],
    output: Annotated[Path, typer.Option(help="File to write: .html, .svg, .png or .json.")] = Path(
        "attention.html"
    ),
    target: Annotated[
        str | None, typer.Option(help="Translation to show (default: the model's).")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Attention to draw in .svg and .png: encoder, decoder, cross."),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Layer to draw in .svg and .png, counted from 1.")
    ] = None,
    head: Annotated[
        list[int] | None,
        typer.Option(help="Head to draw in .svg and .png, counted from 1; repeatable."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Draw lines as in Figure 3 of Vaswani et al. 2017.")
    ] = False,
    word: Annotated[
        str | None, typer.Option(help="With --lines: only lines from this word.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge the tokens of a word in .svg and .png.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Show what every head of every layer attends to.

    polyhead attention runs/mine "내일 회의가 있어요." --output page.html
    polyhead attention runs/mine "내일 회의가 있어요." --lines --layer 2 --output figure3.png
    polyhead attention runs/photos cat.jpg --output page.html
    polyhead attention runs/photos cat.jpg --layer 2 --output heads.svg
    """
    from polyhead.cli.console import say
    from polyhead.pipelines.image_classifier import ImageClassifier
    from polyhead.pipelines.load import load
    from polyhead.viz.capture import TextPipeline, attention_view
    from polyhead.viz.draw_image import ImageViewOptions
    from polyhead.viz.select import ViewOptions
    from polyhead.viz.writer import write_view

    pipeline = load(model, device=device)
    heads = tuple(head) if head else None
    if isinstance(pipeline, ImageClassifier):
        text_options = {
            "target": target, "kind": kind, "lines": lines, "word": word, "merge": merge,
        }  # fmt: skip
        for name, value in text_options.items():
            if value:
                raise ConfigError(f"--{name} is for text only, not images", "conflicting_options")
        image = attention_view(pipeline, text)
        write_view(image, output, ImageViewOptions(layer, heads))
        title = image.title
    else:
        assert isinstance(pipeline, TextPipeline)
        target = target and check_text(target, "--target")
        view = attention_view(pipeline, check_text(text, "TEXT"), target=target)
        style = "lines" if lines or word is not None else "heatmap"
        options = ViewOptions(
            kind=kind, layer=layer, heads=heads, word=word, style=style, merge=merge
        )
        write_view(view, output, options)
        title = view.title
    say(title)
    say(f"written to {output}")
