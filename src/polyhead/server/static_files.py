"""The page's files: read once when the server starts, by names that we list ourselves."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from polyhead.server.context import AppContext
from polyhead.viz.page import assets

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
SMALL = 500  # bytes that are not worth it
MISSING = b"<!DOCTYPE html><title>Polyhead</title><p>The page is not installed; see /openapi.json."

Files = dict[str, tuple[bytes, str]]  # by the path of their address: content and type


def collect() -> Files:
    """All files by their addresses."""
    found: Files = {"/": (MISSING, TYPES[".html"])}
    folder = files("polyhead.server").joinpath("static")
    if folder.is_dir():
        for file in folder.iterdir():
            if (kind := _type(file.name)) is not None:
                address = "/" if file.name == "index.html" else f"/page/{file.name}"
                found[address] = (file.read_bytes(), kind)
    for name, content in assets().items():
        kind = _type(name)
        assert kind is not None
        found[f"/viewer/{name}"] = (content, kind)
    for name in ("favicon.ico", "favicon.svg"):
        if f"/page/{name}" in found:
            found["/favicon.ico"] = found[f"/page/{name}"]
            break
    else:
        found["/favicon.ico"] = (b"", TYPES[".ico"])
    return found


def _type(name: str) -> str | None:
    return TYPES.get(name[name.rfind(".") :]) if "." in name else None


async def send_file(desk: AppContext, request: Request) -> Response:
    """One of the files; compressed if the browser can, and nothing if it has it already."""
    content, kind = desk.files[request.scope["path"]]
    packed = "gzip" in request.headers.get("accept-encoding", "") and len(content) > SMALL
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}{"-gzip" if packed else ""}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if not content:
        return Response(status_code=204, headers=headers)
    if packed:
        headers["Content-Encoding"] = "gzip"
        content = compressed(content)
    return Response(content, media_type=kind, headers=headers)


@cache
def compressed(content: bytes) -> bytes:
    """A file of ours as it travels; there are few, and each is compressed once."""
    return gzip.compress(content, mtime=0)
