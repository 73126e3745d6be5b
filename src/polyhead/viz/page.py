"""One HTML file that shows an attention view: no server, no network, no library.

    write(view, "attention.html")

The viewer's modules (`viewer/*.js`) are joined into one inline script, and the view is put beside
it as data. What a corpus or a model says is never markup: the data stand in a JSON block in which
no tag can begin, the script shows them through `textContent` only, and the page's
Content-Security-Policy allows our own script and style, by their hashes, and no request at all.
"""

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Protocol, runtime_checkable

from polyhead.errors import ConfigError

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
STYLES = ("base.css", "attention.css")
IMPORT = re.compile(r"^import \{[^}]*\} from \"\./[a-z]+\.js\";\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|function) )", re.MULTILINE)
PLACE = re.compile(r"\{\{(\w+)\}\}")


@runtime_checkable
class Showable(Protocol):
    """What the page needs to know of a view (`polyhead.viz.views.AttentionView`)."""

    @property
    def title(self) -> str: ...

    def to_json(self) -> str: ...


def render(view: Showable, modules: Sequence[str] = MODULES, styles: Sequence[str] = STYLES) -> str:
    """The whole page as a string of ASCII and escaped text."""
    script, style = _script(modules), "".join(read(name) for name in styles)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    places = {
        "policy": html.escape(policy),
        "title": html.escape(view.title.encode("utf-8", "replace").decode("utf-8")),
        "style": style,
        "data": _harmless(view.to_json()),
        "script": script,
    }
    # One pass, so that a text which looks like a place in the template stays a text.
    return PLACE.sub(lambda place: places[place[1]], read("page.html"))


def write(
    view: Showable,
    path: str | Path,
    modules: Sequence[str] = MODULES,
    styles: Sequence[str] = STYLES,
) -> Path:
    """Write the page to a file, which may then be mailed, moved and opened anywhere."""
    path = Path(path)
    try:
        path.write_text(render(view, modules, styles), encoding="utf-8", newline="\n")
    except OSError as problem:
        raise ConfigError(f"{path}: cannot write the page ({problem.strerror})") from problem
    return path


def frame(
    view: Showable,
    height: int = 820,
    modules: Sequence[str] = MODULES,
    styles: Sequence[str] = STYLES,
) -> str:
    """The page as an element for a notebook, shut off from the page around it."""
    page = html.escape(render(view, modules, styles))
    return (
        f'<iframe srcdoc="{page}" width="100%" height="{height}" frameborder="0"'
        ' sandbox="allow-scripts"></iframe>'
    )


def _script(modules: Sequence[str]) -> str:
    """All modules as one: the same names, without import and export."""
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read(name))) for name in modules)


def read(name: str) -> str:
    """One of the viewer's files; its `base.css` is also the beginning of other pages' style."""
    return files("polyhead.viz").joinpath("web", name).read_text(encoding="utf-8")


def _harmless(data: str) -> str:
    """JSON in which no HTML can begin or end: the escapes mean the same to a JSON reader."""
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
