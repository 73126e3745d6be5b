"""The server for tests: without sockets, as a process, and a stand-in for tests of its page."""

from served_models import another, models, picture, process, registry, served, server, start  # noqa: F401
