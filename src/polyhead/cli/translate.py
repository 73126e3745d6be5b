"""`polyhead translate`: one output line per input line, in order."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from polyhead.cli.options import (
    Beam,
    ComputeType,
    Device,
    Encoding,
    Engine,
    JsonLines,
    LengthPenalty,
    Temperature,
    TopK,
    TopP,
    complete_dir,
    given_options,
    read_inputs,
    split_inputs,
)
from polyhead.cli.streams import counting, say, utf8_stdout
from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from polyhead.pipelines.translator import Translation, Translator

Changes = Mapping[str, bool | int | float | None]
Links = list[list[tuple[int, int, float]]]  # of each output: source word, target word, weight

JSON_FIELDS = ("text", "score", "log_p", "confidence")
UNKNOWN_HELP = (
    "Replace unknown words by the translation, or a copy, of the most-attended source word."
)


def translate(
    models: Annotated[
        list[str],
        Argument(
            help="Model or run directory; several form an ensemble. Then a text in quotes, or text "
            "files (default: standard input).",
            metavar="MODEL... [TEXT|FILE]...",
            autocompletion=complete_dir,
        ),
    ],
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
    engine: Engine = "auto",
    compute_type: ComputeType = "auto",
) -> None:
    """Translate a text, text files or standard input.

    One line of output for every line of input; the sentences of a line are translated one by one.

    polyhead translate runs/mine "내일 회의가 있어요."
    polyhead translate runs/mine < in.txt > out.txt
    polyhead translate runs/a runs/b --beam 5 --n-best 3 --scores < in.txt
    """
    folders, inputs = split_inputs(models, ensemble=True)
    changes = {
        "beam": beam, "length_penalty": length_penalty, "sample": sample or None,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "n_best": n_best,
        "max_length": max_length, "coverage": coverage, "replace_unknown": replace_unknown or None,
        "split_sentences": False if no_split else None,
    }  # fmt: skip
    needs = {
        "an ensemble needs torch": len(folders) > 1,
        "--align needs torch": align,
        "--dictionary needs torch": dictionary is not None,
    }
    reason = next((reason for reason, holds in needs.items() if holds), None)
    translator = load_translator(folders, changes, reason, engine, compute_type, device)
    options = translator.defaults.with_options(changes)
    given = given_options(translate)
    for name in ("temperature", "top_k", "top_p", "seed"):
        if name in given and not options.sample:
            raise ConfigError(f"{given[name]} has no effect without --sample", "no_effect")
    if dictionary is not None and not options.replace_unknown:
        raise ConfigError("--dictionary has no effect without --replace-unknown", "no_effect")
    if scores and jsonl:
        raise ConfigError("--scores has no effect: --jsonl has the scores", "no_effect")
    if dictionary is not None:
        translator = translator.with_dictionary(dictionary)
    if align:
        from polyhead.viz.word_alignment import alignment
    with utf8_stdout() as out:
        hint = "One sentence per line"
        for lines in read_inputs(inputs, encoding, hint=hint, replace_bad_bytes=True):
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
                    texts, options=options, seed=seed, prefixes=prefixes,
                    scores="tokens" if jsonl or scores else "none",
                    progress=progress,
                )  # fmt: skip
            for line, outputs in zip(lines, translations, strict=True):
                links = alignment(translator, outputs) if align else None
                out.write(as_text(line, outputs, links, scores=scores, jsonl=jsonl))
            out.flush()


def load_translator(
    folders: Sequence[Path], changes: Changes, reason: str | None, engine: str, compute_type: str,
    device: str,
) -> "Translator":  # fmt: skip
    """Return a translator with the named engine; auto: the first one that has the options.

    changes: options instead of the model's own. reason: why the command needs torch, if it does.
    """
    from polyhead.engines.obstacles import torch_notice
    from polyhead.pipelines.backends import check_engine
    from polyhead.pipelines.translator import Translator

    check_engine(engine)
    if engine == "ctranslate2" and reason is not None:
        raise ConfigError(f"--engine {engine}: {reason}", "unsupported_engine")
    if engine == "torch" or reason is not None:
        translator = Translator.from_dir(*folders, device=device)
    else:
        translator = Translator.open(folders[0], device, engine, compute_type, only=True)
    options = translator.defaults.with_options(changes)
    if engine == "auto":
        reason = reason or translator.obstacle() or translator.option_obstacle(options)
        if reason and (notice := torch_notice(reason)):
            say(f"polyhead: {notice}")
    translator.backend(options)  # so that errors come before the input is read
    return translator


def as_text(
    line: str, outputs: "list[Translation]", links: Links | None, *, scores: bool, jsonl: bool
) -> str:
    """Return the translations of a line: columns of a row each, or one JSON object."""
    if jsonl:
        objects: list[dict[str, object]] = [
            {name: getattr(output, name) for name in JSON_FIELDS} for output in outputs
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
