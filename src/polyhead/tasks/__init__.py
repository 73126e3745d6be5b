"""Tasks: one object for each, which training, pipelines, commands and routes read."""
