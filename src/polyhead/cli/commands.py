"""The commands that train models and put them to use: their options and their help.

The imports stand inside the commands, because `--help` must answer before torch could be loaded.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from polyhead.cli.options import (
    Device,
    Encoding,
    Files,
    Images,
    ImageSize,
    Labelled,
    Model,
    Models,
    PlainText,
    app,
)
from polyhead.errors import ConfigError


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
    text: PlainText = None,
    valid_text: PlainText = None,
    data: Labelled = None,
    valid_data: Labelled = None,
    images: Images = None,
    valid_images: Images = None,
    init: Annotated[
        Path | None, typer.Option(help="To begin from: the same family, or BERT or ELECTRA.")
    ] = None,
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
    polyhead train gpt-tiny --text corpus.txt --run runs/writer
    polyhead train gpt-tiny --text my.txt --init runs/writer --run runs/my-writer
    polyhead train bert-tiny --text corpus.txt --run runs/bert
    polyhead train classify-small --data labelled.tsv --init runs/bert --run runs/reviews
    polyhead train vit-cifar10 --images photos/ --run runs/photos
    """
    from polyhead.cli.train import TrainWords, as_toml, run_training

    files = {
        "source": source, "target": target, "pairs": pairs, "valid_source": valid_source,
        "valid_target": valid_target, "valid_pairs": valid_pairs, "text": text,
        "valid_text": valid_text, "labelled": data, "valid_labelled": valid_data,
        "images": images, "valid_images": valid_images,
    }  # fmt: skip
    named = {name: [str(path) for path in paths or ()] for name, paths in files.items()}
    given = [*(overrides or ()), *([f"train.init={as_toml(str(init))}"] if init else ())]
    words = TrainWords(
        recipe, tuple(given), run, named, encoding, on_bad_line, fresh, accept_changes,
        print_config, tensorboard,
    )  # fmt: skip
    raise typer.Exit(run_training(words))


@app.command()
def translate(
    models: Models,
    beam: Annotated[int | None, typer.Option(help="1 is greedy search.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="The α of Wu et al. 2016.")] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Their β: read all of the source; 0 is off.")
    ] = None,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Unknown words by what was looked at.")
    ] = False,
    dictionary: Annotated[
        Path | None, typer.Option(help="With --replace-unknown: word, tab, word on each line.")
    ] = None,
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
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Translate: one line in, one line out.

    polyhead translate runs/mine < in.txt > out.txt
    polyhead translate runs/a runs/b --beam 5 --n-best 3 --scores < in.txt
    """
    from polyhead.cli.translate import TranslateWords, run_translation

    changes = {
        "beam": beam, "length_penalty": length_penalty, "sample": sample or None,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "n_best": n_best,
        "max_length": max_length, "coverage": coverage, "replace_unknown": replace_unknown or None,
    }  # fmt: skip
    run_translation(
        TranslateWords(
            tuple(models), changes, scores, prefix, align, jsonl, seed, device, dictionary, encoding
        )
    )


@app.command()
def generate(
    model: Model,
    prompt: Annotated[
        str | None, typer.Option(help="What to go on with; else standard input, if piped.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="How many to write.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Below 1 it dares less, above 1 more.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likeliest that have this probability.")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed writes the same text.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(help=r"End before this text; \n is a line end; repeatable.")
    ] = None,
    n: Annotated[int, typer.Option("--n", help="So many texts, with seeds from --seed on.")] = 1,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON object for each text.")] = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    r"""Go on with a text: the prompt and what follows it, as it is written.

    polyhead generate runs/writer --prompt "오늘은" --max-tokens 100
    polyhead generate runs/writer --prompt "오늘은" --greedy --stop "\n"
    echo "오늘은" | polyhead generate runs/writer --temperature 0.7 --top-p 0.9 --n 3 --jsonl
    """
    from polyhead.cli.generate import GenerateWords, run_generation

    changes = {
        "max_length": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
    }  # fmt: skip
    run_generation(
        GenerateWords(
            model, prompt, changes, greedy, seed, tuple(stop or ()), n, jsonl, device, encoding
        )
    )


@app.command()
def evaluate(
    models: Models,
    source: Annotated[
        list[Path] | None, typer.Option(help="Sentences to translate; repeatable.")
    ] = None,
    target: Annotated[list[Path] | None, typer.Option(help="Their references; repeatable.")] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="Text for a language model; repeatable.")
    ] = None,
    data: Labelled = None,
    images: Images = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Another model, or a file with its translations: adds a paired test."),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer.")] = "13a",
    metric: Annotated[
        str, typer.Option(help="bleu, or wer: lines not exactly right, and edits of units.")
    ] = "bleu",
    beam: Annotated[int | None, typer.Option(help="1 is greedy search.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="The α of Wu et al. 2016.")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Of LSH attention, if not as many as the model's own.")
    ] = None,
    size: ImageSize = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations here.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Score a model: a translator by BLEU and chrF, with signatures and 95 % intervals; a language
    model by its loss, its perplexity and its bits per character; a BERT or an ELECTRA by the blanks
    it fills in; a classifier by accuracy, F1 and who is confused with whom.

    polyhead evaluate runs/mine --source test.ko --target test.en
    polyhead evaluate runs/mine --source test.ko --target test.en --against runs/other
    polyhead evaluate runs/g2p --source words.ko --target words.ipa --metric wer
    polyhead evaluate runs/writer --text test.txt
    polyhead evaluate runs/reformer --text test.txt --rounds 8
    polyhead evaluate runs/reviews --data test.tsv
    polyhead evaluate runs/photos --images test-photos/
    """
    from polyhead.cli.evaluate import EvaluateWords, run_evaluation
    from polyhead.cli.scoring import run_scoring

    if size is not None and not images:
        raise ConfigError("--size is for images; leave it out")
    if rounds is not None and not (text or source):
        raise ConfigError("--rounds is for translators and language models; leave it out")
    if images and not (source or target or text or data):
        from polyhead.cli.classify_images import run_image_evaluation

        run_image_evaluation(models, images, size, json_out, device)
        return
    if data and not source and not target and not text:
        from polyhead.cli.classify import run_label_evaluation

        run_label_evaluation(models, data, encoding, json_out, device)
        return
    if text and not source and not target:
        run_scoring(models, text, encoding, rounds, json_out, device)
        return
    if text or not source or not target:
        raise ConfigError(
            "give --source FILE and --target FILE for a translator, or --text FILE for a language "
            "model"
        )
    changes = {"beam": beam, "length_penalty": length_penalty}
    run_evaluation(
        EvaluateWords(
            tuple(models), tuple(source), tuple(target), against, lowercase, tokenize, changes,
            output, json_out, device, rounds, metric, encoding,
        )
    )  # fmt: skip


@app.command()
def attention(
    model: Model,
    text: Annotated[str, typer.Argument(help="The sentence to look at, or the image.")],
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
    polyhead attention runs/photos cat.jpg --output page.html
    polyhead attention runs/photos cat.jpg --layer 2 --output heads.svg
    """
    from polyhead.cli.attention import LookWords, run_look

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
    from polyhead.checkpoint.average import average as work

    members = work(models, output, last=last)
    print(f"{output}: the mean of {', '.join(path.name for path in members)}", file=sys.stderr)


@app.command("import")
def import_model(
    name: Annotated[
        str, typer.Argument(help="A folder of Hugging Face or timm, or a name.", metavar="MODEL")
    ],
    output: Annotated[Path, typer.Option(help="Where to write our model.")],
    generator: Annotated[
        str | None, typer.Option(help="Of ELECTRA: the other half's folder or name.")
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="vit: timm's weights whose folder does not say so.")
    ] = None,
) -> None:
    """Read a model of Hugging Face or timm: Marian, GPT-2, BERT, ELECTRA, ViT (safetensors only).

    polyhead import downloads/opus-mt-ko-en --output models/ko-en
    polyhead import electra-disc --generator electra-gen --output models/electra
    """
    from polyhead.cli.convert import run_import

    run_import(name, output, generator, family)


@app.command("export")
def export_model(
    model: Model,
    output: Annotated[Path, typer.Option(help="Where to write their model.")],
    to: Annotated[
        str, typer.Option(help="hf: for Hugging Face's transformers; timm: a ViT for timm.")
    ] = "hf",
) -> None:
    """Write a model for other programs.

    polyhead export runs/mine --to hf --output models/mine-hf
    polyhead export runs/vit --to timm --output models/vit-timm
    """
    from polyhead.cli.convert import run_export

    run_export(model, output, to)
