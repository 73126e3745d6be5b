"""Import and export of models: `polyhead import` and `polyhead export`.

    import    check shapes → convert → compare outputs → write our directory
    export    write a foreign directory → compare outputs → rename it

Nothing is written if the outputs differ.
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
from polyhead.convert import architectures, config_writer, parity, pixels
from polyhead.convert import special_ids as ids
from polyhead.convert.architectures import Conversion
from polyhead.convert.config_writer import ExportedModel
from polyhead.convert.hf_electra import embeddings_are_shared
from polyhead.convert.parity import LIMIT, Parity, ReferenceModel
from polyhead.convert.pixels import PIXELS, Scale
from polyhead.convert.reader import CONFIG, WEIGHTS, ForeignCheckpoint, locate, read_foreign
from polyhead.convert.special_ids import SpecialIds, specials_from
from polyhead.convert.weight_names import Weights
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.registry import FAMILIES, has_mask_token
from polyhead.tokenizers import huggingface as foreign
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer
from polyhead.tokenizers.storage import TokenizerPair

GENERATION = "generation_config.json"
NOT_EXPORTED = "not exported: it is not a tokenizer of transformers"


@dataclass(frozen=True)
class ConversionReport:
    """Result of a conversion; `parity` is None if there was an `obstacle` to comparing outputs."""

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
    """Convert a foreign model and write it as a model directory.

    name: a directory, or a name on the Hugging Face Hub; generator: the other folder of an ELECTRA.
    family: "vit" for a file of timm without a configuration.
    """
    if family not in (None, "vit"):
        raise ConfigError(
            f"--family {family}: only `vit` is accepted; other architectures are read from "
            "config.json",
            "unknown_family",
        )
    check_output_is_new(output)
    theirs = read_foreign(locate(name), config=family is None)
    other = None if generator is None else read_foreign(locate(generator))
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
        raise CheckpointError(
            f"{theirs.path}: {unusable} holds numbers that are not finite", "not_finite"
        )
    about: dict[str, Any] = {"imported": _about(name, generator, chosen)}
    about |= _classes(theirs.values, chosen)
    saved = SavedModel(chosen.family, chosen.config, model, tokenizers, about)
    sides = _sides(theirs, other, chosen, scale)
    parity_report = _compared(saved, chosen.specials, sides)
    report = ConversionReport(
        chosen.family, chosen.architecture, output, len(state),
        sum(p.numel() for p in model.parameters()), parity_report, tokenizer_note, chosen.notes,
        parity.obstacle(sides[0]),
    )  # fmt: skip
    with store.atomic_dir(output) as draft:
        model_folder.write_model(draft, saved, card(name, report))
    return report


def _converted(
    theirs: ForeignCheckpoint, other: ForeignCheckpoint | None, family: str | None
) -> tuple[Conversion, Weights]:
    """Return the conversion and our weights; tensors are read after their shapes were checked."""
    files = foreign.original_files(theirs.path) if theirs.path.is_dir() else {}
    if other is None:
        chosen = (
            architectures.find_conversion if family is None else architectures.timm_conversion
        )(theirs)
        specials = ids.special_ids_of(chosen.family, theirs.values, files)
        chosen = chosen.renumbered(specials)
        architectures.check_fits(chosen, theirs.outline())
        return chosen, chosen.weights(theirs.tensors())
    apart = architectures.pair(theirs, other, shared=False)
    specials = ids.special_ids_of(apart.family, theirs.values, files)
    outlines = architectures.joined(theirs.outline(), other.outline())
    architectures.check_fits(apart.renumbered(specials), outlines)
    discriminator, generator_tensors = theirs.tensors(), other.tensors()
    shared = embeddings_are_shared(generator_tensors, discriminator)
    chosen = architectures.pair(theirs, other, shared=shared).renumbered(specials)
    return chosen, chosen.weights(architectures.joined(discriminator, generator_tensors))


def _tokenizers(theirs: ForeignCheckpoint, chosen: Conversion) -> tuple[TokenizerPair | None, str]:
    """Return the tokenizers with our ids, and a description."""
    files = foreign.original_files(theirs.path) if theirs.path.is_dir() else {}
    if chosen.family == "vit":
        return None, "none needed"
    if not {"tokenizer.json", "vocab.txt", "vocab.json"} & files.keys():
        return None, "none in the directory: the model takes ids only"
    if chosen.specials is None:
        return (
            None,
            "its special tokens are not those of this family: left out, ids stay as they are",
        )
    marian = chosen.family == "transformer"
    if marian and not {"source.spm", "target.spm", "vocab.json"} <= files.keys():
        return None, "left out: source.spm, target.spm or vocab.json is missing"
    source, target = _vocabularies(chosen)
    last = -1 if chosen.specials.mask is not None else None
    numbers = [ids.foreign_ids(n, chosen.specials).tolist()[:last] for n in (source, target)]
    sides = foreign.both_sides("marian" if marian else "fast", files, *numbers)
    pair = TokenizerPair(*sides, foreign.text_config(*sides))
    return pair, f"{len(sides[0]):,} ids, kept as it was"


def _vocabularies(chosen: Conversion) -> tuple[int, int]:
    """Return how many foreign ids each side has."""
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
    """Return the names of the classes of a classifier, in order."""
    if chosen.family not in ("classifier", "vit"):
        return {}
    given, n = values.get("id2label"), chosen.config.classes
    timms = values.get("label_names")
    if isinstance(timms, list) and len(timms) == n:
        return {"classes": [str(name) for name in timms]}
    if isinstance(given, dict) and given.keys() == {str(i) for i in range(n)}:
        return {"classes": [str(given[str(i)]) for i in range(n)]}
    return {"classes": [str(i) for i in range(n)]}


def _scale(theirs: ForeignCheckpoint, chosen: Conversion) -> tuple[Scale, tuple[str, ...]]:
    """Return the scale of a foreign model's pixels, and notes if it is not ours."""
    settings, channels = pixels.settings_of(theirs), chosen.config.channels
    scale = pixels.scale(settings, channels)
    if not scale.ours:
        shown = {name: settings[name] for name in ("image_mean", "image_std") if name in settings}
        description = (
            ", ".join(f"{name} = {value}" for name, value in shown.items()) or "another scale"
        )
        return scale, (
            f"its pixels have {description}: its patch embedding was "
            "changed to read ours, from -1 to 1",
        )
    description = "scale of its pixels not given: assumed from -1 to 1, as ours"
    return scale, () if settings else (description,)


def _sides(
    theirs: ForeignCheckpoint,
    other: ForeignCheckpoint | None,
    chosen: Conversion,
    scale: Scale | None,
) -> list[ReferenceModel]:
    first = ReferenceModel(theirs.path, chosen.architecture, scale)
    return [first] if other is None else [first, ReferenceModel(other.path, "ElectraForMaskedLM")]


def _compared(
    saved: SavedModel, specials: SpecialIds | None, sides: list[ReferenceModel]
) -> Parity | None:
    """Compare outputs; raises CheckpointError if they differ."""
    second = sides[1] if len(sides) > 1 else None
    parity_report = parity.compare(saved.family, saved.model, specials, sides[0], second)
    if parity_report is not None and not parity_report.equal:
        raise CheckpointError(
            f"the converted {saved.family} computes other outputs than {sides[0].architecture}: "
            f"outputs differ by up to {parity_report.difference:.1e}, allowed is {LIMIT:g}. "
            "Nothing was written.",
            "parity_failed",
        )
    return parity_report


def export_model(model: Path, output: Path, *, to: str = "hf") -> ConversionReport:
    """Write a model for transformers or timm (ELECTRA: two models)."""
    if to not in ("hf", "timm"):
        raise ConfigError(
            f"--to {to}: expected hf (Hugging Face's transformers) or timm", "invalid_option"
        )
    check_output_is_new(output)
    saved = model_folder.load_model(model)
    specials = specials_for(saved)
    classes = saved.about.get("classes")
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    weights = {n: t.cpu() for n, t in model_folder.weights_of(saved.model).items()}
    if to == "timm":
        folders = config_writer.export_timm_folders(saved.family, saved.config, weights, names)
    else:
        folders = config_writer.export_folders(saved.family, saved.config, weights, specials, names)
    if saved.family == "vit":
        folders = [config_writer.with_pixels(folder, saved.config) for folder in folders]
    source = None if saved.tokenizers is None else saved.tokenizers.source
    with store.atomic_dir(output) as draft:
        for folder in folders:
            _fill(draft / folder.name, folder, source)
        sides = [
            ReferenceModel(draft / folder.name, folder.architecture) for folder in reversed(folders)
        ]
        parity_report, obstacle = _compared(saved, specials, sides), parity.obstacle(sides[0])
    kept = "its original files" if isinstance(source, HuggingFaceTokenizer) else NOT_EXPORTED
    return ConversionReport(
        saved.family, " and ".join(folder.architecture for folder in folders), output,
        sum(len(folder.weights) for folder in folders), sum(t.numel() for t in weights.values()),
        parity_report, "none" if source is None else kept, obstacle=obstacle,
    )  # fmt: skip


def _fill(path: Path, folder: ExportedModel, tokenizer: object) -> None:
    """Write the files of an exported model."""
    path.mkdir(exist_ok=True)
    _write_json(path / CONFIG, folder.values)
    if folder.generation is not None:
        _write_json(path / GENERATION, folder.generation)
    if folder.pixels is not None:
        _write_json(path / PIXELS, folder.pixels)
    save_file(
        {name: tensor.contiguous() for name, tensor in folder.weights.items()},
        path / WEIGHTS,
        metadata={"format": "pt"},
    )
    if isinstance(tokenizer, HuggingFaceTokenizer):
        foreign.write_files(tokenizer, path, prefix="")


def specials_for(saved: SavedModel) -> SpecialIds | None:
    """Return the special ids that a model had before its import.

    They are taken from its tokenizer, else from the record of the import.
    """
    source = None if saved.tokenizers is None else saved.tokenizers.source
    if not isinstance(source, HuggingFaceTokenizer):
        imported = saved.about.get("imported") or {}
        return specials_from(imported.get("specials") if isinstance(imported, dict) else None)
    missing = set(range(len(source) + 1)) - set(source.ids)
    masked = has_mask_token(saved.family) and len(missing) == 1
    pad, bos, eos, unk = source.ids[:4]
    return SpecialIds(pad, bos, eos, unk, missing.pop() if masked else None)


def check_output_is_new(output: Path) -> None:
    """Raise ConfigError if the output exists and is not an empty directory."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(
            f"{output} already exists. Choose another --output, or remove it first.",
            "output_exists",
        )


def card(name: str, report: ConversionReport) -> str:
    """Return the README.md of an imported model."""
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
