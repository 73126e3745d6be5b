"""Compare exported tokenizers with ours: ids and decoded texts of generated strings.

    python benchmarks/tokenizer_parity.py                  100,000 strings for each kind
    python benchmarks/tokenizer_parity.py runs/demo --n 5000

Strings mix sentences of the embedded corpus, parts of them, their decomposed forms, and whatever is
hard: white space, control characters, reserved names, escapes, marks, emoji, long words. Each is
encoded by ours, by SentencePiece with the exported model, and by `tokenizers` with the exported
tokenizer.json; all of them decode our ids, and random ids. Differences that the formats cannot
avoid (`convert/sentencepiece_file.py`, `convert/tokenizer_files.py`) are counted by reason; the
exit code is 1 if there are others.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import measuring
import sentencepiece
from tokenizers import Tokenizer as FastTokenizer

from polyhead.checkpoint.model_dir import TOKENIZER, resolve
from polyhead.convert.tokenizer_files import fast_tokenizer, sentencepiece_model
from polyhead.data.schedules.generator import generate
from polyhead.special_tokens import UNK
from polyhead.tokenizers.base import TextConfig, Tokenizer
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer
from polyhead.tokenizers.storage import load_tokenizers, train_tokenizers

SEPARATED = (
    "\t|\n|\x00|\x1f|\x7f|\x85|\xa0|\u3000|\u2028|\u200b|\u200d|\ufeff|<|>|<s>|</s>|<unk>|<pad>|"
    "<0x41>|<0xED>|[MASK]|▁|▁▁|▅|⁇|👩‍🚀|🏳️‍🌈|👍🏽|😀|\u0301|\u0323|\u302a|\ufffd|\ufdd0|\ufdd1|"
    "\ufdd2|\ufdd3|\ufdef|\ufffe|\U0010ffff|Ａ|ﬁ|ﷺ|①|Ⅳ|㎏|Σ|ΟΔΟΣ|ΟΔΟΣ.|Σας|İ|ẞ|Ǆ|Å|Ω|각|힣|ᄒ|ᅡ|ᆫ|각|"
    "ㄱ|ㄳ|ﾡ|中|日本|ệ|ǰ|J\u030c|q\u0307\u0323|e\u0316\u0301|שּׁ|لّ|ษฺุ|é|ñ|...|----|!!!!!!!|##a|hahaha|"
    "아아아아|ㅋㅋㅋㅋㅋ|0|1,234.5|A|a_b"
)
HARD = (*SEPARATED.split("|"), " ", "  ", "a" * 300, "하" * 200, "ab" * 90, "")
RANGES = ((1, 0x250), (0x300, 0x370), (0x370, 0x700), (0x1100, 0x1200), (0x2000, 0x3200),
          (0xAC00, 0xD7A4), (0xF900, 0xFFFE), (0x1F300, 0x1FA00), (1, 0xD800))  # fmt: skip
KINDS = {
    f"{kind}{'' if fallback else ', no bytes'}{', lower case' if lower else ''}": TextConfig(
        kind=kind, vocab=4000, byte_fallback=fallback, lowercase=lower
    )
    for kind in ("bpe", "unigram") for fallback in (True, False) for lower in (False, True)
} | {
    "characters": TextConfig("characters"), "words": TextConfig("words"),
    "words, jamo": TextConfig("words", jamo=True),
}  # fmt: skip
OTHER = "other"
CHANGES: dict[str, Callable[[str], str]] = {
    "U+0000": lambda text: text.replace("\0", " "),
    "marks out of order": lambda text: unicodedata.normalize("NFC", text),
    "Σ or marks, in lower case": lambda text: unicodedata.normalize("NFC", text.lower()),
}
Encoder = Callable[[str], list[int]]
COLUMNS = (
    "tokenizer",
    "format",
    "strings",
    "other ids, unexplained",
    "other texts, unexplained",
    "other ids, by known reason",
)


class Difference(NamedTuple):
    """A string, or ids, whose ids or text the exported tokenizer has different."""

    kind: str
    reason: str
    given: object
    ours: object
    theirs: object


def corpus() -> list[str]:
    """Return the embedded corpus, and lines that teach the vocabulary some hard strings."""
    lines = [line for pair in generate(3000, 10, 10).train for line in pair]
    return [*lines, *("a < b <s> x</s> ▅ ▁ ệ é ha haha ㅋㅋㅋ 아아 ... Σας ΟΔΟΣ naïve",) * 9]


def strings(n: int, lines: Sequence[str], seed: int = 1) -> Iterator[str]:
    """Yield reproducible strings, from empty ones to several sentences."""
    random = Random(seed)

    def part() -> str:
        choice = random.random()
        if choice < 0.4:
            line = random.choice(lines)
            start = random.randrange(len(line))
            return line[start : start + random.randint(1, 60)]
        if choice < 0.8:
            return random.choice(HARD)
        count = random.randint(1, 4)
        drawn = [chr(random.randrange(*random.choice(RANGES))) for _ in range(count)]
        return "".join(c for c in drawn if unicodedata.category(c) != "Cn")  # a later Unicode

    for _ in range(n):
        text = "".join(part() for _ in range(random.randint(0, 5)))
        yield unicodedata.normalize("NFD", text) if random.random() < 0.3 else text


def reason(text: str, ours: Sequence[int], encode: Encoder) -> str:
    """Return the reason for other ids: the change of the text after which they are ours."""
    theirs = encode(text)
    for name, change in CHANGES.items():
        text = change(text)
        if encode(text) == ours:
            return name
    return "equal scores" if sorted(theirs) == sorted(ours) else OTHER


def compare(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, list[Difference]]:
    """Return the differences of every format that suits the tokenizer."""
    fast: Any = FastTokenizer.from_str(json.dumps(fast_tokenizer(tokenizer)))
    fast.encode_special_tokens = True
    formats = {"tokenizer.json": (lambda text: fast.encode(text).ids[:-1], fast.decode)}
    whole = list(range(UNK, len(tokenizer)))  # ids that are not single bytes
    if isinstance(tokenizer, SentencePieceTokenizer):
        pieces = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(tokenizer))
        formats["SentencePiece"] = pieces.encode, pieces.decode
        whole = [id for id in whole if id not in tokenizer.bytes]
    random = Random(1)
    differences: dict[str, list[Difference]] = {name: [] for name in formats}
    for text in texts:
        ids = tokenizer.encode(text)[:-1]
        drawn = [random.choice(whole) for _ in range(random.randint(0, 9))]
        for name, (encode, decode) in formats.items():
            theirs = encode(text)
            if theirs != ids:
                why = reason(text, ids, encode)
                differences[name].append(Difference("ids", why, text, ids, theirs))
            for given in (ids, drawn):
                ours, other = tokenizer.decode(given), decode(given)
                if other != ours:
                    composed = unicodedata.normalize("NFC", other) == ours
                    why = "accents not composed" if composed else OTHER
                    differences[name].append(Difference("text", why, given, ours, other))
    return differences


def main(words: Sequence[str]) -> int:
    """Compare, print and record; 1 if there is a difference without a known reason."""
    options = measuring.parser(__doc__)
    options.add_argument("model", type=Path, nargs="?", help="directory of a trained model")
    options.add_argument("--n", type=int, default=100_000, help="strings for each tokenizer")
    options.add_argument("--record", action="store_true", help="append to RESULTS.md")
    args = options.parse_args(words)
    lines = corpus()
    if args.model is None:
        pairs = {name: train_tokenizers(lines, [], config) for name, config in KINDS.items()}
    else:
        pairs = {args.model.name: load_tokenizers(resolve(args.model) / TOKENIZER)}
    texts, rows, n_other = list(strings(args.n, lines)), [], 0
    for name, pair in pairs.items():
        for format_name, differences in compare(pair.source, texts).items():
            others = [d for d in differences if d.reason == OTHER]
            n_other += len(others)
            counts = Counter(d.kind for d in others)
            known = Counter(d.reason for d in differences if d.reason != OTHER)
            rows.append((
                name, format_name, f"{len(texts):,}", str(counts["ids"]), str(counts["text"]),
                ", ".join(f"{why}: {n}" for why, n in known.most_common()) or "none",
            ))  # fmt: skip
            print(measuring.table_row(rows[-1]))
            for d in sorted(others, key=lambda d: len(str(d.given)))[:5]:
                print("   ", *(ascii(value)[:200] for value in d))
    if args.record:
        versions = ", ".join(measuring.versions())
        report = [f"Commit {measuring.commit()}; {versions}.", ""]  # no times, so no machine
        report += measuring.table(COLUMNS, rows)
        measuring.record(measuring.RESULTS, "Exported tokenizers", report)
    return int(n_other > 0)


if __name__ == "__main__":
    measuring.run(main)
