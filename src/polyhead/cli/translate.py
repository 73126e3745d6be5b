"""`polyhead translate`: one output line per input line, in order."""

import io
import json
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from polyhead.cli.options import (
    Beam,
    Device,
    Encoding,
    LengthPenalty,
    Models,
    Temperature,
    TopK,
    TopP,
)

Links = list[tuple[int, int, float]]  # source word, target word, weight


def translate(
    models: Models,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage penalty β (Wu et al. 2016); 0 disables it.")
    ] = None,
    replace_unknown: Annotated[
        bool,
        typer.Option(
            "--replace-unknown",
            help="Replace unknown words by the translation, or a copy, of the most-attended "
            "source word.",
        ),
    ] = False,
    dictionary: Annotated[
        Path | None,
        typer.Option(help="Dictionary for --replace-unknown: word, tab, translation per line."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Sample instead of beam search.")
    ] = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    n_best: Annotated[int | None, typer.Option(help="Number of outputs per line.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Maximum length of an output in tokens.")
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Prefix each translation with its score and a tab.")
    ] = False,
    prefix: Annotated[str, typer.Option(help="Text that every output starts with.")] = "",
    align: Annotated[
        bool, typer.Option("--align", help="Append a tab and word links, source-target.")
    ] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object per line of input.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed used with --sample.")] = 0,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Translate standard input line by line.

    polyhead translate runs/mine < in.txt > out.txt
    polyhead translate runs/a runs/b --beam 5 --n-best 3 --scores < in.txt
    """
    from polyhead.cli.console import counting, say, utf8_stdout
    from polyhead.cli.stdin import read_blocks, typed_blocks
    from polyhead.pipelines.translator import Translator
    from polyhead.viz.capture import alignment

    translator = Translator.from_dir(*models, device=device)
    if dictionary is not None:
        translator = translator.with_dictionary(dictionary)
    options = translator.defaults.with_options({
        "beam": beam, "length_penalty": length_penalty, "sample": sample or None,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "n_best": n_best,
        "max_length": max_length, "coverage": coverage, "replace_unknown": replace_unknown or None,
    })  # fmt: skip
    interactive = sys.stdin.isatty()
    blocks = (
        typed_blocks("One sentence per line")
        if interactive
        else read_blocks(encoding, replace_bad_bytes=True)
    )
    with utf8_stdout() as out:
        for lines in blocks:
            parts = translator.split_lines(lines)
            for number, part in enumerate(parts, 1):
                if len(part) > 1:
                    say(
                        f"polyhead: line {number} of this block is longer than "
                        f"{translator.max_length} tokens and is translated in parts"
                    )
            with counting("translating", len(lines)) as progress:
                translations = translator.translate_parts(
                    parts,
                    options=options,
                    seed=seed,
                    prefixes=[prefix] * len(lines) if prefix else None,
                    progress=progress,
                )
            for line, outputs in zip(lines, translations, strict=True):
                ids = [output.ids for output in outputs]
                links = (
                    alignment(translator, [line] * len(ids), ids) if align else [None] * len(ids)
                )
                rows = [
                    Row(output.text, output.score, output.log_p, link)
                    for output, link in zip(outputs, links, strict=True)
                ]
                write(out, line, rows, scores=scores, jsonl=jsonl)
            out.flush()


class Row(NamedTuple):
    """A translation as it is printed."""

    text: str
    score: float
    log_p: float
    links: Links | None


def write(out: io.TextIOWrapper, line: str, rows: list[Row], *, scores: bool, jsonl: bool) -> None:
    """Write the translations of a line: columns, or one JSON object."""
    if jsonl:
        outputs = [
            {"text": row.text, "score": row.score, "log_p": row.log_p}
            | ({} if row.links is None else {"alignment": [
                {"source": source, "target": target, "weight": weight}
                for source, target, weight in row.links
            ]})
            for row in rows
        ]  # fmt: skip
        out.write(json.dumps({"source": line, "translations": outputs}, ensure_ascii=False) + "\n")
        return
    for row in rows:
        columns = [f"{row.score:.4f}"] if scores else []
        columns.append(row.text.replace("\n", " "))
        if row.links is not None:
            columns.append(" ".join(f"{source}-{target}" for source, target, _ in row.links))
        out.write("\t".join(columns) + "\n")
