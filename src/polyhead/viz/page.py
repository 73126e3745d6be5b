"""One HTML file that shows an attention view: no server, no network, no library.

    write(view, "attention.html")

The modules of the viewer (`web/*.js`) are joined into one inline script, and the view is added as
JSON. The script shows texts of a corpus or a model with `textContent` only, never as markup.
"""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Protocol, runtime_checkable

from polyhead.render import html

MODULES = (  # in the order of their imports: what is used stands before its users
    "words.js",
    "colours.js",
    "elements.js",
    "weights.js",
    "loop.js",
    "state.js",
    "heatmap.js",
    "lines.js",
    "overview.js",
    "controls.js",
    "attention.js",
)
STYLES = ("attention.css",)
IMPORT = re.compile(r"^import \{[^}]*\} from \"\./[a-z]+\.js\";\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|function) )", re.MULTILINE)
BODY = """\
<div id="attention"></div>
<noscript>This page needs JavaScript. 이 페이지는 자바스크립트가 필요합니다.</noscript>
<script type="application/json" id="attention-data">{{data}}</script>"""


@runtime_checkable
class Showable(Protocol):
    """What the page needs to know of a view (`polyhead.viz.views.AttentionView`)."""

    @property
    def title(self) -> str: ...

    def to_json(self) -> str: ...


def render(view: Showable, modules: Sequence[str] = MODULES, styles: Sequence[str] = STYLES) -> str:
    """Return the whole page."""
    return html.page(
        html.fill(BODY, {"data": html.escape_json(view.to_json())}),
        title=view.title,
        style=html.base_style() + "".join(read(name) for name in styles),
        script=_script(modules),
    )


def write(
    view: Showable,
    path: str | Path,
    modules: Sequence[str] = MODULES,
    styles: Sequence[str] = STYLES,
) -> Path:
    """Write the page to a file."""
    return html.write(render(view, modules, styles), path)


def frame(
    view: Showable,
    height: int = 820,
    modules: Sequence[str] = MODULES,
    styles: Sequence[str] = STYLES,
) -> str:
    """Return the page as an element for a notebook."""
    return html.iframe(render(view, modules, styles), height)


def _script(modules: Sequence[str]) -> str:
    """All modules as one: the same names, without import and export."""
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read(name))) for name in modules)


def read(name: str) -> str:
    """Return one of the files of the viewer."""
    return files("polyhead.viz").joinpath("web", name).read_text(encoding="utf-8")
