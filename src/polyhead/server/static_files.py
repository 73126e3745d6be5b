"""Files of the web page, read and compressed once when the server starts."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response

from polyhead.viz.page import assets

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
SMALL = 500  # bytes below which compression is not worth it


@dataclass(frozen=True)
class StaticFile:
    """A file of the page with its media type."""

    content: bytes
    media_type: str

    @cached_property
    def compressed(self) -> bytes:
        """The file as gzip."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def digest(self) -> str:
        """Entity tag of the file."""
        return hashlib.sha256(self.content).hexdigest()[:20]

    async def respond(self, request: Request) -> Response:
        """Return the file, gzipped if the client accepts it, or 304 if the client has it."""
        is_gzip = "gzip" in request.headers.get("accept-encoding", "") and len(self.content) > SMALL
        tag = f'"{self.digest}{"-gzip" if is_gzip else ""}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if is_gzip:
            headers["Content-Encoding"] = "gzip"
        content = self.compressed if is_gzip else self.content
        status = 200 if content else 204
        return Response(content, status, media_type=self.media_type, headers=headers)


def read_files() -> dict[str, StaticFile]:
    """Return all files by the path of their URL."""
    static = files("polyhead.server").joinpath("static")
    contents = {f"/page/{file.name}": file.read_bytes() for file in static.iterdir()}
    contents |= {f"/viewer/{name}": content for name, content in assets().items()}
    by_path = {
        path: StaticFile(content, TYPES[PurePosixPath(path).suffix])
        for path, content in contents.items()
    }
    icon = StaticFile(b"", "image/x-icon")
    return {"/": by_path.pop("/page/index.html"), "/favicon.ico": icon, **by_path}
