"""A translator exported to CTranslate2, compared with the original on held-out sentences.

Greedy search and a beam of 4, both without a length penalty, in float32 and in int8. Outputs that
differ in float32 are explained: our model scores both, and a difference below 1e-4 is a tie that
rounding decides; or our search gives theirs once it normalises without PAD and BOS, as theirs.
Sentences are the run's held-out ones, or those of --source and --target.

Speed: the same batches of 32 sentences, sorted by length, one thread each, a beam of 4.

    python benchmarks/export_ctranslate2.py runs/demo
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import measuring
import torch
from measuring import Contestant
from torch import Tensor

from polyhead.checkpoint.model_dir import SavedModel, load_model
from polyhead.checkpoint.model_files import resolve
from polyhead.config import from_dict
from polyhead.convert.ctranslate2_target import open_model, write
from polyhead.convert.target_types import Example, Reader
from polyhead.data.config import DataConfig
from polyhead.data.text_files import read_lines
from polyhead.decoding.batch import decode_all
from polyhead.decoding.options import DecodeConfig
from polyhead.metrics.bleu import score
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.training.tasks.translation import read_parallel_corpus

TIE = 1e-4  # of log p: as near as this, rounding decides
BATCH, MAX_OUTPUT = 32, 256
COMPUTE_TYPES = ("float32", "int8")


def sentences(words: Any, saved: SavedModel) -> tuple[list[list[int]], list[str]]:
    """Return sources, closed by EOS, and references, shortest first."""
    if words.source is not None:
        texts, references = list(read_lines(words.source)), list(read_lines(words.target))
    else:
        run = saved.about["run"]
        data = from_dict(DataConfig, run["data"], "data.")
        pairs = read_parallel_corpus(data, run["train"]["seed"])[0].valid
        texts, references = pairs.texts, pairs.labels
    sources = saved.tokenizers.source.encode_batch(texts[: words.most])
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    return [sources[i] for i in order], [references[i] for i in order]


def own_reader(saved: SavedModel) -> Reader:
    """Return our model as a reader; PAD and BOS have no share of its probabilities."""

    def outputs(examples: Sequence[Example]) -> list[Tensor]:
        [(source, target)] = examples
        ids = torch.tensor([[BOS, *target[:-1]]])
        log_p = saved.model(torch.tensor([source]), ids)[0, :, BOS + 1 :].log_softmax(-1)
        return [log_p[torch.arange(len(target)), torch.tensor(target) - BOS - 1]]

    def search(sources: Sequence[list[int]], beam: int, limit: int) -> list[list[int]]:
        options = DecodeConfig(beam, length_penalty=0.0, max_length=limit, max_extra=limit)
        best = decode_all(saved.model, sources, options, device=torch.device("cpu"))
        return [outputs[0].ids for outputs in best]

    return Reader(outputs, search)


def searched(reader: Reader, sources: Sequence[list[int]], beam: int) -> list[list[int]]:
    """Return the best output of every source."""
    outputs: list[list[int]] = []
    for start in range(0, len(sources), BATCH):
        batch = sources[start : start + BATCH]
        outputs += reader.search(batch, beam, min(MAX_OUTPUT, 2 * max(map(len, batch)) + 10))
    return outputs


def log_p(
    reader: Reader, sources: Sequence[list[int]], outputs: Sequence[list[int]]
) -> list[Tensor]:
    """Return log p of all tokens of every output, with EOS."""
    with torch.inference_mode():
        return [
            reader.outputs([Example(source, [*output, EOS])])[0]
            for source, output in zip(sources, outputs, strict=True)
        ]


def explain(
    saved: SavedModel,
    sources: Sequence[list[int]],
    mine: Sequence[list[int]],
    theirs: Sequence[list[int]],
    beam: int,
) -> list[str]:
    """Return a line for every difference: our scores of both outputs, and a search as theirs.

    Our search counts PAD and BOS, which are never written, when it normalises; theirs does not.
    """
    ours, lines = own_reader(saved), []
    never = torch.zeros(saved.config.target_vocab)
    never[[PAD, BOS]] = -1e4
    for i, (source, a, b) in enumerate(zip(sources, mine, theirs, strict=True)):
        if a == b:
            continue
        (first,), (second,) = (log_p(ours, [source], [output]) for output in (a, b))
        gap = float(first.sum() - second.sum())
        hook = saved.model.to_logits.register_forward_hook(lambda _, _in, out: out + never)
        same = searched(ours, [source], beam) == [b]
        hook.remove()
        kind = "equal if ours leaves PAD and BOS out too" if same else "NOT explained"
        kind = "a tie of rounding" if abs(gap) < TIE else kind
        lines.append(f"beam {beam}, sentence {i}: log p of our output is {gap:+.1e} higher; {kind}")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    options = measuring.parser(__doc__)
    options.add_argument("model")
    options.add_argument("--source", type=Path, help="sentences, one per line")
    options.add_argument("--target", type=Path, help="their translations")
    options.add_argument("--most", type=int, default=1000, help="sentences")
    options.add_argument("--rounds", type=int, default=3, help="of the measurement of speed")
    words = options.parse_args(arguments)
    torch.set_num_threads(1)
    print(*measuring.environment("export_ctranslate2.py", arguments), sep="\n")
    directory = resolve(Path(words.model))
    saved = load_model(directory)
    sources, references = sentences(words, saved)
    decode, ours = saved.tokenizers.target.decode, own_reader(saved)
    mine = {beam: searched(ours, sources, beam) for beam in (1, 4)}
    rows, notes = [], []
    scores = score([decode(ids) for ids in mine[4]], references, bootstrap=1)
    size = (directory / "model.safetensors").stat().st_size / 1e6
    rows.append(["polyhead", *(f"{s.value:.2f}" for s in scores), "", "", "", f"{size:.1f}"])
    work = {"polyhead": ours}
    with TemporaryDirectory() as folder:
        for kind in COMPUTE_TYPES:
            path = Path(folder) / kind
            path.mkdir()
            write(saved, path, kind)
            reader = work[f"CTranslate2 {kind}"] = open_model(saved, path, kind)
            theirs = {beam: searched(reader, sources, beam) for beam in (1, 4)}
            pairs = zip(log_p(ours, sources, mine[1]), log_p(reader, sources, mine[1]), strict=True)
            difference = max(float((a - b).abs().max()) for a, b in pairs)
            equal = [sum(map(list.__eq__, mine[beam], theirs[beam])) for beam in (1, 4)]
            scores = score([decode(ids) for ids in theirs[4]], references, bootstrap=1)
            size = (path / "model.bin").stat().st_size / 1e6
            rows.append(
                [f"CTranslate2 {kind}", *(f"{s.value:.2f}" for s in scores),
                 *(f"{n:,} of {len(sources):,}" for n in equal), f"{difference:.1e}", f"{size:.1f}"]
            )  # fmt: skip
            if kind == "float32":
                for beam in (1, 4):
                    notes += explain(saved, sources, mine[beam], theirs[beam], beam)
    columns = ["", "BLEU", "chrF", "equal, greedy", "equal, beam 4", "largest Δ log p", "MB"]
    print("", *measuring.table(columns, rows), "", *notes, sep="\n")
    contestants = [
        Contestant(name, lambda reader=reader: len(searched(reader, sources, 4)))
        for name, reader in work.items()
    ]
    samples = measuring.interleave(contestants, words.rounds)
    print(
        "", *measuring.ranking(samples, "CTranslate2 int8", {}, "sentences/s, one thread"), sep="\n"
    )
    return 0


if __name__ == "__main__":
    measuring.run(main)
