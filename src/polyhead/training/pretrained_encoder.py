"""Beginning from a pre-trained model: `train.init`.

    classifier     the whole encoder of a BERT, the discriminator of an ELECTRA, or the encoder of
                   another classifier; sizes and tokenizer are taken from it, dropout is not
    transformer    the blocks of its encoder, as far as they fit; its own vocabulary stays

Whatever does not fit is refused before anything is trained.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.positions import PositionKind
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig, BERTEncoder
from polyhead.tokenizers.storage import Tokenizers

ENCODERS = ("bert", "electra", "classifier")  # families that have one to give
SAME = (  # of a block
    "d_model", "n_heads", "d_ff", "norm", "activation", "score", "attention", "experts",
    "reversible",
)  # fmt: skip
SAME_IF = {"local": "window", "lsh": "lsh"}  # only of blocks with such attention
SAME_EPS = 1e-4  # what a norm adds to a variance of about 1 may differ by so much


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder to begin from. `fingerprint` changes whenever the model does."""

    path: str
    encoder: BERTEncoder
    config: BERTConfig
    head: Literal["bert", "electra"]
    tokenizers: Tokenizers | None
    fingerprint: str


def read_initial(path: str | None) -> PretrainedEncoder | None:
    """The pre-trained model that a configuration names, if it names one."""
    if path is None:
        return None
    place = model_folder.resolve(Path(path))
    saved = model_folder.load_model(place)
    if saved.family not in ENCODERS:
        raise CheckpointError(
            f"{path} is a model of the family {saved.family}; train.init takes one of "
            f"{', '.join(ENCODERS)}"
        )
    encoder, config, head = _encoder_of(saved)
    fingerprint = store.verify(place)[model_folder.WEIGHTS]
    return PretrainedEncoder(path, encoder, config, head, saved.tokenizers, fingerprint)


def _encoder_of(saved: SavedModel) -> tuple[BERTEncoder, BERTConfig, Literal["bert", "electra"]]:
    model: Any = saved.model
    if saved.family == "bert":
        return model.encoder, saved.config, "bert"
    if saved.family == "electra":
        return model.discriminator, saved.config.discriminator, "electra"
    return model.encoder, saved.config.encoder, saved.config.head


def require_tokenizers(initial: PretrainedEncoder) -> Tokenizers:
    """The tokenizers of a pre-trained model, which a classifier cannot do without."""
    if initial.tokenizers is None:
        raise CheckpointError(
            f"{initial.path} has no tokenizer, so that its ids mean nothing here; train.init needs "
            "a model with one"
        )
    return initial.tokenizers


def copy_encoder(initial: PretrainedEncoder, model: Any) -> None:
    """Give a classifier the weights of the whole encoder."""
    model.encoder.load_state_dict(initial.encoder.state_dict())


def check_blocks(initial: PretrainedEncoder, stack: StackConfig, positions: PositionKind) -> None:
    """A block can move from one stack to another only if it would compute the same there."""
    theirs = initial.config.stack
    kinds = {theirs.kind(layer) for layer in range(theirs.n_layers)}
    names = [*SAME, *(name for kind, name in SAME_IF.items() if kind in kinds)]
    if abs(stack.norm_eps - theirs.norm_eps) > SAME_EPS:
        names.append("norm_eps")
    for name in names:
        ours = getattr(stack, name)
        if ours != getattr(theirs, name):
            raise ConfigError(
                f"train.init: the blocks of {initial.path} have {name} = {getattr(theirs, name)!r},"
                f" but model.stack.{name} = {ours!r}; make them equal, or leave train.init out"
            )
    kind = initial.config.positions
    if "rotary" in (kind, positions) and kind != positions:  # the only one in blocks
        raise ConfigError(
            f'train.init: the blocks of {initial.path} have positions = "{kind}", but '
            f'model.positions = "{positions}"; make them equal, or leave train.init out'
        )


def copy_blocks(initial: PretrainedEncoder, model: Any) -> int:
    """Give a translator's encoder the weights of the blocks; how many tensors that were."""
    theirs: dict[str, Tensor] = dict(initial.encoder.stack.named_parameters())
    taken = 0
    with torch.no_grad():
        for name, parameter in model.encoder.named_parameters():
            if name in theirs and theirs[name].shape == parameter.shape:
                parameter.copy_(theirs[name])
                taken += 1
    return taken
