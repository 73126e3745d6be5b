"""The server for tests: without sockets, as a process, and a stand-in for tests of its page."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from serving import another, book, models, picture, process, server, shelf, start  # noqa: F401
