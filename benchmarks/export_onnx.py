"""ONNX graphs of a translator beside the model itself: outputs, score, size and speed.

    polyhead demo
    python benchmarks/export_onnx.py runs/demo

The model is exported in float32 and in 8 bits. Held-out sentences are translated by greedy search
in onnxruntime and by our own search, both with one thread and in the same batches. Of outputs that
differ, those are counted apart that differ first at a tie, where rounding decides. The largest
difference is that of log-probabilities of our outputs. Sentences per second are measured in turns.
"""

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import torch
from decoding_speed import agreement
from measuring import Contestant

from polyhead.checkpoint.model_dir import SavedModel, load_model, resolve
from polyhead.convert import onnx_graphs
from polyhead.convert.onnx_graphs import OnnxModel
from polyhead.convert.target_types import Example, token_log_p
from polyhead.data.batches.base import pad
from polyhead.data.text_files import read_lines
from polyhead.decoding.batch import search
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.metrics.bleu import score
from polyhead.server.segments import UNLIMITED_RATIO
from polyhead.special_tokens import EOS, PAD

OURS, KINDS = "polyhead", {"float32": False, "int8": True}
LIMIT = 100  # tokens of an output
Batches = list[list[list[int]]]
COLUMNS = ("", "equal outputs", "largest difference of log p", "chrF", "MB", "times our speed")


def batches_of(sources: Sequence[list[int]], size: int) -> Batches:
    """Return the sentences in batches of similar length, the longest first."""
    order = sorted(sources, key=len, reverse=True)
    return [order[at : at + size] for at in range(0, len(order), size)]


def decode_ours(model: Any, batches: Batches) -> list[list[int]]:
    """Return the output of every sentence by our greedy search, without EOS."""
    options = DecodeConfig(beam=1, max_length=LIMIT, max_ratio=UNLIMITED_RATIO)
    rows = [row for batch in batches for row in search(model, pad(batch), options).tokens[:, 0]]
    return [[id for id in row.tolist() if id not in (EOS, PAD)] for row in rows]


def decode_theirs(model: OnnxModel, batches: Batches) -> list[list[int]]:
    """Return the output of every sentence by greedy search in onnxruntime, without EOS."""
    return [row for batch in batches for row in model.search(batch, 1, LIMIT)]


@torch.inference_mode()
def largest_difference(
    model: Any, graphs: OnnxModel, batches: Batches, outputs: Sequence[list[int]]
) -> float:
    """Return the largest difference of log p of all tokens of our outputs."""
    waiting, largest = iter(outputs), 0.0
    for batch in batches:
        examples = [Example(source, [*next(waiting), EOS]) for source in batch]
        target = pad([[1, *example.target[:-1]] for example in examples])
        ours = token_log_p(model(pad(batch), target), examples)
        for mine, theirs in zip(ours, graphs.outputs(examples), strict=True):
            largest = max(largest, float((mine - theirs).abs().max()))
    return largest


def work(decode: Any, model: Any, batches: Batches) -> int:
    """Decode everything and return the number of sentences."""
    return len(decode(model, batches))


def compare(
    saved: SavedModel, folder: Path, sentences: tuple[list[str], list[str]], options: Any
) -> list[list[str]]:
    """Return the rows of the table."""
    assert saved.tokenizers is not None
    model: Any = saved.model
    sources = saved.tokenizers.source.encode_batch(sentences[0])
    by_length = sorted(range(len(sources)), key=lambda i: -len(sources[i]))  # as in batches_of
    references = [sentences[1][i] for i in by_length]
    batches, decode = batches_of(sources, options.batch), saved.tokenizers.target.decode
    flat = [torch.tensor(source) for batch in batches for source in batch]

    def chrf(outputs: Sequence[list[int]]) -> str:
        texts = [decode(ids) for ids in outputs]
        return f"{score(texts, references, bootstrap=0)[1].value:.2f}"

    ours = decode_ours(model, batches)
    graphs = {kind: OnnxModel(saved, folder, int8=int8) for kind, int8 in KINDS.items()}
    contestants = [Contestant(OURS, partial(work, decode_ours, model, batches))]
    contestants += [
        Contestant(kind, partial(work, decode_theirs, graphs[kind], batches)) for kind in KINDS
    ]
    samples = measuring.interleave(contestants, options.rounds)
    mega = sum(p.numel() for p in model.parameters()) * 4 / 1e6
    rows = [[OURS, "", "", chrf(ours), f"{mega:.1f}", ""]]
    for kind, int8 in KINDS.items():
        theirs = decode_theirs(graphs[kind], batches)
        seen = agreement(model, [flat], ours, theirs)
        files = [f for f in (folder / "onnx").iterdir() if ("_quantized" in f.name) == int8]
        ratio = measuring.spread(measuring.paired_ratios(samples[kind], samples[OURS]))
        difference = largest_difference(model, graphs[kind], batches, ours)
        size = sum(file.stat().st_size for file in files) / 1e6
        rows.append([kind, str(seen), f"{difference:.1e}", chrf(theirs), f"{size:.1f}", str(ratio)])
    return rows


def main(arguments: Sequence[str]) -> int:
    """Export, compare, print, and record if asked to."""
    parser = measuring.parser(__doc__)
    parser.add_argument("model", type=Path, help="a run or a model that translates")
    parser.add_argument("--source", type=Path, default=Path("schedules/test.ko"))
    parser.add_argument("--target", type=Path, default=Path("schedules/test.en"))
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    options: argparse.Namespace = parser.parse_args(arguments)
    measuring.require_rounds(options.rounds, options.record)
    torch.set_num_threads(1)
    where = measuring.environment("export_onnx.py", arguments)
    saved = load_model(resolve(options.model))
    if saved.tokenizers is None or saved.family != "transformer":
        raise ConfigError(f"{options.model}: expected a Transformer that translates")
    n = options.sentences
    sentences = (read_lines(options.source)[:n], read_lines(options.target)[:n])
    with tempfile.TemporaryDirectory() as folder:
        onnx_graphs.write(saved, Path(folder), int8=True, progress=print)
        rows = compare(saved, Path(folder), sentences, options)
    lines = [
        *where,
        f"- {len(sentences[0]):,} sentences, batches of {options.batch}, {options.rounds} rounds",
        "",
        *measuring.table(COLUMNS, rows),
    ]
    print("\n".join(["", *lines]))
    if options.record:
        measuring.record(measuring.RESULTS, "ONNX graphs", lines)
    return 0


if __name__ == "__main__":
    measuring.run(main)
