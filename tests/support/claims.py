"""What the tests of all chapters of `polyhead verify` do alike."""

import importlib

from polyhead.notes.claims import CHECKS
from polyhead.notes.runner import run


def claims_of(chapter):
    """The checks of a chapter, which are known once its module is imported."""
    importlib.import_module(f"polyhead.notes.chapters.{chapter}")
    return [check for check in CHECKS.values() if check.chapter == chapter]


def failing(checks):
    """The names of those that do not hold."""
    return {row.check.id for row in run(checks) if not row.finding.holds}


def assert_it_holds(check):
    """What is true is what our code does, and only a note that is not right is set beside it."""
    (row,) = run([check])
    assert row.finding.holds, row
    assert bool(row.finding.noted) == (check.note != "right")
    assert max(map(len, check.claim)) <= 70
