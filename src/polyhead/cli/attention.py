"""`polyhead attention`: a page or a picture of what the heads attend to."""

from pathlib import Path

from typer import Argument, Option

from polyhead.cli.options import Device, Model, check_text
from polyhead.cli.streams import say
from polyhead.errors import ConfigError


def attention(
    model: Model,
    text: str = Argument(help="Sentence, or image file for an image classifier."),
    output: Path = Option("attention.html", help="File to write: .html, .svg, .png or .json."),
    target: str | None = Option(
        None, help="Translation to show (default: the model's); or the context of a question."
    ),
    sentence: int = Option(1, help="Sentence of the text to show, counted from 1."),
    kind: str | None = Option(
        None, help="Attention to draw in .svg and .png: encoder, decoder, cross."
    ),
    layer: int | None = Option(None, help="Layer to draw in .svg and .png, counted from 1."),
    head: list[int] | None = Option(
        None, help="Head to draw in .svg and .png, counted from 1; repeatable."
    ),
    lines: bool = Option(
        False, "--lines", help="Draw lines as in Figure 3 of Vaswani et al. 2017."
    ),
    word: str | None = Option(None, help="With --lines: only lines from this word."),
    merge: bool = Option(False, "--merge", help="Merge the tokens of a word in .svg and .png."),
    device: Device = "auto",
) -> None:
    """Show what every head of every layer attends to.

    polyhead attention runs/mine "내일 회의가 있어요." --output page.html
    polyhead attention runs/mine "내일 회의가 있어요." --lines --layer 2 --output figure3.png
    polyhead attention runs/photos cat.jpg --output page.html
    polyhead attention runs/photos cat.jpg --layer 2 --output heads.svg
    """
    from polyhead.pipelines.image_classifier import ImageClassifier
    from polyhead.pipelines.load import load
    from polyhead.pipelines.translator import Translator
    from polyhead.viz.capture import TextPipeline, attention_view
    from polyhead.viz.draw_image import ImageViewOptions
    from polyhead.viz.select import ViewOptions
    from polyhead.viz.views import AttentionView, ImageView
    from polyhead.viz.writer import write_view

    pipeline = load(model, device=device, engine="torch")
    heads = tuple(head) if head else None
    view: AttentionView | ImageView
    options: ViewOptions | ImageViewOptions
    if isinstance(pipeline, ImageClassifier):
        given = {"target": target, "kind": kind, "lines": lines, "word": word, "merge": merge}
        for name, value in given.items():
            if value:
                raise ConfigError(f"--{name} is for text only, not images", "conflicting_options")
        view, options = attention_view(pipeline, text), ImageViewOptions(layer, heads)
    else:
        assert isinstance(pipeline, TextPipeline)
        target = target and check_text(target, "--target")
        text = check_text(text, "TEXT")
        shown = text.strip()
        if isinstance(pipeline, Translator) and target is None:
            shown = pipeline.sentence(text, sentence)
        if shown != text.strip():
            say(f"shown is sentence {sentence} of the text; choose with --sentence")
        view = attention_view(pipeline, text, target=target, sentence=sentence)
        style = "lines" if lines or word is not None else "heatmap"
        options = ViewOptions(
            kind=kind, layer=layer, heads=heads, word=word, style=style, merge=merge
        )
    write_view(view, output, options)
    say(view.title)
    say(f"written to {output}")
