"""A report of all claims, and sample chapters in place of the real ones."""

import sys
from pathlib import Path

import pytest

from polyhead.notes import chapters, claims
from polyhead.notes.verification import NotesReport, verify


@pytest.fixture
def use_sample(monkeypatch):
    """Replace the chapters by `sample`; with `broken`, also by one where the library is wrong."""

    def use_sample(*, broken=False):
        names = ("sample", "broken") if broken else ("sample",)
        monkeypatch.setattr(chapters, "__path__", [str(Path(__file__).parent / "sample_chapters")])
        monkeypatch.setattr(claims, "CHAPTERS", names)
        monkeypatch.setattr(claims, "CLAIMS", {})

    yield use_sample
    for name in ("sample", "broken"):
        sys.modules.pop(f"polyhead.notes.chapters.{name}_claims", None)


@pytest.fixture(scope="session")
def report() -> NotesReport:
    """Run every claim once."""
    return verify()
