"""Scripts of benchmarks/ are imported by name; nothing is collected while they measure."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(autouse=True)
def _no_garbage_collection(monkeypatch):
    """Collecting takes a while once transformers is loaded."""
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)
