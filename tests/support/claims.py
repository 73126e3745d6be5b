"""Breaks of the library, and the claims of `polyhead verify` that must detect them.

breaks = ClaimBreaks("heads")

@breaks(FullAttention, "forward", at_least="C1 C3 C6")
def kernel_without_scale(_, q, k, v, *__):
    return (q @ k.mT).softmax(-1) @ v

test_breaks_are_detected = breaks.test()
"""

import importlib

import pytest

from polyhead.notes.claims import CLAIMS
from polyhead.notes.verification import run_claims


def failing(chapter):
    """Return the ids of the claims of a chapter that do not hold."""
    claims = [claim for claim in CLAIMS.values() if claim.chapter == chapter]
    return {row.claim.id for row in run_claims(claims) if not row.result.holds}


class ClaimBreaks:
    """Replacements for parts of the library, and the claims of a chapter that must then fail."""

    def __init__(self, chapter):
        importlib.import_module(f"polyhead.notes.chapters.{chapter}_claims")  # before any patch
        self.chapter = chapter
        self.cases = []

    def __call__(self, owner, attribute, *, exactly="", at_least=""):
        """Register a function as the replacement of an attribute of a class or module."""

        def register(replacement):
            self.add(replacement.__name__, (owner, attribute, replacement),
                     exactly=exactly, at_least=at_least)  # fmt: skip
            return replacement

        return register

    def add(self, name, *patches, exactly="", at_least=""):
        """Register patches (owner, attribute, replacement) that are applied together."""
        expected = set((exactly or at_least).split())
        assert expected, name
        self.cases.append(pytest.param(patches, expected, bool(exactly), id=name))

    def test(self):
        """Return a test of all breaks: exactly these claims fail, or at least these."""

        @pytest.mark.parametrize(("patches", "expected", "exact"), self.cases)
        def test_breaks_are_detected(monkeypatch, patches, expected, exact):
            for owner, attribute, replacement in patches:
                monkeypatch.setattr(owner, attribute, replacement)
            failed = failing(self.chapter)
            assert (failed if exact else failed & expected) == expected

        return test_breaks_are_detected
