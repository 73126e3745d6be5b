"""Models of others as ours and ours as theirs: `polyhead import` and `polyhead export`.

    import    look at shapes → convert → compare outputs → write one of our folders
    export    write one of their folders → compare outputs → give it its name

Either the result computes the same or there is none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.convert import architectures as choosing
from polyhead.convert import config_writer as writing
from polyhead.convert import parity, pixels
from polyhead.convert import special_ids as ids
from polyhead.convert import tokenizer_ids as tokens
from polyhead.convert.architectures import Conversion
from polyhead.convert.config_writer import ExportedModel
from polyhead.convert.electra import embeddings_are_shared
from polyhead.convert.hub import locate
from polyhead.convert.parity import LIMIT, ForeignCheckpoint, Parity
from polyhead.convert.pixels import PIXELS, Scale
from polyhead.convert.reader import CONFIG, WEIGHTS, Original, original
from polyhead.convert.special_ids import SpecialIds, specials_from
from polyhead.convert.weight_names import Weights
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.registry import FAMILIES
from polyhead.tokenizers import huggingface as foreign
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer
from polyhead.tokenizers.storage import TokenizerPair

GENERATION = "generation_config.json"
MASKED = ("bert", "electra", "classifier")  # families with one id more than their tokenizer: [MASK]


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did: `parity` is None if nothing could be run beside it (`obstacle`)."""

    family: str
    architecture: str
    output: Path
    n_tensors: int
    n_parameters: int
    parity: Parity | None
    tokenizer: str
    notes: tuple[str, ...] = ()
    obstacle: str | None = None


def import_model(
    name: str, output: Path, *, generator: str | None = None, family: str | None = None
) -> ConversionReport:
    """Read one of their models, write it as one of ours."""
    if family not in (None, "vit"):
        raise ConfigError(f"--family {family}: only vit can be told; the others tell themselves")
    refuse_to_overwrite(output)
    theirs = original(locate(name), config=family is None)
    other = None if generator is None else original(locate(generator))
    chosen, state = _converted(theirs, other, family)
    scale = None
    if chosen.family == "vit":
        scale, notes = _scale(theirs, chosen)
        chosen, state = replace(chosen, notes=chosen.notes + notes), pixels.folded(state, scale)
    tokenizers, tokenizer_note = _tokenizers(theirs, chosen)
    model = FAMILIES[chosen.family].model(chosen.config)
    model_folder.set_weights(model, state)
    model.eval()
    unusable = model_folder.first_not_finite(model)
    if unusable is not None:
        raise CheckpointError(f"{theirs.path}: {unusable} holds numbers that are not finite")
    about: dict[str, Any] = {"imported": _about(name, generator, chosen)}
    about |= _classes(theirs.values, chosen)
    saved = SavedModel(chosen.family, chosen.config, model, tokenizers, about)
    sides = _sides(theirs, other, chosen, scale)
    found = _compared(saved, chosen.specials, sides)
    report = ConversionReport(
        chosen.family, chosen.architecture, output, len(state),
        sum(p.numel() for p in model.parameters()), found, tokenizer_note, chosen.notes,
        parity.obstacle(sides[0]),
    )  # fmt: skip
    with store.atomic_dir(output) as draft:
        model_folder.write_model(draft, saved, card(name, report))
    return report


def _converted(
    theirs: Original, other: Original | None, family: str | None
) -> tuple[Conversion, Weights]:
    """How, and our weights; numbers are read only after their shapes have been found to fit."""
    files = foreign.original_files(theirs.path) if theirs.path.is_dir() else {}
    if other is None:
        chosen = (choosing.conversion if family is None else choosing.timm_conversion)(theirs)
        specials = tokens.specials_of(chosen.family, theirs.values, files)
        chosen = chosen.renumbered(specials)
        choosing.outline(chosen, theirs.outline())
        return chosen, chosen.weights(theirs.tensors())
    apart = choosing.pair(theirs, other, shared=False)
    specials = tokens.specials_of(apart.family, theirs.values, files)
    outlines = choosing.joined(theirs.outline(), other.outline())
    choosing.outline(apart.renumbered(specials), outlines)
    one, two = theirs.tensors(), other.tensors()
    shared = embeddings_are_shared(two, one)
    chosen = choosing.pair(theirs, other, shared=shared).renumbered(specials)
    return chosen, chosen.weights(choosing.joined(one, two))


def _tokenizers(theirs: Original, chosen: Conversion) -> tuple[TokenizerPair | None, str]:
    """Theirs under our numbers, and a word about it."""
    files = foreign.original_files(theirs.path) if theirs.path.is_dir() else {}
    if chosen.family == "vit":
        return None, "none needed"
    if not {"tokenizer.json", "vocab.txt", "vocab.json"} & files.keys():
        return None, "none in the folder: the model knows ids, not text"
    if chosen.specials is None:
        return (
            None,
            "its special tokens are not those of this family: left out, ids stay as they are",
        )
    marian = chosen.family == "transformer"
    if marian and not {"source.spm", "target.spm", "vocab.json"} <= files.keys():
        return None, "source.spm, target.spm and vocab.json are not all there: left out"
    source, target = _vocabularies(chosen)
    last = -1 if chosen.specials.mask is not None else None
    numbers = [ids.order(n, chosen.specials).tolist()[:last] for n in (source, target)]
    two = foreign.both_sides("marian" if marian else "fast", files, *numbers)
    return TokenizerPair(*two, foreign.text_config(*two)), f"{len(two[0]):,} ids, kept as it was"


def _vocabularies(chosen: Conversion) -> tuple[int, int]:
    """How many ids each side has, counted in theirs."""
    config = ids.with_their_ids(chosen.family, chosen.config, chosen.specials)
    if chosen.family == "transformer":
        return config.source_vocab, config.target_vocab
    vocab = (config.encoder if chosen.family == "classifier" else config).vocab
    return vocab, vocab


def _about(name: str, generator: str | None, chosen: Conversion) -> dict[str, Any]:
    return {
        "from": Path(name).name,
        "generator": None if generator is None else Path(generator).name,
        "architecture": chosen.architecture,
        "specials": None if chosen.specials is None else chosen.specials.plain,
        "notes": list(chosen.notes),
    }


def _classes(values: Mapping[str, Any], chosen: Conversion) -> dict[str, Any]:
    """The names of classes, in order, for a model that has some."""
    if chosen.family not in ("classifier", "vit"):
        return {}
    given, n = values.get("id2label"), chosen.config.classes
    timms = values.get("label_names")
    if isinstance(timms, list) and len(timms) == n:
        return {"classes": [str(name) for name in timms]}
    if isinstance(given, dict) and given.keys() == {str(i) for i in range(n)}:
        return {"classes": [str(given[str(i)]) for i in range(n)]}
    return {"classes": [str(i) for i in range(n)]}


def _scale(theirs: Original, chosen: Conversion) -> tuple[Scale, tuple[str, ...]]:
    """How their pixels are scaled, and a word about it if that is not as ours are."""
    settings, channels = pixels.settings_of(theirs), chosen.config.channels
    scale = pixels.scale(settings, channels)
    if not scale.ours:
        said = {name: settings[name] for name in ("image_mean", "image_std") if name in settings}
        told = ", ".join(f"{name} = {value}" for name, value in said.items()) or "another scale"
        return scale, (
            f"its pixels have {told}: the matrix of its patches now reads ours, from -1 to 1",
        )
    told = "nothing says how its pixels are scaled: from -1 to 1, as ours"
    return scale, () if settings else (told,)


def _sides(
    theirs: Original, other: Original | None, chosen: Conversion, scale: Scale | None
) -> list[ForeignCheckpoint]:
    first = ForeignCheckpoint(theirs.path, chosen.architecture, scale)
    return (
        [first] if other is None else [first, ForeignCheckpoint(other.path, "ElectraForMaskedLM")]
    )


def _compared(
    saved: SavedModel, specials: SpecialIds | None, sides: list[ForeignCheckpoint]
) -> Parity | None:
    """The report of the two, or an error if they differ."""
    second = sides[1] if len(sides) > 1 else None
    found = parity.compare(saved.family, saved.model, specials, sides[0], second)
    if found is not None and not found.equal:
        raise CheckpointError(
            f"the converted {saved.family} computes something else than {sides[0].architecture}: "
            f"outputs differ by up to {found.difference:.1e}, allowed is {LIMIT:g}; nothing was "
            "written"
        )
    return found


def export_model(model: Path, output: Path, *, to: str = "hf") -> ConversionReport:
    """Write one of our models as one (ELECTRA: two) of theirs."""
    if to not in ("hf", "timm"):
        raise ConfigError(f"--to {to}: only hf (Hugging Face's transformers) and timm are known")
    refuse_to_overwrite(output)
    saved = model_folder.load_model(model)
    specials = specials_for(saved)
    classes = saved.about.get("classes")
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    weights = {n: t.cpu() for n, t in model_folder.weights_of(saved.model).items()}
    if to == "timm":
        folders = writing.timm_written(saved.family, saved.config, weights, names)
    else:
        folders = writing.written(saved.family, saved.config, weights, specials, names)
    if saved.family == "vit":
        folders = [writing.with_pixels(half, saved.config) for half in folders]
    source = None if saved.tokenizers is None else saved.tokenizers.source
    with store.atomic_dir(output) as draft:
        for half in folders:
            _fill(draft / half.name, half, source)
        sides = [
            ForeignCheckpoint(draft / half.name, half.architecture) for half in reversed(folders)
        ]
        found, obstacle = _compared(saved, specials, sides), parity.obstacle(sides[0])
    kept = (
        "its files as they came"
        if isinstance(source, HuggingFaceTokenizer)
        else "not written: ours"
    )
    return ConversionReport(
        saved.family, " and ".join(half.architecture for half in folders), output,
        sum(len(half.weights) for half in folders), sum(t.numel() for t in weights.values()),
        found, "none" if source is None else kept, obstacle=obstacle,
    )  # fmt: skip


def _fill(folder: Path, half: ExportedModel, tokenizer: object) -> None:
    """Their files in a folder."""
    folder.mkdir(exist_ok=True)
    _write_json(folder / CONFIG, half.values)
    if half.generation is not None:
        _write_json(folder / GENERATION, half.generation)
    if half.pixels is not None:
        _write_json(folder / PIXELS, half.pixels)
    save_file(
        {name: tensor.contiguous() for name, tensor in half.weights.items()},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )
    if isinstance(tokenizer, HuggingFaceTokenizer):
        foreign.write_files(tokenizer, folder, prefix="")


def specials_for(saved: SavedModel) -> SpecialIds | None:
    """The numbers that a model's special ids had before it came here.

    Its tokenizer knows them, also after fine-tuning; without one, what the import wrote down.
    """
    source = None if saved.tokenizers is None else saved.tokenizers.source
    if not isinstance(source, HuggingFaceTokenizer):
        imported = saved.about.get("imported") or {}
        return specials_from(imported.get("specials") if isinstance(imported, dict) else None)
    missing = set(range(len(source) + 1)) - set(source.ids)
    masked = saved.family in MASKED and len(missing) == 1
    pad, bos, eos, unk = source.ids[:4]
    return SpecialIds(pad, bos, eos, unk, missing.pop() if masked else None)


def refuse_to_overwrite(output: Path) -> None:
    """Never replace what is not empty: a conversion can be given another name."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} exists already; choose another --output or remove it first")


def card(name: str, report: ConversionReport) -> str:
    """README.md of an imported model."""
    compared = "not compared" if report.parity is None else f"{report.parity.difference:.1e}"
    notes = "\n".join(f"- {note}" for note in report.notes)
    return f"""# A {report.family} model, imported

From {Path(name).name} ({report.architecture}): {report.n_parameters:,} parameters.

Largest difference of its outputs to the original's: {compared}. Tokenizer: {report.tokenizer}.

{notes}

The licence of the original holds for this copy too.
"""


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
