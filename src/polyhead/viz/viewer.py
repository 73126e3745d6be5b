"""The attention viewer as files and pages, for whoever shows it: a server, or a notebook."""

from importlib.resources import files

from polyhead.render.html import base_style
from polyhead.viz import draw_image as image_drawing
from polyhead.viz import draw_text as drawing
from polyhead.viz import image_page, page
from polyhead.viz.draw_image import ImageViewOptions as ImageViewOptions
from polyhead.viz.image_page import ImageView
from polyhead.viz.select import ViewOptions as ViewOptions
from polyhead.viz.select import narrowed as narrowed
from polyhead.viz.views import AttentionView

ENDINGS = (".js", ".css")


def assets() -> dict[str, bytes]:
    """The scripts and styles that `polyhead attention` puts into its pages, by their names."""
    folder = files("polyhead.viz").joinpath("web")
    found = {
        file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(ENDINGS)
    }
    return {"base.css": base_style().encode(), **found}


def whole_page(view: AttentionView | ImageView) -> str:
    """One HTML file that shows a view without a server."""
    return image_page.render(view) if isinstance(view, ImageView) else page.render(view)


def picture(view: AttentionView, choice: ViewOptions) -> str:
    """Heat-maps, or the lines of one layer, as SVG; as `polyhead attention` draws them."""
    return drawing.drawn(view, choice)


def image_picture(view: ImageView, choice: ImageViewOptions) -> str:
    """An image with the maps that are chosen laid over it, as SVG."""
    return image_drawing.drawn(view, choice)
