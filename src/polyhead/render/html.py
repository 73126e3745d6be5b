"""Pages in one HTML file: style, script and data are inlined, and nothing is loaded.

    body = fill("<h1>{{heading}}</h1>", {"heading": html.escape(title)})
    write(page(body, title=title, style=base_style()), "page.html")

The page's Content-Security-Policy allows its own style and script, by their hashes, and no request.
Texts in a body must be escaped: `html.escape` for markup, `escape_json` for data in a script.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from polyhead.atomic_file import write_text

FIELD = re.compile(r"\{\{(\w+)\}\}")
PAGE = """\
<!DOCTYPE html>
<html lang="{{language}}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{policy}}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{{title}}</title>
<style>{{style}}</style>
</head>
<body>
{{body}}
</body>
</html>
"""


REPORT_HEIGHT = """
if (parent !== window) {
  const report = () => parent.postMessage({ polyheadHeight: document.body.scrollHeight + 16 }, "*");
  new ResizeObserver(report).observe(document.body);
}
"""
FIT_FRAMES = """<script>
addEventListener("message", ({ data, source }) => {
  const height = Math.min(Number(data && data.polyheadHeight), 4000);
  const frames = [...document.querySelectorAll("iframe.polyhead")];
  const frame = frames.find((one) => one.contentWindow === source);
  if (frame && height > 0) frame.style.height = `${height}px`;
});
</script>"""


def page(body: str, *, title: str, style: str, script: str = "", language: str = "en") -> str:
    """Return a whole page; the script, if any, runs as a module after the body."""
    if script:
        body += f'\n<script type="module">{script}</script>'
    policy = ["default-src 'none'", "base-uri 'none'", "form-action 'none'"]
    for kind, content in (("script-src", script), ("style-src", style)):
        if content:
            digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest())
            policy.append(f"{kind} 'sha256-{digest.decode('ascii')}'")
    fields = {
        "language": language,
        "policy": html.escape("; ".join(policy)),
        "title": html.escape(title),
        "style": style,
        "body": body,
    }
    return fill(PAGE, fields).encode("utf-8", "replace").decode("utf-8")  # of names of files


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Replace each {{name}} of a template, in one pass: values are not searched for fields."""
    return FIELD.sub(lambda field: fields[field[1]], template)


def write(content: str, path: str | Path) -> Path:
    """Write a page to a file."""
    path = Path(path)
    write_text(path, content)
    return path


def iframe(content: str, height: int = 820) -> str:
    """Return a page as an element for a notebook, without access to the page around it.

    height: in pixels, until the page reports its own (`REPORT_HEIGHT` in its script).
    """
    return (
        f'<iframe class="polyhead" srcdoc="{html.escape(content)}" width="100%" height="{height}"'
        f' frameborder="0" sandbox="allow-scripts"></iframe>{FIT_FRAMES}'
    )


def escape_json(data: str) -> str:
    """Escape JSON for a <script> element: no tag can start in it, and its value is the same."""
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def base_style() -> str:
    """Return the style that all pages share: colours, fonts, light and dark theme."""
    return files("polyhead.render").joinpath("base.css").read_text(encoding="utf-8")
