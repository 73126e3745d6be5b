"""Arguments and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

from typer import Argument, Option

from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from polyhead.pipelines.evaluation import Metric

Model = Annotated[Path, Argument(help="Model or run directory.", metavar="MODEL")]
Models = Annotated[list[Path], Argument(help="Model or run directory; several form an ensemble.")]
RecipeName = Annotated[str, Argument(help="Recipe name or TOML file.")]
Overrides = Annotated[
    list[str] | None,
    Argument(help="Changed values, e.g. train.steps=500.", metavar="[KEY=VALUE]..."),
]
Files = Annotated[list[Path] | None, Option(help="Text, one sentence per line; repeatable.")]
Pairs = Annotated[
    list[Path] | None,
    Option(help="Table with both sides: TSV, CSV, JSON, XLSX, Parquet, TMX; repeatable."),
]
PlainText = Annotated[
    list[Path] | None, Option(help="Plain text for models of one language; repeatable.")
]
Labelled = Annotated[
    list[Path] | None, Option(help="Table of texts and labels, formats as --pairs; repeatable.")
]
Images = Annotated[
    list[Path] | None,
    Option(help="Directory with one folder per class, tar of one, or idx file; repeatable."),
]
ImageSize = Annotated[
    str | None, Option(help="Resize images to this size in pixels, e.g. 56 or 56x48.")
]
Encoding = Annotated[str, Option(help="Input encoding, e.g. cp949.")]
FileEncoding = Annotated[str | None, Option(help="Encoding of all files, e.g. cp949.")]
Device = Annotated[str, Option(help="Where to compute: auto, cpu, cuda or mps.")]
Language = Annotated[
    str | None, Option(help="Output language: ko or en (default: the terminal's).")
]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
JsonLines = Annotated[bool, Option("--jsonl", help="Print one JSON object per input.")]
Beam = Annotated[int | None, Option(help="Beam width; 1 is greedy search.")]
LengthPenalty = Annotated[float | None, Option(help="Length penalty α (Wu et al. 2016).")]
Temperature = Annotated[
    float | None, Option(help="Sampling temperature; lower is more conservative.")
]
TopK = Annotated[int | None, Option(help="Sample from the k most likely tokens.")]
TopP = Annotated[
    float | None, Option(help="Nucleus sampling: smallest set of tokens with total probability p.")
]


def check_text(value: str, name: str) -> str:
    """Return an argument of the command line, or raise if its bytes are not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{name}: not UTF-8 text. Convert it, e.g. with iconv -f cp949 -t utf-8", "not_utf8"
        ) from None
    return value


def check_metric(name: str) -> "Metric":
    """Return the metric of translations, or raise if it is unknown."""
    from polyhead.pipelines.evaluation import Metric

    if name not in get_args(Metric):
        raise ConfigError(f"--metric {name}: expected bleu or wer", "unknown_metric")
    return cast("Metric", name)


def as_strings(files: dict[str, list[Path] | None]) -> dict[str, list[str]]:
    """Return file options by name as lists of strings."""
    return {name: [str(path) for path in paths or ()] for name, paths in files.items()}


def split_recipe(
    recipe: str | None, overrides: list[str] | None
) -> tuple[str | None, list[str], list[str]]:
    """Return the recipe, the overrides and any further names, in whatever order they came."""
    given = [*([] if recipe is None else [recipe]), *(overrides or ())]
    names = [value for value in given if "=" not in value]
    changes = [value for value in given if "=" in value]
    return next(iter(names), None), changes, names[1:]
