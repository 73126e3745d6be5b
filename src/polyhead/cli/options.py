"""Arguments and options that several commands share."""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from importlib import resources
from inspect import signature
from os.path import isfile
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from polyhead.cli.streams import read_blocks
from polyhead.errors import ConfigError

PATH = re.compile(r"[!-~]*/[!-~]*|[!-~]+\.[a-z][a-z0-9]{0,4}")  # not a text, if nothing is there
ARGUMENTS: ContextVar[list[str]] = ContextVar("arguments")  # of the running command


def complete_dir(start: str) -> list[str]:
    """Return the run and model directories that complete a word."""
    folder = Path(start) if start.endswith("/") else Path(start).parent
    places = [*folder.glob("*/"), *(Path("runs").glob("*/") if "/" not in start else ())]
    names = [str(place) for place in places if is_model_dir(place) or place.name == "runs"]
    return sorted(name for name in names if name.startswith(start.removeprefix("./")))


def is_model_dir(place: Path) -> bool:
    """Return whether a directory is a model or a run, by the names of its files."""
    return any(isfile(place / name) for name in ("config.json", "config.toml"))


def complete_recipe(start: str) -> list[str]:
    """Return the recipes, or the settings such as train.epochs=, that complete a word."""
    recipes = {
        item.name.removesuffix(".toml"): item.read_text(encoding="utf-8")
        for item in (resources.files("polyhead") / "recipes").iterdir()
        if item.name.endswith(".toml")
    }
    from polyhead.config import setting_keys

    tables = [tomllib.loads(text) for text in recipes.values()]
    settings = {f"{key}=" for table in tables for key in setting_keys(table)}
    return sorted(name for name in {*recipes, *settings} if name.startswith(start))


Model = Annotated[
    Path, Argument(help="Model or run directory.", metavar="MODEL", autocompletion=complete_dir)
]
Models = Annotated[
    list[Path],
    Argument(help="Model or run directory; several form an ensemble.", autocompletion=complete_dir),
]
RecipeName = Annotated[
    str, Argument(help="Recipe name or TOML file.", autocompletion=complete_recipe)
]
Overrides = Annotated[
    list[str] | None,
    Argument(
        help="Changed values, e.g. train.steps=500.",
        metavar="[KEY=VALUE]...",
        autocompletion=complete_recipe,
    ),
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
    list[Path] | None,
    Option(help="Table of texts, or pairs, and labels, formats as --pairs; repeatable."),
]
SourceColumn = Annotated[
    str | None, Option(help="Source column of --pairs: name, or number from 1.")
]
TargetColumn = Annotated[
    str | None, Option(help="Target column of --pairs: name, or number from 1.")
]
TextColumn = Annotated[
    str | None, Option(help="Text column of --data or --text: name, or number from 1.")
]
TextPairColumn = Annotated[
    str | None, Option(help="Second text column of --data: name, or number from 1.")
]
LabelColumn = Annotated[str | None, Option(help="Label column of --data: name, or number from 1.")]
Images = Annotated[
    list[Path] | None,
    Option(help="Directory with one folder per class, or idx file; repeatable."),
]
ImageSize = Annotated[
    str | None, Option(help="Resize images to this size in pixels, e.g. 56 or 56x48.")
]
Encoding = Annotated[str, Option(help="Input encoding, e.g. cp949.")]
FileEncoding = Annotated[str | None, Option(help="Encoding of all files, e.g. cp949.")]
Device = Annotated[str, Option(help="Where to compute: auto, cpu, cuda or mps.")]
Engine = Annotated[
    str, Option(help="auto: CTranslate2 if installed and able, else torch; torch; ctranslate2.")
]
ComputeType = Annotated[
    str, Option(help="Numbers of CTranslate2: float32 (auto), int8 (faster, rounds), …")
]
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


def split_inputs(
    arguments: Sequence[str], *, ensemble: bool = False
) -> tuple[list[Path], list[str | Path]]:
    """Return models, and the texts and text files, of arguments that start with a model."""
    models, inputs = [Path(arguments[0])], list[str | Path]()
    for argument in arguments[1:]:
        place = Path(argument)
        if argument and is_model_dir(place):
            if not ensemble:
                raise ConfigError(f"{argument}: expected one model, not two", "one_model")
            models.append(place)
        elif argument == "-" or isfile(argument):  # False if too long for a name
            inputs.append(place)
        elif not PATH.fullmatch(argument):
            inputs.append(check_text(argument, "text"))
        else:
            raise ConfigError(
                f"{argument}: no such model directory or text file. If it is a text, write it with "
                f"a space: '{argument} '",
                "not_found",
            )
    return models, inputs


def read_inputs(
    inputs: Sequence[str | Path], encoding: str, *, hint: str = "One text per line",
    replace_bad_bytes: bool = False,
) -> Iterator[list[str]]:  # fmt: skip
    """Yield the lines of texts and files in blocks; without any, or for -, standard input."""
    from polyhead.data.text_files import read_lines

    for item in inputs or [Path("-")]:
        if item == Path("-"):
            yield from read_blocks(encoding, hint=hint, replace_bad_bytes=replace_bad_bytes)
        else:
            yield item.split("\n") if isinstance(item, str) else read_lines(item, encoding)


def given_options(command: Callable[..., object]) -> dict[str, str]:
    """Return the options that the command line names, such as --beam, by parameter of a command."""
    words = {word.partition("=")[0] for word in ARGUMENTS.get()}
    options = {name: f"--{name.replace('_', '-')}" for name in signature(command).parameters}
    return {name: option for name, option in options.items() if option in words}


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
