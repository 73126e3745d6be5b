"""Checks of a corpus before training."""
