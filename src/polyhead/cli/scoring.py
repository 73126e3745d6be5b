"""`polyhead evaluate MODEL --text FILE`: how well a model knows a text, or fills in its blanks."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from polyhead.cli.console import counting, say
from polyhead.data.locate import find_lines
from polyhead.errors import ConfigError
from polyhead.layers.lsh.attention import set_eval_rounds
from polyhead.pipelines import mask_filler as filler
from polyhead.pipelines.family_checks import family_of
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
    if len(models) == 1 and family_of(models[0]) in filler.FAMILIES:
        _score_blanks(models[0], lines, rounds, as_json, device)
        return
    writer = TextGenerator.from_dir(*models, device=device)
    if rounds is not None:
        set_eval_rounds(writer.saved.model, rounds)
    asked = writer.examination(lines)
    with counting("reading", asked.n_tokens) as progress:
        found = writer.score_of(asked, progress)
    if found.n_unknown:
        say(
            f"polyhead: {found.n_unknown:,} tokens stand for text that is not in the vocabulary; "
            "the model did not have to spell it, which flatters it"
        )
    print(json.dumps(asdict(found), indent=2) if as_json else as_text(found))


def _score_blanks(
    model: Path, lines: Sequence[str], rounds: int | None, as_json: bool, device: str
) -> None:
    """BERT and ELECTRA: the figures of a validation."""
    if rounds is not None:
        raise ConfigError("--rounds is for translators and language models; leave it out")
    found = filler.load(model, device=device).score(lines)
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
