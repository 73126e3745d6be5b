"""Batches of examples, by task."""
