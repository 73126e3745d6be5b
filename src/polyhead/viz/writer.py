"""Files of a view: an interactive page, a drawing, or its numbers."""

from pathlib import Path

from polyhead.atomic_file import write_bytes
from polyhead.errors import ConfigError
from polyhead.render import html
from polyhead.render.svg import rasterize
from polyhead.viz.draw_image import ImageViewOptions, draw_image
from polyhead.viz.draw_text import draw_text
from polyhead.viz.page import render
from polyhead.viz.select import ViewOptions
from polyhead.viz.views import AttentionView, ImageView

PAGES, FORMATS = (".html", ".htm"), (".html", ".htm", ".svg", ".png", ".json")


def write_view(
    view: AttentionView | ImageView,
    path: Path,
    options: ViewOptions | ImageViewOptions | None = None,
) -> None:
    """Write a page (.html), a drawing (.svg, .png) or the numbers (.json), by the file's suffix.

    options: what a drawing shows, for views of text or of images; everything if omitted.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(
            f"{path}: the suffix must be .html, .svg, .png or .json", "unknown_format"
        )
    if suffix in PAGES:
        html.write(render(view), path)
        return
    content = f"{view.to_json()}\n" if suffix == ".json" else draw(view, options)
    write_bytes(path, rasterize(content) if suffix == ".png" else content.encode())


def draw(
    view: AttentionView | ImageView, options: ViewOptions | ImageViewOptions | None = None
) -> str:
    """Draw a view as SVG."""
    if isinstance(view, ImageView):
        assert options is None or isinstance(options, ImageViewOptions)
        return draw_image(view, options or ImageViewOptions())
    assert options is None or isinstance(options, ViewOptions)
    return draw_text(view, options or ViewOptions())
