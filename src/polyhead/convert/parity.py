"""Comparison of a converted model with the original: both are run on the same random input.

    difference = max |ours - theirs|        over all outputs that are not padding

The original is run by `transformers` (extra: hf) or `timm`; without them nothing is compared.
`LIMIT` holds for outputs up to 1 and grows with larger ones, as rounding errors do.
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
from polyhead.convert.reader import read_foreign as look_at
from polyhead.convert.special_ids import SpecialIds, to_foreign_logits, to_our_ids
from polyhead.convert.timm_vit import TIMM
from polyhead.errors import CheckpointError

LIMIT = 1e-4
LENGTH, SHORTER = 12, 7  # of the two texts
NO_PAD = -1


@dataclass(frozen=True)
class Parity:
    """Largest difference of any output, largest output, and number of outputs compared."""

    difference: float
    largest: float
    count: int

    @property
    def equal(self) -> bool:
        """True if the difference is no more than rounding."""
        return self.difference <= LIMIT * max(1.0, self.largest)


@dataclass(frozen=True)
class ReferenceModel:
    """A foreign directory, the class that loads it, and the scale of its pixels."""

    folder: Path
    architecture: str
    scale: Scale | None = None


def compare(
    family: str,
    model: Any,
    specials: SpecialIds | None,
    theirs: ReferenceModel,
    generator: ReferenceModel | None,
) -> Parity | None:
    """Run both models; returns None if there is an `obstacle`."""
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
                f"our output has the shape {tuple(ours.shape)}, theirs {tuple(original.shape)}",
                "parity_failed",
            )
    return Parity(
        max(float((ours - original).abs().max()) for ours, original in pairs),
        max(float(original.abs().max()) for _, original in pairs),
        sum(original.numel() for _, original in pairs),
    )


def obstacle(side: ReferenceModel) -> str | None:
    """Return the reason why the original cannot be run, or None if it can."""
    library = TIMM if side.architecture == TIMM else "transformers"
    try:
        output = importlib.import_module(library)
    except ImportError:
        return f"{library} is not installed"
    if library == TIMM:
        alone = side.folder.is_file()
        name = timms.architecture({} if alone else read_json(side.folder / CONFIG, missing_ok=True))
        return None if output.is_model(name) else f"timm has no model called {name[:80]}"
    if not hasattr(output, side.architecture):
        return f"this version of transformers has no {side.architecture}"
    return None


def _load(side: ReferenceModel) -> Any:
    """Load the original from local safetensors."""
    if side.architecture == TIMM:
        return _load_timm(side.folder)
    transformers: Any = importlib.import_module("transformers")
    kind = getattr(transformers, side.architecture)
    logs = transformers.utils.logging
    before, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        options = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
        return kind.from_pretrained(side.folder, **options).eval()
    finally:
        logs.set_verbosity(before)
        if bars:
            logs.enable_progress_bar()


def _load_timm(folder: Path) -> Any:
    """Load a model of timm: its architecture by name, its sizes from the weights."""
    timm: Any = importlib.import_module(TIMM)
    theirs = look_at(folder)
    name = timms.architecture(theirs.values)
    try:
        model = timm.create_model(name, **timms.options(theirs.values, theirs.shapes))
        model.load_state_dict(theirs.tensors())
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        line = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"timm's {name} cannot hold these weights: {line}", "incompatible_weights"
        ) from None
    return model.eval()


def _outputs(
    family: str, model: Any, specials: SpecialIds | None, loaded: list[Any], side: ReferenceModel
) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of our and their outputs for the same input."""
    theirs, architecture = loaded[0], side.architecture
    if family == "vit":
        grid, patch = model.grid, model.embed.patch
        images = torch.randn(2, model.embed.project.in_channels, grid[0] * patch, grid[1] * patch)
        expected = theirs(images if side.scale is None else side.scale.theirs(images))
        return [(model(images), expected if architecture == TIMM else expected.logits)]
    vocab, pad = theirs.config.vocab_size, _pad(theirs, specials)
    length = min(LENGTH, theirs.config.max_position_embeddings)
    given = texts(vocab, length, NO_PAD if family == "gpt" else pad)
    ours, real = to_our_ids(given, vocab, specials), given != pad
    if family == "gpt":
        expected = _language(theirs, given)
        mine = to_foreign_logits(model(ours), specials)
        return (
            [(mine, expected)]
            if expected.size(-1) == mine.size(-1)
            else [(model.hidden(ours), expected)]
        )
    if family == "transformer":
        return _translation(model, theirs, specials, given, pad)
    mask = real.long()
    if family == "electra":
        fills = loaded[1](given, mask).logits[real]
        mine = to_foreign_logits(model.generator(ours)[real], specials)
        return [(model.suspect(ours)[real], theirs(given, mask).logits[real]), (mine, fills)]
    if family == "classifier":
        return [_classified(model, theirs, architecture, (given, mask), ours, real)]
    output = theirs(given, mask)
    fills = output.prediction_logits if architecture == "BertForPreTraining" else output.logits
    return [(to_foreign_logits(model(ours)[real], specials), fills[real])]


def _classified(
    model: Any, theirs: Any, architecture: str, given: tuple[Tensor, Tensor], ours: Tensor,
    real: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return both logits, or both encoder outputs where the head is new."""
    if architecture.endswith("ForSequenceClassification"):
        return model(ours), theirs(*given).logits
    if architecture == "BertModel":
        output = theirs(*given)
        pooled = model.pool(model.encoder(ours)[:, 0])
        states = model.encoder(ours)[real]
        theirs_too = output.last_hidden_state[real]
        return torch.cat([pooled, states]), torch.cat([output.pooler_output, theirs_too])
    encoder = theirs if architecture == "ElectraModel" else theirs.electra
    return model.encoder(ours)[real], encoder(*given).last_hidden_state[real]


def _translation(
    model: Any, theirs: Any, specials: SpecialIds | None, source: Tensor, pad: int
) -> list[tuple[Tensor, Tensor]]:
    config = theirs.config
    target_vocab = config.decoder_vocab_size or config.vocab_size
    target = texts(target_vocab, min(SHORTER, source.size(1)), pad)[:1].expand(2, -1)
    ours = model(
        to_our_ids(source, config.vocab_size, specials), to_our_ids(target, target_vocab, specials)
    )
    mask = (source != pad).long()
    expected = theirs(source, mask, decoder_input_ids=target).logits
    mine, others = to_foreign_logits(ours, specials), torch.arange(target_vocab) != pad
    if specials is None or not specials.copied:
        others[:] = True
    return [(mine[..., others], expected[..., others])]


def _language(theirs: Any, given: Tensor) -> Tensor:
    output: Any = theirs(given)
    return output.logits if "logits" in output else output.last_hidden_state


def _pad(theirs: Any, specials: SpecialIds | None) -> int:
    if specials is not None:
        return specials.pad
    given = vars(theirs.config).get("pad_token_id")
    return given if isinstance(given, int) else NO_PAD


def texts(vocab: int, length: int, pad: int) -> Tensor:
    """Return two random texts, the second shorter and padded."""
    drawn = torch.randint(0, vocab, (2, length))
    drawn[drawn == pad] = (pad + 1) % vocab
    if pad != NO_PAD and length > 2:
        drawn[1, min(SHORTER, length - 1) :] = pad
    return drawn


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence third-party logging and warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
