"""The server for tests: without sockets, as a process, and a stand-in for tests of its page."""

from served_models import another, book, models, picture, process, server, shelf, start  # noqa: F401
