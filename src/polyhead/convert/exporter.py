"""The targets `hf` and `timm`: directories that transformers and timm read."""

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.checkpoint.tensors import save_tensors
from polyhead.config import from_dict
from polyhead.convert import esm, gpt2, hf_electra
from polyhead.convert import special_ids as ids
from polyhead.convert.architecture_row import Architecture, State
from polyhead.convert.architectures import (
    ARCHITECTURES,
    ELECTRA_GENERATOR,
    ESM,
    ESM_CLASSIFIER,
    ESM_TAGGER,
    LABELLED,
    PAIR,
)
from polyhead.convert.conversion import compared_outputs
from polyhead.convert.parity import ReferenceModel, quiet, without_bar
from polyhead.convert.pixels import PIXELS
from polyhead.convert.reader import CONFIG, GENERATOR, WEIGHTS, read_foreign
from polyhead.convert.sentence_files import SENTENCES, write_sentence_files
from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.target_types import MAX_LENGTH, Example, Reader, Written, token_log_p
from polyhead.convert.timm_vit import TIMM
from polyhead.convert.tokenizer_files import write_json, write_tokenizer
from polyhead.convert.weight_names import Weights
from polyhead.data.batches.labelled import segments_of
from polyhead.decoding.batch import pad_right
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError
from polyhead.models.registry import FAMILIES, encoder_config, has_mask_token
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.tokenizers.huggingface import HuggingFaceTokenizer

GENERATION = "generation_config.json"
OURS = SpecialIds(pad=0, bos=1, eos=2, unk=3)  # ids of a model that was not imported
RATES = ("dropout", "attention_dropout", "activation_dropout")
KEPT = {TIMM: (), "marian": RATES, "pegasus": RATES}  # dropout rates that are written
REASONS = {  # for families that transformers seems to have
    "reformer": " (its Reformer joins both streams of residuals, where ours takes their mean)",
}


@dataclass(frozen=True)
class ExportedModel:
    """A directory to write; `name` is its subdirectory, empty if there is only one."""

    name: str
    architecture: str
    files: dict[str, dict[str, Any]]  # contents of JSON files
    weights: Weights
    notes: tuple[str, ...] = ()

    @property
    def reference(self) -> dict[str, Any]:
        """The configuration for a comparison; for timm its arguments."""
        values = self.files[CONFIG]
        return dict(values["model_args"]) if self.architecture == TIMM else values


def export_folders(
    family: str,
    config: Any,
    weights: State,
    specials: SpecialIds | None,
    classes: Sequence[str] = (),
    *,
    library: str = "hf",
    generation: Mapping[str, int | None] | None = None,
    decode: DecodeConfig | None = None,
) -> list[ExportedModel]:
    """Return the directories to write; `specials` undoes the renumbering of an import.

    generation: ids of special tokens, if an import has recorded them.
    decode: options that generation has unless others are given.
    """
    row = find_row(family, config, library)
    assert row.weights_to is not None
    theirs = ids.with_their_ids(config, specials)
    if specials is not None:
        weights = ids.restored(family, weights, specials)
    values, tensors = row.config_to(theirs), row.weights_to(weights, theirs)
    if row is PAIR:
        first, second = hf_electra.split(tensors, GENERATOR)
        return [
            _exported("generator", ELECTRA_GENERATOR, values.pop("generator"), first),
            _exported("discriminator", PAIR, values, second),
        ]
    files: dict[str, dict[str, Any]] = {}
    if row.generation is not None:
        settings = row.generation(specials or OURS, theirs, decode or DecodeConfig())
        if generation is not None:  # of a GPT, which has no padding of its own
            settings = {n: value for n, value in settings.items() if n not in gpt2.OF_PADDING}
            settings |= {n: id for n, id in generation.items() if not specials or id is not None}
        values |= {name: id for name, id in settings.items() if name.endswith("_id")}
        files[GENERATION] = settings
    if row is ESM:
        values["tie_word_embeddings"] = esm.DECODER not in tensors
    if row.pixels is not None:
        files[PIXELS] = row.pixels(theirs)
    exported = _exported("", row, values | _labels(row, theirs, classes), tensors)
    return [replace(exported, files=exported.files | files, notes=_lost(row, config))]


def _labels(row: Architecture, config: Any, classes: Sequence[str]) -> dict[str, Any]:
    """Return the names of the classes, in the values of a config.json."""
    if row.library == TIMM:
        return {"label_names": list(classes)} if classes else {}
    if row.family not in LABELLED:
        return {}
    names = classes or [f"LABEL_{i}" for i in range(config.classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def find_row(family: str, config: Any, library: str) -> Architecture:
    """Return the architecture that a model is written as; CheckpointError if there is none."""
    rows = [row for row in ARCHITECTURES if row.weights_to is not None and row.library == library]
    row = next((row for row in rows if row.family == family and row.suits(config)), None)
    if row is None:
        there = ", ".join(dict.fromkeys(row.family for row in rows))
        name = "transformers" if library == "hf" else library
        why = REASONS.get(family, "") if library == "hf" else ""
        raise CheckpointError(
            f"a model of the family {family} has no counterpart in {name}{why}; there is one for "
            f"{there}",
            "not_exportable",
        )
    return row


def _lost(row: Architecture, config: Any) -> tuple[str, ...]:
    """Return notes about dropout rates of ours that the other library has no value for."""
    stack = encoder_config(config).stack
    kept = KEPT.get(row.model_type, ("dropout", "attention_dropout"))
    lost = {name: getattr(stack, name) for name in RATES if name not in kept}
    if row in (ESM_CLASSIFIER, ESM_TAGGER) and config.dropout != stack.dropout:
        lost["dropout of the head"] = config.dropout
    return tuple(f"{n} = {rate:g} has no value there: left out" for n, rate in lost.items() if rate)


def _exported(
    name: str, row: Architecture, values: dict[str, Any], weights: Weights
) -> ExportedModel:
    header = {"model_type": row.model_type, "architectures": [row.name], "dtype": "float32"}
    values = values if row.library == TIMM else header | values
    return ExportedModel(name, row.name, {CONFIG: values}, weights)


def architecture_in(library: str, family: str, config: Any) -> str:
    """Return the name of the class there; CheckpointError if it cannot express this model."""
    row = find_row(family, config, library)
    row.config_to(config)
    return row.name


def write_folders(saved: SavedModel, draft: Path, library: str) -> Written:
    """Write a model for transformers or timm (ELECTRA: two models), and compare outputs."""
    specials = specials_for(saved)
    classes = saved.about.get("classes")
    names = [str(name) for name in classes] if isinstance(classes, list) else []
    weights = {n: t.cpu() for n, t in model_folder.weights_of(saved.model).items()}
    folders = export_folders(
        saved.family, saved.config, weights, specials, names,
        library=library, generation=generation_of(saved), decode=decode_of(saved),
    )  # fmt: skip
    tokenizer = "none"
    for folder in folders:
        path = draft / folder.name
        path.mkdir(exist_ok=True)
        for name, values in folder.files.items():
            write_json(path / name, values)
        save_tensors(folder.weights, path / WEIGHTS, {"format": "pt"})
        if saved.tokenizers is not None:
            longest = folder.reference.get("max_position_embeddings")
            task = FAMILIES[saved.family].task
            tokenizer = write_tokenizer(saved.tokenizers, path, task, longest)
    if saved.family == SENTENCES:
        write_sentence_files(saved.config, draft)
    references = [
        ReferenceModel(f.architecture, f.reference, read_foreign(draft / f.name))
        for f in reversed(folders)
    ]
    architecture = " and ".join(folder.architecture for folder in folders)
    notes = tuple(note for folder in folders for note in folder.notes)
    return Written(architecture, tokenizer, notes, *compared_outputs(saved, specials, references))


def decode_of(saved: SavedModel) -> DecodeConfig:
    """Return the decoding options of the training run; the defaults for an imported model."""
    run = saved.about.get("run") or {}
    return from_dict(DecodeConfig, run.get("decode", {}), "decode.")


def generation_of(saved: SavedModel) -> dict[str, int | None] | None:
    """Return the ids that an import has recorded for generation; None if there are none."""
    imported = saved.about.get("imported")
    recorded = imported.get("generation") if isinstance(imported, dict) else None
    return gpt2.recorded_ids(recorded, saved.config.vocab) if isinstance(recorded, dict) else None


def specials_for(saved: SavedModel) -> SpecialIds | None:
    """Return the special ids before an import: those of its tokenizer, else as recorded."""
    source = None if saved.tokenizers is None else saved.tokenizers.source
    if not isinstance(source, HuggingFaceTokenizer):
        imported = saved.about.get("imported") or {}
        return ids.specials_from(imported.get("specials") if isinstance(imported, dict) else None)
    missing = set(range(len(source) + 1)) - set(source.ids)
    masked = has_mask_token(saved.family) and len(missing) == 1
    pad, bos, eos, unk = source.ids[:4]
    return SpecialIds(pad, bos, eos, unk, missing.pop() if masked else None)


def open_folder(saved: SavedModel, folder: Path) -> Reader:
    """Load the export with transformers, as its users will."""
    transformers: Any = importlib.import_module("transformers")  # it was there for `write_folders`
    folder = folder / "discriminator" if (folder / "discriminator").is_dir() else folder
    (name,) = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["architectures"]
    with quiet(), without_bar(transformers):
        model = getattr(transformers, name).from_pretrained(folder).eval()
    theirs = LoadedFolder(name, model, *ids.id_tables(saved.config, specials_for(saved)))
    longest = MAX_LENGTH
    if hasattr(model.config, "max_position_embeddings"):
        longest = min(longest, model.config.max_position_embeddings)
    search = theirs.search if model.config.is_encoder_decoder else None
    return Reader(theirs.outputs, search, longest=longest, states=saved.family == SENTENCES)


@dataclass(frozen=True)
class LoadedFolder:
    """A model of transformers, and its id of each of our ids: of the source and of the target."""

    name: str
    model: Any
    source_ids: Tensor
    target_ids: Tensor

    def outputs(self, examples: Sequence[Example]) -> list[Tensor]:
        """Return log p of each target id, or logits; see `Reader`."""
        given = self._inputs([example.source for example in examples])
        if self.model.config.is_encoder_decoder:
            target = pad_right([[BOS, *example.target[:-1]] for example in examples])
            given["decoder_input_ids"] = self.target_ids[target]
            given["decoder_input_ids"][:, 0] = self.model.config.decoder_start_token_id
        output = self.model(**given)
        if "QuestionAnswering" in self.name:
            logits = torch.stack([output.start_logits, output.end_logits], -1)
        else:
            logits = output.logits if "logits" in output else output.last_hidden_state
        if examples[0].target:
            return token_log_p(logits[..., self.target_ids], examples)
        if "Classification" in self.name and "Token" not in self.name:
            return list(logits)
        logits = logits[..., self.target_ids] if "MaskedLM" in self.name else logits
        return [logits[i, : len(example.source)] for i, example in enumerate(examples)]

    def search(self, sources: Sequence[list[int]], beam: int, limit: int) -> list[list[int]]:
        """Return the best translation of each source."""
        table = self.target_ids.tolist()
        end, own = table[EOS], {id: i for i, id in enumerate(table)}
        with quiet():
            rows = self.model.generate(
                **self._inputs(sources), max_new_tokens=limit, num_beams=beam, do_sample=False,
                length_penalty=0.0 if beam > 1 else None, early_stopping=False,
            )[:, 1:].tolist()  # fmt: skip
        return [[own[id] for id in takewhile(lambda id: id != end, row)] for row in rows]

    def _inputs(self, sources: Sequence[Any]) -> dict[str, Tensor]:
        if isinstance(sources[0], Tensor):
            return {"pixel_values": torch.stack(list(sources))}
        source = pad_right(sources)
        given = {"input_ids": self.source_ids[source], "attention_mask": (source != PAD).long()}
        has_segments = self.model.config.to_dict().get("type_vocab_size", 1) > 1
        segments = segments_of(source) if has_segments else None
        return given if segments is None else given | {"token_type_ids": segments}
