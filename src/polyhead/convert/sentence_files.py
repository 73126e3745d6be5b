"""Files of sentence-transformers around an encoder: its modules, and the pooling of its vectors."""

import json
from pathlib import Path

from polyhead.convert.tokenizer_files import write_json
from polyhead.errors import CheckpointError
from polyhead.models.sentence_encoder import SentenceEncoderConfig
from polyhead.models.text_classifier import Pooling

SENTENCES = "sentence_encoder"  # our family
MODULES, POOLING = "modules.json", "1_Pooling"
MODES: dict[Pooling, str] = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token"}
KINDS = {"": "Transformer", POOLING: "Pooling", "2_Normalize": "Normalize"}


def is_sentence_folder(path: Path) -> bool:
    """Return whether a directory is one of sentence-transformers."""
    return (path / MODULES).is_file()


def read_pooling(path: Path) -> Pooling:
    """Return the pooling of a directory; CheckpointError if it has none that is supported."""
    place = path / POOLING / "config.json"
    try:
        values = json.loads(place.read_text(encoding="utf-8"))
        modes = [name for name in values if name.startswith("pooling_mode_") and values[name]]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{place}: cannot be read ({error})", "broken_pooling") from None
    for ours, theirs in MODES.items():
        if modes == [theirs]:
            return ours
    expected = " or ".join(MODES.values())
    raise CheckpointError(f"{place}: expected only {expected} to be true", "unsupported_pooling")


def write_sentence_files(config: SentenceEncoderConfig, folder: Path) -> None:
    """Write the modules, which read the encoder in the same directory."""
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(KINDS.items())
    ]
    write_json(folder / MODULES, modules)
    for path in list(KINDS)[1:]:
        (folder / path).mkdir()
    modes = {name: pooling == config.pooling for pooling, name in MODES.items()}
    size = {"word_embedding_dimension": config.encoder.stack.d_model}
    write_json(folder / POOLING / "config.json", size | modes)
