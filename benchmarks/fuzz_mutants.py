"""Mutants of files for `fuzz.py`: random damage, and attacks on what each format can express."""

import gzip
import io
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
import tokenizers
from PIL import Image

from polyhead.checkpoint.atomic_dir import MANIFEST, atomic_dir, seal
from polyhead.checkpoint.model_dir import SavedModel, write_model
from polyhead.checkpoint.model_files import CONFIG, WEIGHTS
from polyhead.convert.conversion import import_model
from polyhead.data.config import DataConfig
from polyhead.data.images.dataset import load_images
from polyhead.data.images.files import PixelShape, Unreadable, decode
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import DataError
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.bytenet import ByteNetConfig
from polyhead.models.baselines.luong import LuongConfig
from polyhead.models.bert import BERTConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.reformer import ReformerConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.transformer import TransformerConfig
from polyhead.models.vit import ViTConfig
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.load import load
from polyhead.pipelines.task_pipeline import MaskFiller
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator
from polyhead.sandbox import Request
from polyhead.tokenizers.base import TextConfig, Tokenizer
from polyhead.tokenizers.huggingface import FastEngine, HuggingFaceTokenizer
from polyhead.tokenizers.sentencepiece import train_sentencepiece
from polyhead.tokenizers.storage import read_side, train_tokenizers

TEXT = (
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa! 내일 오후 3시에 the  cats' <s> ▁ Ａ ﬁ 👩‍🚀 \u0000x"
)
LINES = [
    f"{a} {b} {c} {n}시에 만나요."
    for a in "가나다라"
    for b in ("the", "cat", "내일")
    for c in ("sat", "오후")
    for n in range(9)
]
A64 = "a" * 64
NUMBERS = (0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)


class Mutant(NamedTuple):
    """Size in bytes, a function that opens it, and the megabytes allowed beside twice its size."""

    size: int
    opening: Callable[[], None]
    megabytes: float = 300.0


class Kind(NamedTuple):
    """Number of mutants, and a function that makes the maker of mutants in a directory."""

    count: int
    make: Callable[[Path], Callable[[Random], Mutant]]


def damage(content: bytes, rng: Random) -> bytes:
    """Change, remove, insert or repeat bytes at random."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, n = rng.randrange(len(data) + 1), min(2 ** rng.randrange(8), len(data))
        match rng.randrange(7):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                size = rng.choice((1, 2, 4, 8))
                number = rng.choice(NUMBERS) % 256**size
                data[at : at + size] = number.to_bytes(size, rng.choice(("little", "big")))
            case 3:
                del data[at : at + n]
            case 4:
                data[at:at] = rng.randbytes(n)
            case 5:
                data[at:at] = data[at : at + n] * rng.choice((1, 2, 64))
            case 6 if rng.random() < 0.2:
                del data[at:]
        if not data:
            return b""
    return bytes(data)


def use(tokenizer: Tokenizer) -> None:
    """Do with a tokenizer what commands and the server do."""
    tokenizer.decode(tokenizer.encode(TEXT))
    tokenizer.pieces(TEXT)
    tokenizer.encode_batch([TEXT, ""])
    [tokenizer.symbol(id) for id in range(0, len(tokenizer), 7)]


def sentencepiece_mutants(folder: Path) -> Callable[[Random], Mutant]:
    """Mutants of SentencePiece models, of ours and of Marian's, with its character map."""
    ours = [train_sentencepiece(LINES, TextConfig(kind, 320)) for kind in ("bpe", "unigram")]
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=file, vocab_size=60, hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    theirs = file.getvalue()
    table = json.dumps({"<unk>": 1, "</s>": 0, "a": 2}).encode()

    def mutant(rng: Random) -> Mutant:
        base = rng.choice([None, *ours])
        content = theirs if base is None else base.model
        if rng.random() < 0.4:  # near the ends, where scores, maps and settings are
            at = rng.choice(
                (rng.randrange(200), len(content) - rng.randrange(1, min(2000, len(content))))
            )
            content = content[:at] + damage(content[at : at + 64], rng) + content[at + 64 :]
        else:
            content = damage(content, rng)

        def opening() -> None:
            if base is None:
                files = {"source.spm": content, "vocab.json": table}
                use(HuggingFaceTokenizer("marian", files, tuple(range(60))))
            else:
                (folder / "joint.model").write_bytes(content)
                use(read_side(folder, "joint", sha256(content).hexdigest(), base.config))

        return Mutant(len(content), opening)

    return mutant


EXTREMES = (
    None, True, -1, 0, 1, 7, 2**31, 2**61 - 1, 10**9, 1e308, -1e-9, 0.5, "", "a" * 999, "../x", [],
    {}, [[]], [1, 2], {"a": 1}, "\ud800", "\x00", "\n",
)  # fmt: skip


def damage_json(tree: Any, rng: Random, parts: Sequence[Any] = ()) -> Any:
    """Replace, remove or copy a few values of a tree; `parts` are further values to insert."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 2, 4))):
        nodes = [tree]
        for node in nodes:
            values = node.values() if isinstance(node, dict) else node
            nodes += [value for value in values if isinstance(value, dict | list)]
        node = rng.choice([node for node in nodes if node] or [tree])
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            continue
        key = rng.choice(keys)
        match rng.randrange(5):
            case 0:
                del node[key]
            case 1:
                node[key] = deepcopy(rng.choice(nodes))
            case _:
                values = (*EXTREMES, *parts)
                alike = [value for value in values if type(value) is type(node[key])]
                node[key] = deepcopy(rng.choice(alike if alike and rng.random() < 0.7 else values))
    return tree


def damaged_text(content: bytes, rng: Random, parts: Sequence[Any] = ()) -> bytes:
    """Damage a file in JSON: mostly its values, else its bytes."""
    if rng.random() < 0.2:
        return damage(content, rng)
    return json.dumps(damage_json(json.loads(content), rng, parts)).encode()


def damaged_tensors(content: bytes, rng: Random) -> bytes:
    """Damage a file of tensors: its header, the length of it, or any bytes."""
    n = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + n], content[8 + n :]
    match rng.randrange(4):
        case 0:
            return damage(content, rng)
        case 1:
            return rng.choice((*NUMBERS, 2**63)).to_bytes(8, "little") + content[8:]
        case 2:
            header = damage(header, rng)
        case _:
            header = damaged_text(header, rng, ("I64", "BOOL", [2**32, 2**32], [0, 0], [0, 2**40]))
    return len(header).to_bytes(8, "little") + header + body


def tokenizer_mutants(_: Path) -> Callable[[Random], Mutant]:
    """Mutants of tokenizer.json, with parts that other libraries use and attacks on them."""
    bpe, words = tokenizers.ByteLevelBPETokenizer(), tokenizers.BertWordPieceTokenizer()
    bpe.train_from_iterator(LINES, 400, show_progress=False, special_tokens=["<|endoftext|>"])
    words.train_from_iterator(LINES, 200, show_progress=False)
    pieces = tokenizers.SentencePieceUnigramTokenizer()
    pieces.train_from_iterator(LINES, 100, show_progress=False, unk_token="<unk>")
    trees = [json.loads(t.to_str()) for t in (bpe, words, pieces)]
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    shared = [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}] * 3
    chosen: dict[str, list[Any]] = {
        "normalizer": [
            *({"type": "Precompiled", "precompiled_charsmap": b} for b in ("AAAA", "/////w==", "")),
            *({"type": "Replace", "pattern": {"String": "a"}, "content": c} for c in ("", A64)),
            *({"type": kind} for kind in ("NFKD", "Nmt", "StripAccents", "Lowercase", "ByteLevel")),
            {"type": "Replace", "pattern": {"Regex": "(a|a)*"}, "content": "aa"},
        ],
        "pre_tokenizer": [
            *(split | {"pattern": {"Regex": r}} for r in ("(a+)+b$", "(a|a)*b", "", "\\s|")),
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            *({"type": kind} for kind in ("Whitespace", "BertPreTokenizer", "UnicodeScripts")),
            *shared,
        ],
        "decoder": [{"type": "BPEDecoder", "suffix": ""}, {"type": "Fuse"}, *shared],
    }  # fmt: skip
    parts = [part for group in chosen.values() for part in group]

    @cache  # the child of a forked process is used again until a mutant ends it
    def engine() -> FastEngine:
        return FastEngine({"tokenizer.json": json.dumps(trees[0]).encode()})

    def mutant(rng: Random) -> Mutant:
        tree = rng.choice(trees)
        for name, values in chosen.items():
            if rng.random() < 0.3:
                row = rng.choices(values, k=rng.choice((1, 2, 9)))
                plural = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
                tree = tree | {name: {"type": "Sequence", plural.get(name, "decoders"): row}}
        content = json.dumps(tree).encode()
        content = damaged_text(content, rng, parts) if rng.random() < 0.7 else content

        def opening() -> None:
            load = Request("load", [["tokenizer.json"]], [content])
            engine().sandbox.setup = load
            engine().sandbox.call(*load[:1], *load[1], contents=load[2])
            tokenizer = HuggingFaceTokenizer("fast", {}, tuple(range(60)))
            vars(tokenizer)["engine"] = engine()
            use(tokenizer)
            tokenizer.pieces_of_ids(range(4, 60, 5))

        return Mutant(len(content), opening)

    return mutant


def saved_models(folder: Path) -> dict[Path, dict[str, bytes]]:
    """Write tiny models of several families; return their files."""
    pair = train_tokenizers(LINES, LINES, TextConfig(vocab=320))
    n, experts = len(pair.source), ExpertsConfig(n=2, k=1)
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_ff": 16}
    lsh = StackConfig(**sizes, attention=("lsh", "local"), norm="pre", reversible=True)
    configs = {
        "transformer": TransformerConfig(n, n, stack=StackConfig(**sizes)),
        "gpt": GPTConfig(n, stack=StackConfig(**sizes, experts=experts)),
        "reformer": ReformerConfig(n, 64, stack=lsh),
        "bert": BERTConfig(n + 1, 64, stack=StackConfig(**sizes)),
        "bytenet": ByteNetConfig(n, n, d_model=8, n_layers=2),
        "luong": LuongConfig(n, n, d_model=8),
        "vit": ViTConfig(3, 8, 8, patch=4, stack=StackConfig(**sizes)),
    }
    models = {}
    for family, config in configs.items():
        about = {"classes": ["a", "b", "c"], "run": {"decode": {"beam": 2, "max_length": 9}}}
        tokens = None if family == "vit" else pair
        saved = SavedModel(family, config, FAMILIES[family].model(config), tokens, about)
        with atomic_dir(folder / family) as draft:
            write_model(draft, saved)
        files = {name: (folder / family / name).read_bytes() for name in (CONFIG, WEIGHTS)}
        models[folder / family] = files
    return models


def model_mutants(folder: Path, name: str) -> Callable[[Random], Mutant]:
    """Mutants of one file of our models, with a valid manifest."""
    models = saved_models(folder)
    change = damaged_text if name == CONFIG else damaged_tensors

    def mutant(rng: Random) -> Mutant:
        path, files = rng.choice(list(models.items()))
        content = change(files[name], rng)

        def opening() -> None:
            for file, original in files.items():
                (path / file).write_bytes(content if file == name else original)
            (path / MANIFEST).unlink()
            seal(path)
            model = load(path, device="cpu")
            match model:
                case Translator():
                    model.translate([LINES[0]])
                case TextGenerator():
                    model.generate(LINES[0], options=DecodeConfig(max_length=4))
                case MaskFiller():
                    model.fill("내일 [MASK] 만나요.")
                case ImageClassifier():
                    model.classify([np.zeros((8, 8, 3), np.uint8)])

        return Mutant(sum(map(len, files.values())), opening)

    return mutant


def folder_mutants(folder: Path) -> Callable[[Random], Mutant]:
    """Mutants of Hugging Face's folders: BERT, GPT-2 and ViT with their tokenizers."""
    import transformers as hf

    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    small = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
    words = tokenizers.BertWordPieceTokenizer()
    words.train_from_iterator(LINES, 90, show_progress=False)
    bert = hf.BertConfig(vocab_size=words.get_vocab_size(), **sizes)
    models = {
        "bert": hf.BertForMaskedLM(bert),
        "gpt": hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=90, **small)),
        "vit": hf.ViTForImageClassification(hf.ViTConfig(image_size=8, patch_size=4, **sizes)),
    }
    bases = []
    for name, model in models.items():
        model.save_pretrained(folder / name)
        if name == "bert":
            words.save(str(folder / name / "tokenizer.json"))
        bases.append({file.name: file.read_bytes() for file in (folder / name).iterdir()})

    def mutant(rng: Random) -> Mutant:
        files = dict(rng.choice(bases))
        name = rng.choice(["config.json", *files])
        change = damaged_tensors if name.endswith(".safetensors") else damaged_text
        files[name] = change(files[name], rng)

        def opening() -> None:
            with TemporaryDirectory(dir=folder) as place:
                for file, content in files.items():
                    (Path(place) / file).write_bytes(content)
                import_model(place, Path(place) / "ours")

        return Mutant(sum(map(len, files.values())), opening)

    return mutant


def image_mutants(_: Path) -> Callable[[Random], Mutant]:
    """Mutants of images of every format, and images whose headers promise many pixels."""
    rows = np.random.default_rng(0).integers(0, 256, (40, 40, 4), dtype=np.uint8)
    images = [
        Image.fromarray(rows).convert(mode) for mode in ("RGBA", "RGB", "L", "P", "1", "CMYK")
    ]
    bases = []
    for image in [*images, Image.fromarray(rows[..., 0].astype(np.uint16))]:
        for form in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
            file = io.BytesIO()
            with suppress(OSError, KeyError, ValueError):
                image.save(file, form)
                bases.append(file.getvalue())

    def mutant(rng: Random) -> Mutant:
        if rng.random() < 0.03:
            content = large_png(rng)
        else:
            base = rng.choice(bases)
            content = (
                damage(base[:64], rng) + base[64:] if rng.random() < 0.4 else damage(base, rng)
            )
        shape = PixelShape(16, 16, rng.choice((1, 3)))

        def opening() -> None:
            try:
                decode(content, shape)
            except Unreadable as reason:
                raise DataError(str(reason), "unreadable_image") from None

        return Mutant(len(content), opening)

    return mutant


def large_png(rng: Random) -> bytes:
    """Return a PNG of few bytes and up to 100 million pixels of one of its kinds."""
    kind, bits = rng.choice(
        ((0, 1), (0, 8), (0, 16), (2, 8), (2, 16), (3, 8), (4, 8), (6, 8), (6, 16))
    )
    side = rng.choice((2_000, 5_000, 9_990))
    n_bytes = side * bits * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind] // 8
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(bytes(1 + n_bytes)) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, bits, kind, 0, 0, 0)
    palette = [(b"PLTE", bytes(6)), (b"tRNS", b"\x00")] if kind == 3 else []
    chunks = [(b"IHDR", head), *palette, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def idx_mutants(folder: Path) -> Callable[[Random], Mutant]:
    """Mutants of packed idx files of images."""
    idx = struct.pack(">HBBIII", 0, 8, 3, 4, 5, 5) + bytes(100)
    (folder / "labels").write_bytes(struct.pack(">HBBI", 0, 8, 1, 4) + bytes((0, 1, 0, 1)))
    path = folder / "images"

    def mutant(rng: Random) -> Mutant:
        content = damage(idx, rng) if rng.random() < 0.8 else idx
        content = rng.choice((bytes, bytes, gzip.compress, lzma.compress))(content)
        content = damage(content, rng) if rng.random() < 0.2 else content

        def opening() -> None:
            path.write_bytes(content)
            load_images(DataConfig(images=(str(path),)), PixelShape(8, 8, 3), 1)

        return Mutant(len(content), opening)

    return mutant


KINDS = {
    "tokenizer.json": Kind(10_000, tokenizer_mutants),
    "sentencepiece": Kind(10_000, sentencepiece_mutants),
    "config.json": Kind(10_000, partial(model_mutants, name=CONFIG)),
    "safetensors": Kind(10_000, partial(model_mutants, name=WEIGHTS)),
    "huggingface": Kind(10_000, folder_mutants),
    "image": Kind(2_000, image_mutants),
    "idx": Kind(2_000, idx_mutants),
}
