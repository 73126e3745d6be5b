"""Pictures that a model learns in a few steps, and a finished model, for all tests of images."""

from pathlib import Path

import numpy as np

from polyhead.training.config import build
from polyhead.training.trainer import train

TINY = {
    "model": {
        "family": "vit", "height": 8, "width": 8, "channels": 3, "patch": 4,
        "stack": {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.0,
                  "norm": "pre", "activation": "gelu"},
    },
    "train": {
        "steps": 40, "max_tokens": 80, "validate_every": 20, "save_every": 20, "log_every": 10,
        "smoothing": 0.0,
        "schedule": {"kind": "constant", "rate": 1e-2, "warmup": 5},
    },
}  # fmt: skip
COLOURS = {"blue": (20, 30, 220), "green": (30, 210, 20), "red": (220, 20, 30)}


def write_pictures(folder: Path, n: int = 8, size: int = 12) -> Path:
    """A folder for each of three colours, with noise."""
    from PIL import Image

    draw = np.random.default_rng(5)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(n):
            noise = draw.integers(-20, 20, (size, size, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def train_on_pictures(folder: Path, name: str = "run", **data: object) -> Path:
    """Train in folder/name; the pictures lie beside it."""
    pictures = folder / "pictures"
    if not pictures.exists():
        write_pictures(pictures)
    train(build(TINY | {"data": {"images": [str(pictures)], **data}}), folder / name)
    return folder / name
