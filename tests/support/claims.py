"""What the tests of all chapters of `polyhead verify` do alike."""

import importlib

from polyhead.notes.claims import CLAIMS
from polyhead.notes.runner import run_claims


def claims_of(chapter):
    """The checks of a chapter, which are known once its module is imported."""
    importlib.import_module(f"polyhead.notes.chapters.{chapter}")
    return [claim for claim in CLAIMS.values() if claim.chapter == chapter]


def failing(checks):
    """The names of those that do not hold."""
    return {row.claim.id for row in run_claims(checks) if not row.result.holds}


def assert_it_holds(check):
    """What is true is what our code does, and only a note that is not right is set beside it."""
    (row,) = run_claims([check])
    assert row.result.holds, row
    assert bool(row.result.noted) == (check.note != "right")
    assert max(map(len, check.text)) <= 70
