"""`polyhead embed`: vectors of lines of text, or their similarity to a text."""

import json
from pathlib import Path

from typer import Argument, Option

from polyhead.atomic_file import os_errors_as_polyhead_errors
from polyhead.cli.options import Device, Encoding, Model, check_text, read_inputs, split_inputs
from polyhead.cli.streams import counting, utf8_stdout
from polyhead.errors import ConfigError


def embed(
    model: Model,
    files: list[str] | None = Argument(
        None,
        help="A text in quotes, or text files, one text per line (default: stdin).",
        metavar="[FILE|TEXT]...",
    ),
    output: Path | None = Option(
        None, help="Write the vectors to this NumPy file (.npy), a row per text."
    ),
    similar_to: str | None = Option(
        None, help="Print the texts by their cosine similarity to this text, highest first."
    ),
    encoding: Encoding = "utf-8",
    device: Device = "auto",
) -> None:
    """Give every line of text a vector: one JSON object per line.

    polyhead embed runs/embed "내일 회의가 있어요."
    polyhead embed runs/embed < sentences.txt --output vectors.npy
    polyhead embed runs/embed < sentences.txt --similar-to "a meeting tomorrow"
    """
    import numpy as np

    from polyhead.pipelines.task_pipeline import SentenceEmbedder

    if output is not None and (similar_to is not None or output.suffix != ".npy"):
        message = f"--output {output}: expected a name that ends in .npy, and no --similar-to"
        raise ConfigError(message, "conflicting_options")
    embedder = SentenceEmbedder.from_dir(model, device=device)
    _, inputs = split_inputs([str(model), *(files or ())])
    blocks = read_inputs(inputs, encoding)
    if similar_to is None and output is None:
        with utf8_stdout() as out:
            for lines in blocks:
                for line, vector in zip(lines, embedder.embed(lines).tolist(), strict=True):
                    row = {"text": line, "embedding": vector}
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
        return
    lines = [line for block in blocks for line in block]
    with counting("embedding", len(lines)) as progress:
        vectors = embedder.embed(lines, progress=progress)
    if output is not None:
        with os_errors_as_polyhead_errors(output):
            np.save(output, vectors, allow_pickle=False)
        return
    wanted = embedder.embed(check_text(similar_to or "", "--similar-to"))
    cosines = vectors @ wanted
    with utf8_stdout() as out:
        for number in np.argsort(-cosines, kind="stable").tolist():
            out.write(f"{cosines[number]:.4f}\t{lines[number]}\n")
