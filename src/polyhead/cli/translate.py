"""`polyhead translate`: one output line per input line, in order."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Option

from polyhead.cli.options import (
    Beam,
    Device,
    Encoding,
    JsonLines,
    LengthPenalty,
    Models,
    Temperature,
    TopK,
    TopP,
)
from polyhead.cli.streams import read_blocks, say, utf8_stdout

if TYPE_CHECKING:
    from polyhead.pipelines.translator import Translation

Links = list[list[tuple[int, int, float]]]  # of each output: source word, target word, weight

UNKNOWN_HELP = (
    "Replace unknown words by the translation, or a copy, of the most-attended source word."
)


def translate(
    models: Models,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    coverage: float | None = Option(
        None, help="Coverage penalty β (Wu et al. 2016); 0 disables it."
    ),
    replace_unknown: bool = Option(False, "--replace-unknown", help=UNKNOWN_HELP),
    dictionary: Path | None = Option(
        None, help="Dictionary for --replace-unknown: word, tab, translation per line."
    ),
    sample: bool = Option(False, "--sample", help="Sample instead of beam search."),
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    n_best: int | None = Option(None, help="Number of outputs per line."),
    max_length: int | None = Option(None, help="Maximum length of an output in tokens."),
    scores: bool = Option(
        False, "--scores", help="Prefix each translation with its score and a tab."
    ),
    no_split: bool = Option(
        False, "--no-split", help="Do not split lines into sentences; for models of paragraphs."
    ),
    prefix: str = Option("", help="Text that every output starts with."),
    align: bool = Option(False, "--align", help="Append a tab and word links, source-target."),
    jsonl: JsonLines = False,
    seed: int = Option(0, help="Random seed used with --sample."),
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Translate standard input line by line; the sentences of a line one by one.

    polyhead translate runs/mine < in.txt > out.txt
    polyhead translate runs/a runs/b --beam 5 --n-best 3 --scores < in.txt
    """
    from polyhead.cli.console import counting
    from polyhead.pipelines.translator import Translator
    from polyhead.viz.capture import alignment

    translator = Translator.from_dir(*models, device=device)
    if dictionary is not None:
        translator = translator.with_dictionary(dictionary)
    options = translator.defaults.with_options({
        "beam": beam, "length_penalty": length_penalty, "sample": sample or None,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "n_best": n_best,
        "max_length": max_length, "coverage": coverage, "replace_unknown": replace_unknown or None,
        "split_sentences": False if no_split else None,
    })  # fmt: skip
    with utf8_stdout() as out:
        for lines in read_blocks(encoding, hint="One sentence per line", replace_bad_bytes=True):
            texts = translator.split_lines(lines, split_sentences=options.split_sentences)
            for number, parts in enumerate(texts, 1):
                if any(part.is_cut for part in parts):
                    say(
                        f"polyhead: a sentence in line {number} of this block is longer than "
                        f"{translator.max_length} tokens and is translated in parts"
                    )
            prefixes = [prefix] * len(lines) if prefix else None
            with counting("translating", sum(map(len, texts))) as progress:
                translations = translator.translate_parts(
                    texts, options=options, seed=seed, prefixes=prefixes, progress=progress
                )
            for line, outputs in zip(lines, translations, strict=True):
                links = alignment(translator, outputs) if align else None
                out.write(as_text(line, outputs, links, scores=scores, jsonl=jsonl))
            out.flush()


def as_text(
    line: str, outputs: "list[Translation]", links: Links | None, *, scores: bool, jsonl: bool
) -> str:
    """Return the translations of a line: columns of a row each, or one JSON object."""
    if jsonl:
        objects: list[dict[str, object]] = [
            {"text": output.text, "score": output.score, "log_p": output.log_p}
            for output in outputs
        ]
        for content, words in zip(objects, links or (), strict=False):
            names = ("source", "target", "weight")
            content["alignment"] = [dict(zip(names, link, strict=True)) for link in words]
        return json.dumps({"source": line, "translations": objects}, ensure_ascii=False) + "\n"
    rows = []
    for number, output in enumerate(outputs):
        columns = [f"{output.score:.4f}"] if scores else []
        columns.append(output.text.replace("\n", " ").replace("\t", " "))
        if links is not None:
            columns.append(" ".join(f"{source}-{target}" for source, target, _ in links[number]))
        rows.append("\t".join(columns) + "\n")
    return "".join(rows)
