"""Decoding speed: our search against transformers' `generate`, with the same weights.

The model is ours, copied into transformers' MarianMTModel, so that both write the same; this is
checked before anything is measured. Sentences of the Multi30k test set of 2016, sorted by length,
the same batches for both; tokens written (with the closing one, without padding) per second.
Neither has a length penalty, because the two define it differently.

Without --model, a small post-norm model is trained first, for long enough to write sentences and to
end them; it is kept in --run and found there the next time.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import peers
import torch
from measuring import Contestant
from torch import Tensor

from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.data.batches.base import pad
from polyhead.data.text_files import read_lines
from polyhead.decoding.batch import decode_all, search
from polyhead.decoding.options import DecodeConfig
from polyhead.devices import keep_freed_memory
from polyhead.errors import CheckpointError, PolyheadError
from polyhead.metrics.bleu import quick_bleu
from polyhead.server.segments import UNLIMITED_RATIO
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.training.callbacks import Callback
from polyhead.training.config import build
from polyhead.training.trainer import train

TEST = "multi30k/test_2016_flickr"
COLUMNS = (
    "", "polyhead", "transformers", "polyhead is so many times faster", "bar", "same output",
)  # fmt: skip
TIE = 1e-3  # logits as near as this are a matter of rounding


class Setting(NamedTuple):
    """One way to decode, the ratio to reach, and the share of outputs that must be the same."""

    batch: int
    beam: int
    bar: float | None
    same: float

    @property
    def name(self) -> str:
        """In words."""
        return f"batch {self.batch}, {'greedy' if self.beam == 1 else f'beam {self.beam}'}"


Decoder = Callable[[Any, Sequence[Tensor], int], list[list[int]]]
Task = tuple[Setting, list[Tensor]]  # a way to decode, and the batches to decode in that way

SETTINGS = (
    Setting(64, 1, 1.2, 1.0),
    Setting(64, 5, 1.5, 0.98),
    Setting(1, 1, None, 1.0),
    Setting(1, 5, None, 0.98),
)


class Agreement(NamedTuple):
    """Count equal outputs, and among the others those that differ first at a tie."""

    same: int
    ties: int
    total: int

    @property
    def share(self) -> float:
        """The share of outputs that are the same, or differ by rounding only."""
        return (self.same + self.ties) / self.total

    def __str__(self) -> str:
        ties = f" (and {self.ties} part at a tie)" if self.ties else ""
        return f"{self.same:,} of {self.total:,}{ties}"


def batches_of(sources: Sequence[list[int]], size: int) -> list[Tensor]:
    """Sentences of similar length side by side, the longest first."""
    longest_first = sorted(sources, key=len, reverse=True)
    return [pad(longest_first[at : at + size]) for at in range(0, len(sources), size)]


def decode_ours(model: Any, batches: Sequence[Tensor], beam: int) -> list[list[int]]:
    """Return the best output of every sentence, by our search; as long as theirs may be."""
    config = DecodeConfig(beam=beam, length_penalty=0.0)
    outputs = []
    for source in batches:
        limit = config.limit(source.size(1))  # of the batch: transformers has no limit for each row
        same = replace(config, max_length=limit, max_ratio=UNLIMITED_RATIO)
        outputs += [written(row) for row in search(model, source, same).tokens[:, 0].tolist()]
    return outputs


def decode_theirs(marian: Any, batches: Sequence[Tensor], beam: int) -> list[list[int]]:
    """Return the best output of every sentence, by transformers; as long as ours may be."""
    config = DecodeConfig(beam=beam, length_penalty=0.0)
    return [
        written(row)
        for source in batches
        for row in peers.generate(
            marian, source, beam=beam, limit=config.limit(source.size(1))
        ).tolist()
    ]


def written(row: Sequence[int]) -> list[int]:
    """Return the tokens up to the closing one, with it; all if the limit came first."""
    ids = [token for token in row if token != PAD]
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def agreement(
    model: Any, batches: Sequence[Tensor], ours: Sequence[list[int]], theirs: Sequence[list[int]]
) -> Agreement:
    """Compare what both wrote, sentence by sentence."""
    sources = [row for batch in batches for row in batch]
    different = [i for i in range(len(sources)) if ours[i] != theirs[i]]
    ties = sum(is_tie(model, sources[i], ours[i], theirs[i]) for i in different)
    return Agreement(len(sources) - len(different), ties, len(sources))


@torch.inference_mode()
def is_tie(model: Any, source: Tensor, ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Return True if two outputs differ first at tokens of equal probability."""
    lengths = range(min(len(ours), len(theirs)))
    parting = next((i for i in lengths if ours[i] != theirs[i]), None)
    if parting is None:  # one is the beginning of the other
        return False
    logits = model(source[None], torch.tensor([[BOS, *ours[:parting]]]))[0, -1]
    return abs(float(logits[ours[parting]] - logits[theirs[parting]])) < TIE


def check(model: Any, marian: Any, tasks: Sequence[Task]) -> dict[str, Agreement]:
    """Both must write the same, or the comparison is of two different things."""
    results = {}
    for setting, batches in tasks:
        ours = decode_ours(model, batches, setting.beam)
        theirs = decode_theirs(marian, batches, setting.beam)
        seen = agreement(model, batches, ours, theirs)
        print(f"{setting.name}: the same output for {seen}")
        if setting.beam > 1:  # only greedy search can be excused by a tie of single tokens
            seen = seen._replace(ties=0)
        if seen.share < setting.same:
            raise PolyheadError(
                f"{setting.name}: only {seen} outputs are the same, but {setting.same:.0%} must "
                "be; nothing was measured"
            )
        results[setting.name] = seen
    return results


def count(decode: Decoder, model: Any, batches: Sequence[Tensor], beam: int) -> int:
    """Decode everything, and say how many tokens were written."""
    return sum(map(len, decode(model, batches, beam)))


def compare(model: Any, marian: Any, tasks: Sequence[Task], rounds: int) -> list[list[str]]:
    """Return a row of the table for every setting."""
    same = check(model, marian, tasks)
    rows = []
    for setting, batches in tasks:
        ours_works = partial(count, decode_ours, model, batches, setting.beam)
        theirs_works = partial(count, decode_theirs, marian, batches, setting.beam)
        contestants = [Contestant("polyhead", ours_works), Contestant("transformers", theirs_works)]
        print(setting.name)
        samples = measuring.interleave(contestants, rounds)
        ours, theirs = samples["polyhead"], samples["transformers"]
        ratio = measuring.spread(measuring.paired_ratios(ours, theirs))
        rows.append(
            [
                setting.name,
                str(measuring.rates(ours)),
                str(measuring.rates(theirs)),
                str(ratio),
                measuring.verdict(ratio.median, setting.bar),
                str(same[setting.name]),
            ]
        )
    return rows


def trained(words: argparse.Namespace) -> SavedModel:
    """Return the model that was named, or one that is trained for this."""
    place = words.model
    if place is None:
        place = words.run
        print(f"training a small model for {words.train_steps} steps in {place}, or resuming it")
        train(build(recipe(words.train_steps, words.vocab)), place, callbacks=[Talking()])
    saved = model_folder.load_model(place)
    if saved.tokenizers is None:
        raise CheckpointError(f"{place} has no tokenizer; it cannot read the test set")
    return saved


def recipe(steps: int, vocab: int) -> dict[str, Any]:
    """Return the small model of the comparison, post-norm as Marian is."""
    sides = {"source": "de", "target": "en"}
    data = {side: [f"multi30k/train.{language}"] for side, language in sides.items()}
    valid = {f"valid_{side}": [f"multi30k/val.{language}"] for side, language in sides.items()}
    return {
        "data": {**data, **valid},
        "text": {"vocab": vocab},
        "model": {
            "tie": "all",
            "stack": {"n_layers": 3, "d_model": 256, "n_heads": 4, "d_ff": 1024, "norm": "post"},
        },
        "train": {
            "steps": steps,
            "max_tokens": 1500,
            "device": "cpu",
            "validate_every": max(steps, 1),
            "save_every": 500,
            "schedule": {"kind": "linear", "rate": 1e-3, "warmup": max(1, min(400, steps // 2))},
        },
    }


class Talking(Callback):
    """Shows only what is worth a line."""

    def on_notice(self, help_text: str) -> None:
        """Print it."""
        print(help_text)


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--model", type=Path, default=None, help="a run or a model, post-norm")
    parser.add_argument("--run", type=Path, default=Path("runs/benchmark-decoding"))
    parser.add_argument("--train-steps", type=int, default=800)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=1000, help="in batches")
    parser.add_argument("--single", type=int, default=100, help="sentences one by one; 0 for none")
    measuring.add_threads(parser)
    parser.add_argument("--peer-attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--plain-malloc", action="store_true", help="leave the allocator as it is")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    return parser.parse_args(arguments)


def choose(saved: SavedModel, words: argparse.Namespace) -> tuple[list[Task], float]:
    """Return the batches of every setting, and the model's score on all of them."""
    assert saved.tokenizers is not None
    lines, references = (read_lines(Path(f"{TEST}.{language}")) for language in ("de", "en"))
    sources = saved.tokenizers.source.encode_batch(lines[: words.sentences])
    model: Any = saved.model
    outputs = decode_all(model, sources, DecodeConfig(beam=1), device=torch.device("cpu"))
    texts = [saved.tokenizers.target.decode(best[0].ids) for best in outputs]
    tasks = []
    for setting in SETTINGS:
        wanted = words.single if setting.batch == 1 else words.sentences
        chosen = of_all_lengths(sources, wanted)
        if chosen:
            tasks.append((setting, batches_of(chosen, setting.batch)))
    return tasks, quick_bleu(texts, references[: len(sources)])


def of_all_lengths(sources: Sequence[list[int]], wanted: int) -> list[list[int]]:
    """At most so many of the sentences, short and long ones as in the whole."""
    wanted = min(wanted, len(sources))
    by_length = sorted(sources, key=len)
    return [by_length[i * len(sources) // wanted] for i in range(wanted)]


def describe(saved: SavedModel, tasks: Sequence[Task], bleu: float) -> str:
    """Describe the comparison for the record."""
    stack, n_parameters = saved.config.stack, sum(p.numel() for p in saved.model.parameters())
    sentences = ", ".join(f"{sum(map(len, b)):,} ({setting.name})" for setting, b in tasks)
    return (
        f"Sentences: {sentences}. Vocabulary {saved.config.target_vocab:,}, "
        f"d_model {stack.d_model}, d_ff {stack.d_ff}, "
        f"{stack.n_layers}+{peers.depth_of_decoder(saved.config)} layers, "
        f"{n_parameters / 1e6:.1f} million parameters; greedy search reaches BLEU {bleu:.1f} with "
        "this model. Tokens written per second, median (range)."
    )


def main(arguments: Sequence[str]) -> int:
    """Check, measure, print, and record if asked to."""
    words = read_words(arguments)
    measuring.require_rounds(words.rounds, words.record)
    measuring.use_threads(words)
    if not words.plain_malloc:
        keep_freed_memory()
    where = measuring.environment("decoding_speed.py", arguments)
    saved = trained(words)
    model: Any = saved.model
    marian = peers.to_marian(model, saved.config, attention=words.peer_attention)
    peers.forbid_specials(marian)
    tasks, bleu = choose(saved, words)
    rows = compare(model, marian, tasks, words.rounds)
    allocator = "as it is" if words.plain_malloc else "keeps freed memory, for both"
    report = [
        *where,
        f"- {words.rounds} rounds, interleaved; the memory allocator {allocator}",
        "",
        describe(saved, tasks, bleu),
        "",
        *measuring.table(COLUMNS, rows),
    ]
    print("\n".join(["", *report]))
    if words.record:
        measuring.record(measuring.RESULTS, "Decoding speed", report)
    return 0


if __name__ == "__main__":
    measuring.run(main)
