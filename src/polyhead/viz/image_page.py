"""One HTML file that shows where an image model looks: heads and roll-out laid over the picture.

It is the attention page's sister: the same style, colours and content policy, and no network. The
picture is data, not a file: its bytes stand in the JSON block and are painted on a canvas.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from polyhead.viz import page

FORMAT = "polyhead-image-attention-1"
MODULES = ("words.js", "colours.js", "elements.js", "loop.js", "picture.js")
STYLES = (*page.STYLES, "picture.css")


@dataclass(frozen=True)
class ImageView:
    """What the page shows: the picture as the model saw it, its answer, and all heads.

    labels: the likeliest classes with their probabilities, likeliest first.
    pooled: "class" if the rows are those of the class token, "mean" if the mean over all patches.
    """

    title: str
    model: str
    picture: UInt8[np.ndarray, "height width channel"]
    labels: tuple[tuple[str, float], ...]
    pooled: str
    layers: Float[np.ndarray, "layer head row column"]
    rollout: Float[np.ndarray, "row column"]

    def to_json(self) -> str:
        """Everything as data, weights with five digits."""
        height, width, channels = self.picture.shape
        n_layers, n_heads, rows, columns = self.layers.shape
        return json.dumps(
            {
                "format": FORMAT,
                "title": self.title,
                "model": self.model,
                "labels": [[name, round(float(share), 5)] for name, share in self.labels],
                "pooled": self.pooled,
                "picture": {
                    "height": height,
                    "width": width,
                    "channels": channels,
                    "bytes": base64.b64encode(self.picture.tobytes()).decode("ascii"),
                },
                "rows": rows,
                "columns": columns,
                "n_layers": n_layers,
                "n_heads": n_heads,
                "layers": np.round(self.layers.astype(float), 5)
                .reshape(n_layers, n_heads, -1)
                .tolist(),
                "rollout": np.round(self.rollout.astype(float), 5).ravel().tolist(),
            },
            ensure_ascii=False,
        )

    def _repr_html_(self) -> str:
        """Shown by a notebook: the whole page in a frame of its own."""
        return page.frame(self, modules=MODULES, styles=STYLES)


def render(view: ImageView) -> str:
    """The whole page."""
    return page.render(view, MODULES, STYLES)


def write(view: ImageView, path: str | Path) -> Path:
    """Write the page to a file."""
    return page.write(view, path, MODULES, STYLES)
