"""Trained models, ready to use."""
