"""All checks, run once for every test that looks at the result, and a small chapter of our own."""

import importlib.util
import sys

import pytest

from polyhead.i18n import Words
from polyhead.notes import claims as checks
from polyhead.notes import runner as run
from polyhead.notes.verification import NotesReport, verify

SAMPLE = '''"""A chapter with one row of every kind."""

import math
import os.path as paths
from math import sqrt as root

import torch
from torch.nn import functional as F

from polyhead.layers.attention import FullAttention, MultiHeadAttention, attention_weights
from polyhead.layers.masks import THE_PAST, Mask
from polyhead.i18n import Words
from polyhead.notes.claims import Finding, check, close, same

HALF = 0.5
TEXT = Words("Why <b>so</b>: because.", "왜냐하면 그렇기 때문입니다.")


def twice(x: float) -> float:
    return 2 * x


@check("B2", claim=Words("A right note", "맞는 노트"), formula="1 + 1 = 2", explain=TEXT,
       code=(attention_weights, Mask.dense))
def right() -> Finding:
    """A docstring that the script does not need."""
    # a comment that it does
    weights = attention_weights(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), THE_PAST)
    total = 0.0
    for row in weights[0, 0]:

        if row.sum() > HALF:
            total += row.sum().item()
        else:
            total = math.nan

    # a comment between two statements
    return close(
        expected=twice(1.0),
        got=total,
        within=1e-6,
    )


@check("B10", note="wrong", claim=Words("A wrong note", "틀린 노트"), formula="√4 = 2",
       explain=TEXT, code=(Mask,))
def wrong() -> Finding:
    def squared(x):

        return x * x

    found = same(expected=2.0, got=root(squared(2.0)))
    return found.but_noted("<script>alert(1)</script>", differs=True)


@check("A1", note="imprecise", claim=Words("A vague note", "모호한 노트"), formula="x",
       explain=TEXT, code=(twice,))
def vague() -> Finding:
    x = torch.rand(())
    if x < 0:
        return same(1, 2)
    return same(expected=F.relu(x), got=x)
'''
BROKEN = """

@check("Z1", claim=Words("Ours is broken", "우리 것이 고장"), formula="1 = 2", explain=TEXT,
       code=(twice,))
def broken() -> Finding:
    return same(expected=1, got=2)


@check("Z2", claim=Words("Ours fails", "우리 것이 실패"), formula="0/0", explain=TEXT,
       code=(twice,))
def failing() -> Finding:
    return same(expected=1, got=MultiHeadAttention(512, 7, FullAttention()))
"""


@pytest.fixture
def chapter(tmp_path, monkeypatch):
    """Makes a chapter the only one there is; `broken` adds two rows where our code is wrong."""

    def chapter(*, broken=False):
        name = "polyhead.notes.chapters.sample"
        path = tmp_path / "sample.py"
        path.write_text(SAMPLE + (BROKEN if broken else ""), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        known = dict(checks.CHECKS)
        checks.CHECKS.clear()
        spec.loader.exec_module(module)
        mine = dict(checks.CHECKS)
        checks.CHECKS.clear()
        checks.CHECKS.update(known)
        monkeypatch.setattr(run, "CHECKS", mine)
        chapters = (run.Chapter("sample", Words("Sample", "견본")),)
        for module_name in ("verify.run", "verify.page", "api.verifying", "cli.verifying"):
            monkeypatch.setattr(f"polyhead.{module_name}.CHAPTERS", chapters)
        return module

    return chapter


@pytest.fixture(scope="session")
def report() -> NotesReport:
    """Everything, run once."""
    return verify()
