"""The commands of `polyhead`: their words, their help, and where their work is done.

This is the border of the program. Errors of the input end here as one line on stderr and the exit
code of `polyhead.errors`; anything else is our bug and keeps its traceback. The imports stand
inside the commands, and only here, because `--help` must answer before torch could be loaded.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from polyhead.errors import PolyheadError

app = typer.Typer(
    name="polyhead",
    help="Train a Transformer on your own text, see what its heads look at, put it to use.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="Corpora: list, make, check, fetch.", no_args_is_help=True)
app.add_typer(data, name="data")

Model = Annotated[Path, typer.Argument(help="A model's folder, or a run's.", metavar="MODEL")]
Models = Annotated[
    list[Path], typer.Argument(help="A model's folder, or a run's; several make an ensemble.")
]
Files = Annotated[list[Path] | None, typer.Option(help="Text, one sentence a line; repeatable.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `polyhead`; returns the exit code."""
    try:
        code = get_command(app).main(
            args=list(sys.argv[1:] if argv is None else argv),
            prog_name="polyhead",
            standalone_mode=False,
        )
        return code if isinstance(code, int) else 0
    except PolyheadError as error:
        print(f"polyhead: {error}", file=sys.stderr)
        return error.exit_code
    except TyperException as error:
        print(f"polyhead: {error}; see polyhead --help", file=sys.stderr)
        return 2
    except SystemExit:  # how typer ends when whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130


@app.callback(invoke_without_command=True)
def polyhead(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Train a Transformer on your own text, see what its heads look at, put it to use."""
    if version:
        from polyhead import __version__

        print(f"polyhead {__version__}")
        raise typer.Exit


@app.command()
def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe (see `polyhead recipes`) or a TOML file of your own."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Changes to it, such as train.steps=500.", metavar="[KEY=VALUE]..."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run's folder; runs/RECIPE unless given.")
    ] = None,
    source: Files = None,
    target: Files = None,
    pairs: Annotated[
        list[Path] | None, typer.Option(help="TSV or JSON lines with both sides; repeatable.")
    ] = None,
    valid_source: Files = None,
    valid_target: Files = None,
    valid_pairs: Annotated[list[Path] | None, typer.Option(help="As --pairs.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Of all files, such as cp949.")] = None,
    on_bad_line: Annotated[str | None, typer.Option(help="skip or fail.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over in the same folder.")] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although the settings changed.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show the whole configuration and leave.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard files too (extra: tb).")
    ] = False,
) -> None:
    """Train a model, or go on with a run that was interrupted.

    polyhead train multi30k-de-en
    polyhead train --source train.ko --target train.en --run runs/mine
    polyhead train small train.epochs=5 --pairs corpus.tsv --run runs/tsv
    """
    from polyhead.cli.training import TrainWords, run_training

    files = {
        "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
        "valid_target": valid_target, "valid_pairs": valid_pairs,
    }  # fmt: skip
    named = {name: [str(path) for path in paths or ()] for name, paths in files.items()}
    words = TrainWords(
        recipe, tuple(overrides or ()), run, named, encoding, on_bad_line, fresh, accept_changes,
        print_config, tensorboard,
    )  # fmt: skip
    raise typer.Exit(run_training(words))


@app.command()
def translate(
    models: Models,
    beam: Annotated[int | None, typer.Option(help="1 is greedy search.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="The α of Wu et al. 2016.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample.")] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Outputs for each line.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of an output.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="First the score and a tab.")] = False,
    prefix: Annotated[str, typer.Option(help="What every output must begin with.")] = "",
    align: Annotated[
        bool, typer.Option("--align", help="Add a tab and word links, source-target.")
    ] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON object for each line.")] = False,
    seed: Annotated[int, typer.Option(help="Of --sample.")] = 0,
    device: Device = "auto",
) -> None:
    """Translate: one line in, one line out.

    polyhead translate runs/mine < in.txt > out.txt
    polyhead translate runs/a runs/b --beam 5 --n-best 3 --scores < in.txt
    """
    from polyhead.cli.translating import TranslateWords, run_translation

    changes = {
        "beam": beam, "length_penalty": length_penalty, "sample": sample or None,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "n_best": n_best,
        "max_length": max_length,
    }  # fmt: skip
    run_translation(
        TranslateWords(tuple(models), changes, scores, prefix, align, jsonl, seed, device)
    )


@app.command()
def evaluate(
    models: Models,
    source: Annotated[list[Path], typer.Option(help="Sentences to translate; repeatable.")],
    target: Annotated[list[Path], typer.Option(help="Their references; repeatable.")],
    against: Annotated[
        Path | None,
        typer.Option(help="Another model, or a file with its translations: adds a paired test."),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer.")] = "13a",
    beam: Annotated[int | None, typer.Option(help="1 is greedy search.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="The α of Wu et al. 2016.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations here.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Score a model: BLEU and chrF with signatures and 95 % intervals.

    polyhead evaluate runs/mine --source test.ko --target test.en
    polyhead evaluate runs/mine --source test.ko --target test.en --against runs/other
    """
    from polyhead.cli.evaluating import EvaluateWords, run_evaluation

    changes = {"beam": beam, "length_penalty": length_penalty}
    run_evaluation(
        EvaluateWords(
            tuple(models), tuple(source), tuple(target), against, lowercase, tokenize, changes,
            output, json_out, device,
        )
    )  # fmt: skip


@app.command()
def attention(
    model: Model,
    text: Annotated[str, typer.Argument(help="The sentence to look at.")],
    output: Annotated[Path, typer.Option(help="page.html, or .svg, .png, .json.")] = Path(
        "attention.html"
    ),
    target: Annotated[str | None, typer.Option(help="Its translation, if not the model's.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="In pictures: encoder, decoder or cross.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="In pictures: counted from 1.")] = None,
    head: Annotated[
        list[int] | None, typer.Option(help="In pictures: counted from 1; repeatable.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="In pictures: the lines of the paper's Figure 3.")
    ] = False,
    word: Annotated[str | None, typer.Option(help="With --lines: only from this word.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="In pictures: whole words.")] = False,
    device: Device = "auto",
) -> None:
    """Show what every head of every layer looks at.

    polyhead attention runs/mine "내일 회의가 있어요." --output page.html
    polyhead attention runs/mine "내일 회의가 있어요." --lines --layer 2 --output figure3.png
    """
    from polyhead.cli.looking import LookWords, run_look

    run_look(
        LookWords(
            model, text, output, target, kind, layer, tuple(head) if head else None, lines, word,
            merge, device,
        )
    )  # fmt: skip


@app.command()
def average(
    models: Models,
    output: Annotated[Path, typer.Option(help="Where to write the new model.")],
    last: Annotated[int | None, typer.Option(help="Of a run: only its newest checkpoints.")] = None,
) -> None:
    """Average the weights of several checkpoints, or of all that a run has kept.

    polyhead average runs/mine --output models/mine-averaged
    """
    from polyhead.api.averaging import average as work

    members = work(models, output, last=last)
    print(f"{output}: the mean of {', '.join(path.name for path in members)}", file=sys.stderr)


@app.command()
def recipes() -> None:
    """List the recipes that come with polyhead."""
    from polyhead.cli.recipes import list_recipes

    list_recipes()


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="A recipe or a TOML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
) -> None:
    """Show a recipe with every value, the defaults filled in, as a TOML file.

    polyhead show small > mine.toml
    """
    from polyhead.cli.recipes import show_recipe

    show_recipe(recipe, tuple(overrides or ()))


@app.command()
def doctor() -> None:
    """Explain this machine: versions, cores, memory, disk, browser, fonts."""
    from polyhead.cli.doctor import examine

    raise typer.Exit(examine())


@app.command()
def demo(
    run: Annotated[Path, typer.Option(help="Where to work.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps only, to see that it works.")
    ] = False,
) -> None:
    """Train a Korean to English translator from nothing, score it, use it, look inside."""
    from polyhead.cli.demo import run_demo

    raise typer.Exit(run_demo(run, quick=quick))


@data.command("list")
def data_list() -> None:
    """List the corpora that polyhead knows, and whether they are here."""
    from polyhead.cli.data import list_corpora

    list_corpora()


@data.command("make")
def data_make(
    name: Annotated[str, typer.Argument(help="schedules")],
    output: Annotated[Path | None, typer.Option(help="A folder; the cache unless given.")] = None,
    size: Annotated[int, typer.Option(help="Training pairs.")] = 12_000,
    seed: Annotated[int, typer.Option(help="Another seed, another corpus.")] = 1,
) -> None:
    """Write the embedded Korean-English corpus.

    polyhead data make schedules --output data/schedules
    """
    from polyhead.cli.data import make_corpus

    make_corpus(name, output, size, seed)


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A corpus from `polyhead data list`.")],
    output: Annotated[Path | None, typer.Option(help="A folder; the cache unless given.")] = None,
) -> None:
    """Download a corpus and verify its checksums.

    polyhead data get multi30k
    """
    from polyhead.cli.data import get_corpus

    get_corpus(name, output)


@data.command("check")
def data_check(
    source: Files = None,
    target: Files = None,
    pairs: Annotated[list[Path] | None, typer.Option(help="TSV or JSON lines.")] = None,
    test_source: Files = None,
    test_target: Files = None,
    encoding: Annotated[str, typer.Option(help="Of all files.")] = "utf-8",
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for what would spoil training: misalignment, duplicates, leaks from the test set, …

    polyhead data check --source a.ko --target a.en --test-source b.ko --test-target b.en
    """
    from polyhead.cli.data import check_corpus

    sides = {"source": source, "target": target, "pairs": pairs}
    tests = {"source": test_source, "target": test_target}
    raise typer.Exit(
        check_corpus(
            {n: tuple(f or ()) for n, f in sides.items()},
            {n: tuple(f or ()) for n, f in tests.items()},
            encoding,
            as_json=json_out,
        )
    )
