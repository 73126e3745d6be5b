"""The interactive page of a view as one HTML file: no server, no network, no library.

The modules in `web/*.js` are joined into one inline script, and the view is added as JSON. The
script inserts texts of a corpus or a model with `textContent` only, never as markup.
"""

import re
from importlib.resources import files
from typing import ClassVar

from polyhead.render import html

MODULES = {  # by the kind of the view; each module stands after those that it imports
    "text": (
        "words.js", "colours.js", "elements.js", "weights.js", "loop.js", "state.js", "heatmap.js",
        "lines.js", "overview.js", "controls.js", "attention.js",
    ),
    "image": ("words.js", "colours.js", "elements.js", "loop.js", "picture.js"),
}  # fmt: skip
STYLES = {"text": ("attention.css",), "image": ("attention.css", "picture.css")}
IMPORT = re.compile(r"^import \{[^}]*\} from \"\./[a-z]+\.js\";\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|function) )", re.MULTILINE)
BODY = """\
<div id="attention"></div>
<noscript>This page needs JavaScript. 이 페이지는 자바스크립트가 필요합니다.</noscript>
<script type="application/json" id="attention-data">{{data}}</script>"""


class View:
    """A view that the page can show, also in a notebook."""

    title: str
    page_kind: ClassVar[str]  # a key of `MODULES`

    def to_json(self) -> str:
        """Return the JSON form, which the page reads."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title!r})"

    def _repr_html_(self) -> str:
        return html.iframe(render(self))


def render(view: View) -> str:
    """Return the whole page."""
    modules, styles = MODULES[view.page_kind], STYLES[view.page_kind]
    return html.page(
        html.fill(BODY, {"data": html.escape_json(view.to_json())}),
        title=view.title,
        style=html.base_style() + "".join(read(name) for name in styles),
        script="\n".join(EXPORT.sub("", IMPORT.sub("", read(name))) for name in modules)
        + html.REPORT_HEIGHT,
    )


def read(name: str) -> str:
    """Return one of the files of the page."""
    return files("polyhead.viz").joinpath("web", name).read_text(encoding="utf-8")


def assets() -> dict[str, bytes]:
    """Return all scripts and styles by name, for a server."""
    folder = files("polyhead.viz").joinpath("web")
    return {
        "base.css": html.base_style().encode(),
        **{file.name: file.read_bytes() for file in folder.iterdir()},
    }
