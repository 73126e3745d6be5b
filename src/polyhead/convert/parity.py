"""Comparison of a converted model with the original: both are run on the same random input.

    difference = max |ours - theirs|        over all outputs that are not padding

The original is run by `transformers` (extra: hf) or `timm`; without them nothing is compared. They
get our checked configuration, tensors that we read, and of a stranger's config.json a few checked
values (`Architecture.variants`) and the name of timm's model.
`LIMIT` holds for outputs up to 1 and grows with larger ones, as rounding errors do.
"""

import contextlib
import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyhead.convert import marian, timm_vit
from polyhead.convert.pixels import Scale
from polyhead.convert.reader import ForeignCheckpoint
from polyhead.convert.special_ids import SpecialIds, to_foreign_logits, to_our_ids
from polyhead.convert.timm_vit import TIMM
from polyhead.errors import CheckpointError
from polyhead.models.registry import TaskName
from polyhead.models.sentence_encoder import SentenceEncoder

LIMIT = 1e-4
LENGTH, SHORTER = 12, 7  # of the two texts
NO_PAD = -1
TRANSLATORS = ("MarianMTModel", "PegasusForConditionalGeneration")


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
    """The original: its class, a checked configuration, its tensors and the scale of its pixels.

    Of the checkpoint's config.json only the name of timm's model is used.
    """

    architecture: str
    values: Mapping[str, Any]  # contents of a config.json that we wrote; timm: arguments
    checkpoint: ForeignCheckpoint
    scale: Scale | None = None


def compare(
    task: TaskName, model: Any, specials: SpecialIds | None, references: list[ReferenceModel]
) -> Parity:
    """Run our model and the originals (ELECTRA: discriminator and generator)."""
    with torch.random.fork_rng(devices=[]), quiet(), torch.inference_mode():
        torch.manual_seed(0)
        loaded = [_load(reference) for reference in references]
        if task == "image_classification":
            pairs = _images(model, loaded[0], references[0])
        else:
            probe = _probe(loaded[0], specials, padded=task != "language_modeling")
            pairs = OUTPUTS[task](model, loaded, references[0].architecture, probe)
    for ours, original in pairs:
        if ours.shape != original.shape:
            raise CheckpointError(
                f"our output has the shape {tuple(ours.shape)}, theirs {tuple(original.shape)}",
                "parity_failed",
            )
    return Parity(
        max(float((ours.float() - original.float()).abs().max()) for ours, original in pairs),
        max(float(original.abs().max()) for _, original in pairs),
        sum(original.numel() for _, original in pairs),
    )


def obstacle(side: ReferenceModel) -> str | None:
    """Return the reason why the original cannot be run, or None if it can."""
    library = TIMM if side.architecture == TIMM else "transformers"
    try:
        module = importlib.import_module(library)
    except ImportError:
        return f"{library} is not installed"
    if library == TIMM:
        name = timm_vit.architecture(side.checkpoint.values)
        return None if module.is_model(name) else f"timm has no model called {name[:80]}"
    if not hasattr(module, side.architecture):
        return f"this version of transformers has no {side.architecture}"
    return None


def _load(side: ReferenceModel) -> Any:
    """Build the original from our configuration, and copy its tensors, which we read, into it."""
    try:
        return (_timm if side.architecture == TIMM else _transformers)(side).eval()
    except CheckpointError:
        raise
    except Exception as error:  # every version raises others
        name = side.architecture
        if name == TIMM:
            name = f"timm's {timm_vit.architecture(side.checkpoint.values)[:80]}"
        line = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{name} cannot hold these weights: {line}", "incompatible_weights"
        ) from None


def _transformers(side: ReferenceModel) -> Any:
    """Build a model of transformers; no file is read by it."""
    transformers: Any = importlib.import_module("transformers")
    kind = getattr(transformers, side.architecture)
    values, tensors = dict(side.values), side.checkpoint.tensors()
    if side.architecture in TRANSLATORS:  # sinusoids, in a loop over all positions
        values["max_position_embeddings"] = LENGTH
        tensors = {n: t for n, t in tensors.items() if not n.endswith(marian.POSITIONS)}
    with without_bar(transformers):
        config = kind.config_class.from_dict(values)
        return kind.from_pretrained(None, config=config, state_dict=tensors, dtype=torch.float32)


@contextlib.contextmanager
def without_bar(transformers: Any) -> Iterator[None]:
    """Hide the progress bar of transformers."""
    logs = transformers.utils.logging
    bars = logs.is_progress_bar_enabled()
    logs.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logs.enable_progress_bar()


def _timm(side: ReferenceModel) -> Any:
    """Build a model of timm: its architecture by name, its sizes from our configuration."""
    timm: Any = importlib.import_module(TIMM)
    model = timm.create_model(timm_vit.architecture(side.checkpoint.values), **side.values)
    model.load_state_dict(side.checkpoint.tensors())
    return model


class Probe(NamedTuple):
    """Random texts in their ids and in ours."""

    given: Tensor
    ours: Tensor
    real: Tensor  # False at padding
    pad: int
    specials: SpecialIds | None

    def logits(self, ours: Tensor) -> Tensor:
        """Return our logits in the order of their ids."""
        return to_foreign_logits(ours, self.specials)


Pairs = list[tuple[Tensor, Tensor]]  # our output and theirs


def _probe(theirs: Any, specials: SpecialIds | None, *, padded: bool) -> Probe:
    vocab, pad = theirs.config.vocab_size, NO_PAD if specials is None else specials.pad
    if specials is None and isinstance(vars(theirs.config).get("pad_token_id"), int):
        pad = theirs.config.pad_token_id
    length = min(LENGTH, theirs.config.max_position_embeddings)
    given = texts(vocab, length, pad if padded else NO_PAD)
    return Probe(given, to_our_ids(given, vocab, specials), given != pad, pad, specials)


def _images(model: Any, theirs: Any, reference: ReferenceModel) -> Pairs:
    grid, patch = model.grid, model.embed.patch
    images = torch.randn(2, model.embed.project.in_channels, grid[0] * patch, grid[1] * patch)
    expected = theirs(images if reference.scale is None else reference.scale.theirs(images))
    if reference.architecture == "ViTModel":
        return [(model.hidden(images), expected.last_hidden_state)]
    return [(model(images), expected if reference.architecture == TIMM else expected.logits)]


def _next_tokens(model: Any, loaded: list[Any], _: str, probe: Probe) -> Pairs:
    output = loaded[0](probe.given)
    if "logits" not in output:
        return [(model.hidden(probe.ours), output.last_hidden_state)]
    return [(probe.logits(model(probe.ours)), output.logits)]


def _masked_tokens(model: Any, loaded: list[Any], architecture: str, probe: Probe) -> Pairs:
    output = loaded[0](probe.given, probe.real.long())
    fills = output.prediction_logits if architecture == "BertForPreTraining" else output.logits
    return [(probe.logits(model(probe.ours)[probe.real]), fills[probe.real])]


def _replaced_tokens(model: Any, loaded: list[Any], _: str, probe: Probe) -> Pairs:
    real, mask = probe.real, probe.real.long()
    spots, fills = (original(probe.given, mask).logits[real] for original in loaded)
    mine = probe.logits(model.generator(probe.ours)[real])
    return [(model.suspect(probe.ours)[real], spots), (mine, fills)]


def _labels(model: Any, loaded: list[Any], architecture: str, probe: Probe) -> Pairs:
    """Return both logits, or both encoder outputs where the head is new."""
    theirs, real, segments = loaded[0], probe.real, None
    given: tuple[Tensor, ...] = (probe.given, real.long())
    if vars(theirs.config).get("type_vocab_size", 1) > 1:  # the second half is a second text
        segments = torch.zeros_like(probe.given)
        segments[:, probe.given.size(1) // 2 :] = 1
        given = (*given, segments)
    if architecture.endswith("ForSequenceClassification"):
        return [(model(probe.ours, segments), theirs(*given).logits)]
    if architecture.endswith("ForTokenClassification"):
        return [(model(probe.ours, segments)[real], theirs(*given).logits[real])]
    if architecture.endswith("ForQuestionAnswering"):
        output = theirs(*given)
        both = torch.stack([output.start_logits, output.end_logits], -1)
        return [(model(probe.ours, segments)[real], both[real])]
    states = model.encoder(probe.ours, segments)
    if isinstance(model, SentenceEncoder):
        return [(states[real], theirs(*given).last_hidden_state[real])]
    if architecture == "BertModel":
        output = theirs(*given)
        pooled = model.pool(states[:, 0])
        return [(pooled, output.pooler_output), (states[real], output.last_hidden_state[real])]
    encoder = theirs if architecture == "ElectraModel" else theirs.electra
    return [(states[real], encoder(*given).last_hidden_state[real])]


def _translations(model: Any, loaded: list[Any], _: str, probe: Probe) -> Pairs:
    theirs, specials = loaded[0], probe.specials
    vocab = theirs.final_logits_bias.size(-1)
    target = texts(vocab, min(SHORTER, probe.given.size(1)), probe.pad)[:1].expand(2, -1)
    ours = probe.logits(model(probe.ours, to_our_ids(target, vocab, specials)))
    expected = theirs(probe.given, probe.real.long(), decoder_input_ids=target).logits
    compared = torch.ones(vocab, dtype=torch.bool)
    if specials is not None and specials.bos == specials.pad:
        compared[probe.pad] = False
    return [(ours[..., compared], expected[..., compared])]


OUTPUTS: dict[TaskName, Callable[[Any, list[Any], str, Probe], Pairs]] = {
    "translation": _translations,
    "language_modeling": _next_tokens,
    "masked_lm": _masked_tokens,
    "replaced_token": _replaced_tokens,
    "text_classification": _labels,
    "sentence_embedding": _labels,
    "token_classification": _labels,
    "question_answering": _labels,
}


def texts(vocab: int, length: int, pad: int) -> Tensor:
    """Return two random texts, the second shorter and padded."""
    drawn = torch.randint(0, vocab, (2, length))
    drawn[drawn == pad] = (pad + 1) % vocab
    if pad != NO_PAD and length > 2:
        drawn[1, min(SHORTER, length - 1) :] = pad
    return drawn


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence third-party logging and warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
