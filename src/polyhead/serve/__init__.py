"""Requests in, answers out: models that other programs, and people with a browser, can use."""
