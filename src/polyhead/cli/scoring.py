"""`polyhead evaluate MODEL --text FILE`: how well a model knows a text, or fills in its blanks."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from polyhead.cli.console import counting, say
from polyhead.data.locate import find_lines
from polyhead.errors import ConfigError
from polyhead.pipelines.load import load
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.pipelines.text_generator import LanguageScore, TextGenerator


def run_scoring(
    models: Sequence[Path],
    texts: Sequence[Path],
    encoding: str,
    rounds: int | None,
    as_json: bool,
    device: str,
) -> None:
    """Read, score, print."""
    lines = [line for path in texts for line in find_lines(path, encoding)]
    if len(models) != 1:
        raise ConfigError(f"{len(models)} models were given; expected one", "one_model")
    model = load(models[0], device=device)
    if isinstance(model, MaskFiller):
        _score_blanks(model, lines, rounds, as_json)
        return
    if not isinstance(model, TextGenerator):
        model = TextGenerator.from_saved(model.saved, model.name, model.device)
    if rounds is not None:
        model.set_eval_rounds(rounds)
    windows = model.windows(lines)
    with counting("reading", windows.n_tokens) as progress:
        found = model.score_windows(windows, progress)
    if found.n_unknown:
        say(
            f"polyhead: {found.n_unknown:,} tokens stand for text that is not in the vocabulary; "
            "the model did not have to spell it, which flatters it"
        )
    print(json.dumps(asdict(found), indent=2) if as_json else as_text(found))


def _score_blanks(
    model: MaskFiller, lines: Sequence[str], rounds: int | None, as_json: bool
) -> None:
    """BERT and ELECTRA: the figures of a validation."""
    if rounds is not None:
        raise ConfigError("--rounds is for translators and language models; leave it out")
    found = model.score(lines)
    told = "\n".join(f"{name.replace('_', ' '):<20}{value:.4f}" for name, value in found.items())
    print(json.dumps(found, indent=2) if as_json else told)


def as_text(found: LanguageScore) -> str:
    """The figures for people."""
    return "\n".join(
        [
            f"loss                {found.loss:.4f} nats per token",
            f"perplexity          {found.perplexity:.3f} per token",
            f"bits per character  {found.bits_per_character:.4f}",
            f"over {found.n_tokens:,} tokens, {found.n_characters:,} characters",
        ]
    )
