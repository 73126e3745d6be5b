"""The commands that train models and put them to use: their options and their help.

The imports stand inside the commands, because `--help` must answer before torch could be loaded.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.words import Device, Files, Model, Models, app


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
