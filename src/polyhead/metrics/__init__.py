"""Scores of translations and classifications."""
