"""Import of models: check shapes → convert → compare outputs → write our directory.

Nothing is written if the outputs differ.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_card import front_matter
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.convert import gpt2, parity, pixels, timm_vit
from polyhead.convert import special_ids as ids
from polyhead.convert.architectures import (
    ELECTRA_GENERATOR,
    LABELLED,
    Conversion,
    check_fits,
    find_conversion,
    reference_values,
    require_halves,
)
from polyhead.convert.hf_electra import with_sharing
from polyhead.convert.parity import LIMIT, Parity, ReferenceModel
from polyhead.convert.parity_report import ParityReport
from polyhead.convert.pixels import Scale
from polyhead.convert.reader import ForeignCheckpoint, joined, locate, read_foreign
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.timm_vit import TIMM
from polyhead.convert.weight_names import Weights
from polyhead.errors import CheckpointError, ConfigError, MissingError
from polyhead.models.registry import FAMILIES
from polyhead.tokenizers import huggingface as foreign
from polyhead.tokenizers.storage import TokenizerPair


@dataclass(frozen=True)
class ConversionReport:
    """Result of a conversion; `parity` is None if there was an `obstacle` to comparing outputs."""

    family: str
    architecture: str
    output: Path
    n_tensors: int
    n_parameters: int
    parity: Parity | None
    obstacle: str | None
    tokenizer: str
    notes: tuple[str, ...] = ()
    figures: ParityReport | None = None


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
    files = foreign.original_files(theirs.path) if theirs.path.is_dir() else {}
    chosen, state = _converted(theirs, other, files, timm=family is not None)
    row, scale = chosen.architecture, None
    if row.family == "vit":
        scale, notes = _scale(theirs, chosen)
        chosen, state = replace(chosen, notes=chosen.notes + notes), pixels.folded(state, scale)
    tokenizers, tokenizer_note = _tokenizers(files, chosen)
    model = FAMILIES[row.family].model(chosen.our_config)
    model_folder.set_weights(model, state)
    model.eval()
    unusable = model_folder.first_not_finite(model)
    if unusable is not None:
        raise CheckpointError(
            f"{theirs.path}: {unusable} holds numbers that are not finite", "not_finite"
        )
    imported = {
        "from": Path(name).name,
        "generator": None if generator is None else Path(generator).name,
        "architecture": row.name,
        "specials": None if chosen.specials is None else asdict(chosen.specials),
        "generation": gpt2.recorded_ids(theirs.values, chosen.config.vocab)
        if row.family == "gpt"
        else None,
        "notes": list(chosen.notes),
    }
    about = {"imported": imported, **_classes(theirs.values, chosen)}
    saved = SavedModel(row.family, chosen.our_config, model, tokenizers, about)
    references = _references(chosen, theirs, other, scale)
    report = ConversionReport(
        row.family, row.name, output, len(state), sum(p.numel() for p in model.parameters()),
        *compared_outputs(saved, chosen.specials, references), tokenizer_note, chosen.notes,
    )  # fmt: skip
    with store.atomic_dir(output) as draft:
        model_folder.write_model(draft, saved, card(name, report))
    return report


def _converted(
    theirs: ForeignCheckpoint,
    other: ForeignCheckpoint | None,
    files: Mapping[str, bytes],
    *,
    timm: bool,
) -> tuple[Conversion, Weights]:
    """Return the conversion and our weights; tensors are read after their shapes were checked."""
    whole = theirs
    if other is not None:
        require_halves(theirs, other)
        whole = joined(theirs, other)
    chosen = find_conversion(whole, timm=timm, pair=other is not None)
    specials = chosen.architecture.special_ids(theirs.values, files)
    chosen = replace(chosen, specials=specials)
    check_fits(chosen, whole)
    tensors = whole.tensors()
    if other is not None:
        chosen = replace(chosen, config=with_sharing(chosen.config, tensors))
    return chosen, chosen.weights(tensors)


def _references(
    chosen: Conversion,
    theirs: ForeignCheckpoint,
    other: ForeignCheckpoint | None,
    scale: Scale | None,
) -> list[ReferenceModel]:
    """Return the originals: configurations from ours, tensors from their files."""
    row = chosen.architecture
    if row.library == TIMM:
        return [ReferenceModel(TIMM, timm_vit.options(theirs.values, chosen.config), theirs, scale)]
    values = reference_values(row, chosen.config, theirs.values)
    if other is None:
        return [ReferenceModel(row.name, values, theirs, scale)]
    second = ReferenceModel(ELECTRA_GENERATOR.name, values.pop("generator"), other)
    return [ReferenceModel(row.name, values, theirs), second]


def _tokenizers(files: Mapping[str, bytes], chosen: Conversion) -> tuple[TokenizerPair | None, str]:
    """Return the tokenizers with our ids, and a description."""
    kind = chosen.architecture.tokenizer
    if kind is None:
        return None, "none needed"
    if not {"tokenizer.json", "vocab.txt", "vocab.json"} & files.keys():
        return None, "none in the directory: the model takes ids only"
    if chosen.specials is None:
        note = "its special tokens are not those of this family: left out, ids stay as they are"
        return None, note
    if kind == "marian" and not {"source.spm", "target.spm", "vocab.json"} <= files.keys():
        return None, "left out: source.spm, target.spm or vocab.json is missing"
    last, sizes = -1 if chosen.specials.mask is not None else None, ids.vocab_sizes(chosen.config)
    numbers = [ids.foreign_ids(size, chosen.specials).tolist()[:last] for size in sizes]
    sides = foreign.both_sides(kind, files, *numbers)
    pair, note = TokenizerPair(*sides, foreign.text_config(*sides)), "kept as it was"
    try:
        for side in sides:
            side.check()
    except MissingError as error:
        note += f", but not tried: {error}"
    return pair, f"{len(sides[0]):,} ids, {note}"


def _classes(values: Mapping[str, Any], chosen: Conversion) -> dict[str, list[str]]:
    """Return the names of the classes of a classifier, in order."""
    if chosen.architecture.family not in LABELLED:
        return {}
    names = [str(i) for i in range(chosen.config.classes)]
    given, timms = values.get("id2label"), values.get("label_names")
    if isinstance(timms, list) and len(timms) == len(names):
        given = dict(zip(names, timms, strict=True))
    if isinstance(given, dict) and given.keys() == set(names):
        names = [str(given[name]) for name in names]
    return {"classes": names}


def _scale(theirs: ForeignCheckpoint, chosen: Conversion) -> tuple[Scale, tuple[str, ...]]:
    """Return the scale of a foreign model's pixels, and notes if it is not ours."""
    settings = pixels.settings_of(theirs)
    scale = pixels.scale(settings, chosen.config.channels)
    if scale.ours:
        note = "scale of its pixels not given: assumed from -1 to 1, as ours"
        return scale, () if settings else (note,)
    shown = [f"{n} = {settings[n]}" for n in ("image_mean", "image_std") if n in settings]
    note = (
        f"its pixels have {', '.join(shown) or 'another scale'}: its patch embedding was changed "
        "to read ours, from -1 to 1"
    )
    return scale, (note,)


def compared_outputs(
    saved: SavedModel, specials: SpecialIds | None, sides: list[ReferenceModel]
) -> tuple[Parity | None, str | None]:
    """Return the comparison of outputs, or the obstacle to it; CheckpointError if they differ."""
    obstacle = parity.obstacle(sides[0])
    if obstacle is not None:
        return None, obstacle
    compared = parity.compare(FAMILIES[saved.family].task, saved.model, specials, sides)
    if not compared.equal:
        raise parity_failed(saved.family, sides[0].architecture, compared)
    return compared, None


def parity_failed(family: str, architecture: str, compared: Parity) -> CheckpointError:
    """Return the error for a conversion whose outputs differ."""
    return CheckpointError(
        f"the converted {family} computes other outputs than {architecture}: outputs differ by up "
        f"to {compared.difference:.1e}, allowed is {LIMIT:g}. Nothing was written.",
        "parity_failed",
    )


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
    return f"""{front_matter(report.family, {})}# A {report.family} model, imported

From {Path(name).name} ({report.architecture}): {report.n_parameters:,} parameters.

Largest difference of its outputs to the original's: {compared}. Tokenizer: {report.tokenizer}.

{notes}

The licence of the original holds for this copy too.
"""
