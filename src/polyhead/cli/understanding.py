"""The commands for models that understand rather than write: their options and their help.

The imports stand inside the commands, because `--help` must answer before torch could be loaded.
"""

from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import Device, Encoding, ImageSize, Model, app


@app.command()
def fill(
    model: Model,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts with [MASK] in them; else the lines of standard input."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many guesses.")] = 5,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON object for each text.")] = False,
    device: Device = "auto",
) -> None:
    """Fill in the blanks of a text: what may stand where it says [MASK], and how likely it is.

    Several blanks are filled each by itself, then together from left to right; the number before
    such a line is the sum of the logarithms.

    polyhead fill runs/bert "서울은 대한민국의 [MASK]이다"
    polyhead fill runs/bert --top 3 --jsonl < texts.txt
    """
    from polyhead.cli.fill import FillWords, run_filling

    code = run_filling(FillWords(model, tuple(texts or ()), top, jsonl, device))
    raise typer.Exit(code)


@app.command()
def classify(
    model: Model,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Images; or texts, one a line, else standard input."),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Of texts: add the probability of every class.")
    ] = False,
    top: Annotated[int, typer.Option(help="Of images: so many classes.")] = 1,
    size: ImageSize = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON object for each input.")] = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Say what class texts or images are of: one line in, one line out; or one line an image.

    polyhead classify runs/reviews < reviews.txt
    polyhead classify runs/reviews --jsonl < reviews.txt
    polyhead classify runs/digits picture.png other.png --top 3
    """
    from polyhead.cli.classify import ClassifyWords, run_classify

    words = ClassifyWords(scores, jsonl, top, size, device, encoding)
    raise typer.Exit(run_classify(model, files or (), words))
