"""Does a converted model compute the same? Both are run on the same random input.

    difference = max |ours - theirs|        over all outputs that are not padding

Theirs is run by `transformers` (extra: hf) or `timm`. Without them nothing can be compared, and
that is said.
Floating-point noise grows with the numbers, so `LIMIT` is meant for outputs up to 1 and grows with
them beyond.
"""

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.convert import timm_vit as timms
from polyhead.convert.pixels import Scale
from polyhead.convert.reader import CONFIG, read_json
from polyhead.convert.reader import original as look_at
from polyhead.convert.special_ids import SpecialIds, read_as, written_as
from polyhead.convert.timm_vit import TIMM
from polyhead.errors import CheckpointError

LIMIT = 1e-4
LENGTH, SHORTER = 12, 7  # of the two texts
NO_PAD = -1


@dataclass(frozen=True)
class Parity:
    """The largest difference of any output, the largest output, and how many were compared."""

    difference: float
    largest: float
    count: int

    @property
    def equal(self) -> bool:
        """Is the difference no more than noise?"""
        return self.difference <= LIMIT * max(1.0, self.largest)


@dataclass(frozen=True)
class ForeignCheckpoint:
    """One of their folders, and the class that reads it, or timm; how it wants its pixels."""

    folder: Path
    architecture: str
    scale: Scale | None = None


def compare(
    family: str,
    model: Any,
    specials: SpecialIds | None,
    theirs: ForeignCheckpoint,
    generator: ForeignCheckpoint | None,
) -> Parity | None:
    """Run both; None if there is an `obstacle`."""
    if obstacle(theirs) is not None:
        return None
    with torch.random.fork_rng(devices=[]), _quiet(), torch.inference_mode():
        torch.manual_seed(0)
        loaded = [_load(side) for side in (theirs, generator) if side is not None]
        pairs = _outputs(family, model, specials, loaded, theirs)
    pairs = [(ours.float(), original.float()) for ours, original in pairs]
    for ours, original in pairs:
        if ours.shape != original.shape:
            raise CheckpointError(
                f"our output has the shape {tuple(ours.shape)}, theirs {tuple(original.shape)}"
            )
    return Parity(
        max(float((ours - original).abs().max()) for ours, original in pairs),
        max(float(original.abs().max()) for _, original in pairs),
        sum(original.numel() for _, original in pairs),
    )


def obstacle(side: ForeignCheckpoint) -> str | None:
    """Why nothing can be run beside our model, or None if it can."""
    library = TIMM if side.architecture == TIMM else "transformers"
    try:
        found = importlib.import_module(library)
    except ImportError:
        return f"{library} is not installed"
    if library == TIMM:
        alone = side.folder.is_file()
        name = timms.architecture({} if alone else read_json(side.folder / CONFIG, missing_ok=True))
        return None if found.is_model(name) else f"timm has no model called {name[:80]}"
    if not hasattr(found, side.architecture):
        return f"this version of transformers has no {side.architecture}"
    return None


def _load(side: ForeignCheckpoint) -> Any:
    """Their model, from safetensors in a folder of this machine and from nowhere else."""
    if side.architecture == TIMM:
        return _load_timm(side.folder)
    transformers: Any = importlib.import_module("transformers")
    kind = getattr(transformers, side.architecture)
    voice = transformers.utils.logging
    before, bars = voice.get_verbosity(), voice.is_progress_bar_enabled()
    voice.set_verbosity_error()
    voice.disable_progress_bar()
    try:
        options = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
        return kind.from_pretrained(side.folder, **options).eval()
    finally:
        voice.set_verbosity(before)
        if bars:
            voice.enable_progress_bar()


def _load_timm(folder: Path) -> Any:
    """A model of timm: its name says how it computes, the weights how large it is."""
    timm: Any = importlib.import_module(TIMM)
    theirs = look_at(folder)
    name = timms.architecture(theirs.values)
    try:
        model = timm.create_model(name, **timms.options(theirs.values, theirs.shapes))
        model.load_state_dict(theirs.tensors())
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        line = " ".join(str(error).split())[:200]
        raise CheckpointError(f"timm's {name} cannot hold these weights: {line}") from None
    return model.eval()


def _outputs(
    family: str, model: Any, specials: SpecialIds | None, loaded: list[Any], side: ForeignCheckpoint
) -> list[tuple[Tensor, Tensor]]:
    """Ours and theirs, for the same input."""
    theirs, architecture = loaded[0], side.architecture
    if family == "vit":
        grid, patch = model.grid, model.embed.patch
        images = torch.randn(2, model.embed.project.in_channels, grid[0] * patch, grid[1] * patch)
        said = theirs(images if side.scale is None else side.scale.theirs(images))
        return [(model(images), said if architecture == TIMM else said.logits)]
    vocab, pad = theirs.config.vocab_size, _pad(theirs, specials)
    length = min(LENGTH, theirs.config.max_position_embeddings)
    given = texts(vocab, length, NO_PAD if family == "gpt" else pad)
    ours, real = read_as(given, vocab, specials), given != pad
    if family == "gpt":
        said = _language(theirs, given)
        mine = written_as(model(ours), specials)
        return [(mine, said)] if said.size(-1) == mine.size(-1) else [(model.hidden(ours), said)]
    if family == "transformer":
        return _translation(model, theirs, specials, given, pad)
    mask = real.long()
    if family == "electra":
        fills = loaded[1](given, mask).logits[real]
        mine = written_as(model.generator(ours)[real], specials)
        return [(model.suspect(ours)[real], theirs(given, mask).logits[real]), (mine, fills)]
    if family == "classifier":
        return [_classified(model, theirs, architecture, (given, mask), ours, real)]
    found = theirs(given, mask)
    fills = found.prediction_logits if architecture == "BertForPreTraining" else found.logits
    return [(written_as(model(ours)[real], specials), fills[real])]


def _classified(
    model: Any, theirs: Any, architecture: str, given: tuple[Tensor, Tensor], ours: Tensor,
    real: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The logits, or what the encoder says where the head is new."""
    if architecture.endswith("ForSequenceClassification"):
        return model(ours), theirs(*given).logits
    if architecture == "BertModel":
        found = theirs(*given)
        pooled = model.pool(model.encoder(ours)[:, 0])
        states = model.encoder(ours)[real]
        theirs_too = found.last_hidden_state[real]
        return torch.cat([pooled, states]), torch.cat([found.pooler_output, theirs_too])
    encoder = theirs if architecture == "ElectraModel" else theirs.electra
    return model.encoder(ours)[real], encoder(*given).last_hidden_state[real]


def _translation(
    model: Any, theirs: Any, specials: SpecialIds | None, source: Tensor, pad: int
) -> list[tuple[Tensor, Tensor]]:
    config = theirs.config
    target_vocab = config.decoder_vocab_size or config.vocab_size
    target = texts(target_vocab, min(SHORTER, source.size(1)), pad)[:1].expand(2, -1)
    ours = model(
        read_as(source, config.vocab_size, specials), read_as(target, target_vocab, specials)
    )
    mask = (source != pad).long()
    said = theirs(source, mask, decoder_input_ids=target).logits
    mine, others = written_as(ours, specials), torch.arange(target_vocab) != pad
    if specials is None or not specials.copied:
        others[:] = True
    return [(mine[..., others], said[..., others])]


def _language(theirs: Any, given: Tensor) -> Tensor:
    found: Any = theirs(given)
    return found.logits if "logits" in found else found.last_hidden_state


def _pad(theirs: Any, specials: SpecialIds | None) -> int:
    if specials is not None:
        return specials.pad
    given = vars(theirs.config).get("pad_token_id")
    return given if isinstance(given, int) else NO_PAD


def texts(vocab: int, length: int, pad: int) -> Tensor:
    """Two random texts, the second shorter; padding stands nowhere else."""
    drawn = torch.randint(0, vocab, (2, length))
    drawn[drawn == pad] = (pad + 1) % vocab
    if pad != NO_PAD and length > 2:
        drawn[1, min(SHORTER, length - 1) :] = pad
    return drawn


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Their library speaks of many things; none of them is ours to show."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
