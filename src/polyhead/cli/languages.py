"""`polyhead languages`."""

from typer import Argument

from polyhead.cli.options import Model
from polyhead.cli.streams import say


def languages(
    model: Model,
    codes: str | None = Argument(None, help="Languages of source and target, such as ko-en."),
) -> None:
    """Print or change the languages of a translation model.

    Changing them needs no training.

    Servers offer the model under these codes.

    polyhead languages runs/mine
    polyhead languages runs/mine ko-en
    """
    from polyhead.data.languages import parse_languages
    from polyhead.training.run_dir import languages_of, relabel

    if codes is not None:
        relabel(model, parse_languages(codes))
    source, target = languages_of(model)
    if source and target:
        print(f"{source} → {target}")
    else:
        say(f"languages unknown; set them with: polyhead languages {model} ko-en")
