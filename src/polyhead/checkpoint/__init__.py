"""Models on disk: folders that explain themselves, survive crashes, and never run code."""
