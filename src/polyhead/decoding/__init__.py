"""Search and sampling; a model is known by its protocol only."""
