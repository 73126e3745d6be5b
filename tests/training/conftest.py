"""Fixtures of all tests of training."""

import os

import pytest


@pytest.fixture(autouse=True, scope="module")
def _without_fsync():
    """Do not wait for the disk; killed processes are tested in test_kill.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
