"""The targets `ctranslate2` and `argos`: folders of CTranslate2, and packages of Argos Translate.

model.bin, config.json, …vocabulary.json    the model; its tokens are the names of the pieces
sentencepiece.model                         the tokenizer, which reads raw text …
source.spm, target.spm                      … and two of them for separate vocabularies
head.npz                                    last layers of a classifier, which are not in it

translate-ko_en-1_0.argosmodel              a zip archive of one folder:
    metadata.json, model/, sentencepiece.model, README.md
"""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import torch
from torch import Tensor

from polyhead.checkpoint.model_dir import SavedModel, weights_of, write_model
from polyhead.config import plain
from polyhead.convert.sentencepiece_file import is_unigram, piece_names, with_written_pieces
from polyhead.convert.target_types import IDS_ONLY, Example, Reader, Written
from polyhead.convert.tokenizer_files import sentencepiece_model
from polyhead.data.languages import language_name
from polyhead.engines.ctranslate2_model import convert
from polyhead.engines.obstacles import obstacle
from polyhead.errors import CheckpointError
from polyhead.models.registry import FAMILIES, has_mask_token
from polyhead.special_tokens import BOS, EOS, MASK, PAD, SPECIALS
from polyhead.tokenizers.base import TextConfig, Tokenizer
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer

SPM, SIDES, HEAD = "sentencepiece.model", ("source.spm", "target.spm"), "head.npz"
ARGOS_VERSION = "1.9.0"  # the first that reads SentencePiece's bytes
CLASSES = {"translation": "Translator", "language_modeling": "Generator"}


def architecture(family: str, config: Any, _text: TextConfig | None) -> str:
    """Return the class of CTranslate2 that runs a model; CheckpointError if there is none."""
    reason = obstacle(family, plain(config))
    if reason is not None:
        raise CheckpointError(reason, "not_exportable")
    return f"ctranslate2.{CLASSES.get(FAMILIES[family].task, 'Encoder')}"


def argos_architecture(family: str, config: Any, text: TextConfig | None) -> str:
    """Return the same for Argos, which has translators with one SentencePiece model for both."""
    if FAMILIES[family].task != "translation":
        raise CheckpointError("Argos Translate has translators only", "not_exportable")
    if text is not None and not (text.joint and text.kind in ("bpe", "unigram")):
        raise CheckpointError(
            "Argos Translate has one vocabulary of subwords for both languages, as by text.joint = "
            "true",
            "not_exportable",
        )
    return architecture(family, config, text)


def write(saved: SavedModel, folder: Path, compute_type: str) -> Written:
    """Write model and tokenizers."""
    task = FAMILIES[saved.family].task
    with TemporaryDirectory() as copy:
        write_model(Path(copy), saved)
        convert(Path(copy), folder, compute_type, token_names(saved))
    tokenizer = _write_tokenizers(saved, folder)
    codes = [name for name in (token_names(saved) or [()])[0] if name.startswith(">>")]
    notes = []
    if tokenizer == " and ".join(SIDES):
        notes.append(f"separate vocabularies: encode with {SIDES[0]}, decode with {SIDES[1]}")
    if codes:
        notes.append(f"a code of a language, such as {codes[0]}, is a token before all others")
    if task == "text_classification":
        notes.append(f"{HEAD} has the layers after the encoder, for NumPy")
        head: dict[str, Any] = {"classes": list(saved.about.get("classes", ()))}
        for name, weight in weights_of(saved.model).items():
            if not name.startswith("encoder."):
                head[name] = weight.cpu().numpy()
        numpy.savez(folder / HEAD, allow_pickle=False, **head)
    elif task not in CLASSES:
        notes.append("only the encoder is written, without the layers after it")
    return Written(architecture(saved.family, saved.config, None), tokenizer, tuple(notes))


def _write_tokenizers(saved: SavedModel, folder: Path) -> str:
    pair = saved.tokenizers
    if token_names(saved) is None or pair is None:
        return IDS_ONLY
    if isinstance(pair.source, HuggingFaceTokenizer):  # Marian's
        contents = [pair.source.files[name] for name in SIDES]
        if pair.config.joint and is_unigram(contents[0]):
            contents = [with_written_pieces(*contents)]
    else:
        contents = [sentencepiece_model(side) for side in dict.fromkeys((pair.source, pair.target))]
    names = (SPM,) if len(contents) == 1 else SIDES
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_bytes(content)
    return " and ".join(names)


def token_names(saved: SavedModel) -> tuple[list[str], list[str]] | None:
    """Return the names of all ids of source and target; None without SentencePiece."""
    pair, config = saved.tokenizers, plain(saved.config)
    names = None if pair is None else _names_of(pair.source)
    if pair is None or names is None:
        return None
    names += [MASK] if has_mask_token(saved.family) else []
    vocab = config.get("encoder", config).get("vocab", 0)
    names += [f"<unused {id}>" for id in range(len(names), vocab)]
    return names, names if pair.target is pair.source else _names_of(pair.target) or names


def _names_of(tokenizer: Tokenizer) -> list[str] | None:
    """Return the name of each id; None without SentencePiece."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return piece_names(tokenizer)
    if not isinstance(tokenizer, HuggingFaceTokenizer) or tokenizer.kind != "marian":
        return None
    names = [tokenizer.engine.name(id) for id in tokenizer.ids]
    if names[BOS] in (names[PAD], names[EOS]):  # one id there, two here
        names[BOS] = SPECIALS[BOS] if SPECIALS[BOS] not in names else "<start>"
    return names


def open_model(saved: SavedModel, folder: Path, _compute_type: str) -> Reader:
    """Return a written model, run by CTranslate2 in one thread."""
    return _reader(saved, str(folder), {})


def _reader(saved: SavedModel, path: str, files: dict[str, Any]) -> Reader:
    import ctranslate2

    kind = getattr(ctranslate2, CLASSES.get(FAMILIES[saved.family].task, "Encoder"))
    model = kind(path, files=files or None, inter_threads=1, intra_threads=1)
    names = token_names(saved)
    ids = {} if names is None else {name: id for id, name in enumerate(names[1])}

    def named(side: int, numbers: Sequence[int]) -> list[str]:
        return [str(id) if names is None else names[side][id] for id in numbers]

    def log_p(examples: Sequence[Example]) -> list[Tensor]:
        if kind is ctranslate2.Translator:  # it adds EOS to both
            sources = [named(0, example.source[:-1]) for example in examples]
            targets = [named(1, example.target[:-1]) for example in examples]
            results = model.score_batch(sources, targets, max_input_length=0)
        else:
            texts = [[example.source[0], *example.target] for example in examples]
            results = model.score_batch([named(0, text) for text in texts], max_input_length=0)
        return [torch.tensor(result.log_probs) for result in results]

    def states(examples: Sequence[Example]) -> list[Tensor]:
        output = model.forward_batch([example.source for example in examples])
        rows = torch.from_numpy(numpy.array(output.last_hidden_state))
        return [row[: len(e.source)] for row, e in zip(rows, examples, strict=True)]

    def search(sources: Sequence[list[int]], beam: int, limit: int) -> list[list[int]]:
        results = model.translate_batch(
            [named(0, source[:-1]) for source in sources], beam_size=beam, length_penalty=0,
            min_decoding_length=0, max_decoding_length=limit, max_input_length=0,
        )  # fmt: skip
        outputs = [result.hypotheses[0] for result in results]
        return [[int(n) if names is None else ids[n] for n in output] for output in outputs]

    if kind is ctranslate2.Encoder:
        return Reader(states, states=True)
    return Reader(log_p, search if kind is ctranslate2.Translator else None)


def write_argos(
    saved: SavedModel, folder: Path, compute_type: str, version: str = "1.0"
) -> Written:
    """Write a package for Argos Translate; CheckpointError if the languages are unknown."""
    source, target = saved.about.get("languages") or ("", "")
    if not source or not target or source == target:
        raise CheckpointError(
            "Argos Translate requires the languages of a translator, but this model does not name "
            "two; set data.source_language and data.target_language, and train again",
            "not_exportable",
        )
    metadata = {
        "package_version": version, "argos_version": ARGOS_VERSION,
        "from_code": source, "from_name": language_name(source),
        "to_code": target, "to_name": language_name(target),
    }  # fmt: skip
    stem = f"translate-{source}_{target}-{version.replace('.', '_')}"
    with TemporaryDirectory() as name:
        parts = Path(name)
        written = write(saved, parts, compute_type)
        if written.tokenizer != SPM:
            message = "Argos Translate requires one tokenizer of the kind bpe or unigram"
            raise CheckpointError(message, "not_exportable")
        with zipfile.ZipFile(folder / f"{stem}.argosmodel", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{stem}/metadata.json", json.dumps(metadata, indent=2))
            archive.writestr(
                f"{stem}/README.md",
                f"{metadata['from_name']} to {metadata['to_name']}, a model of Polyhead.\n",
            )
            for file in sorted(parts.iterdir()):
                inside = file.name if file.name == SPM else f"model/{file.name}"
                archive.write(file, f"{stem}/{inside}")
    return written


def open_package(saved: SavedModel, folder: Path, _compute_type: str) -> Reader:
    """Return the model of a written package, read from its archive without extracting it."""
    [package] = folder.glob("*.argosmodel")
    with zipfile.ZipFile(package) as archive:
        inside = [Path(name) for name in archive.namelist() if "/model/" in name]
        files = {path.name: archive.read(path.as_posix()) for path in inside}
    return _reader(saved, package.name, files)
