"""Decoding with torch: every model and every option, ensembles, hooks and changed weights.

Unknown words of a translation are replaced afterwards (PosUnk): the source word that got most of
the attention when <unk> was written is looked up in a dictionary and, if it is not found, copied,
as names and numbers should be (Luong et al. 2015b; Zhou et al. 2016). Hooks at the attention record
it while the outputs are read once more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.checkpoint.atomic_dir import CHECKPOINTS
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.checkpoint.model_files import resolve
from polyhead.data.batches.base import pad
from polyhead.data.bilingual_dictionary import FILE, read_dictionary
from polyhead.decoding.batch import MAX_ROWS, decode_all, pad_right
from polyhead.decoding.continuous_beam import ContinuousBeamSearch
from polyhead.decoding.ensemble import Ensemble
from polyhead.decoding.generate import generate
from polyhead.decoding.hypotheses import make_generator
from polyhead.decoding.options import DecodeConfig, DecodingStep, Output, Scores
from polyhead.decoding.protocol import CancellableModel, Decodable, State, is_joinable
from polyhead.errors import ConfigError
from polyhead.layers.attention_hooks import (
    CROSS_ATTENTION,
    AttentionRecordingModel,
    has_cross_attention,
    record_attention,
)
from polyhead.models.registry import max_positions
from polyhead.pipelines.translator import UNLIMITED
from polyhead.special_tokens import BOS, UNK
from polyhead.tokenizers.base import UNKNOWN
from polyhead.tokenizers.storage import TokenizerPair


class TorchBackend:
    """A model, or an ensemble; see `polyhead.pipelines.backends.Backend`."""

    name, n_parallel = "torch", 0

    def __init__(self, models: Sequence[SavedModel]) -> None:
        self.models, self.device = models, next(models[0].model.parameters()).device

    @property
    def n_positions(self) -> int:
        """The number of tokens that the model can write, limited by its learned positions."""
        limits = [max_positions(saved.config) for saved in self.models]
        return min((limit for limit in limits if limit is not None), default=UNLIMITED)

    def decodable(self, *, record_attention: bool = False) -> Decodable[State]:
        """Return the model, or the ensemble, as the searches see it.

        record_attention: keep the cross-attention of each step, for the coverage penalty.
        """
        members: list[Any] = [saved.model for saved in self.models]
        if record_attention:
            members = [AttentionRecordingModel(m) if has_cross_attention(m) else m for m in members]
        if len(members) > 1:
            members = [Ensemble(members)]
        model: Decodable[State] = members[0]
        return model

    def decode(
        self,
        sources: Sequence[list[int]],
        options: DecodeConfig,
        *,
        prefixes: Sequence[list[int]],
        seed: int = 0,
        scores: Scores = "tokens",  # noqa: ARG002 (all are computed)
        progress: Callable[[int], None] = lambda _: None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[list[Output]]:
        """Return the best outputs for every source.

        Raise `Cancelled` as soon as `is_cancelled` returns True.
        """
        model: Any = self.decodable(record_attention=options.coverage > 0)
        return decode_all(
            model if is_cancelled is None else CancellableModel(model, is_cancelled),
            sources, options, device=self.device, prefixes=prefixes,
            generator=make_generator(seed), progress=progress,
        )  # fmt: skip

    def running_search(self, options: DecodeConfig) -> "Callable[[], RunningSearch] | None":
        """Return what opens a search that sources join while it runs; None for other searches."""
        is_plain = not (options.sample or options.coverage or options.replace_unknown)
        if options.beam > 1 and is_plain and is_joinable(self.decodable()):
            return partial(RunningSearch, self, options)
        return None

    def generate(
        self, prompt: Sequence[int], options: DecodeConfig, seed: int, context: int, *,
        forced: Sequence[int] = (), top: int = 0,
    ) -> Iterator[DecodingStep]:  # fmt: skip
        """Yield `options.max_length` tokens that follow a prompt."""
        return generate(
            self.decodable(), prompt, options, make_generator(seed), context,
            forced=forced, top=top, device=self.device,
        )  # fmt: skip


class RunningSearch(ContinuousBeamSearch[Any]):
    """A beam search that sources, given as ids, join while it runs."""

    def __init__(self, backend: TorchBackend, options: DecodeConfig) -> None:
        super().__init__(backend.decodable(), options)
        self.device = backend.device

    def add_ids(
        self,
        request_ids: Sequence[Any],
        sources: Sequence[list[int]],
        prefixes: Sequence[list[int]],
    ) -> None:
        """Add sources, whose outputs start with these prefixes, at the next step."""
        prefix = pad_right(prefixes).to(self.device) if any(prefixes) else None
        self.add(request_ids, pad_right(sources).to(self.device), prefix)


def replace_unknown(
    models: Sequence[Any],
    tokenizers: TokenizerPair,
    lines: Sequence[str],
    outputs: Sequence[list[Output]],
    dictionary: Mapping[str, str],
) -> list[list[Output]]:
    """Return the outputs; those with unknown words get a `text` with replacements."""
    attentive = [model for model in models if has_cross_attention(model)]
    if not attentive:
        raise ConfigError(
            "decode.replace_unknown requires a model with cross-attention; set it to false",
            "no_cross_attention",
        )
    replaced = [list(best) for best in outputs]
    places = [(i, n) for i, best in enumerate(replaced) for n, o in enumerate(best) if UNK in o.ids]
    for start in range(0, len(places), MAX_ROWS):
        batch = places[start : start + MAX_ROWS]
        sources = [tokenizers.source.encode(lines[i]) for i, _ in batch]
        targets = [replaced[i][n].ids for i, n in batch]
        attention = cross_attention(attentive, sources, targets)
        for (i, n), weights in zip(batch, attention, strict=True):
            words = [piece.text.strip() for piece in tokenizers.source.pieces(lines[i])]
            text = spell(tokenizers, replaced[i][n].ids, words, weights, dictionary)
            replaced[i][n] = replaced[i][n]._replace(text=text)
    return replaced


@torch.inference_mode()
def cross_attention(
    models: Sequence[Any], sources: Sequence[list[int]], outputs: Sequence[list[int]]
) -> Float[Tensor, "batch target source"]:
    """Return the weights of each output token over its source, averaged over heads and models."""
    recorded = []
    for model in models:
        device = next(model.parameters()).device
        with record_attention(model, CROSS_ATTENTION) as maps:
            model.hidden(
                pad(sources).to(device), pad([[BOS, *ids[:-1]] for ids in outputs]).to(device)
            )
        recorded.append(torch.stack([weights.float().mean(1) for weights in maps.values()]).mean(0))
    return torch.stack(recorded).mean(0).cpu()


def spell(
    tokenizers: TokenizerPair,
    ids: Sequence[int],
    words: Sequence[str],
    weights: Float[Tensor, "target source"],
    dictionary: Mapping[str, str],
) -> str:
    """Return the text of an output, with its unknown words replaced by source words."""
    pieces = [piece.text for piece in tokenizers.target.pieces_of_ids(ids)]
    for place, id in enumerate(ids):
        if id == UNK and words:
            word = words[int(weights[place, : len(words)].argmax())]
            pieces[place] = pieces[place].replace(UNKNOWN, dictionary.get(word, word))
    return "".join(pieces)


def find_dictionary(path: Path) -> dict[str, str]:
    """Return the dictionary that training saved beside a model of words; empty if there is none."""
    model = resolve(path)
    run = [model.parents[1]] if model.parent.name == CHECKPOINTS else []
    for folder in (path, model, *run):
        if (folder / FILE).is_file():
            return read_dictionary(folder / FILE)
    return {}
